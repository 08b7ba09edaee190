"""The view of documents: what each is, which passages it has in which order, and which events brought them.

From what a document was to what it is: the fewest passages that must come and go, as events.

The passages of documents, as search knows them: found with their title and headings, ended by their keys.

What is said of a text beside it, and what is said of an ingestion after it.
"""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from hashlib import sha256
from typing import cast
from urllib.parse import quote, unquote

import msgspec

from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import NewEvent, RecordedEvent
from memory_engine.errors import UnreadableDocument
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows
from memory_engine.store.passages import NOTHING, Extracted, Extractor, Text
from memory_engine.views.documents.events import DocumentAdded, DocumentPassage, DocumentRemoved, DocumentSplice
from memory_engine.views.documents.readers.document import Loaded
from memory_engine.views.documents.readers.splitting import Piece, Splitting, split

_FIRST, _LAST = "document/", "document0"
"""Between these are the keys of documents: `0` follows `/`."""


class PassagePlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A passage by its key, and the seq of the event that holds its text."""

    key: str
    seq: int


class Document(msgspec.Struct, frozen=True, omit_defaults=True, tag="document"):
    """A document. `passages` are in reading order; `seqs` are all events that ever brought any.

    `seq` is the last event that changed it, `header_seq` the one that its title and the like are from. A `digest`
    that is empty says that it is no longer whole: part of it was forgotten.
    """

    id: str
    title: str
    format: str
    passages: tuple[PassagePlace, ...]
    seqs: tuple[int, ...]
    seq: int
    header_seq: int
    source: str = ""
    digest: str = ""
    author: str = ""
    date_us: int | None = None
    channel: str = ""
    thread: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def date(self) -> datetime | None:
        """When it was written, said or sent (UTC), if that is known."""
        return None if self.date_us is None else to_datetime(self.date_us)


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """That a document of this id went with the event at `seq`. It says nothing else of it."""

    seq: int


class DocumentsFold:
    """Documents by id; where one was removed or forgotten, a mark under a digest of its id."""

    name = "documents"
    version = 1
    mode: ProjectionMode = "inline"
    row = cast("type[Document | Gone]", Document | Gone)
    events: tuple[type[Event], ...] = (DocumentAdded, DocumentRemoved, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[Document | Gone], event: RecordedEvent) -> None:
        """Add or change a document; remove or forget."""
        match event.event:
            case DocumentAdded() as added:
                rows.drop(_gone_key(added.document_id))
                rows.put(_key(added.document_id), _changed(document_of(rows, added.document_id), added, event.seq))
            case DocumentRemoved(document_id=document_id):
                _end(rows, document_id, event.seq)
            case MemoryForget(seqs=seqs) if seqs:
                for document in documents_of(rows):
                    _forget(rows, document, frozenset(seqs), event.seq)


DOCUMENTS = DocumentsFold()


def document_of(rows: ReadableRows[Document | Gone], document_id: str) -> Document | None:
    """The document of this id."""
    found = rows.get(_key(document_id))
    return found if isinstance(found, Document) else None


def documents_of(rows: ReadableRows[Document | Gone]) -> list[Document]:
    """All documents, in order of their ids."""
    found = (rows.get(key) for key in rows.between(_FIRST, _LAST))
    return [document for document in found if isinstance(document, Document)]


def changed_at(rows: ReadableRows[Document | Gone], document_id: str) -> int:
    """The seq of the last event that brought, changed or took away the document of this id; 0 if none ever did."""
    found = rows.get(_key(document_id)) or rows.get(_gone_key(document_id))
    return 0 if found is None else found.seq


def _key(document_id: str) -> str:
    return _FIRST + document_id


def _gone_key(document_id: str) -> str:
    return f"gone/{sha256(document_id.encode()).hexdigest()[:32]}"


def _changed(known: Document | None, added: DocumentAdded, seq: int) -> Document:
    passages = list(known.passages) if known is not None else []
    for splice in added.splices:
        _splice(passages, splice, seq)
    return Document(
        id=added.document_id,
        title=added.title,
        format=added.format,
        passages=tuple(passages),
        seqs=(*(known.seqs if known is not None else ()), seq),
        seq=seq,
        header_seq=seq,
        source=added.source,
        digest=added.digest,
        author=added.author,
        date_us=added.date_us,
        channel=added.channel,
        thread=added.thread,
        metadata=added.metadata,
    )


def _splice(passages: list[PassagePlace], splice: DocumentSplice, seq: int) -> None:
    """Take out and put in. What does not stand where the splice says is taken from where it stands."""
    at = min(max(splice.at, 0), len(passages))
    until = at + len(splice.ended)
    if tuple(place.key for place in passages[at:until]) == splice.ended:
        del passages[at:until]
    else:
        ended = frozenset(splice.ended)
        passages[:] = [place for place in passages if place.key not in ended]
    passages[at:at] = [PassagePlace(passage.key, seq) for passage in splice.passages]


def _end(rows: Rows[Document | Gone], document_id: str, seq: int) -> None:
    rows.drop(_key(document_id))
    rows.put(_gone_key(document_id), Gone(seq))


def _forget(rows: Rows[Document | Gone], document: Document, seqs: frozenset[int], at: int) -> None:
    if seqs.isdisjoint(document.seqs):
        return
    kept = _not_from(document.passages, seqs)
    if not kept:
        _end(rows, document.id, at)
    elif document.header_seq in seqs:
        bare = Document(document.id, document.id, document.format, kept, document.seqs, at, at, document.source)
        rows.put(_key(document.id), bare)
    else:
        rows.put(_key(document.id), msgspec.structs.replace(document, passages=kept, seq=at, digest=""))


def _not_from(passages: Sequence[PassagePlace], seqs: frozenset[int]) -> tuple[PassagePlace, ...]:
    return tuple(place for place in passages if place.seq not in seqs)


PASSAGES_PER_EVENT_MAX = 256
BYTES_PER_EVENT_MAX = 256 * 1024
"""Of passages and of the keys of ended ones; what surrounds them comes on top."""
COMPARISONS_MAX = 5_000_000
"""Of texts that repeat themselves more than this, all between the first and the last change is written anew."""
_DIGEST_CHARS = 24
_NAMESPACE = uuid.UUID("0a1cf1de-55f0-5c0c-9f6c-7c1d5d5f8b11")
"""Event ids are version 5 UUIDs in here: two that change a document from the same state on have the same id."""


def digest_of(loaded: Loaded, splitting: Splitting) -> str:
    """A digest of all that a document was read to, and of how it is split."""
    return _digest((loaded, splitting.chars, splitting.overlap))


def changes(known: Document | None, loaded: Loaded, splitting: Splitting) -> list[DocumentAdded]:
    """The events that make the document `known` (`None`: there is none) what was `loaded`. At least one."""
    pieces = split(loaded.sections, splitting)
    batches = list(_batches(_splices(known, loaded, pieces))) or [()]
    digest = digest_of(loaded, splitting)
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

    Whoever changed it first from there has used them: the second is refused, or, where it says the same, is done.
    """
    return [
        NewEvent(event, id=str(uuid.uuid5(_NAMESPACE, f"{base}.{part} {document_id} {thread_id}")))
        for part, event in enumerate(events, 1)
    ]


