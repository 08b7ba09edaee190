"""The events of a changed document: a loaded text, compared with the known document."""

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import sha256

from memory_engine.core.clock import to_us
from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.records import NewEvent
from memory_engine.errors import InvalidDocument
from memory_engine.views.documents.events import DocumentAdded, DocumentPassage, DocumentSplice
from memory_engine.views.documents.fold import Document
from memory_engine.views.documents.readers.document import DocumentSection, Loaded
from memory_engine.views.documents.readers.splitting import Splitting, split

PASSAGES_PER_EVENT_MAX = 256
BYTES_PER_EVENT_MAX = 256 * 1024
"""Of passages and of the keys of ended ones; their envelope comes on top."""
COMPARISONS_MAX = 5_000_000
"""In texts that repeat themselves more than this, everything between the first and the last change is rewritten."""
_DIGEST_CHARS = 24
_NAMESPACE = uuid.UUID("0a1cf1de-55f0-5c0c-9f6c-7c1d5d5f8b11")
"""Event ids are version 5 UUIDs in here: two that change a document from the same state on have the same id."""


def changes(
    known: Document | None, loaded: Loaded, splitting: Splitting, limits: ReadingLimits = DEFAULT_LIMITS
) -> list[DocumentAdded]:
    """The events that turn the document `known` (`None`: it is new) into the one `loaded`; none if it is that already.

    Raises `InvalidDocument` for one of more passages than the limits allow, or with a lone surrogate in it.
    """
    digest = _digest_of(loaded, splitting)
    if known is not None and known.digest == digest:
        return []
    pieces = split(loaded.sections, splitting)
    if len(pieces) > limits.passages:
        why = f"the limit is {limits.passages:,}; cut it, or raise the limit: limits=ReadingLimits(passages=…)"
        raise InvalidDocument("passages", len(pieces), why)
    batches = list(_batches(_splices(known, loaded, pieces))) or [()]
    return [
        DocumentAdded(
            document_id=loaded.id,
            title=loaded.title,
            splices=splices,
            format=loaded.format,
            source=loaded.source,
            digest=digest,
            author=loaded.author,
            date_us=None if loaded.date is None else to_us(loaded.date),
            channel=loaded.channel,
            thread=loaded.thread,
            metadata=dict(loaded.metadata),
            part=part,
            parts=len(batches),
        )
        for part, splices in enumerate(batches, 1)
    ]


def with_ids(events: Sequence[Event], document_id: str, thread_id: str, base: int) -> list[NewEvent]:
    """The events with ids that follow from the state they change (the document's last event has seq `base`).

    The first writer to change it from there uses these ids: the second is refused or, with an equal change, is done.
    """
    return [
        NewEvent(event, id=str(uuid.uuid5(_NAMESPACE, f"{base}.{part} {document_id} {thread_id}")))
        for part, event in enumerate(events, 1)
    ]


def _digest_of(loaded: Loaded, splitting: Splitting) -> str:
    """A digest of all that a document was read to, and of how it is split."""
    try:
        return _short_digest((loaded, splitting.chars, splitting.overlap))
    except UnicodeEncodeError:
        raise InvalidDocument("a text", loaded.title, "a lone surrogate in it is not a character") from None


def _short_digest(value: object) -> str:
    return sha256(encode_json(value)).hexdigest()[:_DIGEST_CHARS]


def _splices(known: Document | None, loaded: Loaded, pieces: Sequence[DocumentSection]) -> Iterator[DocumentSplice]:
    """The changes in order, each based on the result of the one before."""
    digests = [
        _short_digest((loaded.title, piece.about, piece.speaker or loaded.author, piece.at_us, piece.text))
        for piece in pieces
    ]
    old = [place.key for place in known.passages] if known is not None else []
    labels = _Labels(old)
    for first, last, begin, end in _differences([_digest_of_key(key) for key in old], digests):
        passages = tuple(
            DocumentPassage(
                labels.next(digests[n]), text=piece.text, about=piece.about, speaker=piece.speaker, at_us=piece.at_us
            )
            for n, piece in enumerate(pieces[begin:end], begin)
        )
        yield DocumentSplice(begin, tuple(old[first:last]), passages)


class _Labels:
    """Keys for passages: a digest, numbered where the document has it, or had it until now."""

    def __init__(self, used: Sequence[str]) -> None:
        self._next: Counter[str] = Counter()
        for key in used:
            digest, _, number = key.partition(":")
            self._next[digest] = max(self._next[digest], int(number or 0) + 1)

    def next(self, digest: str) -> str:
        number = self._next[digest]
        self._next[digest] += 1
        return f"{digest}:{number}" if number else digest


def _digest_of_key(key: str) -> str:
    return key.partition(":")[0]


def _differences(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Where `old[first:last]` becomes `new[begin:end]`, in order: (first, last, begin, end)."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    counts = Counter(after)
    if sum(counts[digest] for digest in before) > COMPARISONS_MAX:
        yield start, start + len(before), start, start + len(after)
        return
    for kind, first, last, begin, until in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            yield start + first, start + last, start + begin, start + until


def _batches(splices: Iterator[DocumentSplice]) -> Iterator[tuple[DocumentSplice, ...]]:
    """The splices in groups, each for one event, large splices in parts."""
    batch: list[DocumentSplice] = []
    count = size = 0
    for splice in _small(splices):
        bytes_more = sum(map(_passage_size, splice.passages)) + sum(len(key) + 3 for key in splice.ended)
        if batch and (count + len(splice.passages) > PASSAGES_PER_EVENT_MAX or size + bytes_more > BYTES_PER_EVENT_MAX):
            yield tuple(batch)
            batch, count, size = [], 0, 0
        batch.append(splice)
        count, size = count + len(splice.passages), size + bytes_more
    if batch:
        yield tuple(batch)


_ENDED_MAX, _PASSAGES_MAX = 4_096, 16
"""Keys and passages of a splice, so that it fits into an event with others."""


def _small(splices: Iterator[DocumentSplice]) -> Iterator[DocumentSplice]:
    for splice in splices:
        if len(splice.ended) <= _ENDED_MAX and len(splice.passages) <= _PASSAGES_MAX:
            yield splice
            continue
        for n in range(0, len(splice.ended), _ENDED_MAX):
            yield DocumentSplice(splice.at, splice.ended[n : n + _ENDED_MAX])
        for n in range(0, len(splice.passages), _PASSAGES_MAX):
            yield DocumentSplice(splice.at + n, (), splice.passages[n : n + _PASSAGES_MAX])


def _passage_size(passage: DocumentPassage) -> int:
    return len(passage.text.encode("utf-8", "replace")) + len(passage.about) + len(passage.speaker) + 64
