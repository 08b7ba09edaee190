"""Memory files: named texts that an agent writes, edits, moves and deletes, each with its history."""

import asyncio
import posixpath
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from memory_engine.core.arguments import checked_text
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import Receipt, RecordedEvent
from memory_engine.errors import IdempotencyConflict, InvalidFilePath, MemoryFileExists, UnknownMemoryFile
from memory_engine.projections.base import ReadableRows
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.reader import MomentLike
from memory_engine.views.memory_files.events import MemoryFilesDeleted, MemoryFilesMoved, MemoryFileWritten
from memory_engine.views.memory_files.fold import MEMORY_FILES, AnyFileRow, FileRow, changed_at, file_at, files_of
from memory_engine.views.records import Records

TRIES_MAX = 8
"""How often a change is retried when others change the same thread's files at the same time."""


class MemoryFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, with its text since the event `seq`. `id` stays the same through edits and moves."""

    path: str
    content: str
    id: str
    seq: int
    created: datetime
    changed: datetime


class FileVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a file's history. `what` is the edit's word, `moved` or `deleted`; `content` is the text then."""

    seq: int
    event_id: str
    at: datetime
    what: str
    path: str
    content: str
    file_id: str


class MemoryFiles:
    """The files of one thread: an agent's, a user's, or a conversation's. Paths are relative, such as `notes/jdk.md`.

    There are no empty folders: a folder exists while it holds a file. Each change is an event; a change that conflicts
    with others' changes is applied again on top of them.
    """

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def list(self, folder: str = "", *, at: MomentLike | None = None) -> "list[MemoryFile]":
        """The files in a folder and below it (default: all), in order of path."""
        rows = await self._thread.rows(MEMORY_FILES, at=at)
        return [_file(path, row) for path, row in files_of(rows, _checked_path(folder) if folder else "")]

    async def get(self, path: str, *, at: MomentLike | None = None) -> MemoryFile | None:
        """The file at a path, or `None`."""
        row = file_at(await self._thread.rows(MEMORY_FILES, at=at), _checked_path(path))
        return None if row is None else _file(path, row)

    async def read(self, path: str, *, at: MomentLike | None = None) -> str:
        """The text of a file. Raises `UnknownMemoryFile`."""
        found = await self.get(path, at=at)
        if found is None:
            raise UnknownMemoryFile(self._thread.id, path)
        return found.content

    async def create(self, path: str, content: str) -> Receipt:
        """Create a file.

        Raises `MemoryFileExists` if a file or folder is at the path, or a file is where a folder has to be.
        """
        _checked_path(path)

        def wanted(rows: ReadableRows[AnyFileRow]) -> Event:
            _check_free(rows, path)
            new_id = self._thread.kernel.new_id
            return MemoryFileWritten(path=path, content=content, file_id=new_id(), claim=new_id())

        return await self._changed(wanted)

    async def edit(self, path: str, change: Callable[[str], str], *, how: str = "edit") -> Receipt:
        """Replace a file's text with what `change` returns for it; `how` names the edit in the history.

        `change` is called again if someone else changed a file meanwhile; its errors are raised, and then nothing was
        written. Raises `UnknownMemoryFile`.
        """
        _checked_path(path)

        def wanted(rows: ReadableRows[AnyFileRow]) -> Event:
            row = file_at(rows, path)
            if row is None:
                raise UnknownMemoryFile(self._thread.id, path)
            return MemoryFileWritten(
                path=path,
                content=change(row.content),
                file_id=row.file_id,
                edit=how,
                drawn_from=row.seqs,
                claim=self._thread.kernel.new_id(),
            )

        return await self._changed(wanted)

    async def delete(self, path: str) -> Receipt:
        """Delete a file, or a folder with all its files. The log keeps them. Raises `UnknownMemoryFile`."""
        _checked_path(path)
        return await self._changed(lambda rows: self._deletion(rows, path))

    async def clear(self) -> Receipt | None:
        """Delete all files. `None` without any."""
        if not files_of(await self._thread.rows(MEMORY_FILES)):
            return None
        return await self._changed(lambda rows: self._deletion(rows, ""))

    async def move(self, path: str, to: str) -> Receipt:
        """Move a file, or a folder with all its files, to another path.

        Raises `UnknownMemoryFile`, `MemoryFileExists`, and `InvalidFilePath` for a folder moved into itself.
        """
        _checked_path(path)
        _checked_path(to)

        def wanted(rows: ReadableRows[AnyFileRow]) -> Event:
            found = self._found(rows, path)
            if to.startswith(f"{path}/"):
                raise InvalidFilePath(to, f"it is inside {path!r}, which is to be moved there")
            _check_free(rows, to)
            old = tuple(one for one, _ in found)
            new = tuple(to + one.removeprefix(path) for one in old)
            return MemoryFilesMoved(old_paths=old, new_paths=new, claim=self._thread.kernel.new_id())

        return await self._changed(wanted)

    async def history(self, path: str = "") -> Sequence[FileVersion]:
        """The events of the file at a path, oldest first, also from before it moved there, and of deleted ones there.

        Without a path, those of all files. Leaves out versions that a rewind took back, and forgotten ones with those
        made from them.
        """
        path = _checked_path(path) if path else ""
        history = _History()
        async for event in Records(self._thread, MEMORY_FILES).history(*MEMORY_FILES.events):
            history.add(event)
        return history.of(path)

    def _found(self, rows: ReadableRows[AnyFileRow], path: str) -> "Sequence[tuple[str, FileRow]]":
        """The file at a path, or the files in the folder. Raises `UnknownMemoryFile`."""
        row = file_at(rows, path) if path else None
        found = [(path, row)] if row is not None else files_of(rows, path)
        if not found:
            raise UnknownMemoryFile(self._thread.id, path)
        return found

    def _deletion(self, rows: ReadableRows[AnyFileRow], path: str) -> Event:
        found = self._found(rows, path)
        return MemoryFilesDeleted(
            paths=tuple(one for one, _ in found),
            file_ids=tuple(row.file_id for _, row in found),
            claim=self._thread.kernel.new_id(),
        )

    async def _changed(self, wanted: Callable[[ReadableRows[AnyFileRow]], Event]) -> Receipt:
        """Dispatch the event that is wanted for the present files; made again after a concurrent change."""
        tries = 0
        while True:
            rows = await self._thread.rows(MEMORY_FILES)
            event, base = wanted(rows), changed_at(rows)
            try:
                event_id = f"memory_files:{base}{await era_of(self._thread)}"
                return await self._thread.dispatch(event, event_id=event_id)
            except IdempotencyConflict:
                tries += 1
                if tries == TRIES_MAX:
                    raise
                if changed_at(await self._thread.rows(MEMORY_FILES)) == base:
                    await asyncio.sleep(self._thread.kernel.config.follow_s)  # until another process's change is seen


