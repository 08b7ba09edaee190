"""The view of documents: their descriptions, their passages in order, and the events that brought them.

The events of a change hold only the passages that come and go.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import cast
from urllib.parse import quote, unquote

import msgspec

from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.errors import UnreadableDocument
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, row_of, rows_under
from memory_engine.views.documents.events import DocumentAdded, DocumentRemoved, DocumentSplice

_DOCUMENT = "document/"
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
    """The mark of a document that went with the event at `seq`. It holds nothing else of the document."""

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
                rows.put(
                    _document_key(added.document_id), _changed(document_of(rows, added.document_id), added, event.seq)
                )
            case DocumentRemoved(document_id=document_id):
                _end_document(rows, document_id, event.seq)
            case MemoryForget(seqs=seqs) if seqs:
                for document in documents_of(rows):
                    _forget_passages(rows, document, frozenset(seqs), event.seq)


DOCUMENTS = DocumentsFold()


def document_of(rows: ReadableRows[Document | Gone], document_id: str) -> Document | None:
    """The document of this id."""
    return row_of(rows, Document, _document_key(document_id))


def documents_of(rows: ReadableRows[Document | Gone]) -> list[Document]:
    """All documents, in order of their ids."""
    return [document for _, document in rows_under(rows, Document, _DOCUMENT)]


def changed_at(rows: ReadableRows[Document | Gone], document_id: str) -> int:
    """The seq of the last event that brought, changed or took away the document of this id; 0 if none ever did."""
    found = rows.get(_document_key(document_id)) or rows.get(_gone_key(document_id))
    return 0 if found is None else found.seq


def _document_key(document_id: str) -> str:
    return _DOCUMENT + document_id


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
    """Remove and insert passages. A passage that is not where the splice says is taken from its own place."""
    at = min(max(splice.at, 0), len(passages))
    until = at + len(splice.ended)
    if tuple(place.key for place in passages[at:until]) == splice.ended:
        del passages[at:until]
    else:
        ended = frozenset(splice.ended)
        passages[:] = [place for place in passages if place.key not in ended]
    passages[at:at] = [PassagePlace(passage.key, seq) for passage in splice.passages]


def _end_document(rows: Rows[Document | Gone], document_id: str, seq: int) -> None:
    rows.drop(_document_key(document_id))
    rows.put(_gone_key(document_id), Gone(seq))


def _forget_passages(rows: Rows[Document | Gone], document: Document, seqs: frozenset[int], at: int) -> None:
    if seqs.isdisjoint(document.seqs):
        return
    kept = _not_from(document.passages, seqs)
    if not kept:
        _end_document(rows, document.id, at)
    elif document.header_seq in seqs:
        bare = Document(document.id, document.id, document.format, kept, document.seqs, at, at, document.source)
        rows.put(_document_key(document.id), bare)
    else:
        rows.put(_document_key(document.id), msgspec.structs.replace(document, passages=kept, seq=at, digest=""))


def _not_from(passages: Sequence[PassagePlace], seqs: frozenset[int]) -> tuple[PassagePlace, ...]:
    return tuple(place for place in passages if place.seq not in seqs)


_PREFIX = "document:"
_BETWEEN = " > "


def document_prefix(document_id: str) -> str:
    """The prefix of the keys of a document's passages, and of no others."""
    return f"{_PREFIX}{quote(document_id, safe='/#@<>+ ', errors='replace')}:"


def document_id_of(key: str) -> str:
    """The id of the document that a passage of this key (see `Hit.key`) is of; empty for another's key."""
    return unquote(key.removeprefix(_PREFIX).partition(":")[0]) if key.startswith(_PREFIX) else ""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a text. Dates without a time zone are in UTC."""

    source: str = ""
    author: str = ""
    date: datetime | None = None
    channel: str = ""
    thread: str = ""
    metadata: Mapping[str, str] = {}


class DocumentReport(msgspec.Struct):
    """The outcome for files so far: how many documents are new, changed, unchanged, or gone from their file.

    `failed` are the errors, each with its place; `skipped` are files in folders that are of no known
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
        """Count a document, and its passages, by the events of its change."""
        self.added += bool(events) and is_new
        self.changed += bool(events) and is_there and not is_new
        self.removed += bool(events) and not is_there
        self.unchanged += not events and is_there
        splices = [splice for one in events if isinstance(one, DocumentAdded) for splice in one.splices]
        self.passages += sum(len(splice.passages) for splice in splices)
        self.ended += sum(len(splice.ended) for splice in splices)
