"""What is recalled for a request: chosen at its first context, and kept until the next request.

A loop asks for a context before each call of its model. Were the passages chosen anew each time, they would differ as
the loop goes on, and a provider's prompt cache would be lost at each call. So the first context with a query after a
message chooses, and later ones show the same text at the same place, directly before the message. The choice waits as
a note (`runtime.notes`) and is recorded with the next dispatch; from then on it is a chunk of the state like others, so
that restarts, past moments, reruns and explanations see it.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from attrs import evolve
from msgspec.structs import replace

from memory_engine.context.budget import ContextPolicy
from memory_engine.context.builder import ContextBuilder, ContextDraft
from memory_engine.context.choice import HeldWindow
from memory_engine.context.context import Context
from memory_engine.context.recall import (
    ROOM_MIN,
    RecallRequest,
    context_with,
    recalled_context,
    recalled_hits,
    recalled_into,
)
from memory_engine.context.standing import OfferedBlock
from memory_engine.core.chunks import FURTHER, OF_REQUEST, RECALLED, Chunk, ChunkType, Retention, is_of_context
from memory_engine.core.events.base import Event
from memory_engine.core.events.context import ContextRecalled, RecalledPassage
from memory_engine.core.executor import apply
from memory_engine.core.operations import Add, Delete
from memory_engine.core.origins import SPOKEN
from memory_engine.core.state import Mark, State
from memory_engine.core.threads import Head
from memory_engine.core.tokens import estimate_chunk
from memory_engine.recall.hits import Hit
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.notes import Note
from memory_engine.runtime.queue import Prepared
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads

Build = Callable[[State], Awaitable[Context]]
"""Builds the context of a state of the thread, without a query."""


_NOTE = "recalled"
SPARE_SHARE = 0.125
"""The share of a budget that the window must leave free for recall, or it moves."""
BLOCK_SHARE = 0.45
"""The share of a budget that a block may take, so that it stays uncut beside its message however long the loop."""
SMALL_BLOCK = 3_400
"""Tokens that a block may take of a small budget too. It is cut once the loop needs the room."""


class Wanted(NamedTuple):
    """A context with a query for the loop of a thread: of which newest state, what is recalled, and how it is built."""

    thread: ThreadHandle
    runtime: ThreadRuntime
    state: State
    recall: RecallRequest
    standing: Sequence[OfferedBlock]
    build: Build

    @property
    def others(self) -> tuple[str, ...]:
        """The ids of the other threads to search."""
        given: object = self.recall.others
        listed = given if isinstance(given, Sequence) else ()  # anything else is refused when it is searched
        return tuple(dict.fromkeys(getattr(one, "id", "") for one in listed))


class _Choice(msgspec.Struct):
    """What a query recalled for a request, from these other threads: the text as shown, and the passages in it.

    Once it is recorded, `chunk_id` is its chunk in the state. Until then it counts for the budget and the policy with
    which it was chosen, in the state at `seq`; `leaving` are the chunks that go with it. `at_end`: there is an earlier
    one for the request.
    """

    query: str
    others: tuple[str, ...]
    text: str
    hits: tuple[Hit, ...] = ()
    failure: str = ""
    chunk_id: str = ""
    chosen_with: tuple[int | None, ContextPolicy] | None = None
    seq: int = 0
    leaving: tuple[str, ...] = ()
    at_end: bool = False

    def answers(self, wanted: Wanted) -> bool:
        """Whether it still is what a context is to show: not forgotten, cleared or compacted since."""
        if (self.query, self.others) != (wanted.recall.query, wanted.others):
            return False
        if self.chunk_id:
            return wanted.state.get(self.chunk_id) is not None
        is_same = self.chosen_with == (wanted.recall.max_tokens, wanted.recall.policy)
        return is_same and (not self.text or wanted.runtime.notes.holds(_NOTE, wanted.runtime.head))


class _Request(msgspec.Struct):
    """The newest request of a thread, by the seq of the event that made it: what is recorded, and what is not yet."""

    seq: int
    recorded: list[_Choice] = []
    waiting: _Choice | None = None


class RequestRecall:
    """Keeps what was recalled for the newest request of each open thread. One per engine."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._requests: WeakKeyDictionary[ThreadRuntime, _Request] = WeakKeyDictionary()

    @classmethod
    def of(cls, kernel: Kernel) -> "RequestRecall":
        """The one of an engine, made when a context first recalls something."""
        return kernel.made(cls, partial(cls, kernel))

    async def context(self, wanted: Wanted) -> Context:
        """The context with what was recalled for the thread's newest request, now or before.

        Raises what `recalled_context` raises.
        """
        message = next((chunk for chunk in wanted.state.newest() if chunk.type in SPOKEN), None)
        if message is None:
            return await recalled_context(wanted.thread, wanted.state, wanted.recall, wanted.standing)
        request = await self._request(wanted, message)
        waiting = request.waiting
        if waiting is not None and _is_kept_by_hand(waiting, wanted.state):
            request.waiting = waiting = None
            wanted.runtime.notes.pop(_NOTE)
        known = next((one for one in (waiting, *request.recorded) if one is not None and one.answers(wanted)), None)
        if known is None:
            return await self._chosen(wanted, message, request)
        return await self._again(wanted, known) or await self._shown(wanted, message, known)

    async def _again(self, wanted: Wanted, choice: _Choice) -> Context | None:
        """The context in which a choice was first shown, for one who asks again before anything is recorded."""
        if choice.chunk_id or choice.at_end or not choice.text or choice.seq != wanted.state.seq:
            return None
        state = _without(wanted.state, choice.leaving)
        context = await context_with(wanted.thread, state, wanted.recall, wanted.standing, choice.text)
        return None if context is None else evolve(context, recalled=choice.hits, recall_failure=choice.failure)

    async def _request(self, wanted: Wanted, message: Chunk) -> _Request:
        """What is known of the request that a message makes, also what another process or an earlier run recorded."""
        runtime, state = wanted.runtime, wanted.state
        request = self._requests.get(runtime)
        if request is None or request.seq != message.said_at:
            request = self._requests[runtime] = _Request(message.said_at)
        known = {choice.chunk_id for choice in request.recorded}
        new = {
            chunk.seq: chunk
            for chunk in state.marked(Mark.RECALLED)
            if is_of_context(chunk) and chunk.seq > message.said_at and chunk.id not in known
        }
        for seq, row in (await self._kernel.reader.rows_at(runtime.id, new)).items():
            event = self._kernel.reader.decode(runtime.id, row).event
            if isinstance(event, ContextRecalled) and new[seq].id not in {one.chunk_id for one in request.recorded}:
                hits = await recalled_hits(self._kernel, runtime.id, event.passages)
                request.recorded.append(_Choice(event.query, event.threads, event.content, hits, chunk_id=new[seq].id))
        return request

    async def _chosen(self, wanted: Wanted, message: Chunk, request: _Request) -> Context:
        """Search, and keep what is found for the further contexts of the request.

        It takes the place of a choice that is not recorded yet: nobody has answered what that was shown in.
        """
        state, recall = wanted.state, wanted.recall
        earlier = _of_earlier(state, message)
        leaving: tuple[str, ...] = ()
        most = _most(recall)
        least = min(most, int((recall.max_tokens or 0) * SPARE_SHARE))
        context = await self._in_the_window(wanted, state, message, most if earlier else least)
        if context is None and earlier:  # what an earlier request recalled takes no room from this one
            leaving = earlier
            context = await self._in_the_window(wanted, _without(state, leaving), message, least)
        if context is None:
            bounded = replace(recall, most=most)
            context = await recalled_context(wanted.thread, _without(state, leaving), bounded, wanted.standing)
        request.waiting = choice = _Choice(
            query=recall.query,
            others=wanted.others,
            text=context.recalled_text,
            hits=context.recalled,
            failure=context.recall_failure,
            chosen_with=(recall.max_tokens, recall.policy),
            seq=state.seq,
            leaving=leaving,
            at_end=bool(request.recorded),
        )
        if choice.text:
            wanted.runtime.notes.put(_NOTE, _note(wanted, message, request, choice))
        else:
            wanted.runtime.notes.pop(_NOTE)
        if not choice.at_end or not choice.text:
            return context
        at_its_place = await self._shown(wanted, message, choice)
        return at_its_place if choice.text == at_its_place.recalled_text else context

    async def _in_the_window(self, wanted: Wanted, state: State, message: Chunk, least: int) -> Context | None:
        """The context with what is recalled beside the window as it is, if that leaves `least` tokens; else `None`.

        So the window does not move for a new request: what was sent before stays.
        """
        recall = wanted.recall
        if recall.max_tokens is None or recall.policy.split is not None:
            return None
        plain = await wanted.build(state)
        spare = recall.max_tokens - plain.tokens - plain.thinking_tokens
        if spare < max(ROOM_MIN, least):
            return None
        turn = {one.block.name for one in wanted.standing if one.source.place == "turn"}
        pieces = plain.pieces
        before = next((n for n, piece in enumerate(pieces) if piece.chunk.id == message.id), len(pieces))
        while before and pieces[before - 1].position < 0 and pieces[before - 1].chunk.type in turn:
            before -= 1
        draft = ContextDraft(
            state=state,
            thread_id=wanted.thread.id,
            pieces=pieces,
            standing=plain.standing,
            spent=plain.spent,
            room=min(spare, _most(recall)),
            before=before,
            builder=self._kernel[ContextBuilder],
            kept=plain.kept or HeldWindow(),
        )
        made = await recalled_into(wanted.thread, state, recall, draft)
        return evolve(made, thinking=plain.thinking, thinking_tokens=plain.thinking_tokens)

    async def _shown(self, wanted: Wanted, message: Chunk, choice: _Choice) -> Context:
        """The context with a choice: a chunk of the state, or of a state as it will be once the choice is recorded."""
        state, chunk_id = wanted.state, choice.chunk_id
        if choice.text and not chunk_id:
            chunk_id = f"{state.seq + 1}.0"
            state = _with(state, choice, message, chunk_id)
        context = await wanted.build(state)
        piece = next((piece for piece in context.pieces if piece.chunk.id == chunk_id), None)
        if piece is None:
            return context
        tokens = self._kernel[ContextBuilder].tokens(piece.messages)
        spent = replace(context.spent, recent=context.spent.recent - tokens, recalled=tokens)
        return evolve(
            context,
            included=tuple(one for one in context.included if one != chunk_id or choice.chunk_id),
            spent=spent,
            recalled=choice.hits,
            recalled_text=choice.text,
            recall_failure=choice.failure,
        )


