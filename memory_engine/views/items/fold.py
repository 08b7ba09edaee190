"""The view of items: by name, the place of each one's value in the log."""

from collections.abc import Sequence
from typing import cast

import msgspec

from memory_engine.core.clock import to_us
from memory_engine.core.events.base import Event
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.recall.extractors import pieces
from memory_engine.views.items.events import ItemPut, ItemsDeleted, ItemsUsed

_ITEM = "item:"
_USED = "used:"


class ItemRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="item", gc=False):
    """An item whose value the event `seq` holds, and how many passages that has. Times are microseconds."""

    seq: int
    created_us: int
    changed_us: int
    ttl_us: int = 0
    passages: int = 0


class UsedRow(msgspec.Struct, frozen=True, tag="used", gc=False):
    """When the version of an item that the event `seq` holds was used last."""

    seq: int
    at_us: int


AnyItemRow = ItemRow | UsedRow


def item_key(namespace: Sequence[str], key: str) -> str:
    """The key of an item's row, and of its passages. Those of a namespace and of all below it are adjacent."""
    return f"{namespace_key(namespace)}/{_escaped(key)}"


def namespace_key(namespace: Sequence[str]) -> str:
    """The prefix of the keys of all items in a namespace and below it."""
    return _ITEM + "".join(f"{_escaped(label) or '%'}/" for label in namespace)


def used_key(key: str) -> str:
    """The key of the row of an item's last use, by the key of its own row."""
    return _USED + key.removeprefix(_ITEM)


def item_name(key: str) -> tuple[tuple[str, ...], str]:
    """Namespace and key of an item, by the key of its row."""
    path, _, own = key.removeprefix(_ITEM).partition("//") if not key.startswith(f"{_ITEM}/") else ("", "", key[6:])
    labels = path.split("/") if path else ()
    return tuple("" if label == "%" else _unescape_label(label) for label in labels), _unescape_label(own)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def _unescape_label(text: str) -> str:
    return text.replace("%00", "\0").replace("%2F", "/").replace("%25", "%")


class ItemsFold:
    """Items by name. It never reads its rows, and they hold no values: however many there are, a change costs one."""

    name = "items"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = True
    row = cast("type[AnyItemRow]", AnyItemRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (ItemPut, ItemsDeleted, ItemsUsed)

    @staticmethod
    def origin(row: AnyItemRow) -> int:
        """The event that a row came of: it cannot be found by that unread, so a forgetting leaves it where it is."""
        return row.seq

    def apply(self, rows: Rows[AnyItemRow], event: RecordedEvent) -> None:
        """Put and drop."""
        now_us = to_us(event.recorded_at)
        match event.event:
            case ItemPut() as put:
                said = sum(1 for text in put.texts() for _ in pieces(text))
                row = ItemRow(event.seq, put.created_us or now_us, now_us, put.ttl_us, said)
                rows.put(item_key(put.namespace, put.key), row)
            case ItemsDeleted(items=items):
                for name in items:
                    key = item_key(name.namespace, name.key)
                    rows.drop(key)
                    rows.drop(used_key(key))
            case ItemsUsed(items=items):
                for use in items:
                    rows.put(used_key(item_key(use.namespace, use.key)), UsedRow(use.seq, now_us))


ITEMS = ItemsFold()
