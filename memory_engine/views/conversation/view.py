"""Conversation memory: the conversation so far, within limits, for its agent.

Recording a turn is idempotent: however many callers, retries and crashes, it is in the log once.
"""

import logging
from functools import partial

import msgspec

from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context
from memory_engine.context.rendering import Message, render_all
from memory_engine.context.sources import Arranged
from memory_engine.context.thread_context import standing_blocks
from memory_engine.core.arguments import checked_list, checked_number, checked_type
from memory_engine.core.aside import aside
from memory_engine.core.chunks import Chunk, ChunkType, content_text
from memory_engine.core.clock import to_datetime
from memory_engine.core.codec import encode_event
from memory_engine.core.events.base import Content, FilePart, ImagePart, TextPart
from memory_engine.core.events.exchanges import CycleStarted, ExchangeFinished
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.events.messages import LlmTextResponse, UserMessage
from memory_engine.core.records import NewEvent
from memory_engine.core.state import State
from memory_engine.errors import (
    AnotherQuestionOpen,
    ContentionError,
    EventTooLarge,
    IdempotencyConflict,
    MemoryEngineError,
)
from memory_engine.llm.base import MemoryModel
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.conversation.exchanges import Cycle, Exchange, Summary, exchange_of_event
from memory_engine.views.conversation.fold import (
    CONVERSATION,
    CycleRow,
    ExchangeRow,
    cycle_of,
    exchange_key,
    exchanges_of,
    resolve_seq,
    summary_of,
    tally_of,
)
from memory_engine.views.conversation.loose import in_order, loose_messages
from memory_engine.views.conversation.messages import (
    Remembered,
    arranged,
    cycle_chunks,
    final_answer,
    last_response,
    system_chunks,
)
from memory_engine.views.conversation.summary import Summarizer, roll
from memory_engine.views.playbooks.flows import Flows
from memory_engine.views.screen.view import SCREEN, screen_of, session_of
from memory_engine.views.tool_cache.view import TOOL_CACHE, entries_of

TRIES = 8
"""Attempts at a question that others overtake."""


async def opened(thread: ThreadHandle, content: Content) -> CycleRow:
    """The open cycle of a question, opened now if it is not. The question's images and files stay in its message.

    Ids count the cycles, so if two callers open one at once with the same question, only one does.
    """
    question = content_text(content)
    for _ in range(TRIES):
        rows = await thread.rows(CONVERSATION)
        cycle, count = cycle_of(rows), tally_of(rows).cycles
        if cycle is not None and cycle.question == question:
            return cycle
        at, era = await _said_just_now(thread, question), await era_of(thread)
        said = [] if at else [NewEvent(UserMessage(content=content), id=f"conversation:question:{count}{era}")]
        started = NewEvent(
            CycleStarted(question=question, question_at=at or -1),
            id=f"conversation:cycle:{count}{era}",
            causation_id=said[0].id if said else "",
        )
        try:
            receipt = (await thread.dispatch_all([*said, started]))[-1]
        except IdempotencyConflict:  # another question was first
            continue
        return CycleRow(
            seq=receipt.seq,
            event_id=receipt.event_id,
            question=question,
            asked_us=receipt.recorded_at_us,
            question_at=at or receipt.seq - 1,
        )
    raise ContentionError(thread.id, TRIES)


async def _said_just_now(thread: ThreadHandle, question: str) -> int:
    """The seq of the message before the question, if the application dispatched it itself; else 0."""
    last = (await thread.state()).last()
    is_it = last is not None and last.type == ChunkType.USER_MESSAGE and last.text == question
    return last.said_at if is_it and last is not None else 0


def check_recordable(thread: ThreadHandle, question: str, answer: str) -> None:
    """Raise `InvalidEvent` or `EventTooLarge` for an answer that the log cannot hold.

    Called before its question is recorded, which would otherwise wait forever and block every other.
    """
    payload, recorded = encode_event(ExchangeFinished(question=question, answer=answer, cycle=0), thread.kernel.events)
    if len(payload) > thread.kernel.config.event_bytes_max:
        raise EventTooLarge(recorded.event_type, len(payload), thread.kernel.config.event_bytes_max)


