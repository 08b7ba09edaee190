"""The conversation's memory as chunks, from which a context is built like any other.

Order: instructions, summary, exchanges, cached results, the question, the work done for it. Each part
changes less often than the one after it, so that a provider's prompt cache holds as far as can be.
"""

import json
from collections.abc import Iterator, Sequence

from attrs import frozen

from memory_engine.core.chunks import Category, Chunk, ChunkType, content_text
from memory_engine.core.events.base import Content, SummaryLine, ToolCall
from memory_engine.core.origins import SPOKEN
from memory_engine.core.state import StateView
from memory_engine.core.tool_calls import cache_key, canonical
from memory_engine.errors import InvalidParameters
from memory_engine.views.conversation.fold import CycleRow, ExchangeRow, SummaryRow, seqs_of
from memory_engine.views.conversation.texts import section_of
from memory_engine.views.screen.events import screen_description
from memory_engine.views.screen.view import ScreenRow
from memory_engine.views.tool_cache.view import CacheEntry

NO_ANSWER = "[no answer]"
"""Stands for the answer that a question did not get: two questions in a row would read as one."""
EMPTY = "[empty message]"
"""Stands for an empty text, which some providers refuse."""

_GOES_ON = SPOKEN | {ChunkType.AGENT_ACTION, ChunkType.CLARIFICATION, ChunkType.OBSERVATION}


@frozen(kw_only=True)
class Remembered:
    """The parts that the messages are made of. `chunks` are those of the open cycle so far.

    `question` is that of the cycle where it has images or files. `is_summary_by_model`: a model wrote some
    of the summary, so that the author of its lines is unknown.
    """

    system: Sequence[Chunk]
    summary: SummaryRow | None
    exchanges: Sequence[ExchangeRow]
    screen: ScreenRow | None
    finished_at: int
    cached: Sequence[CacheEntry]
    cycle: CycleRow | None
    chunks: Sequence[Chunk]
    loose_summaries: Sequence[Chunk] = ()
    is_summary_by_model: bool = False
    question: Content = ""


def arranged(memory: Remembered) -> list[Chunk]:
    """The memory as chunks, in order. Those that are in no state bear the seq of what they come from."""
    shown = _answered_keys(memory.chunks)
    return [
        *memory.system,
        *_summary(memory.summary, by_model=memory.is_summary_by_model),
        *memory.loose_summaries,
        *_turns(memory.exchanges, memory.screen),
        *_uncached(memory.screen, memory.finished_at),
        *(c for entry in memory.cached if entry.key not in shown for c in cached_pair(entry)),
        *(
            [
                _message_chunk(
                    memory.cycle.question_at or memory.cycle.seq, "question", memory.question or memory.cycle.question
                )
            ]
            if memory.cycle is not None
            else []
        ),
        *memory.chunks,
    ]


def cycle_chunks(state: StateView, cycle_seq: int, screen_seq: int = 0) -> list[Chunk]:
    """A cycle's chunks in the working flow since its question, or a summary that covers some of them."""
    return [
        chunk
        for chunk in state.chunks()
        if chunk.said_at > cycle_seq
        and chunk.said_at != screen_seq
        and (chunk.category is Category.WORKING_FLOW or _covers_after(chunk, cycle_seq))
    ]


def system_chunks(state: StateView) -> list[Chunk]:
    """The thread's instructions."""
    return [chunk for chunk in state.chunks() if chunk.category is Category.SYSTEM]


def last_response(chunks: Sequence[Chunk]) -> Chunk | None:
    """The agent's last text."""
    return next((chunk for chunk in reversed(chunks) if chunk.type == ChunkType.AGENT_RESPONSE), None)


def final_answer(chunks: Sequence[Chunk]) -> str | None:
    """The agent's last text, if neither a call nor a message follows it."""
    for chunk in reversed(chunks):
        if chunk.type == ChunkType.AGENT_RESPONSE:
            return content_text(chunk.content)
        if chunk.type in _GOES_ON:
            return None
    return None


