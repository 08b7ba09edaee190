"""Recordings of other tools: the one record between a file and events, and what reads a file into records.

    class Notes:
        name = "notes"

        def sees(self, file: RecordedFile) -> bool:
            return "note" in file.first_keys

        def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
            yield RecordedConversation(map(_read, file.records))

Add a reader to a plug-in (`Plugin.reader`), and `ingest` tries it before its own.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from attrs import define, field, frozen

from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.errors import IngestError


class Pause:
    """Stands among the records of a file that is followed: it holds no more for now."""


PAUSE = Pause()


@frozen
class Record:
    """One message, with what its file says of it.

    `value` is a provider's message: a role with its blocks, or a whole response with its id, model and usage around
    them. `format` names the provider's format, where it does not show by itself. The value may also be an event. As it
    comes from the file, before a reader has read it, it is any JSON value.

    `at` is when it happened. `origin` says who wrote a message of the user role; with `None` its text and its place
    decide. `key` is its id in the file: an event's id follows from it, else from `number` (from 1), the record's place.
    `parent` is the key of the record that it follows. `is_line` says that the record has `line` to itself.
    """

    value: object
    line: int
    number: int
    is_line: bool = False
    format: str = ""
    at: datetime | None = None
    origin: MessageOrigin | None = None
    key: str = ""
    parent: str = ""


@frozen
class RecordedConversation:
    """The records of one thread, in order.

    `label` names it among others of its file; without one it is the file's own thread. `parent` is the label of the
    conversation that started this one as a sub-agent's, which comes before it in the file; `None` without one.
    `branch_of` is the label of the conversation that this is an abandoned branch of, which comes before it, and `after`
    the key of the last record that both have in common, empty if they have none: it becomes a fork there.

    `tree` are the keys of all records of the conversation and its branches: a branch that is not the one its thread
    goes on with becomes a fork, also if it is current by now. Leave it empty where a file cannot have branches.

    `shape` says what the records hold. With `strict`, a result without its call is an error; else it is kept as an
    observation.
    """

    records: Iterator[Record | IngestError]
    label: str = ""
    line: int = 1
    parent: str | None = None
    agent_id: str = ""
    branch_of: str | None = None
    after: str = ""
    tree: Collection[str] = ()
    shape: Literal["message", "event"] = "message"
    strict: bool = False


@define
class RecordedFile:
    """A file that is read. Read `records` once, from the first on.

    `name` is the id of its thread, or what the ids of its threads begin with.
    `first` holds the values of the first records, for a look at them. `head` has the keys of a JSON object whose
    `messages` are its records. In `live`, which has the same records, a file that is followed adds `PAUSE` where it
    holds no more for now. Count in `left_out`, by kind, what your reader does not take: the report names it.
    """

    path: Path
    name: str = ""
    live: Iterator[Record | IngestError] = field(factory=lambda: iter(()))
    first: tuple[object, ...] = ()
    head: Mapping[str, object] = field(factory=dict)
    limits: ReadingLimits = DEFAULT_LIMITS
    format: str = "auto"
    left_out: Counter[str] = field(factory=Counter)
    also_read: list[Path] = field(factory=list)
    is_followed: bool = False

    @property
    def records(self) -> Iterator[Record | IngestError]:
        """The records, without pauses."""
        return (one for one in self.live if isinstance(one, IngestError) or one.value is not PAUSE)

    @property
    def first_objects(self) -> list[Mapping[str, object]]:
        """Those of the first values that are JSON objects."""
        return [value for value in self.first if isinstance(value, Mapping)]

    @property
    def first_keys(self) -> frozenset[str]:
        """The keys of the first value; none if it is not an object."""
        return frozenset(self.first[0]) if self.first and isinstance(self.first[0], Mapping) else frozenset()


class Reader(Protocol):
    """Reads the recordings of one tool."""

    @property
    def name(self) -> str:
        """Its name, which `ingest --format` takes."""
        ...

    def sees(self, file: RecordedFile) -> bool:
        """Return True if a recording is of this tool, by `path`, `first` and `head`."""
        ...

    def conversations(self, file: RecordedFile) -> Iterable[RecordedConversation | IngestError]:
        """The conversations of a recording. The records of each are read before the next is asked for."""
        ...