def _file(path: str, row: FileRow) -> MemoryFile:
    return MemoryFile(
        path=path,
        content=row.content,
        id=row.file_id,
        seq=row.seq,
        created=to_datetime(row.created_us),
        changed=to_datetime(row.changed_us),
    )


def _checked_path(path: str) -> str:
    """The path, if it is relative and in its shortest form. Raises `InvalidFilePath`."""
    if checked_text("path", path).startswith("/"):
        raise InvalidFilePath(path, "a path is relative to the memory: leave out the first /")
    if not path or posixpath.normpath(path) != path or path.partition("/")[0] in (".", ".."):
        raise InvalidFilePath(path, "write it without . and .., without // and without a / at the end")
    if "\0" in path:
        raise InvalidFilePath(path, "a path holds no zero byte")
    return path


def _check_free(rows: ReadableRows[AnyFileRow], path: str) -> None:
    """Raise `MemoryFileExists` if the path is taken, or a file has the name of one of its folders."""
    parts = path.split("/")
    for n in range(1, len(parts) + 1):
        above = "/".join(parts[:n])
        if file_at(rows, above) is not None:
            raise MemoryFileExists(above)
    if files_of(rows, path):
        raise MemoryFileExists(path)


class _History:
    """The versions of every file, read from the log in order."""

    def __init__(self) -> None:
        self._files: dict[str, list[FileVersion]] = {}
        self._live: dict[str, str] = {}
        self._last_paths: dict[str, str] = {}

    def add(self, recorded: RecordedEvent) -> None:
        """Take the next event."""
        match recorded.event:
            case MemoryFileWritten(path=path, content=content, file_id=file_id, edit=edit):
                self._live[path] = file_id
                self._add(recorded, file_id, edit, path, content)
            case MemoryFilesMoved(old_paths=old_paths, new_paths=new_paths):
                moving = [(new, self._live.pop(old, None)) for old, new in zip(old_paths, new_paths, strict=False)]
                for new, moved in moving:
                    if moved is not None:
                        self._live[new] = moved
                        self._add(recorded, moved, "moved", new, self._files[moved][-1].content)
            case MemoryFilesDeleted(paths=paths):
                for path in paths:
                    deleted = self._live.pop(path, None)
                    if deleted is not None:
                        self._add(recorded, deleted, "deleted", path, "")
            case MemoryForget() as forget:
                self._forget(forget.origins())

    def of(self, path: str) -> list[FileVersion]:
        """The versions of the files that are or were last at a path (empty: of all), in order of their events."""
        wanted = (some for id_, some in self._files.items() if path in ("", self._last_paths[id_]))
        return sorted((version for some in wanted for version in some), key=lambda version: version.seq)

    def _add(self, recorded: RecordedEvent, file_id: str, what: str, path: str, content: str) -> None:
        version = FileVersion(
            seq=recorded.seq,
            event_id=recorded.id,
            at=recorded.recorded_at,
            what=what,
            path=path,
            content=content,
            file_id=file_id,
        )
        self._last_paths[file_id] = path
        self._files.setdefault(file_id, []).append(version)

    def _forget(self, origins: frozenset[int]) -> None:
        """Of a file, a forgotten version goes with all later ones, which may hold its words."""
        for file_id, versions in self._files.items():
            first = next((n for n, one in enumerate(versions) if one.seq in origins), None)
            if first is not None:
                del versions[first:]
                self._live = {path: one for path, one in self._live.items() if one != file_id}
