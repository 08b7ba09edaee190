"""Items: values that programs keep under names, one event a change.

A version is written whole: it can be read, compared and forgotten without the versions before it.
"""

from typing import Annotated

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Moment, Name, Seq

Span = Annotated[int, msgspec.Meta(ge=0, le=252_455_616_000_000_000)]
"""Microseconds, up to 8,000 years; 0: without an end."""
WHOLE = "$"
"""The path of a whole value."""


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


@event("items_deleted", tracked=True, role="memory", chunks="none")
class ItemsDeleted(Event):
    """Items go. Their versions stay in the log."""

    items: tuple[ItemName, ...]
    reason: str = ""


@event("items_used", tracked=True, role="memory", chunks="none")
class ItemsUsed(Event):
    """Items that are kept for a time after their last use were used now."""

    items: tuple[ItemUse, ...]
