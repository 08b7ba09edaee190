"""Messages of model providers, recorded in a thread: one, a list of them, or a response."""

import itertools
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from memory_engine.core.arguments import checked_flag
from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_row
from memory_engine.core.chunks import ChunkType, content_text
from memory_engine.core.events.base import Content, Event, TextPart, ToolCall, UnknownEvent
from memory_engine.core.events.memory import ExternalInject, MemoryForget, SessionStarted
from memory_engine.core.events.messages import (
    LlmClarification,
    LlmTextResponse,
    LlmToolCall,
    ParentAgentMessage,
    ToolError,
    ToolResult,
    UserMessage,
    as_sent,
)
from memory_engine.core.forgetting import Forgettings, Targets
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.core.state import State
from memory_engine.errors import IdempotencyConflict, InvalidMessage, NotContinued
from memory_engine.formats.detection import Format
from memory_engine.formats.dialogue import Dialogue, Unbound
from memory_engine.formats.native import Json, without_native
from memory_engine.formats.origin import Hearing, hear_state, marked, without_origin
from memory_engine.formats.translation import Messages, ReadMessage
from memory_engine.runtime.handle import ThreadHandle

if TYPE_CHECKING:
    from memory_engine.formats import openai_responses
    from memory_engine.store import rewinds
else:
    openai_responses = lazy_module("memory_engine.formats.openai_responses")
    rewinds = lazy_module("memory_engine.store.rewinds")

NAMESPACE = uuid.UUID("0d5d1f0a-5a0e-5c0b-9a57-6a3f6a1c9f42")
"""The namespace of ids of events whose messages have a name. Never change it: known responses would come twice."""
E = TypeVar("E", bound=Event)
_PAGE = 256
ASKED_BACK = 200
"""Chunks in which a new call's id is looked for; a model that restarts its numbering does so in the next turn."""
PARTS_MAX = 64
"""Events of one message that are looked for by its name."""
_SPEECH = frozenset({ChunkType.USER_MESSAGE, ChunkType.PARENT_MESSAGE})
_log = logging.getLogger("memory_engine.runtime.messages")


async def record(
    thread: ThreadHandle, messages: object, *, format: Format | None, new_only: bool
) -> tuple[Receipt, ...]:
    """See `Thread.record`."""
    thread.check_present("messages")
    checked_flag("new_only", new_only)
    values = list(messages) if isinstance(messages, list | tuple) else [messages]
    state = await thread.state()
    if new_only:
        return await _record_new(thread, values, format, ThreadDialogue(state, await _covered_calls(thread, state)))
    return await record_read(thread, state, lambda: Messages(values, format))


async def record_read(thread: ThreadHandle, state: State, given: Callable[[], Messages]) -> tuple[Receipt, ...]:
    """Record messages that go on with a state; what reads them is called again if that needs more of the log."""
    messages = given()
    known = await _known(thread, messages.provider_ids)
    try:
        read = messages.read(ThreadDialogue(state), thread.kernel.new_id, known=known)
    except InvalidMessage:
        covered = await _covered_calls(thread, state)
        if not covered:
            raise
        read = given().read(ThreadDialogue(state, covered), thread.kernel.new_id, known=known)
    return await _dispatched(thread, read, known=known)


async def _covered_calls(thread: ThreadHandle, state: State) -> dict[str, str]:
    """The calls without a result that summaries cover, id to name: their results may still come."""
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for summary in [chunk for chunk in state.chunks() if chunk.type == ChunkType.COMPACTED]:
        for chunk in await thread.kernel.reader.originals(thread.id, summary):
            calls.update((call.id, call.name) for call in chunk.calls)
            answered.update((chunk.call_id,) if chunk.final else ())
    return {call_id: name for call_id, name in calls.items() if call_id not in answered}


