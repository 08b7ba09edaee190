"""The view of memory files: the current text of each, by path."""

from typing import cast

import msgspec

from memory_engine.core.clock import to_us
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, row_of, rows_under
from memory_engine.views.memory_files.events import MemoryFilesDeleted, MemoryFilesMoved, MemoryFileWritten

_TREE = "tree"
_FILE = "file/"


class FileRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="file", gc=False):
    """A file's text since the event `seq`; `seqs` are the events of all its versions, this one's included."""

    content: str
    file_id: str
    seq: int
    seqs: tuple[int, ...]
    created_us: int
    changed_us: int


class TreeRow(msgspec.Struct, frozen=True, tag="tree", gc=False):
    """The last event that changed any file: whoever changes one next says that it has seen it."""

    seq: int


AnyFileRow = FileRow | TreeRow


class MemoryFilesFold:
    """Files by path."""

    name = "memory_files"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = cast("type[AnyFileRow]", AnyFileRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (MemoryFileWritten, MemoryFilesMoved, MemoryFilesDeleted, MemoryForget)

    def apply(self, rows: Rows[AnyFileRow], event: RecordedEvent) -> None:
        """Change the files by one event. A file goes with any of its versions: the later ones may hold its words."""
        match event.event:
            case MemoryFileWritten() as written:
                _put_file(rows, written, event)
            case MemoryFilesMoved(old_paths=old_paths, new_paths=new_paths):
                _move(rows, old_paths, new_paths)
            case MemoryFilesDeleted(paths=paths):
                for path in paths:
                    rows.drop(_FILE + path)
            case MemoryForget() as forget:
                origins = forget.origins()
                for path, row in files_of(rows):
                    if not origins.isdisjoint(row.seqs):
                        rows.drop(_FILE + path)
                return
        rows.put(_TREE, TreeRow(event.seq))


MEMORY_FILES = MemoryFilesFold()


def _put_file(rows: Rows[AnyFileRow], written: MemoryFileWritten, event: RecordedEvent) -> None:
    known = file_at(rows, written.path)
    now_us = to_us(event.recorded_at)
    row = FileRow(
        content=written.content,
        file_id=written.file_id,
        seq=event.seq,
        seqs=(*written.drawn_from, event.seq),
        created_us=known.created_us if known is not None and known.file_id == written.file_id else now_us,
        changed_us=now_us,
    )
    rows.put(_FILE + written.path, row)


def _move(rows: Rows[AnyFileRow], old_paths: tuple[str, ...], new_paths: tuple[str, ...]) -> None:
    """All at once: a path that one file leaves may be taken by another."""
    moving = [(new, file_at(rows, old)) for old, new in zip(old_paths, new_paths, strict=False)]
    for old in old_paths:
        rows.drop(_FILE + old)
    for new, row in moving:
        if row is not None:
            rows.put(_FILE + new, row)


def file_at(rows: ReadableRows[AnyFileRow], path: str) -> FileRow | None:
    """The file at a path."""
    return row_of(rows, FileRow, _FILE + path)


def files_of(rows: ReadableRows[AnyFileRow], folder: str = "") -> list[tuple[str, FileRow]]:
    """The files in a folder (empty: all), with their paths, in order of these."""
    inside = f"{folder}/" if folder else ""
    return [(inside + path, row) for path, row in rows_under(rows, FileRow, _FILE + inside)]


def changed_at(rows: ReadableRows[AnyFileRow]) -> int:
    """The seq of the last event that changed any file; 0: none ever did."""
    row = row_of(rows, TreeRow, _TREE)
    return 0 if row is None else row.seq
