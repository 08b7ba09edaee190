"""Model calls in a row: the tokens that a prompt cache keeps of each, and the event that made it keep less.

A model call of a log is the run of events that records its response.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from attrs import define, field

from memory_engine.context.builder import FRAME
from memory_engine.context.flow import TRAILING
from memory_engine.context.rendering import NO_RESULT, Message, common_prefix, message_bytes
from memory_engine.context.series import ContextSeries, MeasuredContext, MeasuredMessages, SeriesMark
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.compaction import (
    STEPS,
    CompactionCompleted,
    CompactionUndone,
    EventSkipped,
    SourceQuarantined,
    ThreadRewound,
)
from memory_engine.core.events.delivery import FactsRewound
from memory_engine.core.events.memory import MemoryForget, SessionEnded, ThreadCleared
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.json_form import JsonForm
from memory_engine.core.operations import Add, BatchReplace, Delete, Operation, Reorder, Replace, Update, flattened
from memory_engine.core.state import State
from memory_engine.errors import ContextBudgetError
from memory_engine.views.layers.events import ResultsOffloaded

BESIDE = STEPS | {EventSkipped.event_type}
"""Types that may come between the events of one response without ending it."""


@define
class Runs:
    """Tells which call each event of a log belongs to, as the events come by."""

    _registry: EventRegistry
    _key: str = ""
    _last: str = ""
    _response_id: str = ""

    def next(self, event: Event | UnknownEvent, key: str, answers: str = "") -> tuple[str, bool]:
        """The key of the call that an event is of the response to (empty: none), and whether that is a new call.

        A new one gets the `key`, unless it is known which call the event `answers`.
        """
        event_type = event.type if isinstance(event, UnknownEvent) else event.event_type
        if event_type in BESIDE:
            return "", False
        if self._registry.role(event_type) != "assistant":
            self._key = ""
            return "", False
        response_id = getattr(event, "response_id", "")
        if answers:
            is_new, key = answers != self._last, answers
        else:
            is_new = not self._key or bool(response_id and self._response_id and response_id != self._response_id)
            key = key if is_new else self._key
        self._response_id = response_id or ("" if is_new else self._response_id)
        self._key = self._last = key
        return key, is_new


_NAMES = {
    "task": "the task",
    "todo_list": "the to-do list",
    "scratchpad": "the scratchpad",
    "environment": "the environment",
}


class PromptCall(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """A model call: the seq of the first event of its answer, and the tokens of its context.

    `kept_tokens` are at its beginning, unchanged since the context of the call before: a provider's cache holds
    them. `fresh_tokens` are the rest.
    """

    seq: int
    tokens: int
    kept_tokens: int
    fresh_tokens: int


class CacheBreak(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """An event after which the context no longer began with that of the call before.

    `message` and `byte` are the first that differ, counted from 0, the messages as JSON lines one after the other.
    `call_seq` is the call that was sent so first. `lost_tokens` are those that the cache held behind that place, which
    were sent again. `trailing`: only messages that are last by design (task, to-do list, scratchpad, environment)
    moved or changed.
    """

    seq: int
    event_id: str
    event_type: str
    call_seq: int
    byte: int
    message: int
    lost_tokens: int
    why: str
    trailing: bool = False


class LedgerRow(msgspec.Struct, frozen=True):
    """An event, and what it did."""

    seq: int
    event_id: str
    event_type: str
    event: Event | UnknownEvent
    operations: Sequence[Operation]
    chunks: Sequence[Chunk]


class _Sent(msgspec.Struct, frozen=True):
    """The context of a call, and the state that it was made of."""

    context: MeasuredContext
    mark: SeriesMark


class _Difference(msgspec.Struct, frozen=True):
    """Two contexts, and how many messages at their beginning are the same."""

    old: MeasuredContext
    new: MeasuredContext
    same: int

    @classmethod
    def of(cls, old: MeasuredContext, new: MeasuredContext) -> "_Difference":
        return cls(old, new, old.same_as(new))

    @property
    def is_none(self) -> bool:
        """Whether the old one is the beginning of the new one."""
        return self.same == len(self.old)

    @property
    def is_trailing(self) -> bool:
        """Whether only messages that are last by design moved or changed."""
        return self.same >= self.old.trailing

    @property
    def moved(self) -> bool:
        """Whether a new message came before those at the end."""
        return self.same < self.new.trailing

    def messages(self) -> tuple[Message | None, Message | None]:
        """The first that differ; `None` after the last."""
        old, new = self.old.since(self.same), self.new.since(self.same)
        return (old[0] if old else None, new[0] if new else None)


@define
class LedgerWalk:
    """One walk over a log, event by event. The first call after `after` is compared with the last one before."""

    _series: ContextSeries
    _after: int
    _runs: Runs
    calls: list[PromptCall] = field(factory=list)
    breaks: list[CacheBreak] = field(factory=list)
    _sent: _Sent | None = None
    _since: list[LedgerRow] = field(factory=list)

    def step(self, row: LedgerRow) -> None:
        """Go on by one event. Raises `ContextBudgetError`."""
        _, is_call = self._runs.next(row.event, str(row.seq))
        if is_call:
            sent = _Sent(self._series.context(), self._series.mark())
            if row.seq > self._after:
                self._compare(sent.context, row.seq)
            self._sent, self._since = sent, []
        self._series.step(row.operations, row.chunks, row.seq)
        self._since.append(row)

    def _compare(self, new: MeasuredContext, call_seq: int) -> None:
        """Note a call, and the break if it does not begin as the one before."""
        kept = 0
        if self._sent is not None:
            difference = _Difference.of(self._sent.context, new)
            kept, byte = kept_of(difference.old, new, self._series.messages)
            if not difference.is_none:
                self.breaks.append(self._broken(self._sent, difference, call_seq, byte))
        self.calls.append(PromptCall(seq=call_seq, tokens=new.tokens, kept_tokens=kept, fresh_tokens=new.tokens - kept))

    def _broken(self, sent: _Sent, difference: _Difference, call_seq: int, byte: int) -> CacheBreak:
        row = self._culprit(sent, difference)
        return CacheBreak(
            seq=row.seq,
            event_id=row.event_id,
            event_type=row.event_type,
            call_seq=call_seq,
            byte=byte,
            message=difference.same,
            lost_tokens=self._lost(difference),
            why=self._why(row, difference),
            trailing=difference.is_trailing,
        )

    def _lost(self, difference: _Difference) -> int:
        """The tokens of messages that the cache held, and that are sent again behind the break."""
        measured = self._series.messages
        old, new = difference.old.since(difference.same), difference.new.since(difference.same)
        again = {id(message) for message in old}.intersection(map(id, new))  # most are the very same
        lost, _ = measured.sizes([message for message in new if id(message) in again])
        held = Counter(message_bytes(message) for message in old if id(message) not in again)
        for message in (message for message in new if id(message) not in again):
            key = message_bytes(message)
            if held[key]:
                held[key] -= 1
                lost += measured.size(message).tokens
        return lost

    # which event, and why

    def _culprit(self, sent: _Sent, difference: _Difference) -> LedgerRow:
        """The first event after which no more is the same than there is in the end."""
        if difference.is_trailing:
            for row in self._since:
                if self._moves(row) if difference.moved else _touches_trailing(row, sent.mark.state):
                    return row
        moving = [row for row in self._since if row.operations]
        if not moving:
            return self._since[-1]
        again = self._series.since(sent.mark)
        for row in moving[:-1]:
            again.step(row.operations, row.chunks, row.seq)
            if self._is_as_different(again, difference):
                return row
        return moving[-1]  # after it the context is the one that is found to be different

    def _moves(self, row: LedgerRow) -> bool:
        """Whether an event brings a message before those at the end."""
        flowing = (chunk for chunk in row.chunks if chunk.category not in TRAILING)
        return any(self._series.messages.of(chunk) for chunk in flowing)

    @staticmethod
    def _is_as_different(series: ContextSeries, difference: _Difference) -> bool:
        try:
            context = series.context()
        except ContextBudgetError:  # the state of no call
            return False
        return difference.old.same_as(context) <= difference.same

    def _why(self, row: LedgerRow, difference: _Difference) -> str:
        said = _of_event(row.event)
        if said:
            return said
        if difference.is_trailing:
            what = ", ".join(_NAMES.get(name, name) for name in difference.old.last)
            if difference.moved:
                return f"{what}: it stands last by design, and moved behind what was said since"
            return f"{what}: it stands last by design, and changed"
        before, after = difference.messages()
        if before is not None and before.get("content") == NO_RESULT and before.get("role") == "tool":
            return f"the result of call {before['tool_call_id']} took the place of its placeholder"
        is_newest = difference.same >= difference.old.trailing - 1
        return self._of_operations(row, before if is_newest else None, after if is_newest else None)

    def _of_operations(self, row: LedgerRow, before: Message | None, after: Message | None) -> str:
        for operation in flattened(row.operations):
            match operation:
                case Update() | Replace():
                    return f"chunk {operation.chunk} became {operation.by}"
                case BatchReplace():
                    return f"{_pluralised(len(operation.chunks), 'chunk')} became {' '.join(operation.by) or 'nothing'}"
                case Delete():
                    return f"chunk {operation.chunk} went"
                case Reorder():
                    return f"chunk {operation.chunk} moved"
                case Add() if operation.before or operation.after or operation.first:
                    return f"chunk {operation.chunk} came before others"
                case _:
                    continue
        budget = self._series.max_tokens
        if budget is None:
            return "what it brought changed how earlier messages are put together"
        size = self._series.messages.size
        if before is not None and not size(before).chunk_id:
            return f"the newest turn, cut to fit the budget of {budget:,} tokens, is no longer the newest"
        if after is not None and not size(after).chunk_id:
            return f"a text was cut: the newest turn does not fit the budget of {budget:,} tokens"
        return f"the window moved: the budget of {budget:,} tokens is full"


def kept_of(old: MeasuredContext, new: MeasuredContext, messages: MeasuredMessages) -> tuple[int, int]:
    """The tokens and bytes at the beginning that are the same; of a message that differs, its share of them."""
    same = old.same_as(new)
    resent = new.since(same)
    behind = [messages.size(message) for message in resent]
    tokens = new.tokens - FRAME - sum(size.tokens for size in behind)
    byte = new.bytes - sum(size.bytes for size in behind)
    if behind and same < len(old):
        partly = common_prefix(message_bytes(old.since(same)[0]), message_bytes(resent[0]))
        tokens += behind[0].tokens * partly // behind[0].bytes
        byte += partly
    return tokens, byte


def _of_event(event: Event | UnknownEvent) -> str:
    """Why an event of a type that is there for changing the past breaks the cache; empty for any other."""
    match event:
        case CompactionCompleted():
            covered = sum(len(one.covers) for one in event.replacements if one.lines)
            dropped = sum(len(one.covers) for one in event.replacements if not one.lines)
            made = sum(bool(one.lines) for one in event.replacements)
            into = "a summary" if made == 1 else f"{made} summaries"
            parts = [f"{_pluralised(covered, 'chunk')} became {into}"] if covered else []
            parts += [f"{_pluralised(dropped, 'chunk')} went"] if dropped else []
            return f"a compaction by {event.compactor}: {', '.join(parts)}"
        case CompactionUndone():
            back = _pluralised(len(event.restored), "chunk")
            return f"the compaction of event {event.completed} was undone: {back} came back"
        case MemoryForget():
            return "something was forgotten"
        case ThreadCleared():
            return "the thread was cleared"
        case ThreadRewound():
            return f"the thread was rewound to event {event.to}"
        case SourceQuarantined():
            return f"a source {'was released' if event.ends else 'was quarantined'}: {event.source}"
        case FactsRewound():
            return "what a rewind of another thread took back was removed"
        case ResultsOffloaded():
            return f"{_pluralised(len(event.chunk_ids), 'large result')} left the context but for the beginning"
        case SessionEnded():
            return "the session ended, and what goes with it went"
    return ""


def _touches_trailing(row: LedgerRow, state: State) -> bool:
    """Whether an event changes a message at the end."""
    return any(_is_trailing(chunk_id, row, state) for op in flattened(row.operations) for chunk_id in _chunks_in(op))


def _chunks_in(operation: Operation) -> Iterator[str]:
    match operation:
        case Add():
            yield from (operation.chunk, operation.container)
        case Update() | Replace() | Delete() | Reorder():
            yield operation.chunk
        case BatchReplace():
            yield from operation.chunks


def _is_trailing(chunk_id: str, row: LedgerRow, state: State) -> bool:
    placed = state.placed_at(chunk_id)
    if placed is None:
        return any(chunk.id == chunk_id and chunk.category in TRAILING for chunk in row.chunks)
    holder = state.get(placed.container) if placed.container else placed.chunk
    return holder is not None and holder.category in TRAILING


def _pluralised(value: int, noun: str) -> str:
    return f"{value:,} {noun}{'s' * (value != 1)}"
