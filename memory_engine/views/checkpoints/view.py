"""Checkpoints of a graph's runs, for the runtime that saves them: bytes in, the same bytes out."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import cast

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.records import NewEvent
from memory_engine.errors import UnreadableContent
from memory_engine.projections.base import ReadableRows
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.checkpoints.events import (
    ChannelValue,
    ChannelWrite,
    CheckpointName,
    CheckpointSaved,
    CheckpointsDropped,
    CheckpointWritten,
    ItemSpan,
)
from memory_engine.views.checkpoints.fold import (
    CHECKPOINTS,
    AnyCheckpointRow,
    CheckpointRow,
    checkpoint_at,
    checkpoint_names,
    checkpoints_in,
    hidden_key,
    hides_any,
    items_between,
    writes_at,
    writes_key,
)
from memory_engine.views.checkpoints.packing import (
    PIECE_MIN,
    Form,
    ItemList,
    Sheet,
    add_run,
    array_form,
    numbers_of,
    piece_digest,
    quoted,
    runs,
    split,
)
from memory_engine.views.checkpoints.pieces import (
    JSON,
    Packed,
    PiecePlace,
    Quote,
    is_gone,
    to_bytes,
    to_text,
    unquoted,
)
from memory_engine.views.records import Records

EVENTS_KEPT = 4_096
"""Events that are remembered: what a checkpoint repeats is not read again."""
PIECES_KEPT = 1_024
"""Pieces of a thread that are remembered, to see what an event says again."""
LISTS_KEPT = 256
"""Lists whose items are remembered, to see what is new in the next one; and threads whose pieces are."""
LIST_BYTES_KEPT = 32 * 2**20
"""Bytes of such lists."""
STATE_BYTES_MAX = 2**29
"""The most bytes of a checkpoint that is put together: a small event may name a piece, or item, many times."""
ITEMS_MAX = 10**7
"""The most items of its lists."""
_ListKey = tuple[str, str, str]
"""Thread, namespace and channel."""


class Given(msgspec.Struct, frozen=True):
    """A channel's value to be saved: serialized when it is asked for, which is not done where it has not `changed`."""

    version: str
    changed: bool
    value: Callable[[], Form]


class Write(msgspec.Struct, frozen=True):
    """A task's write to a channel. One with a negative `index` replaces an earlier one, any other never changes."""

    channel: str
    index: int
    value: Form
    task_id: str = ""
    task_path: str = ""


class Saved(msgspec.Struct, frozen=True):
    """A checkpoint that was saved, without forgotten content. Writes are in order of arrival."""

    name: CheckpointName
    parent: str
    state: Form
    metadata: str
    values: Mapping[str, Form]
    writes: Sequence[Write]


class _Items(msgspec.Struct, frozen=True):
    """The items of a list that was saved: their digests, their numbers as runs, and their bytes one after the other."""

    digests: tuple[bytes, ...] = ()
    spans: tuple[ItemSpan, ...] = ()
    body: bytes = b""


