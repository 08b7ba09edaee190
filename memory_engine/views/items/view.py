"""Items: named values in namespaces, read by name, by namespace, and by what they say."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import cast

import msgspec

from memory_engine.core.arguments import checked_count, checked_text
from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.events.base import Event
from memory_engine.core.records import Receipt
from memory_engine.errors import Conflict
from memory_engine.recall.hits import Hit
from memory_engine.recall.search import LIMIT_MAX, Asked, Part
from memory_engine.recall.service import Recall, checked_query
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store import rewinds
from memory_engine.store.passages import PLACES_BITS
from memory_engine.views.items.events import WHOLE, ItemName, ItemPut, ItemsDeleted, ItemsUsed, ItemUse
from memory_engine.views.items.fold import (
    ITEMS,
    AnyItemRow,
    ItemRow,
    UsedRow,
    behind,
    item_key,
    item_name,
    namespace_key,
    used_key,
)

PAGE = 256
"""Items that are read in one go."""
FEW = 2_000
"""Up to this many items that a filter lets through, the nearest in meaning are looked for among them."""
PASSAGES_PER_ITEM = 3
"""An item may be found by several of its passages."""
USES_PER_TTL = 100
"""A use is recorded where this part of an item's time has passed since the last one."""

TIME_IS_OVER = "its time is over"

Value = Mapping[str, object]
Where = Callable[[Value], bool]
"""Whether a value is wanted."""


class ItemChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one item: its new value, or `None` to delete it. `index` are the paths of the texts to be found."""

    namespace: tuple[str, ...]
    key: str
    value: Value | None
    index: tuple[str, ...] = (WHOLE,)
    ttl_us: int = 0


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item: its value since the event `seq`. `expires` is when it is removed, if not used before.

    `score` (0 to 1) says how well it matches a search, within that search.
    """

    namespace: tuple[str, ...]
    key: str
    value: dict[str, object]
    seq: int
    created: datetime
    changed: datetime
    ttl_us: int = 0
    used: datetime | None = None
    score: float | None = None

    @property
    def expires(self) -> datetime | None:
        """When it expires; `None`: never."""
        return to_datetime(to_us(self.used or self.changed) + self.ttl_us) if self.ttl_us else None


class _Standing(msgspec.Struct, frozen=True):
    """An item that is there: the key of its row, its row, and when it was used last, if that is known."""

    key: str
    row: ItemRow
    used_us: int | None = None


class _Read(msgspec.Struct, frozen=True):
    """An item that was read, and its row."""

    row: ItemRow
    item: Item


