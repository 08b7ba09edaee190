"""The view of workspace files: the current tree, and which event holds each content."""

from collections.abc import Set
from typing import cast

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, row_of, rows_under
from memory_engine.views.workspace.events import WorkspaceRecorded

_TREE = "tree"
_FILE = "file/"
_CONTENT = "content/"


class WorkspaceFile(JsonForm, msgspec.Struct, frozen=True, tag="file"):
    """A file since the event `seq`. `digest` is the SHA-256 of its content, which the event at `content_seq` holds."""

    path: str
    digest: str
    size: int
    seq: int
    content_seq: int
    executable: bool = False


class ContentRow(msgspec.Struct, frozen=True, tag="content", gc=False):
    """The event at `seq` holds a content, of any file at any time."""

    seq: int


class RecordRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="tree", gc=False):
    """The last record. `since` is the seq before its first part while others of its parts follow, else -1."""

    seq: int
    since: int = -1


AnyWorkspaceRow = WorkspaceFile | ContentRow | RecordRow


class WorkspaceFold:
    """Files by path, and contents by digest."""

    name = "workspace"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = cast("type[AnyWorkspaceRow]", AnyWorkspaceRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (WorkspaceRecorded, MemoryForget)

    def apply(self, rows: Rows[AnyWorkspaceRow], event: RecordedEvent) -> None:
        """Change the rows by one event. A file goes with the event that holds its content."""
        match event.event:
            case WorkspaceRecorded() as recorded:
                _put_changes(rows, recorded, event.seq)
            case MemoryForget() as forget:
                _drop_forgotten_files(rows, forget.origins())


def _put_changes(rows: Rows[AnyWorkspaceRow], recorded: WorkspaceRecorded, seq: int) -> None:
    for one in recorded.changes:
        if one.digest and one.holds_content:
            rows.put(_CONTENT + one.digest, ContentRow(seq))
    for one in recorded.changes:
        if one.digest:
            row = WorkspaceFile(one.path, one.digest, one.size, seq, one.held_at or seq, one.executable)
            rows.put(_FILE + one.path, row)
        else:
            rows.drop(_FILE + one.path)
    is_last = recorded.part + 1 >= recorded.parts
    rows.put(_TREE, RecordRow(seq) if is_last else RecordRow(seq, max(0, seq - recorded.part - 1)))


def _drop_forgotten_files(rows: Rows[AnyWorkspaceRow], gone: Set[int]) -> None:
    for key, row in list(rows.items()):
        match row:
            case WorkspaceFile(seq=seq, content_seq=content_seq) if seq in gone or content_seq in gone:
                rows.drop(key)
            case ContentRow(seq=seq) if seq in gone:
                rows.drop(key)


def files_of(rows: ReadableRows[AnyWorkspaceRow]) -> dict[str, WorkspaceFile]:
    """The files, by path, in order of path."""
    return dict(rows_under(rows, WorkspaceFile, _FILE))


def contents_of(rows: ReadableRows[AnyWorkspaceRow]) -> dict[str, int]:
    """The seq of the event that holds a content, by its digest."""
    return {digest: row.seq for digest, row in rows_under(rows, ContentRow, _CONTENT)}


def tree_of(rows: ReadableRows[AnyWorkspaceRow]) -> RecordRow | None:
    """The last record, if there is any."""
    return row_of(rows, RecordRow, _TREE)


WORKSPACE = WorkspaceFold()
