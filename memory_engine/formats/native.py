"""The parts of a provider's message beyond the fields of events: the JSON of an event's or a chunk's `native`.

It is an object whose one key is the name of a format, and whose value has up to two keys:

- `message`: what the event's part of the message says beyond the event's other fields. In `openai.chat` that part is a
  whole message, an object. In `anthropic` it is a run of content blocks, in `openai.responses` a run of items: a list.
- `response`: on the last event of a response, the object that came around it (`id`, `model`, `usage`, why it stopped),
  without the messages in it. It has no place in a request.

`message` is read in parallel to the message (blocks, items) that the fields make, from the outside to the inside:

- an object holds the keys that are added, or differ
- a list holds an entry for each element in its place: `{}` where the fields say all of it, an object as above
- `{"$whole": value}` is a value that the fields do not make at all: a block of an unknown type, or a thought
  that only its provider can read
- `{"$instead": value}`, in a list, replaces the fields' value: a refusal, of which they have the text

So `filled(what the fields make, message)` is the provider's message again, value for value and string for string. Where
the fields have changed since (a text was shortened), a list no longer fits, and `filled` leaves out what it adds.
A `null` next to the fields of a message in `openai.chat` says nothing, and is not kept there; the object around
a message keeps it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar, cast

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.lazy import regex
from memory_engine.core.tokens import tokens_of_bytes
from memory_engine.errors.effects import Usage

WHOLE = "$whole"
"""The key of an entry that is a whole value."""
INSTEAD = "$instead"
"""The key of an entry whose value replaces the one that the fields make."""
Json = dict[str, object]
NESTING_MAX = 200
"""Values nested deeper than this are counted by their bytes alone."""
_STRING = regex(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKET = regex(r"[\[\]{}]")
_SURROGATE = regex(r"[\ud800-\udfff]")
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Types of values that hold a model's reasoning."""
_NOT_OWN = _THOUGHTS | frozenset("reasoning_content text tool_use tool_call function_call invalid_tool_call".split())
"""Types of blocks in LangChain's messages that are not the provider's own, or that the fields hold, too."""
_UNREADABLE = frozenset(
    "b64_json caller data encrypted_content encrypted_index encrypted_stdout fingerprint format_id phase result "
    "signature status type".split()
)
"""Keys of a provider's own values whose texts are not for people: names of kinds, sealed texts, bytes."""
_SEALED = frozenset("b64_json data encrypted_content encrypted_index encrypted_stdout result signature".split())
_SEALED_PERCENT = 24
"""Keys of sealed texts and bytes, and the share of them that chunks record as tokens: see `own_tokens`."""
SEALED_SHARE = 0.24
"""Share of a sealed text's characters that is counted: about four bytes of base64 are a token."""
E = TypeVar("E", bound=Event)


class _NothingBeyond:
    """Marks that there is nothing beyond the fields."""


SAME = _NothingBeyond()


class _OtherwiseMade:
    """Marks that the fields make a different value."""


OTHERWISE = _OtherwiseMade()


def beyond(whole: object, ours: object) -> object:
    """Return what `whole` holds beyond `ours`; `SAME` if nothing.

    In a list of `ours`, `None` marks an element for which the fields make nothing, `OTHERWISE` one that they make
    differently.
    """
    if isinstance(whole, dict) and isinstance(ours, dict):
        more = {key: found for key, value in whole.items() if (found := _under(ours, key, value)) is not SAME}
        return more or SAME
    if isinstance(whole, list) and isinstance(ours, list):
        return _beyond_list(whole, ours)
    return SAME if is_equal(whole, ours) else whole


def _under(ours: Json, key: str, value: object) -> object:
    if key in ours:
        return beyond(value, ours[key])
    return SAME if value is None else value


def _beyond_list(whole: list[object], ours: list[object]) -> object:
    if len(whole) != len(ours) or not all(isinstance(one, dict | _OtherwiseMade | None) for one in ours):
        return SAME if is_equal(whole, ours) else {WHOLE: whole}
    entries = [_native_entry(one, other) for one, other in zip(whole, ours, strict=True)]
    return entries if any(entries) else SAME


