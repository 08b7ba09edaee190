"""The text of PDF files (extra `pdf`), read in a process of its own: a file can make its reader hang.

`python -m memory_engine.views.documents.readers.pdf SECONDS BYTES TEXT_BYTES` is that process: a PDF comes in, its
text goes out as JSON.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from importlib.util import find_spec
from pathlib import PurePath

from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.errors import MissingExtra
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, Unreadable
from memory_engine.views.documents.readers.text import as_date, in_utc

_PROGRAM = "memory_engine.views.documents.readers.pdf"
_WAITED_FACTOR = 10
"""How much longer than its processor time the process may take, where the machine is busy."""


def read_pdf(content: bytes, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Loaded:
    """The text of a PDF file.

    Raises `Unreadable` for a broken or locked one, one of pictures, and one that passes a limit; `MissingExtra`.
    """
    if find_spec("pypdf") is None:
        raise MissingExtra("reading PDF", "pdf")
    if not content.strip():
        raise Unreadable("it is empty")
    found = _process_answer(content, limits)
    if "why" in found:
        raise Unreadable(*(str(found.get(name, "")) for name in ("why", "place", "limit")))
    listed = found["pages"]
    pages = listed if isinstance(listed, list) else []
    sections = [DocumentSection(text=text, about=f"page {page}") for page, text in pages]
    if not sections:
        raise Unreadable("no page holds text: it may be scanned")
    return Loaded(
        id=path,
        title=str(found["title"]) or PurePath(path).stem,
        format="pdf",
        sections=tuple(sections),
        source=path,
        author=str(found["author"]),
        date=as_date(str(found["date"])),
    )


def _process_answer(content: bytes, limits: ReadingLimits) -> Mapping[str, object]:
    """The answer of the process about a file. Raises `Unreadable` if it was ended, or crashed."""
    bounds = [str(most) for most in (limits.pdf_seconds, limits.pdf_bytes, limits.file_bytes)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", _PROGRAM, *bounds],
            input=content,
            capture_output=True,
            timeout=limits.pdf_seconds * _WAITED_FACTOR,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _too_slow(limits) from None
    if done.returncode == 0:
        answer: Mapping[str, object] = json.loads(done.stdout)
        return answer
    if done.returncode == -getattr(signal, "SIGXCPU", 0):
        raise _too_slow(limits)
    if b"MemoryError" in done.stderr:
        raise Unreadable(f"reading it takes over {limits.pdf_bytes:,} bytes", limit="pdf_bytes")
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    raise Unreadable(f"it cannot be read as PDF: its reader ended with {done.returncode}: {last[:200]}")


def _too_slow(limits: ReadingLimits) -> Unreadable:
    return Unreadable(f"reading it took over {limits.pdf_seconds:,} seconds", limit="pdf_seconds")


def _bound(seconds: int, size: int) -> None:
    """Let the system end this process where it passes the limits. Where it cannot (Windows), only its caller waits."""
    try:
        import resource
    except ModuleNotFoundError:
        return
    for what, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, size)):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _extract_pages(content: bytes, text_bytes: int) -> Mapping[str, object]:
    from pypdf import PdfReader

    page, size = 0, 0
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"why": "it is locked by a password"}
        pages = []
        for page, found in enumerate(reader.pages, 1):
            text = _clean(found.extract_text())
            size += len(text)
            if size > text_bytes:
                why = f"its text has over {text_bytes:,} characters"
                return {"why": why, "place": f"page {page}", "limit": "file_bytes"}
            if text:
                pages.append((page, text))
        described = reader.metadata
        title = _clean(described.title) if described is not None else ""
        author = _clean(described.author) if described is not None else ""
        date: datetime | None = described.creation_date if described is not None else None
    except MemoryError:
        return {"why": "it takes more memory than it may", "place": f"page {page}", "limit": "pdf_bytes"}
    except Exception as error:  # a broken file makes the library raise errors of any class
        why = f"it cannot be read as PDF: {type(error).__name__}: {error}"
        return {"why": why, "place": f"page {page}" if page else ""}
    return {"pages": pages, "title": title, "author": author, "date": in_utc(date).isoformat() if date else ""}


def _clean(text: str | None) -> str:
    """A text of the file, without halves of characters."""
    return (text or "").encode("utf-8", "replace").decode().strip()


if __name__ == "__main__":
    _bound(int(sys.argv[1]), int(sys.argv[2]))
    answer = _extract_pages(sys.stdin.buffer.read(), int(sys.argv[3]))
    sys.stdout.buffer.write(json.dumps(answer).encode())
