"""Items: values that programs keep under names, one event a change.

A version is written whole: it can be read, compared and forgotten without the versions before it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Moment, Name, Seq
from memory_engine.core.lazy import regex

Span = Annotated[int, msgspec.Meta(ge=0, le=252_455_616_000_000_000)]
"""Microseconds, up to 8,000 years; 0: without an end."""
WHOLE = "$"
"""The path of a whole value."""
_STEP = regex(r"\{(?P<some>[^{}]*)\}|\[(?P<place>[^\[\]]*)\]|(?P<name>[^.\[\]{}]+)")
"""A step of a path: some of several fields, a place in a list, a field."""


class ItemName(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The namespace of an item, from the outermost label on, and its key there."""

    namespace: tuple[Name, ...]
    key: Name


class ItemUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item that was used: its version, by the seq of its event, and how long it is kept from now on."""

    namespace: tuple[Name, ...]
    key: Name
    seq: Seq
    ttl_us: Span


@event("item_put", tracked=True, role="memory", chunks="none")
class ItemPut(Event):
    """A new item, or a new version of one. Search finds the texts at the paths of `index` (`$`: in all of the value).

    `created_us` is when the first of its versions was put (0: this is the first), `ttl_us` how long the item is kept
    after its last use. The log keeps the fields of an object in order of their names; `order` says where each of them
    stood, object by object, those inside of one after it. Without it they stood so.
    """

    namespace: tuple[Name, ...]
    key: Name
    value: dict[str, object]
    index: tuple[Name, ...] = (WHOLE,)
    created_us: Moment = 0
    ttl_us: Span = 0
    order: tuple[Span, ...] = ()

    def in_few_words(self) -> str:
        """Its name, and its value."""
        return f"{_item_path(self)}: {json.dumps(self.value, ensure_ascii=False)}"

    def texts(self) -> Iterator[str]:
        """The texts that search finds, in order; a path that leads nowhere gives none."""
        return texts_at_paths(self.value, self.index)


@event("items_deleted", tracked=True, role="memory", chunks="none")
class ItemsDeleted(Event):
    """Items go. Their versions stay in the log."""

    items: tuple[ItemName, ...]
    reason: str = ""

    def in_few_words(self) -> str:
        """Their names, and the reason."""
        return ", ".join(map(_item_path, self.items)) + (f" ({self.reason})" if self.reason else "")


@event("items_used", tracked=True, role="memory", chunks="none")
class ItemsUsed(Event):
    """Items that are kept for a time after their last use were used now."""

    items: tuple[ItemUse, ...]

    def in_few_words(self) -> str:
        """Their names."""
        return ", ".join(map(_item_path, self.items))


def _item_path(item: ItemName | ItemUse | ItemPut) -> str:
    return "/".join((*item.namespace, item.key))


def texts_at_paths(value: object, paths: Iterable[str]) -> Iterator[str]:
    """The texts of a value at paths such as `title`, `author.name` or `tags[*]`."""
    for path in paths:
        for found in (value,) if path in (WHOLE, "") else _values_at(value, list(_STEP.finditer(path))):
            said = _readable_text(found)
            if said.strip():
                yield said


def _values_at(value: object, steps: Sequence[re.Match[str]]) -> Iterator[object]:
    if not steps:
        yield value
        return
    for found in _step_values(value, steps[0]):
        yield from _values_at(found, steps[1:])


def _step_values(value: object, step: re.Match[str]) -> Iterator[object]:
    name, place, some = step.group("name", "place", "some")
    if some is not None:
        for path in some.split(","):
            yield from _values_at(value, list(_STEP.finditer(path.strip())))
    elif isinstance(value, dict):
        if name == "*":
            yield from (one for _, one in sorted(value.items()))
        elif name in value:
            yield value[name]
    elif isinstance(value, list | tuple):
        if "*" in (name, place):
            yield from value
        elif place is not None and re.fullmatch(r"-?\d{1,9}", place) and -len(value) <= int(place) < len(value):
            yield value[int(place)]


def _readable_text(value: object) -> str:
    """A value as a person reads it, the fields in order of their names, as the log keeps them."""
    match value:
        case None:
            return ""
        case str():
            return value
        case dict():
            return "\n".join(f"{name}: {said}" for name, one in sorted(value.items()) if (said := _readable_text(one)))
        case list() | tuple():
            return ", ".join(said for one in value if (said := _readable_text(one)))
    return json.dumps(value)
