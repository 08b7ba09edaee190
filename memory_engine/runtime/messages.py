"""Messages of model providers, recorded in a thread: whole, as lists, or as they stream in."""

import asyncio
import itertools
import json
import logging
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from memory_engine.core.arguments import checked_flag
from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_row
from memory_engine.core.chunks import ChunkType, content_text
from memory_engine.core.events.base import Content, Event, TextPart, ToolCall, UnknownEvent
from memory_engine.core.events.memory import ExternalInject, SessionStarted
from memory_engine.core.events.messages import (
    LlmClarification,
    LlmTextResponse,
    LlmToolCall,
    ParentAgentMessage,
    ToolError,
    ToolResult,
    UserMessage,
)
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.core.state import State
from memory_engine.errors import IdempotencyConflict, InvalidMessage, NotContinued
from memory_engine.formats import openai_responses
from memory_engine.formats.detection import Format, checked, of_object, of_stream
from memory_engine.formats.dialogue import Dialogue, Unbound
from memory_engine.formats.native import Json, to_native, without_native
from memory_engine.formats.origin import Hearing, hear_state, marked, without_origin
from memory_engine.formats.streams import Assembly, assembly_of
from memory_engine.formats.translation import Messages, ReadMessage, interrupted
from memory_engine.formats.values import as_object, plain
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.threads import OpenThreads

NAMESPACE = uuid.UUID("0d5d1f0a-5a0e-5c0b-9a57-6a3f6a1c9f42")
"""The namespace of ids of events whose messages have a name. Never change it: known responses would come twice."""
E = TypeVar("E", bound=Event)
_PAGE = 256
ASKED_BACK = 200
"""Chunks in which a new call's id is looked for; a model that numbers its calls anew does so in the next turn."""
LOOK_S = 0.05
"""Seconds between the looks of a cancelled caller at whether its thread takes events."""
PARTS_MAX = 64
"""Events of one message that are looked for by its name."""
_log = logging.getLogger("memory_engine.runtime.messages")
CUT_SHORT = "the stream ended before the response did"


async def record(
    thread: ThreadHandle, messages: object, *, format: Format | None, new_only: bool
) -> tuple[Receipt, ...]:
    """See `Thread.record`."""
    thread.check_present("messages")
    checked_flag("new_only", new_only)
    values = list(messages) if isinstance(messages, list | tuple) else [messages]
    dialogue = _ThreadDialogue(await thread.state())
    if new_only:
        return await _record_new(thread, values, format, dialogue)
    given = Messages(values, format)
    known = await _known(thread, given.provider_ids)
    return await _dispatched(thread, given.read(dialogue, thread.kernel.new_id, known=known))


class _ThreadDialogue(Dialogue):
    """A dialogue that goes on with a thread's state, of which it reads what the messages need."""

    def __init__(self, state: State) -> None:
        super().__init__(hearing=Hearing(partial(hear_state, state)))
        self._state = state
        self._is_begun = False
        self._looked_up: set[str] = set()

    def begin(self) -> None:
        """What comes next are the instructions from now on."""
        self._is_begun, self.has_instructions = True, False

    def instructed(self, content: Content) -> Event:
        """The event of a system message, which may not be the first of the thread."""
        if not self._is_begun:
            self.has_instructions = any(chunk.type == ChunkType.SYSTEM for chunk in self._state.chunks())
        self._is_begun = True
        return super().instructed(content)

    def go_back(self, has_instructions: bool, waiting: dict[str, str], hearing: Hearing) -> None:
        """Go on from an earlier place."""
        self.has_instructions, self.waiting, self.hearing = has_instructions, waiting, hearing

    def asked(self, calls: Iterable[ToolCall], where: str = "$") -> None:
        """These calls wait from here on."""
        calls = tuple(calls)
        for call in calls:
            self._look_up(call.id, ASKED_BACK)
        super().asked(calls, where)

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
        for chunk in itertools.islice(self._state.newest(), count):
            if chunk.call_id == call_id and chunk.final:
                return
            found = next((call for call in chunk.calls if call.id == call_id), None)
            if found is not None:
                self.waiting[call_id] = found.name
                return


async def as_events(
    thread: ThreadHandle, messages: Sequence[object], names: Sequence[str], *, format: Format
) -> list[NewEvent]:
    """The events of messages that have names of their own, to be dispatched with others: an event a message or more.

    The names make their ids, so that a message is recorded once. Raises `InvalidMessage`.
    """
    given = Messages(messages, format)
    dialogue = _ThreadDialogue(await thread.state())
    read = given.read(dialogue, thread.kernel.new_id)
    return [NewEvent(event, _id(thread, names[one.at], part)) for one in read for part, event in enumerate(one.events)]