def _most(recall: RecallRequest) -> int:
    """The most tokens to recall for a request: a loop that fills its budget leaves the message half of it."""
    most = recall.policy.recalled_max
    return most if recall.max_tokens is None else min(most, max(SMALL_BLOCK, int(recall.max_tokens * BLOCK_SHARE)))


def _note(wanted: Wanted, message: Chunk, request: _Request, choice: _Choice) -> Note:
    """The note that records the waiting choice of a request with the next dispatch."""
    own = wanted.thread.id
    event = ContextRecalled(
        content=choice.text,
        query=choice.query,
        request=message.id,
        at_end=choice.at_end,
        passages=tuple(
            RecalledPassage(hit.event_id, "" if hit.thread_id == own else hit.thread_id, hit.seq, hit.n)
            for hit in choice.hits
        ),
        threads=choice.others,
        leaving=choice.leaving,
    )

    def before(sent: Sequence[Prepared], _head: Head) -> ContextRecalled | None:
        by_hand = any(getattr(one.event, "content", None) == choice.text for one in sent)
        if by_hand or _is_kept_by_hand(choice, wanted.runtime.state):
            return None
        # a compaction under way may take what would leave: it would find its chunks changed, and be given up
        is_compacting = any(is_kept(own) for is_kept in wanted.thread.kernel[OpenThreads].keeping)
        return replace(event, leaving=()) if is_compacting else event

    def recorded(_event: Event, seq: int) -> None:
        choice.chunk_id = f"{seq}.0"
        request.recorded.append(choice)
        if request.waiting is choice:
            request.waiting = None

    return Note(event_type=ContextRecalled.event_type, made_at=wanted.state.seq, event=before, recorded=recorded)


