"""The proof of an erasing: pieces of what was destroyed are looked for in every file of the store.

Each destroyed row had a random salt, which stood nowhere else, so a leftover copy of the row would hold it. Of the
texts themselves, and of the digests of large payloads, some pieces are looked for too. A piece that other rows hold as
well was said elsewhere, and is reported as such.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import zip_longest

import msgspec
from attrs import define, field, frozen

from memory_engine.core.chain import is_redacted
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.language.text import terms
from memory_engine.store.protocol import Store, Traces

PIECES_MAX = 256
"""Pieces that are looked for at most: each costs one reading of the files."""
PIECES_FIRST = 12
"""Those that are looked for in files of any size."""
READ_MAX = 1 << 30
"""Bytes that are read for the others: a small deletion from a large store must not read it for seconds."""
_PIECE = 48
_SHORT = 12
_LONG = 256


@frozen(kw_only=True)
class ErasureProof(JsonForm):
    """The outcome of a search for what was destroyed: of `pieces`, these many are `left` in places of the files.

    `elsewhere` counts the pieces that other events say too. `files` were read, `bytes` together. `how` says how it is
    known, where the bytes of the files alone cannot tell: of an encrypted store.
    """

    pieces: int
    files: tuple[str, ...]
    bytes: int
    left: tuple[str, ...] = ()
    elsewhere: int = 0
    how: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is left."""
        return not self.left


@define
class ErasedPieces:
    """Pieces of what is destroyed, while it can still be read."""

    _salts: list[bytes] = field(factory=list)
    _texts: dict[bytes, None] = field(factory=dict)
    _digests: list[bytes] = field(factory=list)

    def note(self, stored: StoredEvent, less: StoredEvent) -> None:
        """A row, and the one that stands there now."""
        kept = less.payload + less.record
        self._note(stored, lambda piece: piece not in kept)

    def note_deleted(self, rows: Iterable[StoredEvent]) -> None:
        """Rows of which nothing stays."""
        for stored in rows:
            self._note(stored, lambda _piece: True)

    def _note(self, stored: StoredEvent, is_gone: Callable[[bytes], bool]) -> None:
        if len(stored.salt) > _SHORT and not is_redacted(stored):  # else commitments stand in its place, and stay
            self._salts.append(stored.salt)
        self._digests.append(sha256(stored.payload).digest())
        if len(self._texts) < PIECES_MAX * 16:
            self._texts.update(dict.fromkeys(filter(is_gone, _pieces(stored.payload))))

    def pieces(self) -> list[bytes]:
        """A sample of them, of every kind in turn."""
        kinds: list[list[bytes]] = []
        for some in (self._salts, list(self._texts), self._digests):
            step = max(1, len(some) // (PIECES_MAX // 3))
            kinds.append(some[::step][: PIECES_MAX // 3])
        return [piece for pieces in zip_longest(*kinds) for piece in pieces if piece is not None]

    @property
    def texts(self) -> Collection[bytes]:
        """Those that other rows may hold too."""
        return self._texts.keys()


def _pieces(payload: bytes) -> Iterator[bytes]:
    """Pieces of the texts of a payload, as they stand in it."""
    try:
        whole = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):  # its bytes were damaged
        return
    for text in _texts(whole):
        encoded = msgspec.json.encode(text)[1:-1]
        if len(encoded) >= _SHORT:
            yield encoded[:_PIECE]
            yield encoded[-_PIECE:]


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from _texts(one)
        case list():
            for one in value:
                yield from _texts(one)


async def find_texts(store: Store, texts: Sequence[str]) -> ErasureProof:
    """Look for texts in every file of a store and in its full-text index, whoever said them. Nothing is written.

    `left` names a text by its number, from 1: a report should not repeat what it is about.
    """
    forms = {text: _forms(text) for text in texts}
    pieces = {piece: n for n, text in enumerate(forms, 1) for form in forms[text] for piece in _cut(form)}
    found = await store.traces(list(pieces), ())
    left = {f"{place}: text {pieces[piece]}": None for piece, places in found.places.items() for place in places}
    for n, text in enumerate(forms, 1):
        left.update((f"{place}: text {n}", None) for place in await store.mentions(forms[text], terms(text)))
    return ErasureProof(pieces=len(pieces), files=tuple(found.files), bytes=found.size, left=tuple(left), how=found.how)


def _forms(text: str) -> list[bytes]:
    """The bytes by which a text can stand in a store: plain, in JSON, in JSON within JSON, and analysed for search."""
    written = msgspec.json.encode(text)[1:-1]
    within = msgspec.json.encode(written.decode())[1:-1]
    ascii_only = json.dumps(text)[1:-1].encode()
    analysed = " ".join(terms(text)).encode()
    return list(dict.fromkeys((text.encode(), written, within, ascii_only, *([analysed] * (len(analysed) >= _SHORT)))))


def _cut(form: bytes) -> tuple[bytes, ...]:
    """A long text by its beginning, its middle and its end: on its way through the pages of a file it is cut too."""
    if len(form) <= _LONG:
        return (form,)
    middle = len(form) // 2
    return form[:_PIECE], form[middle : middle + _PIECE], form[-_PIECE:]


async def prove(store: Store, erased: ErasedPieces) -> ErasureProof:
    """Look for the pieces in the files of a store: for fewer of them where these are large. Nothing is written."""
    pieces = erased.pieces()
    first = await store.traces(pieces[:PIECES_FIRST], erased.texts)
    others = pieces[PIECES_FIRST:][: READ_MAX // max(1, first.size)]
    if not others:
        return _proof(len(pieces[:PIECES_FIRST]), first, erased.texts)
    further = await store.traces(others, erased.texts)
    found = msgspec.structs.replace(
        further, places={**first.places, **further.places}, said=frozenset({*first.said, *further.said})
    )
    return _proof(len(others) + PIECES_FIRST, found, erased.texts)


async def look_for(store: Store, pieces: Sequence[bytes], texts: Collection[bytes]) -> ErasureProof:
    """Look for pieces; those of `texts` may stand in rows that remain."""
    return _proof(len(pieces), await store.traces(pieces, texts), texts)


def _proof(count: int, found: Traces, texts: Collection[bytes]) -> ErasureProof:
    left = tuple(
        f"{place}: {'a piece of a text' if piece in texts else 'the salt or digest of an erased row'}"
        for piece, places in found.places.items()
        if piece not in found.said
        for place in places
    )
    return ErasureProof(
        pieces=count,
        files=tuple(found.files),
        bytes=found.size,
        left=left,
        elsewhere=len(found.said),
        how=found.how,
    )
