"""The passages of documents, as search knows them: found with their title and headings, ended by their keys."""

from collections.abc import Mapping
from urllib.parse import quote, unquote

from memory_engine.events import DocumentAdded, DocumentPassage, DocumentRemoved, Event
from memory_engine.recall.passages import NOTHING, Extracted, Extractor, Text

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
