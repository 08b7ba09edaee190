"""Errors of workspace files."""

from memory_engine.errors.base import InvalidInput, MemoryEngineError, facts

_PATHS_MAX = 5


@facts
class FolderRefused(InvalidInput):
    """A path of a workspace that is not a folder, or a platform that cannot open files safely in one."""

    folder: str
    why: str

    template = "{folder} cannot be a workspace: {why}; nothing was read or written"


@facts
class WorkspaceTooLarge(InvalidInput):
    """A folder with more files, or more new content, than is recorded at once."""

    folder: str
    what: str
    limit: int

    template = (
        "{folder} has more than {limit:,} {what} to record; ignore some of them by patterns, or raise the limit; "
        "nothing was recorded"
    )


@facts
class WorkspaceChanged(MemoryEngineError):
    """Files in the folder hold what the log does not, or cannot be replaced safely."""

    folder: str
    paths: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.paths) - _PATHS_MAX
        listed = ", ".join(map(repr, self.paths[:_PATHS_MAX])) + (f" and {more} more" if more > 0 else "")
        return (
            f"files in {self.folder} are not as they were recorded: {listed}; none of them was written: "
            "record the folder first, or move these files away"
        )


@facts
class WorkspaceNotRecorded(MemoryEngineError):
    """No record of a workspace is in a thread at a moment."""

    thread_id: str
    seq: int

    template = (
        "thread {thread_id!r} has no record of a workspace at event {seq}; call `record()` before the work begins; "
        "no file was written"
    )


@facts
class ImportedWorkspace(MemoryEngineError):
    """Files from an imported log are written with consent only: they are a stranger's."""

    thread_id: str

    template = (
        "the files of thread {thread_id!r} come from an imported log; look at `files()`, and pass "
        "`imported=True` to write them; no file was written"
    )