def _is_kept_by_hand(choice: _Choice, state: State) -> bool:
    """Whether the application has recorded the same text itself: it is not shown twice."""
    by_hand = (chunk for chunk in state.marked(Mark.RECALLED) if not is_of_context(chunk))
    return bool(choice.text) and any(chunk.text == choice.text for chunk in by_hand)


def _of_earlier(state: State, message: Chunk) -> tuple[str, ...]:
    """The chunks that were recalled for requests before this message."""
    recalled = state.marked(Mark.RECALLED)
    return tuple(chunk.id for chunk in recalled if is_of_context(chunk) and chunk.seq < message.said_at)


def _with(state: State, choice: _Choice, message: Chunk, chunk_id: str) -> State:
    """The state as it will be once a choice is recorded (see `reduce_context_recalled`)."""
    chunk = Chunk(
        id=chunk_id,
        type=ChunkType.RECALLED,
        content=choice.text,
        retention=Retention.DISPOSABLE,
        name=f"{FURTHER if choice.at_end else OF_REQUEST}{state.seq + 1}",
        status=RECALLED,
    )
    placed = Add(chunk_id, before="" if choice.at_end else message.id)
    return apply(
        _without(state, choice.leaving), [placed], [replace(chunk, tokens=estimate_chunk(chunk))], seq=state.seq
    )


def _without(state: State, chunk_ids: Sequence[str]) -> State:
    gone = [Delete(one) for one in chunk_ids if state.get(one) is not None]
    return apply(state, gone, (), seq=state.seq) if gone else state