def cached_pair(entry: CacheEntry) -> tuple[Chunk, Chunk]:
    """A cached result as a call and its result, under an id of its own.

    It appears as a tool's result, not as a note: a tool's text must not speak with a person's
    authority. A pair each, in the order of caching, so that one that comes or goes leaves those before it.
    """
    call = ToolCall(id=f"cached_{entry.key[:24]}", name=entry.tool, arguments=entry.parameters)
    return _call_pair(entry.seq, call, entry.result)


def _call_pair(seq: int, call: ToolCall, result: str) -> tuple[Chunk, Chunk]:
    return (
        Chunk(id=f"{seq}.call.{call.id}", type=ChunkType.AGENT_ACTION, calls=(call,)),
        Chunk(id=f"{seq}.result.{call.id}", type=ChunkType.ACTION_RESULT, content=result, call_id=call.id),
    )


def _summary(summary: SummaryRow | None, *, by_model: bool) -> Iterator[Chunk]:
    if summary is not None and summary.text:
        texts = () if by_model else filter(str.strip, summary.text.splitlines())
        yield Chunk(
            id=f"{summary.seq}.summary",
            type=ChunkType.COMPACTED,
            content=summary.text,
            lines=tuple(SummaryLine(section_of(text), text) for text in texts),
            category=Category.MEMORY,
        )


def _turns(exchanges: Sequence[ExchangeRow], screen: ScreenRow | None) -> Iterator[Chunk]:
    """The exchanges as pairs; the screen appears at the exchange in which the agent received it."""
    waiting = screen
    for row in exchanges:
        if waiting is not None and row.seq > waiting.seq:
            yield _message_chunk(waiting.seq, "screen", screen_description(waiting.content), ChunkType.AGENT_RESPONSE)
            waiting = None
        yield _message_chunk(row.question_at or row.seq, "question", row.question)
        answer = row.answer if row.answer.strip() else NO_ANSWER
        yield _message_chunk(row.seq, "answer", answer, ChunkType.AGENT_RESPONSE)
    if waiting is not None:
        yield _message_chunk(waiting.seq, "screen", screen_description(waiting.content), ChunkType.AGENT_RESPONSE)


def _uncached(screen: ScreenRow | None, finished_at: int) -> Iterator[Chunk]:
    """Proactive results that were not to be cached: they serve the first exchange after the screen."""
    if screen is not None and screen.seq > finished_at:
        for result in screen.results:
            if result.duration <= 0:
                call = ToolCall(id=result.call_id, name=result.tool, arguments=result.parameters)
                yield from _call_pair(screen.seq, call, result.result)


def _message_chunk(seq: int, part: str, said: Content, type: ChunkType = ChunkType.USER_MESSAGE) -> Chunk:
    return Chunk(id=f"{seq}.{part}", type=type, content=said if content_text(said).strip() else EMPTY)


def _covers_after(chunk: Chunk, seq: int) -> bool:
    return chunk.type == ChunkType.COMPACTED and any(parent > seq for parent in seqs_of(chunk.parent_ids))


def _answered_keys(chunks: Sequence[Chunk]) -> frozenset[str]:
    """The keys of calls that the open cycle holds with their results: a cached copy would say it twice."""
    answered = {chunk.call_id for chunk in chunks if chunk.call_id and chunk.final}
    keys = (
        _call_cache_key(call.name, call.arguments) for chunk in chunks for call in chunk.calls if call.id in answered
    )
    return frozenset(key for key in keys if key)


def _call_cache_key(tool: str, arguments: str) -> str:
    """The cache key of a call as a model wrote it; none for arguments that are not a JSON object."""
    try:
        parameters = json.loads(arguments)
        return cache_key(tool, canonical(tool, parameters)) if isinstance(parameters, dict) else ""
    except (ValueError, RecursionError, InvalidParameters):
        return ""
