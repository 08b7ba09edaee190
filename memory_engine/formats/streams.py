"""Streams, put together again as the response that they would have been in one piece: what all formats share."""

from typing import Protocol

from memory_engine.errors import InvalidMessage
from memory_engine.formats.detection import Format
from memory_engine.formats.native import Json
from memory_engine.formats.values import short_json, text_at


class Assembly(Protocol):
    """A response as far as it has come."""

    @property
    def format(self) -> Format:
        """The format of its messages."""
        ...

    def feed(self, value: Json) -> None:
        """Take the next chunk or event. Raises `InvalidMessage`."""
        ...

    @property
    def text(self) -> str:
        """The text so far."""
        ...

    @property
    def failure(self) -> str:
        """The error that the provider reported; empty without one."""
        ...

    def whole(self) -> Json | None:
        """The response object, once the stream has said that it is at its end."""
        ...

    def so_far(self) -> tuple[list[Json], Json]:
        """The messages (items) so far, and the values around them."""
        ...


def shown_text(value: Json, key: str) -> str:
    """Return the text under a key; empty for anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def index_in(value: Json, key: str) -> int:
    """Return the number of a block or an item under a key. Raises `InvalidMessage`."""
    found = value.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise InvalidMessage(f"$.{key}", f"{key} is a number from 0 on, not {short_json(found)}")
    return found


def object_in(value: Json, key: str) -> Json:
    """Return the object under a key; an empty one for anything else."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def objects_in(item: Json, key: str) -> list[Json]:
    """Return the objects of the list under a key."""
    found = item.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def told_error(error: object) -> str:
    """A provider's report of an error."""
    if isinstance(error, dict):
        return text_at(error, "message") or text_at(error, "code") or short_json(error)
    return short_json(error)
