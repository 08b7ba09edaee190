"""PDF, through pypdf (extra `pdf`): a section for each page."""

import io
from pathlib import PurePath

from memory_engine.errors import MissingExtra
from memory_engine.ingest.documents.dates import in_utc
from memory_engine.ingest.documents.values import Loaded, Section, Unreadable


def read_pdf(content: bytes, path: str) -> Loaded:
    """The text of a PDF file. Raises `Unreadable` for a broken or locked one and one of pictures, `MissingExtra`."""
    try:
        from pypdf import PdfReader
    except ModuleNotFoundError:
        raise MissingExtra("reading PDF", "pdf") from None
    if not content.strip():
        raise Unreadable("it is empty")
    page = 0
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is locked by a password")
        sections = []
        for page, found in enumerate(reader.pages, 1):
            text = _clean(found.extract_text())
            if text:
                sections.append(Section(text, f"page {page}"))
        described = reader.metadata
        title = _clean(described.title) if described is not None else ""
        author = _clean(described.author) if described is not None else ""
        date = described.creation_date if described is not None else None
    except Unreadable:
        raise
    except Exception as error:  # a broken file makes the library raise whatever its code stumbles over
        why = f"it cannot be read as PDF: {type(error).__name__}: {error}"
        raise Unreadable(why, f"page {page}" if page else "") from error
    if not sections:
        raise Unreadable("no page holds text: it may be scanned")
    return Loaded(
        id=path,
        title=title or PurePath(path).stem,
        format="pdf",
        sections=tuple(sections),
        source=path,
        author=author,
        date=None if date is None else in_utc(date),
    )


def _clean(text: str | None) -> str:
    """A text of the file, without halves of characters."""
    return (text or "").encode("utf-8", "replace").decode().strip()
