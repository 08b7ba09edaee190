"""Messages of any format as events: one message, a list of them, or a model's response as its SDK gives it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.events.base import Event, TextPart
from memory_engine.core.events.messages import (
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    ParentAgentMessage,
    UserMessage,
)
from memory_engine.core.lazy import lazy_module
from memory_engine.errors import InvalidMessage
from memory_engine.formats.detection import Format, checked, detected, of_object
from memory_engine.formats.dialogue import Dialogue, Returning
from memory_engine.formats.native import (
    OTHERWISE,
    SAME,
    Json,
    beyond,
    from_native,
    is_instead,
    is_whole,
    message_of,
    to_native,
    visible,
)
from memory_engine.formats.origin import marked, unwrapped, without_flags
from memory_engine.formats.parts import ModelFields, WholeResponse
from memory_engine.formats.providers import PROVIDERS
from memory_engine.formats.values import as_object, plain

if TYPE_CHECKING:
    from memory_engine.formats import openai_responses
else:
    openai_responses = lazy_module("memory_engine.formats.openai_responses")

_REPEATED = frozenset({"tools", "instructions"})
"""Keys of the request that a response repeats, at length."""

Response = LlmTextResponse | LlmThinking | LlmToolCall
NewName = Callable[[], str]
"""Names a response that its provider does not name."""


class ReadMessage(msgspec.Struct, frozen=True):
    """The events of one message, or of one response. `at` is the place of its first message in what was given.

    `provider_id` is what the provider calls the response; empty where it names none. `is_part`: more of it may come in
    other messages under the same id.
    """

    at: int
    events: tuple[Event, ...]
    provider_id: str = ""
    is_part: bool = False


class _Unit(msgspec.Struct, frozen=True):
    """A unit of translation: a response, a message, or a run of items; `at` is the place of the first."""

    at: int
    messages: list[Json]
    response: WholeResponse | None = None


class Messages:
    """Messages and responses of one format, as plain JSON; also lines of transcripts that hold a message each.

    `format` decides where nothing in them does, `first` is the place of the first in what was given. Raises
    `InvalidMessage`, whose place begins with that of its message.
    """

    def __init__(self, values: Sequence[object], format: str | None, *, first: int = 0) -> None:
        known = checked(format)
        read = [
            unwrapped(as_object(plain(value, f"$[{n}]"), "a message", f"$[{n}]"))
            for n, value in enumerate(values, first)
        ]
        self.format: Format = known or detected(read, map(of_object, values))
        self._units = list(_units(read, self.format, first))

    @property
    def provider_ids(self) -> list[str]:
        """Return the ids that the provider gave to responses."""
        return [unit.response.id for unit in self._units if unit.response is not None and unit.response.id]

    def read(self, dialogue: Dialogue, new_name: NewName, *, known: Collection[str] = ()) -> list[ReadMessage]:
        """Return the events of the messages, in order.

        `known` are the ids of responses of which some was recorded before: their calls may be bound already.
        """
        seen = set(known)
        read = []
        for unit in self._units:
            read.append(self._read(unit, dialogue, new_name, seen))
            seen.add(read[-1].provider_id)
        return read

    def _read(self, unit: _Unit, dialogue: Dialogue, new_name: NewName, known: Collection[str]) -> ReadMessage:
        named = unit.response.id if unit.response else ""
        try:
            binding = Returning(dialogue) if named and named in known else dialogue
            events = _events(self.format, unit, binding, named or new_name())
        except InvalidMessage as error:
            is_run = self.format == "openai.responses" and unit.response is None
            raise _located_error(error, unit.at, is_run=is_run) from None
        events = [_storable(event, self.format) for event in events]
        of_one = unit.messages[0] if len(unit.messages) == 1 else {}
        read = tuple(marked(events, of_one, dialogue.hearing))
        if any(isinstance(event, UserMessage | ParentAgentMessage) for event in read):
            dialogue.spoken()
        return ReadMessage(unit.at, read, named, is_part=bool(named) and self.format == "anthropic")


def response_of(value: Json, format: Format) -> WholeResponse | None:
    """A response of a format as its messages and the values around them; `None` for anything else."""
    found: WholeResponse | None = PROVIDERS[format].whole_response(value)
    return found


def interrupted(format: Format, messages: list[Json], around: Json, why: str, name: str) -> list[Event]:
    """The events of a response that broke off: its thoughts, and its text with the mark.

    Calls, whole or not, are kept in `native` as `unfinished`: they were not to be run, so none may wait.
    """
    rest, calls = PROVIDERS[format].without_calls(messages)
    events = _translate(format, rest, Dialogue(), name)
    if not isinstance(events[-1], LlmTextResponse):
        events.append(LlmTextResponse(content="", response_id=name))
    events[-1] = msgspec.structs.replace(events[-1], interrupted=why)
    told = _with_response(events, format, {**around, **({"unfinished": calls} if calls else {})})
    return [_storable(event, format) for event in told]


def _events(format: Format, unit: _Unit, dialogue: Dialogue, name: str) -> list[Event]:
    response = unit.response
    if response is None:
        return without_needless_ids(_translate(format, unit.messages, dialogue, name))
    if response.stopped and PROVIDERS[format].has_half_call(unit.messages):
        return interrupted(format, unit.messages, response.around, response.stopped, name)
    events = _with_response(
        _translate(format, unit.messages, dialogue, name, is_response=True), format, response.around
    )
    if response.stopped and isinstance(said := events[-1], LlmTextResponse):
        events[-1] = msgspec.structs.replace(said, interrupted=response.stopped)
    return events


def _storable(event: Event, format: Format) -> Event:
    """The event in a form that a log can hold: texts with lone surrogates are in `native`, with signs for them here.

    Only for what a model said: its provider wants it back code point by code point.
    """
    if not isinstance(event, LlmTextResponse | LlmThinking | LlmToolCall) or not _has_surrogates(event):
        return event
    if format == "openai.chat" and isinstance(event, LlmThinking):
        return msgspec.structs.replace(event, content=visible(event.content))
    module, stored = PROVIDERS[format], _visible(event)
    whole = message_of(event.native, format, module.made(_model_fields(event)))
    kept = from_native(event.native, format)
    message = beyond(whole, _marked_differences(whole, module.made(_model_fields(stored)), kept.get("message")))
    response = kept.get("response")
    native = to_native(format, message, response if isinstance(response, dict) else None)
    return msgspec.structs.replace(stored, native=native)


def _marked_differences(whole: object, ours: object, entries: object) -> object:
    """The fields' message, with marks where it differs from the whole: `entries` are those of `native`."""
    if isinstance(whole, list) and isinstance(ours, list):
        known = entries if isinstance(entries, list) else [{} for _ in whole]
        rest = iter(ours)
        made = [None if is_whole(entry) else next(rest, None) for entry in known]
        return [
            OTHERWISE if one is not None and (is_instead(entry) or _has_surrogates(value)) else one
            for one, entry, value in zip(made, known, whole, strict=True)
        ]
    if isinstance(whole, dict) and isinstance(ours, dict):
        listed = entries if isinstance(entries, dict) else {}
        return {key: _marked_differences(whole.get(key), one, listed.get(key)) for key, one in ours.items()}
    return ours