async def asked(thread: ThreadHandle, content: Content, answer: str) -> CycleRow | ExchangeRow | Exchange:
    """The target of an answer: the open cycle, an overtaken question, or the exchange that it has already become.

    If nothing is open, a cycle is opened. Raises `AnotherQuestionOpen`.
    """
    rows, question = await thread.rows(CONVERSATION), content_text(content)
    cycle, live = cycle_of(rows), list(exchanges_of(rows))
    if cycle is not None and cycle.question == question:
        return cycle
    for row in reversed(live):
        if row.question == question and not row.finished_seq:
            return row
    if live and live[-1].question == question:
        last = live[-1]
        if answer == (await whole_answer(thread, last.finished_seq) if last.shortened else last.answer):
            return Exchange.of(last)
    if cycle is not None:
        raise AnotherQuestionOpen(thread.id, question, cycle.question)
    return await opened(thread, content)


async def finish(thread: ThreadHandle, found: CycleRow | ExchangeRow, finished: ExchangeFinished) -> Exchange:
    """Record the exchange, and with it the answer if it was not recorded yet, or neither.

    A second caller with the same answer gets the first one's exchange: a model may have made another short form of it.
    Raises `IdempotencyConflict` for another answer.
    """
    era = await era_of(thread)
    exchange_id = f"conversation:exchange:{found.seq}{era}"
    new = [NewEvent(finished, id=exchange_id, causation_id=found.event_id)]
    if finished.answer_at < 0:
        said = LlmTextResponse(content=finished.answer)
        new.insert(0, NewEvent(said, id=f"conversation:answer:{found.seq}{era}", causation_id=found.event_id))
    conflict: IdempotencyConflict | None = None
    try:
        await thread.dispatch_all(new)
    except IdempotencyConflict as error:
        conflict = error
    row = (await thread.rows(CONVERSATION)).get(exchange_key(found.seq))
    row = row if isinstance(row, ExchangeRow) and row.event_id == exchange_id else None
    if conflict is None and row is not None:
        return Exchange.of(row)
    for stored in await thread.kernel.store.find(thread.id, [exchange_id]):
        recorded = thread.kernel.reader.decode(thread.id, stored)
        if isinstance(recorded.event, ExchangeFinished) and recorded.event.answer == finished.answer:
            return Exchange.of(row) if row is not None else exchange_of_event(recorded, recorded.event)
    raise conflict or ContentionError(thread.id, 1)


async def whole_answer(thread: ThreadHandle, finished_seq: int) -> str:
    """The full answer of an exchange, as given."""
    async for event in thread.events(after=finished_seq - 1, upto=finished_seq):
        if isinstance(event.event, ExchangeFinished):
            return event.event.answer
    return ""


async def is_forgotten(thread: ThreadHandle, exchange: Exchange) -> bool:
    """Whether one of the events that an exchange came from was forgotten, also after a summary took it up."""
    forgets = (await thread.kernel.reader.forgotten(thread.id)).events
    seqs = {seq for one in forgets if isinstance(one.event, MemoryForget) for seq in one.event.origins()}
    return bool(seqs) and not seqs.isdisjoint(await _exchange_sources(thread, exchange))


async def _exchange_sources(thread: ThreadHandle, exchange: Exchange) -> set[int]:
    """The seqs of the events that hold the question and the answer, and of those that say so."""
    found = {exchange.seq, exchange.finished_seq}
    for seq in (exchange.seq, exchange.finished_seq):
        async for recorded in thread.events(after=max(0, seq - 1), upto=seq):
            match recorded.event:
                case CycleStarted(question_at=at) | ExchangeFinished(answer_at=at):
                    found.add(resolve_seq(seq, at))
    return found


_log = logging.getLogger("memory_engine.conversation")


