"""The proof of an erasing: pieces of what was destroyed are looked for in every file of the store, and in its rows.

Each destroyed row had a random salt, which stood nowhere else, so a leftover copy of the row would hold it. Of the
texts themselves, and of the digests of large payloads, some pieces are looked for too. Files are searched for bytes;
rows are read (see `reading`), so that a text is found in every spelling, and in packed content. A piece that other rows
hold as well was said elsewhere, and is reported as such.

In a large file of SQLite, an act that destroys a few events reads no more than it has to: the pages that it wrote, free
pages, the write-ahead log and the rows of its threads, and of the rest a sample. If these show anything, or if the act
was asked to prove it, everything is read.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from itertools import zip_longest

import msgspec
from attrs import define, evolve, field, frozen

from memory_engine.administration.reading import StoreReading, TableRead, read_store
from memory_engine.core.bounded import UNPACKED_ALL_MAX
from memory_engine.core.chain import is_redacted
from memory_engine.core.events.base import Event
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.core.spelling import SPELLINGS, Sought, pieces_of
from memory_engine.errors import ErasureUnfinished, EventDecodeError, UnreadableContent
from memory_engine.language.text import terms
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.in_part import ReadInPart
from memory_engine.store.protocol import Traces

WAIT_S = 30.0
"""Seconds that an act waits for readers of old pages before it says that it is not finished."""
_POLL_S = 0.05
_HEARD_S = 0.5
"""Seconds after which the act of any other process shows in the store's generation."""
PIECES_MAX = 256
"""Pieces that are looked for at most: each costs one reading of the files."""
PIECES_FIRST = 12
"""Those that are looked for in files of any size."""
READ_MAX = 1 << 30
"""Bytes that are read for the others: a small deletion from a large store must not read it for seconds."""
ELSEWHERE_MAX = 20
"""Places that are listed where texts are said elsewhere."""
_PIECE = 48
_SHORT = 12
_JSON_DEPTH = 8


@frozen(kw_only=True)
class ErasureProof(JsonForm):
    """The outcome of a search for what was destroyed: of `pieces`, these many are `left` in places of the files.

    `elsewhere` counts the pieces that other events say too, and `elsewhere_in` lists some of the places. `files` of
    `bytes` together were searched, or `scanned` bytes of them, and the columns of rows in `tables`. Texts were looked
    for in these `spellings`. `unread` names what could not be read, and why. `how` says how it is known, if the bytes
    of the files alone cannot show it: of an encrypted store.
    """

    pieces: int
    files: tuple[str, ...]
    bytes: int
    left: tuple[str, ...] = ()
    elsewhere: int = 0
    elsewhere_in: tuple[str, ...] = ()
    tables: Mapping[str, TableRead] = field(factory=dict)
    spellings: tuple[str, ...] = SPELLINGS
    unread: tuple[str, ...] = ()
    how: str = ""
    scanned: int | None = None

    json_names = "pieces files bytes left elsewhere elsewhere_in tables spellings unread how scanned ok"

    @property
    def ok(self) -> bool | None:
        """Whether everything was read, and nothing is left; `None` if nothing was found in the part that was read."""
        if self.left or self.unread:
            return False
        return True if self.scanned is None else None


