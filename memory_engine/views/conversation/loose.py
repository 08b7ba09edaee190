"""Messages that came outside of cycles: dispatched as events, ingested, or said while another question was open.

No row holds them: a view that read every message would cost every thread something, whether it is asked or not. They
are in the state, and what holds the others is in the rows, so they follow from both.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from attrs import frozen

from memory_engine.core.aside import aside
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.messages import LlmClarification, LlmTextResponse, ParentAgentMessage, UserMessage
from memory_engine.core.origins import SPOKEN
from memory_engine.core.state import State
from memory_engine.projections.base import ReadableRows
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.reader import PAGE
from memory_engine.views.conversation.fold import (
    ConversationRow,
    ExchangeRow,
    cycle_of,
    exchanges_of,
    gone_of,
    seqs_of,
    summary_of,
)
from memory_engine.views.conversation.texts import utf8_bytes

_SAID = SPOKEN | {ChunkType.AGENT_RESPONSE, ChunkType.CLARIFICATION, ChunkType.OBSERVATION}
"""Messages, and the observations that show a text before them to be an action, not an answer."""
_MESSAGES = frozenset(cls.event_type for cls in (UserMessage, ParentAgentMessage, LlmTextResponse, LlmClarification))


@frozen
class Loose:
    """The messages that no row holds, as exchanges, and the summaries of such messages in the state.

    `behind` are the exchanges that these summaries cover.
    """

    exchanges: Sequence[ExchangeRow]
    summaries: Sequence[Chunk]
    behind: Sequence[ExchangeRow]


class _Held:
    """The places of a log that the rows hold: exchanges, the open cycle, and all that the summary was drawn from."""

    def __init__(self, rows: ReadableRows[ConversationRow]) -> None:
        summary, cycle = summary_of(rows), cycle_of(rows)
        self._upto = summary.upto if summary is not None else 0
        self._cycle = cycle.seq if cycle is not None else None
        live = list(exchanges_of(rows))
        self._seqs = {seq for row in live for seq in row.sources}
        if cycle is not None:
            self._seqs |= {cycle.seq, cycle.question_at}
        self._begins = [min(row.sources) for row in live] + [cycle.seq if cycle is not None else 1 << 62]
        # an unanswered one was worked on until the next question came
        self._spans = [(self._begins[n], row.finished_seq or self._begins[n + 1]) for n, row in enumerate(live)]
        gone = [(row.first or row.seq, row.last or row.seq) for row in gone_of(rows)]
        self._spans += [(first - 1, last + 1) for first, last in gone]
        self._seqs |= {first for first, _ in gone}

    def holds(self, seq: int) -> bool:
        """Whether what was said at a seq is a question or an answer of a row, or work for the open question."""
        return seq <= self._upto or seq in self._seqs or (self._cycle is not None and seq > self._cycle)

    def is_work(self, seq: int) -> bool:
        """Whether it was said while a question was open, or as the answer of one that was forgotten."""
        return any(first < seq < last for first, last in self._spans)

    def begins_between(self, first: int, last: int) -> bool:
        """Whether a question of a row was asked between two seqs."""
        return any(first < begin < last for begin in self._begins)

    def lacks_any(self, summary: Chunk) -> bool:
        """Whether a summary covers something that is neither held nor work."""
        return not all(self.holds(seq) or self.is_work(seq) for seq in seqs_of(summary.parent_ids))

    def is_loose(self, chunk: Chunk) -> bool:
        """Whether a chunk is a message that no row holds; while a question was open, only a person's."""
        if chunk.type not in _SAID or self.holds(chunk.said_at):
            return False
        return chunk.type in SPOKEN or not self.is_work(chunk.said_at)


async def loose_messages(thread: ThreadHandle, rows: ReadableRows[ConversationRow], state: State) -> Loose:
    """The loose messages of a state, oldest first. Reads the events of these alone."""
    held, reader = _Held(rows), thread.kernel.reader
    summaries: list[Chunk] = []
    behind: list[_LooseMessage] = []
    for chunk in await aside(partial(_lacking, held, state), items=len(state)):
        originals = await reader.shown(thread.id, [one.id for one in await reader.originals(thread.id, chunk)])
        found = await _loose_among(thread, held, list(originals.values()))
        behind += found
        summaries += [chunk] if found else []
    loose = await _said_among(thread, await aside(partial(_loose_of, held, state.chunks()), items=len(state)))
    paired = await aside(partial(_paired, held, loose), items=len(loose))
    return Loose(paired, summaries, await aside(partial(_paired, held, behind), items=len(behind)))


