"""The files of one folder, read and written so that nothing outside it is touched, whatever paths and links say.

A path is walked from the folder's descriptor, one part at a time, without following links. A file is written under
another name and then moved to its own, so that a link or a device there is never opened. What is replaced is
checked on an open descriptor before and after.
"""

import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from attrs import define, field, frozen

from memory_engine.core.json_form import JsonForm
from memory_engine.errors import FolderRefused, WorkspaceChanged, WorkspaceTooLarge
from memory_engine.language.secrets import holds_secret
from memory_engine.workspace.ignoring import DEPTH_MAX, PART_PREFIX, Ignored, unsafe

_SAFE = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_LINKS = getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _LINKS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _LINKS | getattr(os, "O_CLOEXEC", 0)
_IN_THE_WAY = frozenset(
    {errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOENT, errno.EXDEV, errno.ENOTEMPTY, errno.ENXIO}
)
"""What the system says of a link, a folder or a file that is in the place of another."""
_TRIES_MAX = 3
_SETTLED_NS = 2_000_000_000
"""A file that changed less than this before it was read is read again: clocks of file systems are coarse."""


class WorkspaceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most files and folders, bytes of a file (a larger one is left out), and bytes of new content of a record."""

    files: int = 10_000
    file_bytes: int = 1_048_576
    new_bytes: int = 67_108_864


class UnrecordedFile(JsonForm, msgspec.Struct, frozen=True):
    """A file or folder that is not recorded or written, and why. Ignored ones are not listed."""

    path: str
    why: str


@frozen
class Present:
    """A file as it is in the folder."""

    digest: str
    size: int
    executable: bool


@define
class Scan:
    """What is in the folder. `contents` are those that are not `known`, by digest.

    `recorded` are digests by path: a file that is recorded as it is has no secret, or was taken in for all that.
    """

    known: Container[str]
    recorded: Mapping[str, str]
    files: dict[str, Present] = field(factory=dict)
    contents: dict[str, bytes] = field(factory=dict)
    left_out: list[UnrecordedFile] = field(factory=list)
    entries: int = 0
    new_bytes: int = 0
    seen: dict[str, tuple[tuple[int, ...], str]] = field(factory=dict)
    """By path: what `stat` said of a file when it was read, and its digest; only if a later change would show."""


def digest_of(content: bytes) -> str:
    """The name of a content: its SHA-256."""
    return hashlib.sha256(content).hexdigest()


class Folder:
    """One folder. Its methods block: call them on a thread of their own."""

    def __init__(self, path: Path, ignored: Ignored, limits: WorkspaceLimits) -> None:
        self.path = path
        self.ignored = ignored
        self.limits = limits
        self._read: dict[str, tuple[tuple[int, ...], str]] = {}
        self._secret: dict[str, bool] = {}

    @contextmanager
    def opened(self) -> "Iterator[OpenFolder]":
        """The folder, open. Raises `FolderRefused`."""
        if not _SAFE:
            raise FolderRefused(str(self.path), "this platform cannot open files relative to a folder")
        try:
            root = os.open(self.path, _FOLDER)
        except OSError as error:
            raise FolderRefused(str(self.path), f"it cannot be opened as a folder ({error.strerror})") from error
        try:
            yield OpenFolder(root, os.fstat(root).st_dev, str(self.path))
        finally:
            os.close(root)

    def scan(self, known: Container[str], recorded: Mapping[str, str]) -> Scan:
        """All files that are not ignored. Raises `WorkspaceTooLarge`."""
        found = Scan(known, recorded)
        with self.opened() as folder:
            for path, parent, name, about in self._walk(folder, folder.root, "", found):
                try:
                    self._add(found, path, (parent, name, about))
                except OSError as error:
                    found.left_out.append(UnrecordedFile(path, error.strerror or "it cannot be read"))
        self._read = found.seen
        return found

    def _walk(
        self, folder: "OpenFolder", at: int, inside: str, found: Scan
    ) -> Iterator[tuple[str, int, str, os.stat_result]]:
        with os.scandir(at) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            path = inside + name
            try:
                about = os.stat(name, dir_fd=at, follow_symlinks=False)
                is_folder = stat.S_ISDIR(about.st_mode)
                if self.ignored.entry(path, is_folder=is_folder) or name.startswith(PART_PREFIX):
                    continue
                found.entries += 1
                if found.entries > self.limits.files:
                    raise WorkspaceTooLarge(str(self.path), "files and folders", self.limits.files)
                why = unsafe(path) or folder.why_not(about)
                if why:
                    if name != ".git":
                        found.left_out.append(UnrecordedFile(path.encode("utf-8", "replace").decode(), why))
                elif not is_folder:
                    yield path, at, name, about
                elif path.count("/") < DEPTH_MAX:
                    inner = os.open(name, _FOLDER | _LINKS, dir_fd=at)
                    try:
                        yield from self._walk(folder, inner, f"{path}/", found)
                    finally:
                        os.close(inner)
            except OSError as error:
                found.left_out.append(UnrecordedFile(path, error.strerror or "it cannot be read"))

    def _add(self, found: Scan, path: str, place: tuple[int, str, os.stat_result]) -> None:
        """Read one file. Skip it if it has not changed since the last scan and its content is known."""
        parent, name, about = place
        executable = bool(about.st_mode & stat.S_IXUSR)
        known, recorded = found.known, found.recorded.get(path, "")
        before, digest = self._read.get(path, ((), ""))
        if before != _identity(about) or digest not in known or digest != recorded:
            if about.st_size > self.limits.file_bytes:
                found.left_out.append(UnrecordedFile(path, f"it has more than {self.limits.file_bytes:,} bytes"))
                return
            content, about, why = _stable(parent, name, self.limits.file_bytes)
            digest = digest_of(content)
            if not why and digest != recorded and self._is_secret(path, digest, content):
                why = "it contains a secret"
            if why:
                found.left_out.append(UnrecordedFile(path, why))
                return
            if digest not in known and digest not in found.contents:
                found.contents[digest] = content
                found.new_bytes += len(content)
                if found.new_bytes > self.limits.new_bytes:
                    raise WorkspaceTooLarge(str(self.path), "bytes of new content", self.limits.new_bytes)
        if about.st_ctime_ns < time.time_ns() - _SETTLED_NS:
            found.seen[path] = _identity(about), digest
        found.files[path] = Present(digest, about.st_size, executable)

    def _is_secret(self, path: str, digest: str, content: bytes) -> bool:
        if self.ignored.takes_in(path):
            return False
        if digest not in self._secret:
            form = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
            self._secret[digest] = holds_secret(content.decode(form, "replace"))
        return self._secret[digest]


@frozen
class OpenFolder:
    """A folder's descriptor, and the file system that it is on."""

    root: int
    device: int
    name: str

    def why_not(self, about: os.stat_result) -> str:
        """Why a file or folder is left alone; empty for one that is not."""
        if stat.S_ISLNK(about.st_mode):
            return "it is a link"
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
            return "it is a pipe, a socket or a device"
        return "" if about.st_dev == self.device else "it is on another file system"

    @contextmanager
    def _parent(self, folders: Sequence[str], *, make: bool) -> Iterator[int]:
        """The folder of a path, walked part by part."""
        at = os.dup(self.root)
        try:
            for name in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=at)
                inner = os.open(name, _FOLDER | _LINKS, dir_fd=at)
                os.close(at)
                at = inner
                if os.fstat(at).st_dev != self.device:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            yield at
        finally:
            os.close(at)

    def write(self, path: str, content: bytes, *, executable: bool, instead_of: str) -> str:
        """Write a file in the place of one with the digest `instead_of` (empty: of none).

        Returns where the bytes are that someone wrote to the former file meanwhile, usually nowhere. Raises
        `WorkspaceChanged` if something else is there, `OSError` if the system refuses.
        """
        *folders, name = path.split("/")
        with self._checked(path), self._parent(folders, make=True) as at:
            part = PART_PREFIX + secrets.token_hex(8)
            try:
                with os.fdopen(os.open(part, _NEW, 0o777 if executable else 0o666, dir_fd=at), "wb") as file:
                    file.write(content)
                    if instead_of:
                        former = stat.S_IMODE(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode) & 0o666
                        os.fchmod(file.fileno(), former | ((former & 0o444) >> 2 if executable else 0))
                if instead_of:
                    return self._replaced(
                        at, path, instead_of, lambda: os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
                    )
                os.close(os.open(name, _NEW, 0o600, dir_fd=at))  # takes the name, or fails
                os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
                return ""
            finally:
                with suppress(OSError):
                    os.unlink(part, dir_fd=at)

    def remove(self, path: str, digest: str) -> str:
        """Remove a file of this digest, and folders that this leaves empty. Returns and raises as `write`."""
        *folders, name = path.split("/")
        with self._checked(path):
            with self._parent(folders, make=False) as at:
                kept = self._replaced(at, path, digest, lambda: os.unlink(name, dir_fd=at))
            with suppress(OSError):  # not empty
                while folders and not kept:
                    *folders, last = folders
                    with self._parent(folders, make=False) as at:
                        os.rmdir(last, dir_fd=at)
        return kept

    def set_executable(self, path: str, digest: str, *, executable: bool) -> None:
        """Change whether a file of this digest is executable. Raises as `write`."""
        *folders, name = path.split("/")
        with self._checked(path), self._parent(folders, make=False) as at, _opened_file(at, name) as file:
            if digest_of(_content(file, os.fstat(file).st_size)) != digest:
                raise WorkspaceChanged(self.name, (path,))
            mode = stat.S_IMODE(os.fstat(file).st_mode) & 0o666
            os.fchmod(file, mode | ((mode & 0o444) >> 2 if executable else 0))

    @contextmanager
    def _checked(self, path: str) -> Iterator[None]:
        """Refuse a path that leads elsewhere, and turn what is in its way into a `WorkspaceChanged`."""
        if unsafe(path):
            raise WorkspaceChanged(self.name, (path,))
        try:
            yield
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            raise WorkspaceChanged(self.name, (path,)) from error

    def _replaced(self, at: int, path: str, digest: str, act: Callable[[], None]) -> str:
        """Act on a file whose content is known. What is written to it meanwhile is kept beside it."""
        name = path.rpartition("/")[2]
        with _opened_file(at, name) as file:
            before = os.fstat(file)
            content = _content(file, before.st_size)
            now = os.stat(name, dir_fd=at, follow_symlinks=False)
            if digest_of(content) != digest or (now.st_ino, now.st_dev) != (before.st_ino, before.st_dev):
                raise WorkspaceChanged(self.name, (path,))
            act()
            after = os.fstat(file)
            if (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
                return ""
            os.lseek(file, 0, os.SEEK_SET)
            beside = f".kept-{secrets.token_hex(4)}"
            with os.fdopen(os.open(name + beside, _NEW, 0o600, dir_fd=at), "wb") as out:
                out.write(_content(file, after.st_size))
            return path + beside


def _identity(about: os.stat_result) -> tuple[int, ...]:
    """What changes with a file's content."""
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


@contextmanager
def _opened_file(at: int, name: str) -> Iterator[int]:
    """A regular file of a folder, open to be read."""
    about = os.stat(name, dir_fd=at, follow_symlinks=False)
    if not stat.S_ISREG(about.st_mode):  # opening a device may do something
        raise OSError(errno.ELOOP, "it is not a regular file")
    file = os.open(name, _READ, dir_fd=at)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ELOOP, "it is not a regular file")
        yield file
    finally:
        os.close(file)


def _content(file: int, size: int) -> bytes:
    """The bytes of an open file, one more than its size at most."""
    parts: list[bytes] = []
    left = size + 1
    while left > 0 and (part := os.read(file, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _stable(at: int, name: str, limit: int) -> tuple[bytes, os.stat_result, str]:
    """A file's content, what the system says of it, and why it cannot be told: it keeps changing, or grew too large."""
    tries = 0
    while True:
        tries += 1
        with _opened_file(at, name) as file:
            before = os.fstat(file)
            content = _content(file, min(before.st_size, limit))
            after = os.fstat(file)
        if len(content) > limit:
            return b"", after, f"it has more than {limit:,} bytes"
        if _identity(before) == _identity(after) and len(content) == after.st_size:
            return content, after, ""
        if tries == _TRIES_MAX:
            return b"", after, "it changes while it is read"