class ThreadDialogue(Dialogue):
    """A dialogue that goes on with a thread's state, of which it reads what the messages need."""

    def __init__(self, state: State, covered: Mapping[str, str] | None = None) -> None:
        super().__init__(hearing=Hearing(partial(hear_state, state)))
        self._state = state
        self._covered = covered or {}
        self._there: set[str] = set()
        self._is_begun = False
        self._looked_up: set[str] = set()

    def begin(self) -> None:
        """The next message holds the instructions from now on."""
        self._is_begun, self.has_instructions = True, False

    def instructed(self, content: Content) -> Event:
        """The event of a system message, which may not be the first of the thread."""
        if not self._is_begun:
            self.has_instructions = any(chunk.type == ChunkType.SYSTEM for chunk in self._state.chunks())
        self._is_begun = True
        return super().instructed(content)

    def go_back(self, before: Dialogue) -> None:
        """Go on from a copy that was made earlier."""
        self.has_instructions, self.hearing = before.has_instructions, before.hearing
        self.waiting, self.spoken_over = before.waiting, before.spoken_over

    def asked(self, calls: Iterable[ToolCall], where: str = "$") -> None:
        """These calls wait from here on."""
        calls = tuple(calls)
        for call in calls:
            self._look_up(call.id, ASKED_BACK)
        super().asked(calls, where)

    def asked_again(self, calls: Iterable[ToolCall]) -> None:
        """Those of these calls wait that the thread does not hold."""
        for call in calls:
            self._look_up(call.id)
            if call.id not in self._there:
                self.waiting.setdefault(call.id, call.name)

    def answered(self, call_id: str, where: str = "$", *, named: str = "") -> None:
        """The call is answered."""
        self._look_up(call_id)
        super().answered(call_id, where, named=named)

    def waits(self, call_id: str) -> bool:
        """Whether a call of the thread waits for its result."""
        self._look_up(call_id)
        return super().waits(call_id)

    def waits_under(self, name: str) -> str:
        """The id of the first call of this name that waits."""
        for chunk in self._state.chunks():
            for call in chunk.calls:
                self._look_up(call.id)
        return super().waits_under(name)

    def _look_up(self, call_id: str, count: int | None = None) -> None:
        """Know whether a call of the thread waits, from the last `count` chunks."""
        if call_id in self._looked_up:
            return
        self._looked_up.add(call_id)
        is_spoken_over = False
        for chunk in itertools.islice(self._state.newest(), count):
            if chunk.call_id == call_id and chunk.final:
                self._there.add(call_id)
                return
            found = next((call for call in chunk.calls if call.id == call_id), None)
            if found is not None:
                self._there.add(call_id)
                self.waiting[call_id] = found.name
                self.spoken_over.update((call_id,) if is_spoken_over else ())
                return
            is_spoken_over |= chunk.type in _SPEECH
        if count is None and call_id in self._covered:
            self.waiting[call_id] = self._covered[call_id]


async def as_events(
    thread: ThreadHandle,
    messages: Sequence[object],
    names: Sequence[str],
    *,
    format: Format,
    after: MemoryForget | None = None,
) -> list[NewEvent]:
    """The events of messages that have names of their own, to be dispatched with others: an event a message or more.

    The names make their ids, so that a message is recorded once. `after` is a forgetting that is dispatched before
    them. Raises `InvalidMessage`.
    """
    given, state = Messages(messages, format), await thread.state()
    if after is not None:
        state = Forgettings([(state.seq + 1, Targets(after))]).hidden_in(state)
    dialogue = ThreadDialogue(state)
    read = given.read(dialogue, thread.kernel.new_id)
    return [NewEvent(event, _id(thread, names[one.at], part)) for one in read for part, event in enumerate(one.events)]


async def groups_as_events(
    thread: ThreadHandle, groups: Sequence[Sequence[object]], names: Sequence[str], *, format: Format
) -> list[list[NewEvent] | None]:
    """The same for groups of messages, each with a name; `None` for one that cannot be read in its place.

    That is a result without its call, or an id of a call that waits already.
    """
    dialogue = ThreadDialogue(await thread.state())
    found: list[list[NewEvent] | None] = []
    for group, name in zip(groups, names, strict=True):
        before = dialogue.copy()
        try:
            read = Messages(group, format).read(dialogue, thread.kernel.new_id)
        except InvalidMessage as error:
            _log.info("messages %r of thread %r are not in order: %s", name, thread.id, error)
            dialogue.go_back(before)
            found.append(None)
            continue
        found.append(
            [
                NewEvent(event, _id(thread, f"{name} {one.at}", part))
                for one in read
                for part, event in enumerate(one.events)
            ]
        )
    return found


async def items_as_events(thread: ThreadHandle, items: Sequence[Json | None]) -> list[Event | None]:
    """An event for each item of OpenAI's Responses, or `None`: for `None`, and for what cannot be read as a message.

    Parallel calls are an event each. An item that is no event of its own (a search of the provider's) goes with the
    event after it in the same response.
    """
    dialogue = ThreadDialogue(await thread.state())
    events: list[Event | None] = []
    for _, run in openai_responses.runs([item or {} for item in items]):
        name = thread.kernel.new_id() if len(run) > 1 else ""
        waiting: list[Json] = []
        for n, item in enumerate(run, 1):
            if item and n < len(run) and openai_responses.is_silent(item):
                waiting.append(item)
                events.append(None)
                continue
            events.append(_item_event(thread, [*waiting, item], dialogue, name) if item else None)
            waiting = []
    return events