async def groups_as_events(
    thread: ThreadHandle, groups: Sequence[Sequence[object]], names: Sequence[str], *, format: Format
) -> list[list[NewEvent] | None]:
    """The same for groups of messages, each with a name; `None` for one that cannot be read where it stands.

    That is a result without its call, or an id of a call that waits already.
    """
    dialogue = _ThreadDialogue(await thread.state())
    found: list[list[NewEvent] | None] = []
    for group, name in zip(groups, names, strict=True):
        before = dialogue.has_instructions, dict(dialogue.waiting), dialogue.hearing.copy()
        try:
            read = Messages(group, format).read(dialogue, thread.kernel.new_id)
        except InvalidMessage as error:
            _log.info("messages %r of thread %r are not in order: %s", name, thread.id, error)
            dialogue.go_back(*before)
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

    Parallel calls are an event each. An item that is no event of its own (a search of the provider's) stands on the
    event after it in the same response.
    """
    dialogue = _ThreadDialogue(await thread.state())
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


async def recorded_ids(thread: ThreadHandle, names: Sequence[str]) -> list[str]:
    """The ids of the events that messages of these names were recorded as."""
    wanted = [_id(thread, name, part) for name in names for part in range(PARTS_MAX)]
    return [row.id for row in await thread.kernel.store.find(thread.id, wanted)] if wanted else []


async def _dispatched(thread: ThreadHandle, messages: Sequence[ReadMessage], name: str = "") -> tuple[Receipt, ...]:
    """Dispatch the events of messages, all or none. A response that was recorded before gives its first receipts."""
    named = [
        NewEvent(event, _id(thread, message.provider_id or (name and f"{name} {message.at}"), part))
        for message in messages
        for part, event in enumerate(message.events)
    ]
    try:
        return await thread.dispatch_all(named)
    except IdempotencyConflict:
        known = await _as_recorded(thread, named)
        if known == named:
            raise
        return await thread.dispatch_all(known)


async def _known(thread: ThreadHandle, provider_ids: Sequence[str]) -> set[str]:
    """The responses that the thread holds."""
    named = {_id(thread, provider_id, 0): provider_id for provider_id in provider_ids}
    stored = await thread.kernel.store.find(thread.id, list(named)) if named else ()
    return {named[row.id] for row in stored}


def _id(thread: ThreadHandle, name: str, part: int) -> str:
    """The id of an event of a message that has a name; empty for one without."""
    return str(uuid.uuid5(NAMESPACE, f"{part} {name} {thread.id}")) if name else ""


async def _as_recorded(thread: ThreadHandle, events: Sequence[NewEvent]) -> list[NewEvent]:
    """The events as they were recorded, where they differ only in what came around the message, or in its origin."""
    stored = await thread.kernel.store.find(thread.id, [new.id for new in events if new.id])
    there = {row.id: decode_row(thread.id, row, thread.kernel.events)[0] for row in stored}
    return [
        msgspec.structs.replace(new, event=found)
        if isinstance(found := there.get(new.id), Event) and _alone(found) == _alone(new.event)
        else new
        for new in events
    ]


def _alone(event: E) -> E:
    """The event with what it says alone: neither what came around it nor what was decided when it came."""
    return without_origin(without_native(event))


# a list that goes on with what the thread holds


class _Said(msgspec.Struct, frozen=True):
    """What an event says, to be compared. `optional`: a list may leave it out."""

    key: tuple[object, ...]
    optional: bool = False


async def _record_new(
    thread: ThreadHandle, values: Sequence[object], format: Format | None, dialogue: _ThreadDialogue
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
    """The number of the first message that goes on with the thread: after the longest beginning that it ends with.

    Raises `NotContinued` where it ends with none, but holds messages.
    """
    said = [[one for event in message.events if (one := _said(event)) is not None] for message in listed]
    everything = list(itertools.chain.from_iterable(said))
    ends = list(itertools.accumulate(map(len, said)))
    held = await _held(thread, len(everything))
    if not held or not everything:
        return 0
    for n in reversed(range(len(listed))):
        if said[n] and _ends_with(held, everything[: ends[n]]):
            return n + 1
    raise NotContinued(thread.id)


def _ends_with(held: Sequence[_Said], listed: Sequence[_Said]) -> bool:
    """Whether the thread ends with these; of what a list may leave out, it may leave out any."""
    at = len(held)
    for one in reversed(listed):
        while at and held[at - 1].key != one.key and held[at - 1].optional:
            at -= 1
        if not at or held[at - 1].key != one.key:
            return False
        at -= 1
    return True


async def _held(thread: ThreadHandle, count: int) -> list[_Said]:
    """What the last events of a thread say: `count` of those that no list may leave out, if there are so many."""
    held: list[_Said] = []
    upto = await thread.last_seq()
    began = await thread.kernel.reader.cleared_at(thread.id, upto)
    while upto > began and sum(not one.optional for one in held) < count:
        after = max(began, upto - _PAGE)
        page = [_said(recorded.event) async for recorded in thread.events(after=after, upto=upto)]
        held = [one for one in page if one is not None] + held
        upto = after
    return held


async def _last_id(thread: ThreadHandle) -> str:
    """The id of the last event: the same new messages, recorded twice at once after it, are recorded once."""
    last = await thread.latest(1)
    return last[0].id if last else "nothing"


_INSTRUCTIONS = (SessionStarted, ExternalInject)


def _said(event: Event | UnknownEvent) -> _Said | None:
    """What an event says that every list of messages repeats; `None` for nothing."""
    match event:
        case UserMessage() | ParentAgentMessage():
            return _Said(("user", *_read(event.content)))
        case LlmTextResponse(content=content, interrupted=interrupted):
            return _Said(("assistant", *_read(content)), bool(interrupted)) if content else None
        case LlmClarification():
            return _Said(("assistant", event.content))
        case LlmToolCall():
            calls = tuple((call.id, call.name, _sorted(call.arguments)) for call in event.calls)
            return _Said(("assistant", event.content, calls))
        case ToolResult() | ToolError():
            return _Said(("tool", event.call_id, *_read(event.content)))
    return None


def _read(content: Content) -> tuple[str, ...]:
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


# a stream


class Recording:
    """A response that streams in. `text` is what it has said so far; its receipts and calls are there at the end."""

    def __init__(self, thread: ThreadHandle, format: Format | None) -> None:
        self.receipts: tuple[Receipt, ...] = ()
        self._thread = thread
        self._format: Format | None = checked(format)
        self._assembly: Assembly | None = None
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        self._thread.check_present("messages")
        self._thread.kernel.check_writable("a recording")
        await self._thread.state()  # so that recording what has come needs nothing that could still be missing
        return self

    def feed(self, chunk: object) -> None:
        """Take the next chunk or event of the stream, as the SDK gives it. Raises `InvalidMessage`."""
        value = as_object(plain(chunk), "a chunk", "$")
        assembly = self._assembly or assembly_of(self._format or of_object(chunk) or of_stream(value))
        assembly.feed(value)
        self._assembly = assembly

    @property
    def text(self) -> str:
        """The text so far."""
        return self._assembly.text if self._assembly is not None else ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that were recorded, for you to run."""
        return tuple(call for receipt in self.receipts for chunk in receipt.chunks for call in chunk.calls)

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._assembly is None:
            return
        await self._to_its_end(self._thread.kernel.tasks.spawn(self._keep(self._assembly, error)), error)
        if self._failure is not None and error is None:
            raise self._failure
        if self._failure is not None and error is not None:
            error.add_note(f"what had come of the response could not be recorded: {self._failure}")

    async def _keep(self, assembly: Assembly, error: BaseException | None) -> None:
        """Record the response, or what has come of it."""
        try:
            self.receipts = await self._recorded(assembly, error)
        except Exception as failure:  # the end of a task: whoever awaits it is told
            self._failure = failure

    async def _recorded(self, assembly: Assembly, error: BaseException | None) -> tuple[Receipt, ...]:
        whole = assembly.whole()
        if whole is None:
            return await self._interrupted(assembly, assembly.failure or _why(error))
        dialogue = _ThreadDialogue(await self._thread.state())
        try:
            response = Messages([whole], assembly.format)
            known = await _known(self._thread, response.provider_ids)
            messages = response.read(dialogue, self._thread.kernel.new_id, known=known)
        except InvalidMessage as invalid:
            self._failure = invalid
            return await self._interrupted(assembly, invalid.why)
        return await _dispatched(self._thread, messages)

    async def _interrupted(self, assembly: Assembly, why: str) -> tuple[Receipt, ...]:
        messages, around = assembly.so_far()
        name = str(around.get("id") or self._thread.kernel.new_id())
        try:
            events = interrupted(assembly.format, messages, around, why, name)
        except InvalidMessage:  # the provider sent what it does not allow: it is kept as it came
            native = to_native(assembly.format, response={**around, "unfinished": messages})
            text = LlmTextResponse(content=assembly.text, response_id=name, interrupted=why, native=native)
            events = [text]
        return await self._thread.dispatch_all(events)

    async def _to_its_end(self, task: "asyncio.Task[None]", error: BaseException | None) -> None:
        """Wait until it is recorded; but no cancelled caller waits for a blocked thread: the task goes on alone."""
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            in_a_hurry = cancelled is not None or isinstance(error, asyncio.CancelledError)
            try:
                await asyncio.wait([task], timeout=LOOK_S if in_a_hurry else None)
            except asyncio.CancelledError as again:
                cancelled = again
                continue
            if in_a_hurry and self._is_blocked():
                break
        if cancelled is not None:
            raise cancelled

    def _is_blocked(self) -> bool:
        runtime = self._thread.kernel[OpenThreads].get(self._thread.id)
        return runtime is not None and runtime.queue.blocking_reason is not None


def _why(error: BaseException | None) -> str:
    if error is None:
        return CUT_SHORT
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