class CheckpointCache:
    """A cache of checkpoints, over many threads; nothing depends on it."""

    def __init__(self) -> None:
        self.generation = -1
        self.events: OrderedDict[tuple[str, int], Event] = OrderedDict()
        self.lists: OrderedDict[_ListKey, tuple[tuple[ItemSpan, ...], _Items]] = OrderedDict()
        self.size = 0
        self.pieces: OrderedDict[str, dict[bytes, PiecePlace]] = OrderedDict()

    def of(self, generation: int) -> "CheckpointCache":
        """Itself, empty where something was deleted since: another thread may bear its id."""
        if generation != self.generation:
            self.generation = generation
            self.events.clear()
            self.lists.clear()
            self.size = 0
            self.pieces.clear()
        return self

    def keep(self, thread_id: str, seq: int, event: Event, sheet: Sheet | None = None) -> None:
        """Remember an event, and the pieces that it brought."""
        self.events[thread_id, seq] = event
        while len(self.events) > EVENTS_KEPT:
            self.events.popitem(last=False)
        if sheet is None or not sheet.own:
            return
        pieces = self.pieces.setdefault(thread_id, {})
        if len(pieces) > PIECES_KEPT:
            pieces.clear()
        pieces.update((digest, PiecePlace(seq, index)) for digest, index in sheet.own.items())
        while len(self.pieces) > LISTS_KEPT:
            self.pieces.popitem(last=False)

    def events_at(self, thread_id: str, seqs: Iterable[int]) -> dict[int, Event]:
        """Those of the events at these seqs that are remembered."""
        found = {seq: self.events[thread_id, seq] for seq in seqs if (thread_id, seq) in self.events}
        for seq in found:
            self.events.move_to_end((thread_id, seq))
        return found

    def list_of(self, key: _ListKey, spans: tuple[ItemSpan, ...]) -> _Items | None:
        """The items of these numbers of a channel, where they are remembered."""
        known, items = self.lists.get(key, ((), None))
        return items if known == spans else None

    def keep_list(self, key: _ListKey, spans: tuple[ItemSpan, ...], items: _Items) -> None:
        """Remember the items of these numbers, in place of others of the channel."""
        _, before = self.lists.pop(key, ((), _Items()))
        self.lists[key] = spans, items
        self.size += len(items.body) - len(before.body)
        while len(self.lists) > LISTS_KEPT or self.size > LIST_BYTES_KEPT:
            _, (_, gone) = self.lists.popitem(last=False)
            self.size -= len(gone.body)


class Draft:
    """A checkpoint that is about to be saved. `new` is what is new in its lists: place and digest of each item."""

    def __init__(self, name: CheckpointName, sheet: Sheet) -> None:
        self.name = name
        self.sheet = sheet
        self.values: list[ChannelValue] = []
        self.places: list[PiecePlace] = []
        self.before: dict[str, tuple[ItemSpan, ...]] = {}
        self.lists: dict[str, _Items] = {}
        self.new: dict[str, list[tuple[int, bytes]]] = {}

    def add(self, channel: str, version: str, given: ItemList, base: _Items) -> None:
        """A list: what it shares with the one that it goes on from, and what is new."""
        digests = [piece_digest(item) for item in given.items]
        known = dict(zip(base.digests, numbers_of(base.spans), strict=True)) if digests else {}
        numbers = [known.get(digest, 0) for digest in digests]
        self.new[channel] = [(given.kept + n, digests[n]) for n, number in enumerate(numbers) if not number]
        self.places += (self.sheet.place(given.items[n - given.kept], digest) for n, digest in self.new[channel])
        same = base if given.kept else _Items()
        spans = runs(numbers, same.spans)
        self.lists[channel] = _Items((*same.digests, *digests), spans, given.body)
        self.before[channel] = base.spans
        self.values.append(ChannelValue(channel=channel, version=version, spans=spans))

    def digests(self, channel: str) -> Sequence[bytes]:
        """The digests of a list's items, if the list has changed."""
        return self.lists.get(channel, _Items()).digests


