"""Memory files: named texts that an agent keeps, one event a change.

Each version is written whole: it can be read, compared and forgotten without the versions before it.
"""

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Id, Name, SourceSeq


@event("memory_file_written", tracked=True, role="memory", chunks="none")
class MemoryFileWritten(Event):
    """A new file, or a new version of one: its whole text, byte for byte.

    `file_id` stays the same while the file is edited and moved. `edit` is how the text came about (`create`,
    `str_replace`, `insert`, or a word of the caller's), `drawn_from` are the seqs of its earlier versions. `claim` is
    drawn again by every writer: of two that change the same files at once, one is recorded.
    """

    path: Name
    content: str
    file_id: Id
    edit: Id = "create"
    drawn_from: tuple[SourceSeq, ...] = ()
    claim: Id = ""

    def in_few_words(self) -> str:
        """Its path, and its text."""
        return f"{self.path}: {self.content}"


@event("memory_files_moved", tracked=True, role="memory", chunks="none")
class MemoryFilesMoved(Event):
    """Files get other paths: the n-th of `old_paths` becomes the n-th of `new_paths`. A folder is all files in it."""

    old_paths: tuple[Name, ...]
    new_paths: tuple[Name, ...]
    claim: Id = ""


@event("memory_files_deleted", tracked=True, role="memory", chunks="none")
class MemoryFilesDeleted(Event):
    """Files go. Their versions stay in the log; `file_ids` are theirs, in the order of the paths."""

    paths: tuple[Name, ...]
    file_ids: tuple[Id, ...] = ()
    claim: Id = ""