class Items:
    """The items of one thread. You can read them before the thread exists.

    Nothing is held in memory: rows are read by name, values from the log. Names are a namespace (labels from the
    outermost on) and a key in it.
    """

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def get(self, namespace: Sequence[str], key: str) -> Item | None:
        """The item with this name, or `None`."""
        own = _checked_key(namespace, key)
        row = await self._row(own)
        found = await self._read([] if row is None else [(own, row)])
        return found[0].item if found else None

    async def put(
        self, namespace: Sequence[str], key: str, value: Value, *, index: Sequence[str] = (WHOLE,), ttl_us: int = 0
    ) -> Receipt:
        """Store a value under a name, replacing the current one."""
        change = ItemChange(namespace=tuple(namespace), key=key, value=value, index=tuple(index), ttl_us=ttl_us)
        return (await self.change([change]))[0]

    async def change(self, changes: Iterable[ItemChange]) -> Sequence[Receipt]:
        """Make changes in one commit; the last one per name counts. Deleting a missing item does nothing.

        Raises `InvalidEvent` for a value that JSON cannot express, and writes nothing.
        """
        last = {_checked_key(one.namespace, one.key): one for one in changes}
        deleted: list[ItemName] = []
        events: list[Event] = []
        for key, one in last.items():
            row = await self._row(key)
            if one.value is None:
                if row is not None:
                    deleted.append(ItemName(one.namespace, one.key))
                continue
            known = await self._standing([] if row is None else [(key, row)])
            put = ItemPut(
                namespace=one.namespace,
                key=one.key,
                value=dict(one.value),
                order=_order_of(one.value),
                index=one.index,
                created_us=known[0].row.created_us if known else 0,
                ttl_us=checked_count("ttl_us", one.ttl_us),
            )
            events.append(put)
        if deleted:
            events.append(ItemsDeleted(items=tuple(deleted)))
        return await self._thread.dispatch_all(events) if events else ()

    async def delete(self, namespace: Sequence[str], key: str) -> None:
        """Delete an item, if it exists. The log keeps it."""
        await self.change([ItemChange(namespace=tuple(namespace), key=key, value=None)])

    async def list(
        self, prefix: Sequence[str] = (), *, where: Where | None = None, limit: int | None = None, offset: int = 0
    ) -> Sequence[Item]:
        """The items in a namespace and below it, in order of name, without the first `offset` of them."""
        wanted = None if limit is None else checked_count("limit", limit) + checked_count("offset", offset)
        found: list[Item] = []
        if wanted == 0:
            return found
        async for one in self._all(prefix, PAGE if where or wanted is None else min(PAGE, wanted)):
            if where is None or where(one.item.value):
                found.append(one.item)
            if len(found) == wanted:
                break
        return found[offset:]

    async def search(
        self, query: str, prefix: Sequence[str] = (), *, where: Where | None = None, limit: int = 10, offset: int = 0
    ) -> Sequence[Item]:
        """The items in a namespace and below it that best match a question, best first, each with its score.

        Finds items that share a word with it, and with an embedder those near it in meaning. Of more than 1,000
        matching passages the best count. Raises the errors of a search.
        """
        wanted = checked_count("limit", limit) + checked_count("offset", offset)
        checked_query(query)
        if not limit or not await self._thread.exists():
            return []
        within = namespace_key(prefix)
        among: tuple[int, ...] | None = None
        if where is not None:
            rows = [one.row async for one in self._all(prefix, PAGE) if where(one.item.value)]
            if len(rows) <= FEW:
                among = tuple(row.seq << PLACES_BITS | n for row in rows for n in range(row.passages))
        asked = Asked(
            query=query,
            limit=LIMIT_MAX if where is not None else max(1, min(LIMIT_MAX, PASSAGES_PER_ITEM * wanted)),
            parts={self._thread.id: Part(((within, 0),), among)},
            upto=self._thread.as_of or 0,
        )
        hits = await self._thread.kernel[Recall].search((self._thread.id,), asked)
        found = [item for item in await self._found(hits) if where is None or where(item.value)]
        return found[offset:wanted]

    async def namespaces(self, prefix: Sequence[str] = ()) -> Sequence[tuple[str, ...]]:
        """The namespaces that hold an item, in and below one, in order. Reads some items of each, not all."""
        begin = first = namespace_key(prefix)
        found: set[tuple[str, ...]] = set()
        while page := await self._thread.rows_between(ITEMS, first, behind(begin), PAGE):
            found.update(item_name(one.key)[0] for one in await self._standing(page))
            last = page[-1][0]
            namespace = item_name(last)[0]
            first = behind(f"{namespace_key(namespace)}/") if namespace in found else f"{last}\0"
        return sorted(found)

    async def use(self, items: Iterable[Item]) -> None:
        """Record that items were used now: those that expire are kept for their whole time again.

        One used a moment before, within a hundredth of its time, writes nothing.
        """
        now_us = self._thread.kernel.now_us()
        used = tuple(
            ItemUse(item.namespace, item.key, item.seq, item.ttl_us)
            for item in items
            if item.ttl_us and (now_us - to_us(item.used or item.changed)) * USES_PER_TTL > item.ttl_us
        )
        if used and not self._thread.kernel.config.read_only:
            await self._thread.dispatch(ItemsUsed(items=used))

    async def sweep(self) -> int:
        """Delete expired items, and return how many. They are hidden before that, too."""
        first, gone = namespace_key(()), 0
        last = behind(first)
        while True:
            seq = await self._thread.last_seq() if await self._thread.exists() else 0
            page = await self._thread.rows_between(ITEMS, first, last, PAGE)
            if not page:
                return gone
            over = await self._over(page)
            try:
                if over:
                    await self._thread.dispatch(ItemsDeleted(items=over, reason=TIME_IS_OVER), expected_seq=seq)
            except Conflict:
                continue  # a concurrent call has put or used some of them
            gone += len(over)
            first = f"{page[-1][0]}\0"

    async def history(self, namespace: Sequence[str], key: str) -> Sequence[Item]:
        """All versions of an item, oldest first, also of a deleted one. Leaves out forgotten ones."""
        _checked_key(namespace, key)
        found: list[Item] = []
        if not await self._thread.exists():
            return found
        forgotten = await self._forgotten()
        last = await self._thread.last_seq()
        async for event in rewinds.shown_events(self._thread.kernel.reader, self._thread.id, upto=last):
            put = event.event
            if isinstance(put, ItemPut) and (put.namespace, put.key) == (tuple(namespace), key):
                if event.seq in forgotten:
                    continue
                created = to_datetime(put.created_us) if put.created_us else event.recorded_at
                version = Item(
                    namespace=put.namespace,
                    key=key,
                    value=_in_order(put.value, put.order),
                    seq=event.seq,
                    created=created,
                    changed=event.recorded_at,
                    ttl_us=put.ttl_us,
                )
                found.append(version)
        return found

    # reading

    async def _row(self, key: str) -> AnyItemRow | None:
        return await self._thread.row(ITEMS, key)

    async def _all(self, prefix: Sequence[str], page_size: int) -> AsyncIterator[_Read]:
        first = namespace_key(prefix)
        last = behind(first)
        while page := await self._thread.rows_between(ITEMS, first, last, page_size):
            for one in await self._read(page):
                yield one
            first = f"{page[-1][0]}\0"

    async def _read(self, page: Iterable[tuple[str, AnyItemRow]]) -> Sequence[_Read]:
        """The items of these rows, with their values, without those that are forgotten, erased or over."""
        reader, standing = self._thread.kernel.reader, await self._standing(page)
        if not standing:
            return []
        stored = await reader.rows_at(self._thread.id, {one.row.seq for one in standing})
        found: list[_Read] = []
        for one in standing:
            put = reader.decode(self._thread.id, stored[one.row.seq]).event
            if isinstance(put, ItemPut):
                found.append(_Read(one.row, _build_item(put, one)))
        return found

    async def _standing(self, page: Iterable[tuple[str, AnyItemRow]]) -> Sequence[_Standing]:
        """The rows of a page whose items are neither forgotten nor over. Of an earlier moment, none is over."""
        rows = [(key, row) for key, row in page if isinstance(row, ItemRow)]
        if not rows:
            return []
        forgotten, now_us = await self._forgotten(), self._thread.kernel.now_us()
        found: list[_Standing] = []
        for key, row in rows:
            if row.seq in forgotten:
                continue
            used = await self._row(used_key(key)) if row.ttl_us else None
            used_us = used.at_us if isinstance(used, UsedRow) and used.seq == row.seq else None
            is_over = row.ttl_us and (used_us or row.changed_us) + row.ttl_us <= now_us
            if not is_over or self._thread.as_of is not None:
                found.append(_Standing(key, row, used_us))
        return found

    async def _over(self, page: Iterable[tuple[str, AnyItemRow]]) -> tuple[ItemName, ...]:
        """The names of those whose time is over."""
        mortal = [(key, row) for key, row in page if isinstance(row, ItemRow) and row.ttl_us]
        standing = {one.key for one in await self._standing(mortal)}
        return tuple(ItemName(*item_name(key)) for key, _ in mortal if key not in standing)

    async def _forgotten(self) -> frozenset[int]:
        return (await self._thread.kernel.reader.forgotten(self._thread.id)).origins

    async def _found(self, hits: Iterable[Hit]) -> Sequence[Item]:
        """The items of hits and of their near-duplicates, in the order of the hits, each with its best score."""
        found: dict[tuple[tuple[str, ...], str], Item] = {}
        for hit in hits:
            versions = {hit.key: hit.seq}
            if hit.alike:  # the same words in other items
                for stored in await self._thread.kernel.store.find(self._thread.id, hit.alike):
                    put = self._thread.kernel.reader.decode(self._thread.id, stored).event
                    if isinstance(put, ItemPut):
                        versions[item_key(put.namespace, put.key)] = stored.seq
            rows = [(key, await self._row(key)) for key in versions]
            for one in await self._read((key, row) for key, row in rows if row is not None):
                name = (one.item.namespace, one.item.key)
                if one.row.seq in versions.values():
                    found.setdefault(name, msgspec.structs.replace(one.item, score=hit.score))
        return list(found.values())


