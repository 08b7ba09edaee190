"""Documents: an organisation's texts, brought to its tenant passage by passage."""

from typing import Annotated

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Digest, FieldKind, Id, Moment, Name, Place, Role


class DocumentText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A text of a document. `about` are the headings above it, or the time within a recording.

    `speaker` is its author, if not the document's; `at_us` is when it was said, in microseconds since 1970.
    """

    text: str
    about: str = ""
    speaker: str = ""
    at_us: Moment | None = None


class DocumentPassage(DocumentText, frozen=True, omit_defaults=True, gc=False):
    """A piece of a document's text. `key` is a digest of all of it, with `:n` where the document holds twins."""

    key: Digest


class DocumentSplice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A change of a document's passages: at place `at` (from 0) those with the keys `ended` go, `passages` come."""

    at: int
    ended: tuple[Name, ...] = ()
    passages: tuple[DocumentPassage, ...] = ()


@event("document_added", tracked=True, role="memory", chunks="none")
class DocumentAdded(Event):
    """A new document, or the changes of a known one; a large one is several events, one commit.

    `splices` apply in order, each to the result of the one before: passages that stay are not written again. `digest`
    covers the document and how it was split: an equal one has nothing to add. `source` is the file
    that it came from, or a text of the caller's; `thread` the conversation that an e-mail or a message is part of.
    """

    document_id: Annotated[str, Role(FieldKind.NAME, digest="text:")]
    title: str
    splices: tuple[DocumentSplice, ...]
    format: Id = "text"
    source: str = ""
    digest: Digest = ""
    author: str = ""
    date_us: Moment | None = None
    channel: Name = ""
    thread: Name = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    part: int = 1
    parts: int = 1


@event("document_removed", tracked=True, role="memory", chunks="none")
class DocumentRemoved(Event):
    """A document goes, whole. `seqs` are the events that brought any of it: their passages are destroyed."""

    document_id: Name
    seqs: tuple[Place, ...] = ()
    reason: str = ""
