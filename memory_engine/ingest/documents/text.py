"""Plain text: one section, whose paragraphs the splitter finds."""

from pathlib import PurePath

from memory_engine.ingest.documents.decoding import decoded
from memory_engine.ingest.documents.values import Loaded, Section


def read_text(content: bytes, path: str) -> Loaded:
    """A text file, named as its file is. Raises `Unreadable`."""
    return text_document(decoded(content), path, PurePath(path).stem)


def text_document(text: str, document_id: str, title: str) -> Loaded:
    """A text that is at hand."""
    return Loaded(id=document_id, title=title, format="text", sections=(Section(text),), source=document_id)