def _native_entry(whole: object, ours: object) -> object:
    if ours is None:
        return {WHOLE: whole}
    if ours is OTHERWISE or not isinstance(whole, dict) or not {WHOLE, INSTEAD}.isdisjoint(whole):
        return {INSTEAD: whole}
    more = beyond(whole, ours)
    nulls: Json = {
        key: None for key, value in whole.items() if value is None and isinstance(ours, dict) and key not in ours
    }
    return nulls if more is SAME else {**nulls, **cast("Json", more)}


def filled(ours: object, more: object) -> object:
    """`ours` with the result of `beyond`: the whole again. In a list, `ours` has no place for whole entries."""
    if is_whole(more):
        return cast("Json", more)[WHOLE]
    if isinstance(more, dict) and isinstance(ours, dict):
        return {**ours, **{key: filled(ours.get(key), value) for key, value in more.items()}}
    if isinstance(more, list) and (isinstance(ours, list) or all(map(is_whole, more))):
        return _filled_list(ours if isinstance(ours, list) else [], more)
    return more


def _filled_list(ours: list[object], more: list[object]) -> list[object]:
    places = sum(1 for entry in more if not is_whole(entry))
    if places != len(ours):
        return ours
    rest = iter(ours)
    return [cast("Json", entry)[WHOLE] if is_whole(entry) else _in_place(next(rest), entry) for entry in more]


def _in_place(ours: object, entry: object) -> object:
    return cast("Json", entry)[INSTEAD] if is_instead(entry) else filled(ours, entry)


def is_whole(entry: object) -> bool:
    """Return True if an entry of a list is a whole value."""
    return isinstance(entry, dict) and len(entry) == 1 and WHOLE in entry


def is_instead(entry: object) -> bool:
    """Return True if an entry of a list replaces what the fields make."""
    return isinstance(entry, dict) and len(entry) == 1 and INSTEAD in entry


def own_values(native: str) -> Iterator[Json]:
    """Yield the values in a `native` that the fields do not make at all, other than thoughts: a hosted tool's items."""
    if f'"{WHOLE}"' not in native:
        return
    for name, said in _native_object(native).items():
        message = said.get("message") if isinstance(said, dict) else None
        other = _THOUGHTS
        if name == "langchain" and isinstance(message, dict):
            message, other = message.get("content"), _NOT_OWN
        for entry in message if isinstance(message, list) else ():
            value = entry[WHOLE] if is_whole(entry) else None
            if isinstance(value, dict) and value.get("type") not in other and value.get("thought") is not True:
                yield value


def readable_text(value: object) -> str:
    """Return the texts of a provider's own value that a person can read, a line each."""
    return "\n".join(filter(str.strip, map(visible, _readable(value))))


def counted_text(value: Json) -> str:
    """Return a text of about as many tokens as the value takes in a request: less of its sealed texts."""
    return json.dumps(_with_short_seals(value), separators=(",", ":"), ensure_ascii=False, default=str)


def own_tokens(native: str) -> int:
    """Return the tokens of the provider's own values in a `native`, by their bytes: less of its sealed texts.

    Chunks record it, so it must not change for events of versions that exist. Of values that are nested so deep that
    the room on the caller's stack would decide whether they can be read, the bytes of the whole count.
    """
    if _nesting(native) > NESTING_MAX:
        return tokens_of_bytes(len(_bytes(native)))
    size = 0
    waiting: list[tuple[str, object]] = [("", value) for value in own_values(native)]
    while waiting:
        key, value = waiting.pop()
        match value:
            case dict():
                size += sum(len(_bytes(name)) + 4 for name in value) + 2
                waiting += value.items()
            case list():
                size += len(value) + 2
                waiting += ((key, one) for one in value)
            case str():
                size += len(_bytes(value)) * (_SEALED_PERCENT if key in _SEALED else 100) // 100 + 2
            case _:
                size += len(json.dumps(value))
    return tokens_of_bytes(size)


