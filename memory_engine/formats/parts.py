"""The parts of messages in a format: what the fields hold of them, and what they would make of it again."""

import json
from collections.abc import Callable, Mapping, Sequence

import msgspec

from memory_engine.core.events.base import Content, Event, Part, TextPart, ToolCall
from memory_engine.formats.native import OTHERWISE, Json, beyond, to_native
from memory_engine.formats.values import as_list, as_object


class ReadPart(msgspec.Struct, frozen=True):
    """A part as the fields hold it, and what they make of it in its format.

    `part` is `None`, and so is `ours`, for a block that they do not hold; `ours` is `OTHERWISE` where they make
    something else of it.
    """

    part: Part | None = None
    ours: object = None


FOREIGN = ReadPart()
"""A block that the fields do not hold."""
PartReader = Callable[[Json, str], ReadPart]
"""Reads a block at a place."""


class ReadContent(msgspec.Struct, frozen=True):
    """Content as the fields hold it, and what they make of it in its format."""

    content: Content
    ours: object


def otherwise(part: Part) -> ReadPart:
    """A part for a block of another kind."""
    return ReadPart(part, OTHERWISE)


def read_parts(found: object, read: PartReader, where: str) -> tuple[list[Json], list[ReadPart]]:
    """The blocks of a list of content, and each as a part."""
    blocks = [
        as_object(block, "a part of content", f"{where}[{n}]")
        for n, block in enumerate(as_list(found, "content", where))
    ]
    return blocks, [read(block, f"{where}[{n}]") for n, block in enumerate(blocks)]


def content_of(parts: Sequence[ReadPart]) -> tuple[Part, ...] | str:
    """The content of an event; empty text where the fields hold none of the parts."""
    held = tuple(one.part for one in parts if one.part is not None)
    return held if held or not parts else ""


def single_text(parts: Sequence[ReadPart]) -> Content:
    """The same, but text where it is one text and nothing else."""
    content = content_of(parts)
    if len(content) == 1 and isinstance(first := content[0], TextPart):
        return first.text
    return content


def with_native(event: Event, format: str, whole: object, ours: object) -> Event:
    """The event with what its part of a message says beyond it."""
    native = to_native(format, beyond(whole, ours))
    return msgspec.structs.replace(event, native=native) if native else event


class ModelFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of what a model said: of one event of a response, or of its chunk."""

    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    name: str = ""
    signature: str = ""
    is_thinking: bool = False


def arguments_of(call: ToolCall) -> Json:
    """The arguments of a call. Anything but a JSON object (a model may write any text) is under `arguments`."""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"arguments": call.arguments}


def parts_of(content: Content) -> Sequence[Part]:
    """The parts of content; none of an empty text."""
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return content


class WholeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response object. `messages` are its messages (its items, in `openai.responses`), `around` is the rest of it.

    `stopped` says what stopped the model in the middle, if anything did: a limit, a filter.
    """

    id: str
    messages: list[Json]
    around: Json
    stopped: str = ""


def set_only(values: Mapping[str, str]) -> Json:
    """The keys that have a value."""
    return {key: value for key, value in values.items() if value}