def _build_item(put: ItemPut, one: _Standing) -> Item:
    return Item(
        namespace=put.namespace,
        key=put.key,
        value=_in_order(put.value, put.order),
        seq=one.row.seq,
        created=to_datetime(one.row.created_us),
        changed=to_datetime(one.row.changed_us),
        ttl_us=one.row.ttl_us,
        used=None if one.used_us is None else to_datetime(one.used_us),
    )


def _order_of(value: object) -> tuple[int, ...]:
    """Where each field of each object stood, as the log will hold them; nothing where that is how they stood."""
    with suppress(TypeError, RecursionError):  # no JSON: the dispatch says so
        return () if _is_sorted(value) else tuple(_places(value))
    return ()


def _places(value: object) -> Iterator[int]:
    if isinstance(value, dict):
        places = {key: place for place, key in enumerate(value)}
        names = sorted(value)
        if len(names) > 1:
            yield from (places[name] for name in names)
        for name in names:
            yield from _places(value[name])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _places(one)


def _is_sorted(value: object) -> bool:
    if isinstance(value, dict):
        return list(value) == sorted(value) and all(map(_is_sorted, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_sorted, value))


def _in_order(value: dict[str, object], order: Sequence[int]) -> dict[str, object]:
    """A value with its fields where they stood, as far as the order fits it: what was erased has names of its own."""
    places = iter(order)
    with suppress(StopIteration, LookupError):
        return cast("dict[str, object]", _ordered(value, places)) if order else value
    return value


def _ordered(value: object, places: Iterator[int]) -> object:
    if isinstance(value, dict):
        stood: list[str] = [""] * len(value)
        for name in value:
            stood[next(places) if len(value) > 1 else 0] = name
        inner = {name: _ordered(one, places) for name, one in value.items()}
        return {name: inner[name] for name in stood}
    return [_ordered(one, places) for one in value] if isinstance(value, list) else value


def _checked_key(namespace: Sequence[str], key: str) -> str:
    """The key of an item's row."""
    for label in namespace:
        checked_text("a label of the namespace", label)
    return item_key(namespace, checked_text("key", key))