def _nesting(text: str) -> int:
    """Return how deep the values in a JSON text are nested; at most the number of its opening brackets."""
    opening = text.count("[") + text.count("{")
    if opening <= NESTING_MAX:
        return opening
    deepest = depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _readable(value: object, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _readable(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _readable(one, key)
    elif isinstance(value, str) and not (key in _UNREADABLE or key == "id" or key.endswith("_id")):
        yield value


def visible(text: str) -> str:
    """Return a text in which a sign replaces each lone surrogate."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _with_short_seals(value: object, key: str = "") -> object:
    match value:
        case dict():
            return {name: _with_short_seals(one, name) for name, one in value.items()}
        case list():
            return [_with_short_seals(one, key) for one in value]
        case str() if key in _UNREADABLE:
            return value[: int(len(value) * SEALED_SHARE)]
        case str():
            return visible(value)
    return value


def is_equal(one: object, other: object) -> bool:
    """Return True if two JSON values are equal: `1`, `1.0` and `true` all differ; the order of keys is ignored."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(is_equal(value, other[key]) for key, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(map(is_equal, one, other))
    return type(one) is type(other) and one == other


def to_native(format: str, message: object = SAME, response: Mapping[str, object] | None = None) -> str:
    """The text of `native`, of the result of `beyond` and the values around the message; empty for neither."""
    value: Json = {} if message is SAME else {"message": message}
    if response:
        value["response"] = dict(response)
    return written({format: value}) if value else ""


def written(value: object) -> str:
    """Return the JSON of a value, in the order of its keys. Lone surrogates, which no log may hold, are escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def without_native(event: E) -> E:
    """Return the event with its `native` removed, and with the mark of a version that did not count it."""
    if not getattr(event, "native", ""):
        return event
    return msgspec.structs.replace(event, native="", **({"uncounted": False} if hasattr(event, "uncounted") else {}))


def from_native(native: str, format: str) -> Json:
    """Return the keys `message` and `response` of `native` in a format; empty if it holds nothing in this format.

    A redacted `native` may be any text: if it cannot be read, the result is empty.
    """
    found = _native_object(native).get(format) if f'"{format}"' in native else None
    return found if isinstance(found, dict) else {}


def _native_object(native: str) -> Json:
    """Return the object in a `native`; an empty one without any."""
    for read in (msgspec.json.decode, json.loads):  # the second takes lone surrogates and infinity, too
        with suppress(ValueError, RecursionError):
            value = read(native)
            return value if isinstance(value, dict) else {}
    return {}


def message_of(native: str, format: str, ours: Sequence[object] | Mapping[str, object]) -> object:
    """Return what the fields make in a format, completed by `native`."""
    kept = from_native(native, format)
    return filled(ours, kept["message"]) if "message" in kept else ours


class ReportedUsage(msgspec.Struct, frozen=True):
    """A provider's report with a response. `cached_tokens` of the input came from its prompt cache.

    A response that comes in parts reports with each, under one `response_id`, what it has used so far.
    """

    model: str
    usage: Usage
    cached_tokens: int = 0
    response_id: str = ""


def reported_usages(native: str) -> Iterator[ReportedUsage]:
    """The usages in a `native`: mostly one, and none but on the last event of a response."""
    if '"response"' not in native:
        return
    for said in _native_object(native).values():
        response = said.get("response") if isinstance(said, dict) else None
        if isinstance(response, dict) and isinstance(counted := response.get("usage"), dict):
            model = response.get("model")
            named = response.get("id")
            reported = _reported(model if isinstance(model, str) else "", counted)
            yield msgspec.structs.replace(reported, response_id=named if isinstance(named, str) else "")


def _reported(model: str, counted: Mapping[str, object]) -> ReportedUsage:
    """Read OpenAI's or Anthropic's counts: OpenAI includes cached tokens in the input, Anthropic counts them apart."""
    details = counted.get("prompt_tokens_details") or counted.get("input_tokens_details")
    within = _positive_int(details.get("cached_tokens")) if isinstance(details, dict) else 0
    beside = _positive_int(counted.get("cache_read_input_tokens"))
    fed = _positive_int(counted.get("prompt_tokens")) + _positive_int(counted.get("input_tokens"))
    fed += beside + _positive_int(counted.get("cache_creation_input_tokens"))
    made = _positive_int(counted.get("completion_tokens")) + _positive_int(counted.get("output_tokens"))
    return ReportedUsage(model, Usage(input_tokens=fed, output_tokens=made), within + beside)


def _positive_int(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
