"""What is said of a text beside it, and what is said of an ingestion after it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from memory_engine.errors import UnreadableDocument
from memory_engine.events import DocumentAdded, Event


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a text beside it. Dates without a time zone are in UTC."""

    source: str = ""
    author: str = ""
    date: datetime | None = None
    channel: str = ""
    thread: str = ""
    metadata: Mapping[str, str] = {}


class DocumentReport(msgspec.Struct):
    """What became of files so far: how many documents are new, changed, as they were, or gone from their file.

    `failed` is what could not be read, each with its place; `skipped` are files in folders that are of no known
    format. `passages` are those that were written, `ended` those that went.
    """

    files: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    passages: int = 0
    ended: int = 0
    failed: list[UnreadableDocument] = msgspec.field(default_factory=list)
    skipped: list[str] = msgspec.field(default_factory=list)

    def count(self, events: Sequence[Event], *, is_new: bool, is_there: bool) -> None:
        """Note what events did to a document."""
        self.added += bool(events) and is_new
        self.changed += bool(events) and is_there and not is_new
        self.removed += bool(events) and not is_there
        self.unchanged += not events and is_there
        splices = [splice for one in events if isinstance(one, DocumentAdded) for splice in one.splices]
        self.passages += sum(len(splice.passages) for splice in splices)
        self.ended += sum(len(splice.ended) for splice in splices)
