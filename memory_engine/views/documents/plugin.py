"""The plug-in of a tenant's documents."""

from memory_engine.plugins import Plugin
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.documents.events import DocumentAdded, DocumentPassage, DocumentRemoved
from memory_engine.views.documents.fold import DOCUMENTS, document_prefix

PLUGIN = Plugin("documents", events=[DocumentAdded, DocumentRemoved])
PLUGIN.projection(DOCUMENTS)

_BETWEEN = " > "


@PLUGIN.passages(DocumentAdded)
def _document_passages(event: DocumentAdded, _seq: int) -> Extracted:
    prefix = document_prefix(event.document_id)
    return Extracted(
        texts=tuple(_passage_text(event, passage, prefix) for splice in event.splices for passage in splice.passages),
        keys=tuple(prefix + key for splice in event.splices for key in splice.ended),
    )


def _passage_text(event: DocumentAdded, passage: DocumentPassage, prefix: str) -> Text:
    return Text(
        text=passage.text,
        kind="document",
        speaker=passage.speaker or event.author,
        key=prefix + passage.key,
        about=_BETWEEN.join(filter(None, (event.title, passage.about))),
        at_us=event.date_us if passage.at_us is None else passage.at_us,
    )


@PLUGIN.passages(DocumentRemoved)
def _removed(event: DocumentRemoved, _seq: int) -> Extracted:
    return Extracted(prefixes=(document_prefix(event.document_id),), drops=event.seqs)
