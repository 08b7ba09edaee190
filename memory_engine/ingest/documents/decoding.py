"""From bytes to text: what marks itself, UTF-8, else what most files of no mark are."""

import codecs

from memory_engine.ingest.documents.values import Unreadable

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""In this order: the mark of UTF-16 begins that of UTF-32."""


def decoded(content: bytes) -> str:
    """The text, with line feeds between its lines. Without a mark it is UTF-8 or, where that fails, Windows' Latin.

    Raises `Unreadable` for content that is empty, binary, or not what its mark says.
    """
    if not content.strip():
        raise Unreadable("it is empty")
    text = _decoded(content)
    if not text.strip():
        raise Unreadable("it holds no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(content: bytes) -> str:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            try:
                return content.decode(encoding).removeprefix("\ufeff")
            except UnicodeDecodeError as error:
                raise Unreadable(f"it is not the {encoding} that its first bytes say", f"byte {error.start}") from None
    nul = content.find(b"\0")
    if nul >= 0:
        raise Unreadable("it is binary: a NUL byte stands in it", f"byte {nul}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return latin(content)


def latin(content: bytes) -> str:
    """Windows-1252, its five unused bytes as in Latin-1: every byte is a character."""
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError:
        return content.decode("latin-1")