def _digest(value: object) -> str:
    return sha256(encode_json(value)).hexdigest()[:_DIGEST_CHARS]


def _splices(known: Document | None, loaded: Loaded, pieces: Sequence[Piece]) -> Iterator[DocumentSplice]:
    """The changes in order, each as of what the one before left."""
    digests = [
        _digest((loaded.title, piece.about, piece.speaker or loaded.author, piece.at_us, piece.text))
        for piece in pieces
    ]
    old = [place.key for place in known.passages] if known is not None else []
    labels = _Labels(old)
    for first, last, begin, end in _differences([_bare(key) for key in old], digests):
        passages = tuple(
            DocumentPassage(labels.next(digests[n]), piece.text, piece.about, piece.speaker, piece.at_us)
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


def _bare(key: str) -> str:
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
        bytes_more = sum(map(_bytes, splice.passages)) + sum(len(key) + 3 for key in splice.ended)
        if batch and (count + len(splice.passages) > PASSAGES_PER_EVENT_MAX or size + bytes_more > BYTES_PER_EVENT_MAX):
            yield tuple(batch)
            batch, count, size = [], 0, 0
        batch.append(splice)
        count, size = count + len(splice.passages), size + bytes_more
    if batch:
        yield tuple(batch)


_ENDED_MAX, _PASSAGES_MAX = 4_096, 16
"""What a splice may hold, so that it fits into an event with others."""


def _small(splices: Iterator[DocumentSplice]) -> Iterator[DocumentSplice]:
    for splice in splices:
        if len(splice.ended) <= _ENDED_MAX and len(splice.passages) <= _PASSAGES_MAX:
            yield splice
            continue
        for n in range(0, len(splice.ended), _ENDED_MAX):
            yield DocumentSplice(splice.at, splice.ended[n : n + _ENDED_MAX])
        for n in range(0, len(splice.passages), _PASSAGES_MAX):
            yield DocumentSplice(splice.at + n, (), splice.passages[n : n + _PASSAGES_MAX])


def _bytes(passage: DocumentPassage) -> int:
    return len(passage.text.encode("utf-8", "replace")) + len(passage.about) + len(passage.speaker) + 64


_PREFIX = "document:"
_BETWEEN = " > "


def document_prefix(document_id: str) -> str:
    """What the keys of all passages of a document begin with, and those of no other."""
    return f"{_PREFIX}{quote(document_id, safe='/#@<>+ ', errors='replace')}:"


def document_id_of(key: str) -> str:
    """The id of the document that a passage of this key (see `Hit.key`) is of; empty for another's key."""
    return unquote(key.removeprefix(_PREFIX).partition(":")[0]) if key.startswith(_PREFIX) else ""


def _of_added(event: Event, _seq: int) -> Extracted:
    if not isinstance(event, DocumentAdded):
        return NOTHING
    prefix = document_prefix(event.document_id)
    return Extracted(
        texts=tuple(_text(event, passage, prefix) for splice in event.splices for passage in splice.passages),
        keys=tuple(prefix + key for splice in event.splices for key in splice.ended),
    )


def _text(event: DocumentAdded, passage: DocumentPassage, prefix: str) -> Text:
    return Text(
        text=passage.text,
        kind="document",
        speaker=passage.speaker or event.author,
        key=prefix + passage.key,
        about=_BETWEEN.join(filter(None, (event.title, passage.about))),
        at_us=event.date_us if passage.at_us is None else passage.at_us,
    )


def _of_removed(event: Event, _seq: int) -> Extracted:
    if not isinstance(event, DocumentRemoved):
        return NOTHING
    return Extracted(prefixes=(document_prefix(event.document_id),), drops=event.seqs)


EXTRACTORS: Mapping[str, Extractor] = {
    DocumentAdded.event_type: _of_added,
    DocumentRemoved.event_type: _of_removed,
}
"""The extractor of each event of documents, by its type."""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a text beside it. Dates without a time zone are in UTC."""

    source: str = ""
    author: str = ""
    date: datetime | None = None
    channel: str = ""
    thread: str = ""
    metadata: Mapping[str, str] = {}


class DocumentReport(msgspec.Struct):
    """What became of files so far: how many documents are new, changed, as they were, or gone from their file.

    `failed` is what could not be read, each with its place; `skipped` are files in folders that are of no known
    format. `passages` are those that were written, `ended` those that went.
    """

    files: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    passages: int = 0
    ended: int = 0
    failed: list[UnreadableDocument] = msgspec.field(default_factory=list)
    skipped: list[str] = msgspec.field(default_factory=list)

    def count(self, events: Sequence[Event], *, is_new: bool, is_there: bool) -> None:
        """Note what events did to a document."""
        self.added += bool(events) and is_new
        self.changed += bool(events) and is_there and not is_new
        self.removed += bool(events) and not is_there
        self.unchanged += not events and is_there
        splices = [splice for one in events if isinstance(one, DocumentAdded) for splice in one.splices]
        self.passages += sum(len(splice.passages) for splice in splices)
        self.ended += sum(len(splice.ended) for splice in splices)
