"""Passages recalled for a request: chosen at its first context, and kept until the next request.

A loop asks for a context before each call of its model. If the passages were chosen again each time, they would change
as the loop goes on, and each call would lose a provider's prompt cache. So the first context with a query after a
message chooses, and later ones show the same text at the same place, directly before the message. The choice waits as a
note (`runtime.notes`) and is recorded with the next dispatch; from then on it is an ordinary chunk of the state, so
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
"""Function that builds the context of a state of the thread, without a query."""


_NOTE = "recalled"
SPARE_SHARE = 0.125
"""Share of a budget that the window must leave free for recall; otherwise the window moves."""
BLOCK_SHARE = 0.45
"""Share of a budget that a block may take, so that block and message stay uncut however long the loop is."""
SMALL_BLOCK = 3_400
"""Tokens that a block may take even of a small budget. It is cut once the loop needs the room."""


class Wanted(NamedTuple):
    """A context with a query for a thread's loop: the newest state, what to recall, and how to build the context."""

    thread: ThreadHandle
    runtime: ThreadRuntime
    state: State
    recall: RecallRequest
    standing: Sequence[OfferedBlock]
    build: Build

    @property
    def others(self) -> tuple[str, ...]:
        """Ids of the other threads to search."""
        given: object = self.recall.others
        listed = given if isinstance(given, Sequence) else ()  # the search refuses anything else
        return tuple(dict.fromkeys(getattr(one, "id", "") for one in listed))


class _Choice(msgspec.Struct):
    """The passages that a query recalled for a request, also from other threads, and the text that shows them.

    Once recorded, `chunk_id` is its chunk in the state. Until then the choice applies to the budget and the policy with
    which it was made, in the state at `seq`; `leaving` are the chunks that are removed with it. `at_end`: an earlier
    choice exists for the request.
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
    untrusted: int = 0

    def answers(self, wanted: Wanted) -> bool:
        """Return whether the choice is still what a context must show: not forgotten, cleared or compacted since."""
        if (self.query, self.others) != (wanted.recall.query, wanted.others):
            return False
        if self.chunk_id:
            return wanted.state.get(self.chunk_id) is not None
        is_same = self.chosen_with == (wanted.recall.max_tokens, wanted.recall.policy)
        return is_same and (not self.text or wanted.runtime.notes.holds(_NOTE, wanted.runtime.head))


class _Request(msgspec.Struct):
    """A thread's newest request, by the seq of the event that made it: its recorded choices and the waiting one."""

    seq: int
    recorded: list[_Choice] = []
    waiting: _Choice | None = None


