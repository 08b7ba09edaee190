"""Values of messages as plain JSON: taken from dictionaries or from the objects of an SDK, and looked at with care."""

import json
import math
from collections.abc import Iterable, Mapping

from memory_engine.errors import InvalidMessage
from memory_engine.formats.native import Json, written

_DEPTH_MAX = 100
_SCALARS = frozenset({str, int, bool, type(None)})
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


def kind_of(value: object) -> str:
    """The type of a JSON value, in words."""
    return _KINDS.get(type(value), "a number")


def plain(value: object, where: str = "$") -> object:
    """A value as plain JSON: objects of an SDK become dictionaries of what is set in them.

    Raises `InvalidMessage` for what JSON does not hold.
    """
    try:
        return _plain_json(value, 0)
    except InvalidMessage as error:
        raise error.within(where) from None


_GIVE = "give texts, numbers, lists, objects"


def _is_stream(value: object) -> bool:
    return hasattr(value, "__aiter__") or hasattr(value, "__next__")


def _plain_json(value: object, depth: int) -> object:
    if type(value) in _SCALARS:
        return value
    if depth > _DEPTH_MAX:
        raise InvalidMessage("$", f"it is nested more than {_DEPTH_MAX} deep")
    match value:
        case str():
            return value[:]  # of a subclass, such as a member of an enumeration, the text
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return value
        case Mapping():
            return {_text_key(key): _inside(one, f".{key}", depth) for key, one in value.items()}
        case list() | tuple():
            return [_inside(one, f"[{n}]", depth) for n, one in enumerate(value)]
    dumped = _dumped(value)
    if dumped is None:
        give = "feed the chunks of a stream to `thread.recording()`" if _is_stream(value) else _GIVE
        raise InvalidMessage("$", f"{_type_label(value)} is not a value of JSON; {give}")
    return _plain_json(dumped, depth + 1)


def _inside(value: object, place: str, depth: int) -> object:
    if type(value) in _SCALARS:
        return value
    try:
        return _plain_json(value, depth + 1)
    except InvalidMessage as error:
        raise error.within(f"${place}") from None


def _text_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidMessage("$", f"the key {key!r} is not a text")
    return key


def _type_label(value: object) -> str:
    return str(value) if isinstance(value, float) else f"a {type(value).__name__}"


def _dumped(value: object) -> object:
    """The attributes of an SDK's object; `None` for any other."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            dumped: object = dump(
                mode="json", exclude_unset=True, by_alias=True, warnings=False
            )  # as it came, and no more
        except TypeError:
            return dump()
        except ValueError as error:
            told = f"{_type_label(value)} holds what is not a value of JSON ({error}); give it without that"
            raise InvalidMessage("$", told) from None
        kind = getattr(value, "type", None)  # a default, which tells LangChain's messages apart
        is_langchains = isinstance(kind, str) and hasattr(value, "response_metadata")
        return dumped | {"type": kind} if is_langchains and isinstance(dumped, dict) else dumped
    to_dict = getattr(value, "to_dict", None)
    return to_dict() if callable(to_dict) and not isinstance(value, type) else None


def as_object(value: object, what: str, where: str) -> Json:
    """The value, which is to be an object."""
    if not isinstance(value, dict):
        raise InvalidMessage(where, f"{what} is an object, this is {kind_of(value)}")
    return value


def as_list(value: object, what: str, where: str) -> list[object]:
    """The value, which is to be a list."""
    if not isinstance(value, list):
        raise InvalidMessage(where, f"{what} is a list, this is {kind_of(value)}")
    return value


def text_at(value: Mapping[str, object], key: str, where: str = "$") -> str:
    """The text under a key, empty without one."""
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidMessage(f"{where}.{key}", f"{key} is a text, this is {kind_of(found)}")
    return found


def needed(value: Mapping[str, object], key: str, what: str, where: str) -> str:
    """The text under a key that `what` must have."""
    if not isinstance(value.get(key), str):
        raise InvalidMessage(where, f"{what} has no {key}, which is a text")
    return text_at(value, key, where)


def data_url(media_type: str, data: str) -> str:
    """The `data:` URL of a file in Base64."""
    return f"data:{media_type};base64,{data}"


def from_data_url(url: str) -> tuple[str, str] | None:
    """The media type and the Base64 of a `data:` URL; `None` for any other address."""
    media_type, mark, data = url.partition(";base64,")
    return (media_type.removeprefix("data:"), data) if mark and url.startswith("data:") else None


def compact(value: object) -> str:
    """JSON as models write it, in the order of its keys."""
    return written(value)


def joined_texts(texts: Iterable[str], between: str = "\n") -> str:
    """The texts that say something, one after the other."""
    return between.join(filter(None, texts))


def short_json(value: object) -> str:
    """A value for a message to a person."""
    return compact(value)[:60]


def is_json(text: object) -> bool:
    """Whether a text is JSON; a broken one may be half of it."""
    try:
        json.loads(text if isinstance(text, str) else "")
    except (ValueError, RecursionError):
        return False
    return True
