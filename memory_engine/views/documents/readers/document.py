"""The result of reading a file of any format: documents of sections; and the files of a Slack export."""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType

from attrs import frozen


@frozen
class DocumentSection:
    """A part of a document that no passage reaches beyond: the text under a heading, a message, a turn of speech.

    `about` are the headings above it, or the time within a recording. `at_us` is when it was said, in microseconds
    since 1970.
    """

    text: str
    about: str = ""
    speaker: str = ""
    at_us: int | None = None
    is_markdown: bool = False


@frozen(kw_only=True)
class Loaded:
    """A document as it was read. `id` is its own in its tenant; dates have a time zone.

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
    """A reader cannot go on. `place` is where in the file, `why` the reason."""

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.place = place


FILE_BYTES_MAX = 50 * 1024 * 1024
_MARKS = frozenset({"channels.json", "groups.json", "dms.json", "mpims.json"})


def is_export(names: Collection[str]) -> bool:
    """Whether these names, of the files in one folder, are those of a Slack export's root."""
    return "users.json" in names and not _MARKS.isdisjoint(names)


class FolderExport:
    """An unpacked export."""

    def __init__(self, root: Path) -> None:
        self._root = root
        files = (*root.glob("*.json"), *root.glob("*/*.json"))
        self._names = sorted(file.relative_to(root).as_posix() for file in files if file.is_file())

    def names(self) -> Sequence[str]:
        """All names of JSON files, sorted."""
        return self._names

    def read(self, name: str) -> bytes:
        """A file's content. Raises `Unreadable`."""
        path = self._root / name
        try:
            _check(path.stat().st_size)
            return path.read_bytes()
        except OSError as error:
            raise Unreadable(f"it cannot be read: {error.strerror or error}") from None


class ZipExport:
    """An export as it was downloaded, or with a folder around all of it. Raises `Unreadable` for any other file."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise Unreadable(f"it is not a zip: {error}") from None
        names = [name for name in self._zip.namelist() if name.endswith(".json") and not name.startswith("__MACOSX/")]
        users = min((name for name in names if name.rpartition("/")[2] == "users.json"), key=len, default="users.json")
        self._root = users.removesuffix("users.json")
        self._names = sorted(name.removeprefix(self._root) for name in names if name.startswith(self._root))
        if not is_export(self._names):
            self._zip.close()
            raise Unreadable("it is not a Slack export: users.json and channels.json (or dms.json, …) are not in it")

    def __enter__(self) -> "ZipExport":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def names(self) -> Sequence[str]:
        """All names of JSON files, sorted."""
        return self._names

    def read(self, name: str) -> bytes:
        """A file's content. Raises `Unreadable`."""
        try:
            _check(self._zip.getinfo(self._root + name).file_size)
            return self._zip.read(self._root + name)
        except Unreadable:
            raise
        except Exception as error:  # the errors of the several decompressors have no common class
            raise Unreadable(f"it cannot be unpacked: {type(error).__name__}: {error}") from None


def _check(size: int) -> None:
    if size > FILE_BYTES_MAX:
        raise Unreadable(f"it has {size:,} bytes; the limit is {FILE_BYTES_MAX:,}")
