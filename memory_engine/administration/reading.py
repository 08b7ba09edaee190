"""Reading everything that a store's rows say, in whatever form they hold it, to search it for texts.

The one reader of a proof: it takes raw values, with the escapes of JSON at any depth (`Sought`), and unpacks what an
event's class declares as packed (`Event.packed_texts`). It names the parts that it cannot read.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

from attrs import define, field, frozen

from memory_engine.core.aside import on_thread
from memory_engine.core.bounded import UNPACKED_ALL_MAX, unpacked_max
from memory_engine.core.events.base import Event, PackedText
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.json_form import JsonForm
from memory_engine.core.spelling import Sought, found_in
from memory_engine.errors import EventDecodeError, MemoryEngineError, UnreadableContent
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.protocol import StoredText

PLACES_MAX = 1_000
"""Places of one text that are listed, and places that could not be read."""
_FILES = (b'"data:', b'"DATA:', b'"Data:')
"""Beginnings of files in base64, within events of any class."""


@frozen(kw_only=True)
class TableRead(JsonForm):
    """How much of a column was read: values and bytes, and the bytes that packed content unpacked to."""

    values: int = 0
    bytes: int = 0
    unpacked: int = 0


@define
class StoreReading:
    """The extent of a reading of a store's rows, and the places of texts, by the number of a text."""

    tables: dict[str, TableRead] = field(factory=dict)
    places: dict[int, dict[str, None]] = field(factory=dict)
    unread: dict[str, None] = field(factory=dict)

    def note(self, number: int, place: str) -> None:
        """A place that holds a text."""
        places = self.places.setdefault(number, {})
        if len(places) < PLACES_MAX:
            places[place] = None

    def miss(self, place: str, why: str) -> None:
        """A place that cannot be read."""
        if len(self.unread) < PLACES_MAX:
            self.unread[f"{place}: {why}"] = None

    def count(self, texts: Sequence[StoredText]) -> None:
        """Values that were read."""
        columns = Counter(text.column for text in texts)
        for column, values in columns.items():
            size = sum(len(text.value) for text in texts if text.column == column)
            self._add(column, TableRead(values=values, bytes=size))

    def count_unpacked(self, column: str, size: int) -> None:
        """Bytes that packed content gave."""
        self._add(column, TableRead(unpacked=size))

    def _add(self, column: str, more: TableRead) -> None:
        known = self.tables.get(column, TableRead())
        self.tables[column] = TableRead(
            values=known.values + more.values,
            bytes=known.bytes + more.bytes,
            unpacked=known.unpacked + more.unpacked,
        )


async def read_store(
    kernel: Kernel, sought: Sequence[Sought], texts_read: AsyncIterator[Sequence[StoredText]] | None = None
) -> StoreReading:
    """Search everything that the rows of a store say, or these values of it. Nothing is written."""
    found = StoreReading()
    async for texts in kernel.store.texts() if texts_read is None else texts_read:
        packed = await on_thread(partial(_search, texts, sought, kernel.events, found))
        for text, part in packed:
            await _search_packed(kernel, text, part, sought, found)
    return found


Packed = tuple[StoredText, Sequence[PackedText]]


def _search(
    texts: Sequence[StoredText], sought: Sequence[Sought], registry: EventRegistry, found: StoreReading
) -> list[Packed]:
    """Search raw values. Returns those that hold packed content."""
    found.count(texts)
    whole = b"\0".join(text.value for text in texts)
    hits = found_in(whole, sought)
    for text in texts if hits else ():
        for n in found_in(text.value, [sought[n] for n in hits]):
            found.note(hits[n], text.place)
    has_files = any(one in whole for one in _FILES)
    candidates = [text for text in texts if text.is_payload and (has_files or registry.packs(text.type))]
    return [(text, parts) for text in candidates if (parts := _packed(text, registry, found))]


def _packed(text: StoredText, registry: EventRegistry, found: StoreReading) -> Sequence[PackedText]:
    """The packed content of an event."""
    if not (registry.packs(text.type) or any(one in text.value for one in _FILES)):
        return ()
    try:
        event = registry.decode(text.type, text.version, text.value)
        return [*event.packed_texts(text.seq)] if isinstance(event, Event) else ()
    except EventDecodeError as error:
        if registry.packs(text.type):
            found.miss(text.place, error.why)
        return ()


async def _search_packed(
    kernel: Kernel, text: StoredText, parts: Sequence[PackedText], sought: Sequence[Sought], found: StoreReading
) -> None:
    contents = await contents_at(kernel, text.thread, {part.quotes for part in parts if part.quotes})
    await on_thread(partial(_search_parts, text, parts, contents, sought, found))


def _search_parts(
    text: StoredText,
    parts: Sequence[PackedText],
    contents: dict[int, str],
    sought: Sequence[Sought],
    found: StoreReading,
) -> None:
    size, limit = 0, unpacked_max(len(text.value), UNPACKED_ALL_MAX)
    for part in parts:
        if size > limit:
            found.miss(text.place, f"its packed content unpacks to more than {limit:,} bytes")
            break
        try:
            data = part.unpack(contents.get(part.quotes))
        except UnreadableContent as error:
            found.miss(f"{text.place}, {part.place}", error.why)
            continue
        size += len(data)
        for n in found_in(data, sought):
            found.note(n, f"{text.place}, {part.place}")
    found.count_unpacked(text.column, size)


async def contents_at(kernel: Kernel, thread_id: str, seqs: set[int]) -> dict[int, str]:
    """The texts of events at these seqs, of those that can be read."""
    found: dict[int, str] = {}
    with suppress(MemoryEngineError):  # such as of a thread that was deleted meanwhile
        for seq, stored in (await kernel.reader.rows_at(thread_id, seqs)).items():
            content = getattr(kernel.reader.decode(thread_id, stored).event, "content", None)
            if isinstance(content, str):
                found[seq] = content
    return found