def _item_event(thread: ThreadHandle, items: list[Json], dialogue: Dialogue, response_id: str) -> Event | None:
    try:
        (event,) = marked(openai_responses.read(items, dialogue, response_id), {}, dialogue.hearing)
    except InvalidMessage as error:
        _log.warning("an item is not a message of thread %r: %s", thread.id, error.why)
        return None
    return event


def first_id(thread: ThreadHandle, name: str) -> str:
    """The id of the first event of a message of this name."""
    return _id(thread, name, 0)


async def recorded_ids(thread: ThreadHandle, names: Sequence[str]) -> list[str]:
    """The ids of the events that messages of these names were recorded as."""
    wanted = [_id(thread, name, part) for name in names for part in range(PARTS_MAX)]
    return [row.id for row in await thread.kernel.store.find(thread.id, wanted)] if wanted else []


async def _dispatched(
    thread: ThreadHandle, messages: Sequence[ReadMessage], name: str = "", *, known: Collection[str] = ()
) -> tuple[Receipt, ...]:
    """Dispatch the events of messages, all or none. A response that was recorded before gives its first receipts.

    `known` are responses of which some was recorded before: what is new goes on with that.
    """
    names = [message.provider_id or (name and f"{name} {message.at}") for message in messages]
    again = {one for one, times in Counter(names).items() if one and (times > 1 or one in known)}
    named = await _identified_events(thread, messages, names, again)
    try:
        return await thread.dispatch_all(named)
    except IdempotencyConflict:
        anew = await _identified_events(thread, messages, names, {*names} - {""})
        if anew == named:
            raise
        return await thread.dispatch_all(anew)


async def _identified_events(
    thread: ThreadHandle, messages: Sequence[ReadMessage], names: Sequence[str], again: Collection[str]
) -> list[NewEvent]:
    """The events of messages, with ids by their names; recorded ones keep their recorded form."""
    parts = {name: await _parts_of(thread, name) for name in dict.fromkeys(names) if name in again}
    named: list[NewEvent] = []
    for message, name in zip(messages, names, strict=True):
        events, there = message.events, parts.get(name, [])
        first = _response_offset(events, there) if message.is_part else 0
        events = tuple(
            held if held is not None and _bare_event(held) == _bare_event(event) else event
            for event, held in itertools.zip_longest(events, there[first : first + len(events)])
        )
        there[first : first + len(events)] = events
        named += (NewEvent(event, _id(thread, name, part)) for part, event in enumerate(events, first))
    return named


def _response_offset(events: Sequence[Event], there: Sequence[Event]) -> int:
    """The place of a response's events among the recorded ones: after them, if they continue them."""
    bare, held = [_bare_event(event) for event in events], [_bare_event(event) for event in there]
    for first in range(len(held)):
        if held[first : first + len(bare)] == bare[: len(held) - first]:
            return first
    said = {_event_text(event) for event in held} - {""}
    return 0 if any(_event_text(event) in said for event in bare) else len(held)  # said otherwise: that is a conflict


def _event_text(event: Event) -> str:
    content = getattr(event, "content", "")
    return content if isinstance(content, str) else content_text(content)


async def _parts_of(thread: ThreadHandle, name: str) -> list[Event]:
    """The events of a message of this name that the thread holds, in order."""
    found: list[Event] = []
    while True:
        ids = [_id(thread, name, part) for part in range(len(found), len(found) + PARTS_MAX)]
        stored = {row.id: row for row in await thread.kernel.store.find(thread.id, ids)}
        for one in ids:
            row = stored.get(one)
            event = decode_row(thread.id, row, thread.kernel.events)[0] if row is not None else None
            if row is None or not isinstance(event, Event):
                return found
            found.append(as_sent(event, row.version))


async def _known(thread: ThreadHandle, provider_ids: Sequence[str]) -> set[str]:
    """The responses of which the thread holds some."""
    named = {_id(thread, provider_id, 0): provider_id for provider_id in provider_ids}
    stored = await thread.kernel.store.find(thread.id, list(named)) if named else ()
    return {named[row.id] for row in stored}


def _id(thread: ThreadHandle, name: str, part: int) -> str:
    """The id of an event of a message that has a name; empty for one without."""
    return str(uuid.uuid5(NAMESPACE, f"{part} {name} {thread.id}")) if name else ""


def _bare_event(event: E) -> E:
    """The event with its own content alone: without the values around it and the decisions at its arrival."""
    bare = without_origin(without_native(event))
    return msgspec.structs.replace(bare, interrupted="") if isinstance(bare, LlmTextResponse) else bare


# a list that goes on with what the thread holds


class _Said(msgspec.Struct, frozen=True):
    """The content of an event, for comparison. `optional`: a list may leave it out."""

    key: tuple[object, ...]
    optional: bool = False


