"""The result of reading a file of any format: documents of sections; and the files of a Slack export."""

import logging
import os
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from attrs import frozen

from memory_engine.core.bounded import open_file, read_file
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.views.documents.events import DocumentText

_log = logging.getLogger("memory_engine")


class DocumentSection(DocumentText, frozen=True, kw_only=True):
    """A part of a document that no passage reaches beyond: the text under a heading, a message, a turn of speech."""

    is_markdown: bool = False


@frozen(kw_only=True)
class Loaded:
    """A document from a file. `id` is its own in its tenant; dates have a time zone.

    An empty one that `may_be_empty` says that the text of an earlier version is gone.
    """

    id: str
    title: str
    format: str
    sections: Sequence[DocumentSection]
    source: str = ""
    author: str = ""
    date: datetime | None = None
    channel: str = ""
    thread: str = ""
    metadata: Mapping[str, str] = {}
    may_be_empty: bool = False


class Unreadable(Exception):
    """A reader cannot go on. `place` is where in the file, `why` the reason, `limit` the one that was passed, if so."""

    def __init__(self, why: str, place: str = "", limit: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.place = place
        self.limit = limit


def stumbled(error: Exception, place: str = "") -> Unreadable:
    """An error that no reader foresees, as the end of a file's or a part's reading; the log has where it was raised."""
    _log.info("reading a document failed", exc_info=error)
    return Unreadable(f"reading it failed: {type(error).__name__}: {error}", place)


def check_limit(count: int, limits: ReadingLimits, name: str, what: str, place: str = "") -> None:
    """Raise `Unreadable` where there are more of something than the limit `name` allows."""
    most: int = getattr(limits, name)
    if count > most:
        raise Unreadable(f"it has {count:,} {what}; the limit is {most:,}", place, name)


_MARKS = frozenset({"channels.json", "groups.json", "dms.json", "mpims.json"})


def is_export(names: Collection[str]) -> bool:
    """Whether these names, of the files in one folder, are those of a Slack export's root."""
    return "users.json" in names and not _MARKS.isdisjoint(names)


class FolderExport:
    """An unpacked export."""

    def __init__(self, root: Path, limits: ReadingLimits = DEFAULT_LIMITS) -> None:
        self._root = root
        self._limits = limits
        files = [file for pattern in ("*.json", "*/*.json") for file in root.glob(pattern) if file.is_file()]
        check_limit(len(files), limits, "archive_files", "files")
        self._names = {file.relative_to(root).as_posix(): None for file in sorted(files)}

    def names(self) -> Collection[str]:
        """All names of JSON files, sorted."""
        return self._names.keys()

    def read(self, name: str) -> bytes:
        """A file's content. Raises `Unreadable`."""
        path = self._root / name
        try:
            check_limit(path.stat().st_size, self._limits, "file_bytes", "bytes")
            return read_file(path, limit=self._limits.file_bytes, within=self._root)
        except OSError as error:
            raise Unreadable(f"it cannot be read: {error.strerror or error}") from None


_NOT_UNPACKED = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, EOFError, OSError, ValueError, KeyError)
"""What `zipfile` raises for a broken or an encrypted file: its own errors and those of decompressors share no base."""


class Archive:
    """A zip, whose every size is checked before anything is unpacked.

    Raises `Unreadable` for any other file, and for one that lists more files than the limits allow.
    """

    def __init__(self, file: BinaryIO, limits: ReadingLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        listed = _directory_bytes(file)
        if listed > limits.archive_files * _ENTRY_BYTES:
            why = f"its list of files has {listed:,} bytes; the limit is {limits.archive_files:,} files"
            raise Unreadable(why, limit="archive_files")
        self._packed = file.seek(0, os.SEEK_END)
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise Unreadable(f"it is not a zip: {error}") from None
        check_limit(len(self._zip.infolist()), limits, "archive_files", "files")

    def names(self) -> Sequence[str]:
        """The names of all its files."""
        return self._zip.namelist()

    def check(self, names: Iterable[str]) -> None:
        """Raise `Unreadable` if these files would unpack to more than the limits allow."""
        unpacked = sum(self._zip.getinfo(name).file_size for name in names)
        check_limit(unpacked, self._limits, "archive_bytes", "bytes when unpacked")
        if unpacked > _RATIO_FREE_BYTES:
            check_limit(unpacked // max(1, self._packed), self._limits, "archive_ratio", "bytes for each packed one")

    def read(self, name: str) -> bytes:
        """A file's content. Raises `Unreadable`."""
        try:
            info = self._zip.getinfo(name)
            check_limit(info.file_size, self._limits, "file_bytes", "bytes when unpacked")
            if info.compress_type not in _UNPACKED_BOUNDED:
                raise Unreadable(f"it is packed by the method {info.compress_type}; pack it by deflate")
            return self._zip.read(info)  # never more than it says: zipfile stops there, and its checksum fails
        except _NOT_UNPACKED as error:
            raise Unreadable(f"it cannot be unpacked: {type(error).__name__}: {error}") from None


class ZipExport:
    """A downloaded export, or one with a folder around all of it.

    Raises `Unreadable` for any other file, and for one that would unpack to more than the limits allow.
    """

    def __init__(self, path: Path, limits: ReadingLimits = DEFAULT_LIMITS) -> None:
        with ExitStack() as opened:
            self._archive = Archive(opened.enter_context(open_file(path)), limits)
            self._names = self._listed()
            self._opened = opened.pop_all()

    def _listed(self) -> Mapping[str, None]:
        """The names from the export's root on, sorted."""
        names = [name for name in self._archive.names() if name.endswith(".json") and not name.startswith("__MACOSX/")]
        users = min((name for name in names if name.rpartition("/")[2] == "users.json"), key=len, default="users.json")
        self._root = users.removesuffix("users.json")
        found = sorted({name.removeprefix(self._root) for name in names if name.startswith(self._root)})
        if not is_export(found):
            raise Unreadable("it is not a Slack export: users.json and channels.json (or dms.json, …) are not in it")
        self._archive.check(self._root + name for name in found)
        return dict.fromkeys(found)

    def __enter__(self) -> "ZipExport":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def names(self) -> Collection[str]:
        """All names of JSON files, sorted."""
        return self._names.keys()

    def read(self, name: str) -> bytes:
        """A file's content. Raises `Unreadable`."""
        return self._archive.read(self._root + name)


_RATIO_FREE_BYTES = 64 * 1024 * 1024
_UNPACKED_BOUNDED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2})
"""LZMA is left out: such a file itself says how much memory to take before its first byte."""
_ENTRY_BYTES = 512
"""An entry of the list takes 46 bytes, its name and what a packer adds."""
_END, _END_BYTES = b"PK\x05\x06", 22
_END_64 = b"PK\x06\x06"
_COMMENT_BYTES_MAX = 65_535


def _directory_bytes(file: BinaryIO) -> int:
    """How long a zip says that its list of files is: `zipfile` makes an object of each before anybody can count them.

    0 where the file is not a zip.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_BYTES - _COMMENT_BYTES_MAX - 76))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_BYTES:
        return 0
    told: int = struct.unpack_from("<L", tail, at + 12)[0]
    at_64 = tail.rfind(_END_64, 0, at)
    if at_64 >= 0 and at >= at_64 + 56:
        told = max(told if told != 0xFFFF_FFFF else 0, struct.unpack_from("<Q", tail, at_64 + 40)[0])
    return min(told, size)