def _lacking(held: _Held, state: State) -> list[Chunk]:
    """The summaries that cover something that no row holds."""
    return [chunk for chunk in state.chunks() if chunk.type == ChunkType.COMPACTED and held.lacks_any(chunk)]


async def loose_of_log(
    thread: ThreadHandle, rows: ReadableRows[ConversationRow], chunks: Sequence[Chunk], upto: int
) -> list[ExchangeRow]:
    """The loose messages among all chunks of a log up to a seq, where the rows were folded without a summary."""
    held, forgettings = _Held(rows), (await thread.kernel.reader.forgotten(thread.id)).forgettings

    def kept() -> list[Chunk]:
        first = (chunk for chunk in chunks if chunk.said_at == chunk.seq <= upto)
        return [one for chunk in first if (one := forgettings.kept(chunk, since=chunk.seq)) is not None]

    loose = await _loose_among(thread, held, await aside(kept, items=len(chunks)))
    return await aside(partial(_paired, held, loose), items=len(loose))


class _LooseMessage(msgspec.Struct, frozen=True, gc=False):
    """A message, with the id and the time of the event that first said it."""

    chunk: Chunk
    event_id: str
    recorded_at_us: int

    @property
    def seq(self) -> int:
        return self.chunk.said_at


def _loose_of(held: _Held, chunks: Iterable[Chunk]) -> list[Chunk]:
    return [chunk for chunk in chunks if held.is_loose(chunk)]


async def _loose_among(thread: ThreadHandle, held: _Held, chunks: Sequence[Chunk]) -> list[_LooseMessage]:
    """The loose ones among chunks."""
    return await _said_among(thread, await aside(partial(_loose_of, held, chunks), items=len(chunks)))


async def _said_among(thread: ThreadHandle, chunks: Sequence[Chunk]) -> list[_LooseMessage]:
    """The chunks of these that are messages. Text that a view gave to the agent, such as a screen, is the view's."""
    said: list[_LooseMessage] = []
    for at in range(0, len(chunks), PAGE):
        some = chunks[at : at + PAGE]
        stored = await thread.kernel.reader.rows_at(thread.id, {chunk.said_at for chunk in some})
        rows = ((chunk, stored[chunk.said_at]) for chunk in some)
        said += [_LooseMessage(chunk, row.id, row.recorded_at_us) for chunk, row in rows if row.type in _MESSAGES]
    return said


def _paired(held: _Held, messages: Iterable[_LooseMessage]) -> list[ExchangeRow]:
    """Messages as exchanges: what people said in a row, with no question between, and what the agent said to it."""
    made: list[ExchangeRow] = []
    for said in sorted(messages, key=lambda said: said.seq):
        chunk = said.chunk
        text = f"{chunk.label}: {chunk.text}" if chunk.label and chunk.type in SPOKEN else chunk.text
        last = made[-1] if made and not held.begins_between(max(made[-1].sources), chunk.said_at) else None
        if chunk.type == ChunkType.OBSERVATION:
            if last is not None and last.finished_seq:
                made[-1] = msgspec.structs.replace(last, answer="", finished_seq=0, finished_us=0, answer_bytes=0)
            continue
        if chunk.type in SPOKEN:
            if last is None or last.finished_seq:
                made.append(_asked(said, text))
            else:
                made[-1] = msgspec.structs.replace(last, question=f"{last.question}\n{text}", question_at=said.seq)
            continue
        if last is None:
            last = _asked(said, "")
            made.append(last)
        answer = f"{last.answer}\n{text}" if last.finished_seq else text
        made[-1] = msgspec.structs.replace(
            last,
            answer=answer,
            finished_seq=said.seq,
            finished_us=said.recorded_at_us,
            answer_bytes=utf8_bytes(answer),
        )
    return made


def _asked(said: _LooseMessage, text: str) -> ExchangeRow:
    return ExchangeRow(seq=said.seq, event_id=said.event_id, question=text, asked_us=said.recorded_at_us)


def in_order(rows: Iterable[ExchangeRow], loose: Iterable[ExchangeRow]) -> list[ExchangeRow]:
    """Both, in the order of asking."""
    return sorted((*rows, *loose), key=lambda row: row.seq)