class Conversation:
    """Exchanges, the summary of older ones, and the current cycle, of one thread.

    `EngineConfig.conversation` holds the limits. The engine's `memory_model` shortens answers and compresses summaries;
    without one, or where it fails, they are cut.
    """

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    # the turn

    async def prepare_messages(
        self, user_message: Content, max_tokens: int | None = None, *, policy: ContextPolicy = DEFAULT_POLICY
    ) -> list[Message]:
        """Open a cycle with a person's question, and return the messages for the next model call.

        Budget and policy are those of `Thread.context`; without a budget all of the memory is included. The question
        may be of parts (`TextPart`, `ImagePart`, `FilePart`), or an image alone: the model sees it until it is
        answered, then the exchange says `[image: …]`.

        A second call with the same question continues the open cycle, also after a crash: nothing is recorded twice,
        and the agent's work so far is in the messages. Another question leaves the open one as an exchange without an
        answer. Flows not judged yet are judged by this message (see `Flows.review`). Raises the errors of `dispatch`.
        """
        user_message = _checked_content("user_message", user_message)
        _check_budget(max_tokens, policy)
        try:
            await Flows(self._thread).review(content_text(user_message))
        except MemoryEngineError as error:  # the turn goes on: promoted facts are delivered later
            _log.warning("flows of thread %r could not be reviewed: %s", self._thread.id, error)
        cycle = await opened(self._thread, user_message)
        await roll(self._thread)
        return (await self._built(None, cycle, max_tokens, policy)).messages

    async def finalize_cycle(self, question: Content, answer: str) -> Exchange:
        """Close the open cycle with its final answer, then fold exchanges over the limits into the summary.

        The answer is recorded as the agent's response, if it was not yet, together with the exchange. A long answer
        gets a short form first. Finalizing again with the same answer returns the first exchange. Without an open cycle
        one is made from the question; an overtaken question is answered late. Raises `AnotherQuestionOpen` if another
        question waits, `IdempotencyConflict` for a second, different answer, and the errors of `dispatch`.
        """
        content = _checked_content("question", question)
        question = content_text(content)
        check_recordable(self._thread, question, answer)
        found = await asked(self._thread, content, answer)
        if isinstance(found, Exchange):
            return found
        limits, model = self._thread.kernel.config.conversation, self._thread.kernel[MemoryModel].model
        shorter = await Summarizer(model, limits).answer(question, answer)
        response = last_response(await self._cycle_chunks(await self._thread.state(), found.seq, None))
        finished = ExchangeFinished(question=question, answer=answer, cycle=found.seq)
        if shorter is not None:
            finished = msgspec.structs.replace(
                finished,
                short=shorter.text,
                method=shorter.method,
                model=shorter.model,
                usage=shorter.usage,
                failure=shorter.failure,
            )
        is_said = response is not None and response.text == answer
        answer_at = response.said_at if is_said and response is not None else -1
        exchange = await finish(self._thread, found, msgspec.structs.replace(finished, answer_at=answer_at))
        await roll(self._thread)
        return exchange

    # reading

    async def messages(self, *, at: int | None = None) -> list[Message]:
        """The agent's messages now (or, with `at`, at an earlier seq). Changes nothing."""
        return (await self.context(at=at)).messages

    async def context(
        self, max_tokens: int | None = None, *, at: int | None = None, policy: ContextPolicy = DEFAULT_POLICY
    ) -> Context:
        """The context of `prepare_messages`: like `Thread.context`, with exchanges in place of turns."""
        _check_budget(max_tokens, policy)
        at = await self._thread.upto(at)
        return await self._built(at, cycle_of(await self._thread.rows(CONVERSATION, at=at)), max_tokens, policy)

    async def exchanges(self, *, at: int | None = None) -> list[Exchange]:
        """The live exchanges, oldest first, including messages from outside a cycle."""
        rows = await self._thread.rows(CONVERSATION, at=at)
        known = list(exchanges_of(rows))
        loose = (await loose_messages(self._thread, rows, await self._state(at))).exchanges
        return await aside(lambda: [Exchange.of(row) for row in in_order(known, loose)], items=len(known) + len(loose))

    async def summary(self, *, at: int | None = None) -> Summary | None:
        """The summary of older exchanges; `None` before the first one."""
        row = summary_of(await self._thread.rows(CONVERSATION, at=at))
        return Summary.of(row) if row is not None else None

    async def current(self, *, at: int | None = None) -> Cycle | None:
        """The current cycle; `None` while no question waits."""
        cycle = cycle_of(await self._thread.rows(CONVERSATION, at=at))
        if cycle is None:
            return None
        chunks = await self._cycle_chunks(await self._state(at), cycle.seq, at)
        return Cycle(
            seq=cycle.seq,
            event_id=cycle.event_id,
            question=cycle.question,
            asked_at=to_datetime(cycle.asked_us),
            agent_messages=tuple(render_all(chunks, self._thread.kernel[ContextBuilder].renderers)),
            final_answer=final_answer(chunks),
        )

    async def whole_answer(self, exchange: Exchange) -> str:
        """The full answer, from the log; empty if the exchange was forgotten after you read it."""
        checked_type("exchange", exchange, Exchange, give="an exchange of this conversation")
        if await is_forgotten(self._thread, exchange):
            return ""
        return await whole_answer(self._thread, exchange.finished_seq) if exchange.is_shortened else exchange.answer

    async def memory(self, *, at: int | None = None) -> dict[str, object]:
        """The whole memory as plain JSON values, under the field's usual names."""
        cycle = await self.current(at=at)
        summary = await self.summary(at=at)
        cached = entries_of(await self._thread.rows(TOOL_CACHE, at=at))
        session = session_of(await self._thread.rows(SCREEN, at=at))
        return {
            "exchanges": [
                {"user": e.question, "assistant": e.answer, "seq": e.seq, "event_id": e.event_id}
                for e in await self.exchanges(at=at)
            ],
            "summary": summary.text if summary is not None else "",
            "current_cycle": {
                "user_question": cycle.question if cycle is not None else "",
                "agent_messages": list(cycle.agent_messages) if cycle is not None else [],
                "final_answer": cycle.final_answer if cycle is not None else None,
            },
            "tool_cache": {
                entry.key: {
                    "tool_name": entry.tool,
                    "parameters": entry.arguments,
                    "result": entry.result,
                    "remaining_duration": entry.remaining,
                    "original_duration": entry.duration,
                    "call_id": entry.call_id,
                    "cached_at": entry.cached_at.timestamp(),
                }
                for entry in cached
            },
            "screen_injection_done": session.told,
        }

    async def _state(self, at: int | None) -> State:
        return await self._thread.state(at=at)

    async def _cycle_chunks(self, state: State, cycle_seq: int, at: int | None) -> list[Chunk]:
        screen = screen_of(await self._thread.rows(SCREEN, at=at))
        screen_seq = screen.seq if screen is not None else 0
        return await aside(partial(cycle_chunks, state, cycle_seq, screen_seq), items=len(state))

    async def _built(
        self, at: int | None, cycle: CycleRow | None, max_tokens: int | None, policy: ContextPolicy
    ) -> Context:
        thread, state = self._thread, await self._state(at)
        standing = await standing_blocks(thread, state, policy, query=cycle.question if cycle else None, at=at)
        memory, builder = await self._remembered(state, at, cycle), thread.kernel[ContextBuilder]

        def built() -> Context:
            view = Arranged(state, arranged(memory))
            return builder.build(view, thread.id, max_tokens, policy=policy, standing=standing)

        return await aside(built, items=len(state))

    async def _remembered(self, state: State, at: int | None, cycle: CycleRow | None) -> Remembered:
        screen = screen_of(await self._thread.rows(SCREEN, at=at))
        cached = entries_of(await self._thread.rows(TOOL_CACHE, at=at))
        rows = await self._thread.rows(CONVERSATION, at=at)
        exchanges, summary, tally = list(exchanges_of(rows)), summary_of(rows), tally_of(rows)
        loose = await loose_messages(self._thread, rows, state)
        return Remembered(
            system=await aside(partial(system_chunks, state), items=len(state)),
            summary=summary,
            is_summary_by_model=tally.compressions > 0,
            exchanges=in_order(exchanges, loose.exchanges),
            loose_summaries=loose.summaries,
            screen=screen,
            finished_at=tally.finished_at,
            cached=cached,
            cycle=cycle,
            question=_question_in(state, cycle),
            chunks=await self._cycle_chunks(state, cycle.seq, at) if cycle is not None else (),
        )


def _checked_content(what: str, content: Content) -> Content:
    """Text, or parts as a tuple. Raises `InvalidArgument`."""
    if isinstance(content, str):
        return content
    return checked_list(
        what, content, (TextPart, ImagePart, FilePart), each="parts (TextPart, ImagePart, FilePart), or text"
    )


def _question_in(state: State, cycle: CycleRow | None) -> Content:
    """The open question as its message holds it, if that has more than text and is still in the state; else empty."""
    chunk = state.get(f"{cycle.question_at}.0") if cycle is not None else None
    is_it = chunk is not None and cycle is not None and chunk.text == cycle.question
    return chunk.content if is_it and chunk is not None and not isinstance(chunk.content, str) else ""


def _check_budget(max_tokens: int | None, policy: ContextPolicy) -> None:
    checked_type("policy", policy, ContextPolicy, give="a ContextPolicy")
    if max_tokens is not None:
        checked_number("max_tokens", max_tokens)
