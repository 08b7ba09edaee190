"""The files that hold documents, and reading them: walks folders, detects formats, names faults."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve, field, frozen

from memory_engine.core.bounded import open_file
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.errors import MemoryEngineError, UnreadableDocument
from memory_engine.views.documents.readers.document import (
    FolderExport,
    Loaded,
    Unreadable,
    ZipExport,
    check_limit,
    is_export,
    stumbled,
)
from memory_engine.views.documents.readers.docx import read_docx
from memory_engine.views.documents.readers.html import read_html
from memory_engine.views.documents.readers.mail import read_mail, read_mbox
from memory_engine.views.documents.readers.pdf import read_pdf
from memory_engine.views.documents.readers.slack import read_slack
from memory_engine.views.documents.readers.splitting import read_markdown
from memory_engine.views.documents.readers.tables import read_csv
from memory_engine.views.documents.readers.text import read_text, read_transcript
from memory_engine.views.documents.readers.values import read_json, read_json_lines

FAULTS_LISTED_MAX = 1_000
"""Of a file with more parts that cannot be read, these are named and the others counted."""

_READERS: Mapping[str, Callable[[bytes, str], Loaded]] = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd"), read_markdown),
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".adoc", ".org"), read_text),
    **dict.fromkeys((".vtt", ".srt"), read_transcript),
}
_LIMITED: Mapping[str, Callable[[bytes, str, ReadingLimits], Loaded]] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    **dict.fromkeys((".csv", ".tsv"), read_csv),
    **dict.fromkeys((".docx", ".docm"), read_docx),
    **dict.fromkeys((".jsonl", ".ndjson"), read_json_lines),
    ".json": read_json,
    ".eml": read_mail,
    ".pdf": read_pdf,
}
_CONTAINERS = frozenset({".mbox", ".zip"})


@frozen
class File:
    """A file, or an export's folder, that may hold documents. `name` is its absolute path, and its document's id."""

    path: Path
    name: str


@frozen
class SkippedFile:
    """A file in a folder that is of no format known here."""

    path: str


def absolute(path: Path) -> str:
    """The name of a file: its absolute path, links not followed, `/` between its parts."""
    return Path(os.path.abspath(path)).as_posix()  # noqa: PTH100 - `resolve` would follow links: a file would change its name


def find(paths: Sequence[Path]) -> Iterator[File | SkippedFile | UnreadableDocument]:
    """The files at and below paths, each once, in order of their names.

    In folders, hidden files are passed over, and files of unknown formats are `Skipped`; a file that is named
    itself is taken for text then. A folder that holds a Slack export is one thing.
    """
    walk = _Walk()
    for path in paths:
        yield from walk.named(path)


@frozen
class _Walk:
    """The files and folders seen so far: files by name, folders by their identity on the disk, so that links end."""

    _files: set[str] = field(factory=set)
    _folders: set[tuple[int, int]] = field(factory=set)

    def named(self, path: Path, root: Path | None = None) -> Iterator[File | SkippedFile | UnreadableDocument]:
        """A file, or those of a folder; `root` is the folder that was named, out of which no link may lead."""
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            yield UnreadableDocument(str(path), "", _unreadable_reason(error))
            return
        if stat.S_ISDIR(mode):
            yield from self._folder(path, root or path.resolve())
        elif stat.S_ISREG(mode):
            yield from self._file(path)
        else:
            yield UnreadableDocument(str(path), "", "it is neither a file nor a folder")

    def _file(self, path: Path) -> Iterator[File]:
        name = absolute(path)
        if name not in self._files:
            self._files.add(name)
            yield File(path, name)

    def _folder(self, path: Path, root: Path) -> Iterator[File | SkippedFile | UnreadableDocument]:
        try:
            there = path.stat()
            if (there.st_dev, there.st_ino) in self._folders:
                return
            self._folders.add((there.st_dev, there.st_ino))
            inner = sorted(path.iterdir())
        except OSError as error:
            yield UnreadableDocument(str(path), "", _unreadable_reason(error))
            return
        if is_export([one.name for one in inner]):
            yield from self._file(path)
            return
        for one in inner:
            if one.name.startswith("."):
                continue
            try:
                taken = one.is_symlink() or one.is_dir() or _is_known(one)
                found = self._linked(one, root) if taken else iter([SkippedFile(str(one))])
                yield from found
            except OSError as error:  # such as a link into a folder without permission
                yield UnreadableDocument(str(one), "", _unreadable_reason(error))

    def _linked(self, path: Path, root: Path) -> Iterator[File | SkippedFile | UnreadableDocument]:
        """The files and folders in a folder; a link to a file of no known format is skipped too."""
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            yield UnreadableDocument(str(path), "", "it is a link that leads out of the folder: name its target too")
        elif not _is_known(path) and path.is_file():
            yield SkippedFile(str(path))
        else:
            yield from self.named(path, root)


def _is_known(path: Path) -> bool:
    kind = path.suffix.lower()
    return kind in _READERS or kind in _LIMITED or kind in _CONTAINERS


def load(found: File, limits: ReadingLimits = DEFAULT_LIMITS) -> Iterator[Loaded | UnreadableDocument]:
    """The documents of a file, and its faults. Raises `MissingExtra` where a format needs a package."""
    faults = 0
    for one in _tried(found, limits):
        if isinstance(one, Unreadable):
            faults += 1
            if faults <= FAULTS_LISTED_MAX:
                yield UnreadableDocument(str(found.path), one.place, one.why, one.limit)
        else:
            yield one
    if faults > FAULTS_LISTED_MAX:
        yield UnreadableDocument(
            str(found.path), "", f"{faults - FAULTS_LISTED_MAX:,} more of its parts cannot be read"
        )


def _tried(found: File, limits: ReadingLimits) -> Iterator[Loaded | Unreadable]:
    """The documents of a file, until an error ends the reading: it is the last item."""
    try:
        yield from _loaded(found, limits)
    except Unreadable as error:
        yield error
    except OSError as error:
        yield Unreadable(_unreadable_reason(error))
    except MemoryEngineError:
        raise
    except Exception as error:  # a reader that stumbles over a file's content must not end the other files' reading
        yield stumbled(error)


def _loaded(found: File, limits: ReadingLimits) -> Iterator[Loaded | Unreadable]:
    path, kind = found.path, found.path.suffix.lower()
    if path.is_dir():
        yield from read_slack(FolderExport(path, limits), found.name, limits)
    elif kind == ".zip":
        with ZipExport(path, limits) as export:
            yield from read_slack(export, found.name, limits)
    elif kind == ".mbox":
        with open_file(path) as file:
            yield from read_mbox(file, found.name, limits)
    elif kind in _LIMITED:
        yield evolve(_LIMITED[kind](content(path, limits), found.name, limits), source=found.name)
    else:
        yield evolve(_READERS.get(kind, read_text)(content(path, limits), found.name), source=found.name)


def content(path: Path, limits: ReadingLimits = DEFAULT_LIMITS) -> bytes:
    """A file's bytes. Raises `Unreadable` for one that is too large, `OSError`."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        found = file.read(min(size, limits.file_bytes) + 1)  # room for the limit at once would cost a tenth of all
        if len(found) > size:  # a file that grows is read no further, whatever its size said
            found += file.read(max(0, limits.file_bytes + 1 - len(found)))
        check_limit(max(len(found), size), limits, "file_bytes", "bytes")
    return found


def _unreadable_reason(error: OSError | ValueError) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return f"it cannot be read: {said or error}"