@define
class ErasedPieces:
    """Pieces of what is destroyed, while it can still be read.

    Note those of rows that are about to be replaced in an instance of their own, and add it once they certainly are.
    """

    _registry: EventRegistry
    _salts: list[bytes] = field(factory=list)
    _texts: dict[bytes, str] = field(factory=dict)
    _digests: list[bytes] = field(factory=list)

    def add(self, others: "ErasedPieces") -> None:
        """Add the pieces of other rows that are gone."""
        self._salts += others._salts
        self._texts |= others._texts
        self._digests += others._digests

    def note(self, stored: StoredEvent, less: StoredEvent) -> None:
        """A row, and its replacement."""
        kept = less.payload + less.record
        stays = frozenset(self._packed_texts(less))
        self._note(stored, stays, lambda piece: piece not in kept)

    def note_deleted(self, stored: StoredEvent) -> None:
        """A row of which nothing stays."""
        self._note(stored, frozenset(), lambda _piece: True)

    def _note(self, stored: StoredEvent, stays: frozenset[str], is_gone: Callable[[bytes], bool]) -> None:
        if len(stored.salt) > _SHORT and not is_redacted(stored):  # else commitments replace it, and stay
            self._salts.append(stored.salt)
        self._digests.append(sha256(stored.payload).digest())
        if len(self._texts) < PIECES_MAX * 16:
            packed = [text for text in self._packed_texts(stored) if text not in stays]
            found = (
                (piece, _encoded(piece)) for text in (*_payload_texts(stored.payload), *packed) for piece in _ends(text)
            )
            self._texts.update((encoded, piece) for piece, encoded in found if is_gone(encoded))

    def _packed_texts(self, stored: StoredEvent) -> list[str]:
        """The texts in an event's packed content."""
        if not self._registry.packs(stored.type):
            return []
        try:
            event = self._registry.decode(stored.type, stored.version, stored.payload)
        except EventDecodeError:
            return []
        return [*_texts_packed(event, stored.seq)] if isinstance(event, Event) else []

    def pieces(self) -> list[bytes]:
        """A sample of them, of every kind in turn."""
        kinds: list[list[bytes]] = []
        for some in (self._salts, list(self._texts), self._digests):
            step = max(1, len(some) // (PIECES_MAX // 3))
            kinds.append(some[::step][: PIECES_MAX // 3])
        return [piece for pieces in zip_longest(*kinds) for piece in pieces if piece is not None]

    def sought(self, pieces: Iterable[bytes]) -> dict[bytes, Sought]:
        """The texts among some pieces: other rows may hold them too."""
        return {piece: Sought(self._texts[piece]) for piece in pieces if piece in self._texts}


def _texts_packed(event: Event, seq: int) -> Iterator[str]:
    size = 0
    for part in event.packed_texts(seq):
        if size > UNPACKED_ALL_MAX:
            return
        with suppress(UnreadableContent):  # the proof names it, where it is still there
            data = part.unpack(None)
            size += len(data)
            yield from (text for text in part.texts(data) if text.isprintable())


def _payload_texts(payload: bytes) -> Iterator[str]:
    """The texts of a payload; of JSON in them, also the texts in that."""
    try:
        whole = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):  # its bytes were damaged
        return
    yield from _nested_texts(whole, 0)


def _nested_texts(value: object, depth: int) -> Iterator[str]:
    match value:
        case str():
            yield value
            if value[:1] in ("{", "[") and depth < _JSON_DEPTH:
                try:
                    inner = msgspec.json.decode(value)
                except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                    return
                yield from _nested_texts(inner, depth + 1)
        case dict():
            for one in value.values():
                yield from _nested_texts(one, depth)
        case list():
            for one in value:
                yield from _nested_texts(one, depth)


def _ends(text: str) -> Iterator[str]:
    """The beginning and the end of a text, unless it is short."""
    if len(_encoded(text)) >= _SHORT:
        yield text[:_PIECE]
        yield text[-_PIECE:]


def _encoded(text: str) -> bytes:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode())[1:-1]


async def find_texts(kernel: Kernel, texts: Sequence[str]) -> ErasureProof:
    """Look for texts in everything that a store holds, whoever said them. Nothing is written.

    `left` names a text by its number, from 1: a report should not repeat what it is about.
    """
    sought = [(n, Sought(piece)) for n, text in enumerate(texts, 1) for piece in (*pieces_of(text), *_analysed(text))]
    numbers = {form: n for n, one in reversed(sought) for form in one.forms}
    found = await kernel.store.traces(list(numbers))
    left = {f"{place}: text {numbers[form]}": None for form, places in found.places.items() for place in places}
    reading = await read_store(kernel, [one for _, one in sought])
    for at, places in sorted(reading.places.items()):
        left.update((f"{place}: text {sought[at][0]}", None) for place in places)
    for n, text in enumerate(texts, 1):
        left.update((f"{place}: text {n}", None) for place in await kernel.store.mentions(terms(text)))
    return _proof(len(numbers), found, reading, left=tuple(left))


def _analysed(text: str) -> tuple[str, ...]:
    """A text as the index for search keeps it."""
    analysed = " ".join(terms(text))
    return (analysed,) if len(analysed) >= _SHORT else ()


@frozen
class ActPart:
    """The part of a store that an act has written: pages of its file, and threads."""

    store: ReadInPart
    thread_ids: tuple[str, ...]
    pages: set[int] = field(factory=set)

    @classmethod
    def of(cls, kernel: Kernel, thread_ids: Iterable[str]) -> "ActPart | None":
        """That of an act on these threads; `None` for a store that is small, or is read whole or not at all."""
        store = kernel.store
        return cls(store, tuple(thread_ids)) if isinstance(store, ReadInPart) and store.is_large else None

    def noting(self) -> AbstractContextManager[None]:
        """A block in which the pages that are written count as the act's."""
        return self.store.noting(self.pages)


async def wiped_and_proved(kernel: Kernel, act: str, erased: ErasedPieces, part: ActPart | None = None) -> ErasureProof:
    """Destroy the bytes of what is out of every row, and look for them. Raises what `wiped` raises.

    With `part` in that part of the store, and everywhere else if it shows anything.

    Another act may destroy a row with the same words meanwhile: between two looks its copy is no row's any more, and
    its bytes are still there. So while others destroy, what seems left is wiped and looked for again.
    """
    if part is not None:
        await wiped(kernel, act, part)
        proof = await _proved_in_part(kernel, erased, part)
        if proof.ok is not False:
            return proof
    until = time.monotonic() + WAIT_S
    while True:
        await wiped(kernel, act)
        generation = kernel.store.generation  # behind a wipe, which may be another one too
        proof = await prove(kernel, erased)
        if not proof.left or time.monotonic() > until:
            return proof
        await asyncio.sleep(_HEARD_S)
        if generation == kernel.store.generation:
            return proof


async def wiped(kernel: Kernel, act: str, part: ActPart | None = None) -> None:
    """Destroy the bytes that deleted and erased rows have left. Raises `ErasureUnfinished` if a reader needs them."""
    until = time.monotonic() + WAIT_S
    while not await _wiped_once(kernel, act, part):
        if kernel.tasks.closing:
            raise ErasureUnfinished(act, "the engine closes while some process reads an older moment of the store")
        if time.monotonic() > until:
            raise ErasureUnfinished(act, f"for {WAIT_S:.0f} s some process has read an older moment of the store")
        await asyncio.sleep(_POLL_S)


async def _wiped_once(kernel: Kernel, act: str, part: ActPart | None) -> bool:
    try:
        return await (kernel.store.wipe() if part is None else part.store.wipe_part(part.pages))
    except OSError as error:  # no descriptor is free, or no memory
        raise ErasureUnfinished(act, error.strerror or str(error)) from error


async def prove(kernel: Kernel, erased: ErasedPieces) -> ErasureProof:
    """Look for the pieces in a store: for fewer of them where it is large. Nothing is written."""
    pieces = erased.pieces()
    found = await kernel.store.traces(pieces[:PIECES_FIRST])
    others = pieces[PIECES_FIRST:][: READ_MAX // max(1, found.size)]
    if others:
        further = await kernel.store.traces(others)
        found = msgspec.structs.replace(further, places={**found.places, **further.places})
    looked_for = [*pieces[:PIECES_FIRST], *others]
    texts = erased.sought(looked_for)
    reading = await read_store(kernel, list(texts.values()))
    return _proof_with_rows(looked_for, found, texts, reading)


async def _proved_in_part(kernel: Kernel, erased: ErasedPieces, part: ActPart) -> ErasureProof:
    """Look for the pieces in a part of a store. Nothing is written."""
    pieces = erased.pieces()
    texts = erased.sought(pieces)
    unique = [piece for piece in pieces if piece not in texts]  # a text may be another event's too, anywhere
    found = await part.store.traces_in_part(pieces, unique, part.pages)
    reading = await read_store(kernel, list(texts.values()), part.store.texts_of(part.thread_ids))
    proof = _proof_with_rows(pieces, found, texts, reading)
    words = [terms(text.text)[1:-1] for text in texts.values()]  # the first and the last may be cut
    return evolve(proof, left=(*proof.left, *await part.store.left_in_index(part.thread_ids, words)))


def _proof_with_rows(
    looked_for: Sequence[bytes], found: Traces, texts: Mapping[bytes, Sought], reading: StoreReading
) -> ErasureProof:
    """What is left: the pieces that were found and that no row says."""
    said = {piece for n, piece in enumerate(texts) if n in reading.places}
    left = tuple(
        f"{place}: {'a piece of a text' if piece in texts else 'the salt or digest of an erased row'}"
        for piece, places in found.places.items()
        if piece not in said
        for place in places
    )
    elsewhere = dict.fromkeys(place for places in reading.places.values() for place in places)
    proof = _proof(len(looked_for), found, reading, left=left)
    return evolve(proof, elsewhere=len(said), elsewhere_in=tuple(elsewhere)[:ELSEWHERE_MAX])


def _proof(count: int, found: Traces, reading: StoreReading, *, left: tuple[str, ...]) -> ErasureProof:
    return ErasureProof(
        pieces=count,
        files=tuple(found.files),
        bytes=found.size,
        scanned=found.scanned,
        left=left,
        how=found.how,
        tables=reading.tables,
        unread=(*found.unread, *reading.unread),
    )
