"""The view of documents: what each is, which passages it has in which order, and which events brought them."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import cast

import msgspec

from memory_engine.clock import to_datetime
from memory_engine.events import DocumentAdded, DocumentRemoved, DocumentSplice, Event, MemoryForget
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows
from memory_engine.records import RecordedEvent

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