class RequestRecall:
    """Store of what was recalled for the newest request of each open thread. One per engine."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._requests: WeakKeyDictionary[ThreadRuntime, _Request] = WeakKeyDictionary()

    @classmethod
    def of(cls, kernel: Kernel) -> "RequestRecall":
        """Return the instance of an engine, created when a context first recalls something."""
        return kernel.made(cls, partial(cls, kernel))

    async def context(self, wanted: Wanted) -> Context:
        """Return the context with what was recalled for the thread's newest request, now or before.

        Raises the same errors as `recalled_context`.
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
        """Return the context that first showed a choice, for a repeated call before anything is recorded, or `None`."""
        if choice.chunk_id or choice.at_end or not choice.text or choice.seq != wanted.state.seq:
            return None
        state = _state_without(wanted.state, choice.leaving)
        context = await context_with(wanted.thread, state, wanted.recall, wanted.standing, choice.text)
        if context is None:
            return None
        return evolve(context, recalled=choice.hits, recall_failure=choice.failure, untrusted=choice.untrusted)

    async def _request(self, wanted: Wanted, message: Chunk) -> _Request:
        """Return what is known of a message's request, including what another process or an earlier run recorded."""
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
        """Search, and keep the result for further contexts of the request.

        It replaces a choice that is not yet recorded, since no response to the context that showed that choice exists.
        """
        state, recall = wanted.state, wanted.recall
        earlier = _of_earlier(state, message)
        leaving: tuple[str, ...] = ()
        most = _most(recall)
        least = min(most, int((recall.max_tokens or 0) * SPARE_SHARE))
        context = await self._in_the_window(wanted, state, message, most if earlier else least)
        if context is None and earlier:  # recall of an earlier request takes no room from this one
            leaving = earlier
            context = await self._in_the_window(wanted, _state_without(state, leaving), message, least)
        if context is None:
            bounded = replace(recall, most=most)
            context = await recalled_context(wanted.thread, _state_without(state, leaving), bounded, wanted.standing)
        request.waiting = choice = _Choice(
            query=recall.query,
            others=wanted.others,
            text=context.recalled_text,
            hits=context.recalled,
            failure=context.recall_failure,
            untrusted=context.untrusted,
            chosen_with=(recall.max_tokens, recall.policy),
            seq=state.seq,
            leaving=leaving,
            at_end=bool(request.recorded),
        )
        if choice.text:
            wanted.runtime.notes.put(_NOTE, _recall_note(wanted, message, request, choice))
        else:
            wanted.runtime.notes.pop(_NOTE)
        if not choice.at_end or not choice.text:
            return context
        at_its_place = await self._shown(wanted, message, choice)
        return at_its_place if choice.text == at_its_place.recalled_text else context

    async def _in_the_window(self, wanted: Wanted, state: State, message: Chunk, least: int) -> Context | None:
        """Return the context with recall and an unchanged window; `None` if fewer than `least` tokens are free.

        The window then does not move for a new request: what was sent before stays.
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
        """Return the context with a choice as a chunk of the state.

        For a choice that is not yet recorded, the state is the one that will result from recording it.
        """
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
            untrusted=choice.untrusted,
        )


def _most(recall: RecallRequest) -> int:
    """Return the maximum tokens to recall for a request.

    A loop that fills its budget leaves about half of it to the message.
    """
    most = recall.policy.recalled_max
    return most if recall.max_tokens is None else min(most, max(SMALL_BLOCK, int(recall.max_tokens * BLOCK_SHARE)))


def _recall_note(wanted: Wanted, message: Chunk, request: _Request, choice: _Choice) -> Note:
    """Return the note that records the waiting choice of a request with the next dispatch."""
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
        # a running compaction may take the leaving chunks: it would find them changed, and be abandoned
        is_compacting = any(is_kept(own) for is_kept in wanted.thread.kernel[OpenThreads].keeping)
        return replace(event, leaving=()) if is_compacting else event

    def recorded(_event: Event, seq: int) -> None:
        choice.chunk_id = f"{seq}.0"
        request.recorded.append(choice)
        if request.waiting is choice:
            request.waiting = None

    return Note(event_type=ContextRecalled.event_type, made_at=wanted.state.seq, event=before, recorded=recorded)


def _is_kept_by_hand(choice: _Choice, state: State) -> bool:
    """Return whether the application has recorded the same text itself, so that it must not be shown twice."""
    by_hand = (chunk for chunk in state.marked(Mark.RECALLED) if not is_of_context(chunk))
    return bool(choice.text) and any(chunk.text == choice.text for chunk in by_hand)


def _of_earlier(state: State, message: Chunk) -> tuple[str, ...]:
    """Return the ids of the chunks that were recalled for requests before this message."""
    recalled = state.marked(Mark.RECALLED)
    return tuple(chunk.id for chunk in recalled if is_of_context(chunk) and chunk.seq < message.said_at)


def _with(state: State, choice: _Choice, message: Chunk, chunk_id: str) -> State:
    """Return the state as it will be once a choice is recorded (see `reduce_context_recalled`)."""
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
        _state_without(state, choice.leaving), [placed], [replace(chunk, tokens=estimate_chunk(chunk))], seq=state.seq
    )


def _state_without(state: State, chunk_ids: Sequence[str]) -> State:
    gone = [Delete(one) for one in chunk_ids if state.get(one) is not None]
    return apply(state, gone, (), seq=state.seq) if gone else state