class Checkpoints:
    """The checkpoints of one thread. They need not be there, nor the thread, to be read."""

    def __init__(self, thread: ThreadHandle, cache: CheckpointCache | None = None) -> None:
        self.thread = thread
        self._records = Records(thread, CHECKPOINTS)
        self.rows = self._records.rows
        self._kept = cache or CheckpointCache()

    @property
    def _cache(self) -> CheckpointCache:
        return self._kept.of(self.thread.kernel.store.generation)

    async def names(self) -> list[CheckpointName]:
        """All checkpoints, in no particular order."""
        return [CheckpointName(*name) for name in checkpoint_names(await self.rows())]

    async def latest(self, namespace: str = "") -> str:
        """The id of a namespace's latest checkpoint; empty for none."""
        return next(iter(checkpoints_in(await self.rows(), namespace)), "")

    async def events(self) -> dict[CheckpointName, CheckpointSaved]:
        """All checkpoints as their events hold them."""
        rows = await self.rows()
        seqs = {
            CheckpointName(*name): row.seq
            for name in checkpoint_names(rows)
            if (row := checkpoint_at(rows, *name)) is not None
        }
        events = await self._at(seqs.values())
        return {name: cast("CheckpointSaved", events[seq]) for name, seq in seqs.items()}

    async def read(self, name: CheckpointName) -> Saved | None:
        """A checkpoint, whole; `None` without one of the name."""
        rows = await self.rows()
        row = checkpoint_at(rows, name.namespace, name.id)
        if row is None:
            return None
        seqs = writes_at(rows, writes_key(name.namespace, name.id))
        events = await self._at([row.seq, *seqs])
        saved = cast("CheckpointSaved", events[row.seq])
        writes: list[Write] = []
        for seq in seqs:
            event = cast("CheckpointWritten", events[seq])
            for write in event.writes:
                with suppress(_Forgotten):
                    value = await self._unpacked(rows, seq, write.value)
                    writes.append(Write(write.channel, write.index, value, event.task_id, event.task_path))
        try:
            state = await self._unpacked(rows, row.seq, saved.state)
        except _Forgotten:
            return None
        values = await self._values(rows, name.namespace, saved, row)
        return Saved(name, row.parent, state, saved.metadata, values, writes)

    async def draft(self, name: CheckpointName, parent: str, given: Mapping[str, Given]) -> Draft:
        """The difference of a checkpoint from its parent. Nothing is written."""
        rows = await self.rows()
        known = await self.known(rows, CheckpointName(name.namespace, parent)) if parent else {}
        draft = Draft(name, Sheet(self._cache.pieces.get(self.thread.id, {})))
        for channel, one in given.items():
            before = known.get(channel)
            if before is not None and before.version == one.version and not one.changed:
                draft.values.append(before)
                continue
            value = one.value()
            base = _Items()
            if before is not None and before.spans is not None:
                base = await self._list(rows, name.namespace, channel, before.spans)
            given_list = split(value, len(base.digests), base.body)
            if given_list is None:
                packed = draft.sheet.packed(value)
                draft.values.append(ChannelValue(channel=channel, version=one.version, value=packed))
            else:
                draft.add(channel, one.version, given_list, base)
        return draft

    async def gone_items(self, draft: Draft, channel: str) -> dict[bytes, bytes]:
        """By digest the items of the list before that a channel's list no longer holds."""
        now = draft.lists.get(channel, _Items())
        gone = set(numbers_of(draft.before.get(channel, ()))).difference(numbers_of(now.spans))
        items = await self.items(await self.rows(), gone)
        return {piece_digest(item): item for item in items.values()}

    async def save(
        self, draft: Draft, parent: str, state: Form, metadata: str, *, beside: Iterable[NewEvent] = ()
    ) -> None:
        """Save a checkpoint, and before it in the same commit its other events that are not recorded yet."""
        name, beside = draft.name, await self._unrecorded(list(beside))
        said = [content if isinstance(content := getattr(one.event, "content", ""), str) else "" for one in beside]
        saved = CheckpointSaved(
            id=name.id,
            state=draft.sheet.packed(state),
            namespace=name.namespace,
            parent=parent,
            metadata=metadata,
            values=tuple(draft.values),
            items=tuple(draft.places),
            pieces=tuple(quoted(draft.sheet.pieces, said)),
        )
        receipt = (await self.thread.dispatch_all([*beside, saved]))[-1]
        self._cache.keep(self.thread.id, receipt.seq, saved, draft.sheet)
        row = checkpoint_at(await self.rows(), name.namespace, name.id)
        if row is not None and row.seq == receipt.seq:
            for channel, spans in _spans(saved, row.first).items():
                if channel in draft.lists:
                    items = msgspec.structs.replace(draft.lists[channel], spans=spans)
                    self._cache.keep_list((self.thread.id, name.namespace, channel), spans, items)

    async def _unrecorded(self, beside: Sequence[NewEvent]) -> list[NewEvent]:
        """Those that will be recorded: what is quoted of them is counted back from the checkpoint."""
        ids = [one.id for one in beside if one.id]
        found = {stored.id for stored in await self.thread.kernel.store.find(self.thread.id, ids)} if ids else set()
        return [one for one in beside if one.id not in found]

    async def write(self, name: CheckpointName, task_id: str, task_path: str, writes: Iterable[Write]) -> None:
        """Save what a task wrote after a checkpoint."""
        sheet = Sheet(self._cache.pieces.get(self.thread.id, {}))
        packed = tuple(ChannelWrite(write.channel, write.index, sheet.packed(write.value)) for write in writes)
        written = CheckpointWritten(
            id=name.id,
            task_id=task_id,
            namespace=name.namespace,
            task_path=task_path,
            writes=packed,
            pieces=tuple(map(to_text, sheet.pieces)),
        )
        receipt = await self.thread.dispatch(written)
        self._cache.keep(self.thread.id, receipt.seq, written, sheet)

    async def drop(self, names: Collection[CheckpointName]) -> None:
        """Show these no more. The log keeps them."""
        if names:
            await self.thread.dispatch(CheckpointsDropped(checkpoints=tuple(names)))

    # what values are made of

    async def _values(
        self, rows: ReadableRows[AnyCheckpointRow], namespace: str, saved: CheckpointSaved, row: CheckpointRow
    ) -> dict[str, Form]:
        others = await self._at({value.seq for value in saved.values if value.seq})
        lists = _spans(saved, row.first)
        values: dict[str, Form] = {}
        for value in saved.values:
            if value.channel in lists:
                items = await self._list(rows, namespace, value.channel, lists[value.channel])
                values[value.channel] = array_form(len(items.digests), items.body)
                self._check_size(row.seq, sum(len(data) for _, data in values.values()))
                continue
            seq, held = row.seq, value
            if value.seq:
                seq, other = value.seq, cast("CheckpointSaved", others[value.seq])
                held = next(one for one in other.values if one.channel == value.channel)
            with suppress(_Forgotten):
                values[value.channel] = await self._unpacked(rows, seq, cast("Packed", held.value))
            self._check_size(row.seq, sum(len(data) for _, data in values.values()))
        return values

    async def known(self, rows: ReadableRows[AnyCheckpointRow], parent: CheckpointName) -> dict[str, ChannelValue]:
        """The values of a checkpoint, as the next one says again what has not changed."""
        row = checkpoint_at(rows, parent.namespace, parent.id)
        if row is None:
            return {}
        saved = cast("CheckpointSaved", (await self._at([row.seq]))[row.seq])
        spans = _spans(saved, row.first)
        return {value.channel: _again(value, spans.get(value.channel, ()), row.seq) for value in saved.values}

    async def _list(
        self, rows: ReadableRows[AnyCheckpointRow], namespace: str, channel: str, spans: tuple[ItemSpan, ...]
    ) -> _Items:
        """The items of a list, but for those that were forgotten."""
        key = self.thread.id, namespace, channel
        items = None if hides_any(rows) else self._cache.list_of(key, spans)
        if items is None:
            if sum(span.count for span in spans) > ITEMS_MAX:
                what = f"list {channel!r} of a checkpoint of thread {self.thread.id!r}"
                raise UnreadableContent(what, f"it has more than {ITEMS_MAX:,} items")
            numbers = numbers_of(spans)
            held = await self.items(rows, set(numbers))
            shown = [number for number in numbers if number in held]
            pieces = [held[number] for number in shown]
            self._check_size(0, sum(map(len, pieces)))
            items = _Items(tuple(map(piece_digest, pieces)), runs(shown), b"".join(pieces))
            self._cache.keep_list(key, spans, items)
        return items

    async def items(self, rows: ReadableRows[AnyCheckpointRow], wanted: Collection[int]) -> dict[int, bytes]:
        """The items of these numbers, but for those that were forgotten."""
        if not wanted:
            return {}
        places: dict[int, tuple[int, int]] = {}
        for first, row in items_between(rows, min(wanted), max(wanted) + 1):
            if rows.get(hidden_key(row.seq)) is None:
                numbers = range(first, first + row.count)
                places.update((number, (row.seq, number - first)) for number in numbers if number in wanted)
        events = await self._at({seq for seq, _ in places.values()})
        held: dict[int, PiecePlace] = {}
        for number, (seq, index) in places.items():
            place = cast("CheckpointSaved", events[seq]).items[index]
            held[number] = PiecePlace(place.seq or seq, place.index)
        pieces = await self._pieces(rows, held.values())
        return {number: pieces[place] for number, place in held.items() if place in pieces}

    async def _unpacked(self, rows: ReadableRows[AnyCheckpointRow], seq: int, packed: Packed) -> Form:
        """A value that the event at a seq holds. Raises `_Forgotten`."""
        if any(isinstance(part, str) and is_gone(part) for part in packed.parts):
            raise _Forgotten
        if packed.form == JSON:
            return JSON, "".join(part for part in packed.parts if isinstance(part, str)).encode()
        places = [part if isinstance(part, str) else PiecePlace(part.seq or seq, part.index) for part in packed.parts]
        wanted = {place for place in places if not isinstance(place, str)}
        pieces = await self._pieces(rows, wanted)
        if len(pieces) < len(wanted):
            raise _Forgotten
        found = [self._bytes(seq, one) if isinstance(one, str) else pieces[one] for one in places]
        self._check_size(seq, sum(map(len, found)))
        return packed.form, b"".join(found)

    async def _pieces(
        self, rows: ReadableRows[AnyCheckpointRow], places: Iterable[PiecePlace]
    ) -> dict[PiecePlace, bytes]:
        """The pieces at these places, but for those that were forgotten."""
        shown = {place for place in places if rows.get(hidden_key(place.seq)) is None}
        events = await self._at({place.seq for place in shown})
        pieces = {
            place: cast("CheckpointSaved | CheckpointWritten", events[place.seq]).pieces[place.index] for place in shown
        }
        quotes = {place: piece for place, piece in pieces.items() if isinstance(piece, Quote)}
        said = await self._at({place.seq + quote.back for place, quote in quotes.items()})
        found: dict[PiecePlace, bytes] = {}
        size = 0
        for place, text in pieces.items():
            if isinstance(text, str) and not is_gone(text):
                found[place] = self._bytes(place.seq, text)
                size += len(found[place])
                self._check_size(place.seq, size)
        for place, quote in quotes.items():
            piece = unquoted(quote, getattr(said[place.seq + quote.back], "content", None))
            if piece is not None:
                found[place] = piece
        return found

    def _check_size(self, seq: int, size: int) -> None:
        """Raise `UnreadableContent` for more bytes than anybody could mean."""
        if size > STATE_BYTES_MAX:
            what = f"a checkpoint in event {seq} of thread {self.thread.id!r}"
            raise UnreadableContent(what, f"it has more than {STATE_BYTES_MAX:,} bytes")

    def _bytes(self, seq: int, piece: str) -> bytes:
        """The bytes of a piece of the event at a seq. Raises `UnreadableContent`."""
        try:
            return to_bytes(piece)
        except UnreadableContent as error:
            raise UnreadableContent(f"a checkpoint in event {seq} of thread {self.thread.id!r}", error.why) from None

    async def _at(self, seqs: Collection[int]) -> dict[int, Event]:
        """The events at these seqs."""
        cache = self._cache
        found = cache.events_at(self.thread.id, seqs)
        for seq, event in (await self._records.events(set(seqs) - found.keys())).items():
            found[seq] = event
            cache.keep(self.thread.id, seq, event)
        return found


class _Forgotten(Exception):
    """A part of a value was forgotten."""


def _spans(saved: CheckpointSaved, first: int) -> dict[str, tuple[ItemSpan, ...]]:
    """The numbers of the items of each list in a checkpoint, whose first new item got the number `first`."""
    found: dict[str, tuple[ItemSpan, ...]] = {}
    for value in saved.values:
        if value.spans is None:
            continue
        spans: list[ItemSpan] = []
        for span in value.spans:
            add_run(spans, ItemSpan(span.first or first, span.count))
            if not span.first:
                first += span.count
        found[value.channel] = tuple(spans)
    return found


def _again(value: ChannelValue, spans: tuple[ItemSpan, ...], seq: int) -> ChannelValue:
    """A value of the checkpoint at a seq, as a later one repeats it: by its place, where it is large."""
    if value.spans is not None:
        return msgspec.structs.replace(value, spans=spans)
    if value.seq or value.value is None:
        return value
    size = sum(len(part) if isinstance(part, str) else PIECE_MIN for part in value.value.parts)
    return value if size < PIECE_MIN else msgspec.structs.replace(value, value=None, seq=seq)