async def _record_new(
    thread: ThreadHandle, values: Sequence[object], format: Format | None, dialogue: ThreadDialogue
) -> tuple[Receipt, ...]:
    """Record the messages after the last one that the thread holds, and instructions that it does not hold."""
    given = Messages(values, format)
    listed = given.read(Unbound(), thread.kernel.new_id)
    begin = await _first_new(thread, listed)
    state = await thread.state()
    instructions = (chunk for chunk in state.chunks() if chunk.type == ChunkType.SYSTEM)
    held = await aside(lambda: {content_text(chunk.content) for chunk in instructions}, items=len(state))
    name = await _last_id(thread)
    new: list[ReadMessage] = []
    for n, message in enumerate(listed):
        event = message.events[0]
        if content_text(event.content) in held if isinstance(event, _INSTRUCTIONS) else n < begin:
            continue
        end = listed[n + 1].at if n + 1 < len(listed) else len(values)
        if not message.at:
            dialogue.begin()
        again = Messages(values[message.at : end], given.format, first=message.at)
        new += again.read(dialogue, partial("{}/{}".format, name, message.at))
    return await _dispatched(thread, new, f"after {name}")


async def _first_new(thread: ThreadHandle, listed: Sequence[ReadMessage]) -> int:
    """The number of the first message that goes on with the thread.

    That is after a beginning of the list which is all that the thread holds, or else what it ends with. Raises
    `NotContinued` where it ends with none, but holds messages, and where it ends with several: talk that repeats
    itself may go on after any of these.
    """
    said = [[one for event in message.events if (one := _repeated_content(event)) is not None] for message in listed]
    everything = list(itertools.chain.from_iterable(said))
    ends = list(itertools.accumulate(map(len, said)))
    held = await _recent_content(thread, len(everything) + 1)
    if not held or not everything:
        return 0
    places: list[int] = []
    for n in reversed(range(len(listed))):
        left = _overlap_start(held, everything[: ends[n]]) if said[n] else None
        if left == 0:
            return n + 1
        places += () if left is None else (n + 1,)
    if len(places) != 1:
        raise NotContinued(thread.id, tuple(listed[n].at if n < len(listed) else listed[-1].at + 1 for n in places))
    return places[0]


def _overlap_start(held: Sequence[_Said], listed: Sequence[_Said]) -> int | None:
    """How much the thread holds before these, if it ends with them; of what a list may leave out, it may any."""
    at = len(held)
    for one in reversed(listed):
        while at and held[at - 1].key != one.key and held[at - 1].optional:
            at -= 1
        if not at or held[at - 1].key != one.key:
            return None
        at -= 1
    return sum(not one.optional for one in held[:at])


async def _recent_content(thread: ThreadHandle, count: int) -> list[_Said]:
    """The content of a thread's last events: `count` of those that no list may leave out, if it has as many."""
    held: list[_Said] = []
    upto = await thread.last_seq()
    began = await thread.kernel.reader.cleared_at(thread.id, upto)
    shown = await rewinds.shown_at(thread.kernel.reader, thread.id, upto)
    while upto > began and sum(not one.optional for one in held) < count:
        after = max(began, upto - _PAGE)
        page = [
            _repeated_content(recorded.event)
            async for recorded in thread.events(after=after, upto=upto)
            if shown.shows(recorded)
        ]
        held = [one for one in page if one is not None] + held
        upto = after
    return held


async def _last_id(thread: ThreadHandle) -> str:
    """The id of the last event: the same new messages, recorded twice at once after it, are recorded once."""
    last = await thread.latest(1)
    return last[0].id if last else "nothing"


_INSTRUCTIONS = (SessionStarted, ExternalInject)


def _repeated_content(event: Event | UnknownEvent) -> _Said | None:
    """The content of an event that every list of messages repeats; `None` for nothing."""
    match event:
        case UserMessage() | ParentAgentMessage():
            return _Said(("user", *_content_parts(event.content)))
        case LlmTextResponse(content=content, interrupted=interrupted):
            return _Said(("assistant", *_content_parts(content)), bool(interrupted)) if content else None
        case LlmClarification():
            return _Said(("assistant", event.content))
        case LlmToolCall():
            calls = tuple((call.id, call.name, _sorted(call.arguments)) for call in event.calls)
            return _Said(("assistant", event.content, calls))
        case ToolResult() | ToolError():
            return _Said(("tool", event.call_id, *_content_parts(event.content)))
    return None


def _content_parts(content: Content) -> tuple[str, ...]:
    """The content, however a message gives it: a text is a list of one."""
    if isinstance(content, str):
        return (content,)
    return tuple(
        part.text if isinstance(part, TextPart) else part.file_id or part.url or content_text((part,))
        for part in content
    )


def _sorted(arguments: str) -> str:
    """The arguments, however they were written."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments
