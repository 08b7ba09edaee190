"""Refused before anything was written."""

from attrs import frozen

from memory_engine.errors.base import MemoryEngineError


class InvalidInput(MemoryEngineError):
    """Refused before anything was written."""


@frozen
class InvalidEvent(InvalidInput):
    """The event holds a value that the log could not give back as it is."""

    event_type: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"event {self.event_type!r} cannot be recorded: {self.why} at {self.where}; nothing was written"


@frozen
class SeqNotInLog(InvalidInput, ValueError):
    """A moment that a thread's history does not have."""

    thread_id: str
    moment: object
    head: int

    def __str__(self) -> str:
        has = f"has seqs 1 to {self.head} (0: before the first)" if self.head else "has no event yet, only seq 0"
        why = "" if isinstance(self.moment, int) else "; give a seq, an event's id, or a time with its zone"
        return f"thread {self.thread_id!r} {has}, not {self.moment!r}{why}"


@frozen
class EventTooLarge(InvalidInput):
    """The encoded payload is over the hard limit."""

    event_type: str
    bytes: int
    limit: int

    def __str__(self) -> str:
        return (
            f"event {self.event_type!r} takes {self.bytes} bytes, over the limit of {self.limit}; "
            "store the body elsewhere and dispatch a reference, or raise `event_bytes_max`"
        )


@frozen
class UndeclaredEvent(InvalidInput):
    """A class that is no declared event."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} has no wire name; declare it with @event('name') above the class"


@frozen
class InvalidIdentifier(InvalidInput):
    """A thread id, event id or scope that cannot be stored or compared safely."""

    what: str
    value: str
    why: str

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 60 else self.value[:57] + "..."
        return f"{self.what} {shown!r} is not usable: {self.why}"


@frozen
class DuplicateRegistration(InvalidInput):
    """Two registrations under one name: the later would silently win."""

    what: str
    name: str

    def __str__(self) -> str:
        return f"{self.what} {self.name!r} is registered already; register under another name, or replace it by name"


@frozen
class MissingExtra(InvalidInput):
    """A feature needs an optional package."""

    feature: str
    extra: str

    def __str__(self) -> str:
        return f"{self.feature} needs an optional package: pip install 'memory-engine[{self.extra}]'"


@frozen
class IngestError(InvalidInput):
    """A place in a file that is no event."""

    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


@frozen
class InvalidSearch(InvalidInput):
    """What a search, or a context with recall, cannot be asked with."""

    what: str
    value: object
    why: str

    def __str__(self) -> str:
        shown = repr(self.value)
        return f"a search cannot take {self.what}={shown if len(shown) <= 60 else shown[:57] + '...'}: {self.why}"