def _has_surrogates(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    return False


def _visible(event: Response) -> Response:
    match event:
        case LlmThinking():
            sealed = visible(event.signature)
            return msgspec.structs.replace(event, content=visible(event.content), signature=sealed)
        case LlmToolCall():
            calls = [
                msgspec.structs.replace(call, name=visible(call.name), arguments=visible(call.arguments))
                for call in event.calls
            ]
            return msgspec.structs.replace(event, content=visible(event.content), calls=tuple(calls))
    parts = event.content
    if isinstance(parts, str):
        return msgspec.structs.replace(event, content=visible(parts))
    shown = [
        msgspec.structs.replace(one, text=visible(one.text)) if isinstance(one, TextPart) else one for one in parts
    ]
    return msgspec.structs.replace(event, content=tuple(shown))


def _model_fields(event: Response) -> ModelFields:
    match event:
        case LlmThinking():
            return ModelFields(content=event.content, signature=event.signature, is_thinking=True)
        case LlmToolCall():
            return ModelFields(content=event.content, calls=event.calls)
    return ModelFields(content=event.content, name=event.name)


def _units(read: list[Json], format: Format, first: int) -> Iterator[_Unit]:
    loose = 0
    responses = [_response_at(n, value, format) for n, value in enumerate(read, first)]
    for n, (value, response) in enumerate(zip(read, responses, strict=True)):
        if response is None and format == "openai.responses":
            loose += 1
            continue
        yield from _runs(read[n - loose : n], first + n - loose)
        loose = 0
        yield _Unit(first + n, response.messages if response else [value], response)
    yield from _runs(read[len(read) - loose :], first + len(read) - loose)


def _response_at(place: int, value: Json, format: Format) -> WholeResponse | None:
    try:
        return response_of(value, format)
    except InvalidMessage as error:
        raise error.within(f"$[{place}]") from None


def _runs(items: list[Json], start: int) -> Iterator[_Unit]:
    return (_Unit(start + at, run) for at, run in openai_responses.runs(items)) if items else iter(())


def _translate(
    format: Format, messages: list[Json], dialogue: Dialogue, name: str, *, is_response: bool = False
) -> list[Event]:
    """Translate messages that belong together into events."""
    if format == "openai.responses":
        found = openai_responses.read(messages, dialogue, name, is_response=is_response)
        return found or [LlmTextResponse(content="", response_id=name)]
    events = [event for message in messages for event in PROVIDERS[format].read(without_flags(message), dialogue, name)]
    return events or [LlmTextResponse(content="", response_id=name)]


def without_needless_ids(events: list[Event]) -> list[Event]:
    """Return the events, without the response's id if it is a single event other than a thought."""
    if len(events) == 1 and isinstance(events[0], LlmTextResponse | LlmToolCall):
        return [msgspec.structs.replace(events[0], response_id="")]
    return events


def _with_response(events: list[Event], format: Format, around: Json) -> list[Event]:
    """Return the events, with the rest of the response object added to the last one."""
    told = {key: value for key, value in around.items() if value is not None and key not in _REPEATED}
    last = events[-1]
    message = from_native(getattr(last, "native", ""), format).get("message", SAME)
    return [*events[:-1], msgspec.structs.replace(last, native=to_native(format, message, told))]


def _located_error(error: InvalidMessage, at: int, *, is_run: bool) -> InvalidMessage:
    """Return the error with its place in the input. In a run of items, its own place begins with the item."""
    if not is_run:
        return error.within(f"$[{at}]")
    number, _, rest = error.where.removeprefix("$[").partition("]")
    return InvalidMessage(f"$[{at + int(number)}]{rest}", error.why)
