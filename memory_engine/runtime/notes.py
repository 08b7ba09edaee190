"""Notes: what a context leaves to be recorded.

Reading a context writes nothing and waits for nothing. A note waits at its thread in memory, and goes into the log just
before the next dispatched event, in the same commit.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import SourceQuarantined, ThreadRewound
from memory_engine.core.events.delivery import FactsRewound
from memory_engine.core.events.memory import EventsErased, MemoryForget, ThreadCleared
from memory_engine.core.threads import Head
from memory_engine.projections.base import Projection
from memory_engine.projections.inline import InlineProjections
from memory_engine.runtime.queue import Prepared, Request

_HIDING = frozenset(
    cls.event_type
    for cls in (MemoryForget, ThreadCleared, ThreadRewound, FactsRewound, SourceQuarantined, EventsErased)
)
"""Types of events after which no note goes into the log that was made before: it may repeat what they hide."""


class Note(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An event of the type `event_type` that waits for the next dispatch.

    `made_at` is the seq of the state that the note was made from. `event` returns the event to be recorded before these
    events of a sender, on this head of the thread, or `None` to wait for others. `recorded` is called with that event
    and its seq once it is durable; it must not raise.
    """

    event_type: str
    made_at: int
    event: Callable[[Sequence[Prepared], Head], Event | None]
    recorded: Callable[[Event, int], None]


class DueNote(msgspec.Struct, frozen=True, eq=False):
    """A note with its name, and the event that it gives."""

    name: str
    note: Note
    event: Event


class Notes:
    """The notes of one thread, by name. A newer one of a name replaces the older."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[str, Note] = {}

    def put(self, name: str, note: Note) -> None:
        """Let a note wait."""
        self.waiting[name] = note

    def pop(self, name: str) -> None:
        """Drop the note of a name, if there is one."""
        self.waiting.pop(name, None)

    def holds(self, name: str, head: Head) -> bool:
        """Whether the note of a name waits, and may still be recorded after this head."""
        note = self.waiting.get(name)
        return note is not None and not _is_outdated(note, head)

    def missing(self, projections: InlineProjections) -> list[Projection[object]]:
        """The views that the waiting notes change, and that are not in memory yet."""
        return [view for note in self.waiting.values() for view in projections.missing(note.event_type)]

    def drop_missing(self, view: Projection[object], projections: InlineProjections) -> None:
        """Drop the notes that change a view which cannot be read: the events behind them would wait for ever."""
        for name, note in list(self.waiting.items()):
            if view in projections.missing(note.event_type):
                del self.waiting[name]

    def due(self, head: Head, request: Request) -> list[DueNote]:
        """The notes that go into the log before a request, in the order in which they were left.

        A request of the engine's own takes none, and one that hides something does not either: both were made from a
        state without them. Nor does a note go that was made before something was hidden.
        """
        if not self.waiting or request.system or request.administrative or request.check is not None:
            return []
        if any(prepared.event.event_type in _HIDING for prepared in request.events):
            return []
        waiting = ((name, note) for name, note in self.waiting.items() if not _is_outdated(note, head))
        made = ((name, note, note.event(request.events, head)) for name, note in waiting)
        return [DueNote(name, note, event) for name, note, event in made if event is not None]

    def drop(self, notes: Iterable[DueNote]) -> None:
        """Drop notes, unless newer ones have taken their places."""
        for one in notes:
            if self.waiting.get(one.name) is one.note:
                del self.waiting[one.name]

    def recorded(self, notes: Sequence[tuple[DueNote, int]]) -> None:
        """Drop notes that became durable at these seqs, and call those who left them."""
        self.drop(one for one, _ in notes)
        for one, seq in notes:
            one.note.recorded(one.event, seq)


def _is_outdated(note: Note, head: Head) -> bool:
    """Whether something was forgotten, cleared or erased since the note was made: it may repeat that."""
    return note.made_at > head.seq or any(head.marks.get(hiding, 0) > note.made_at for hiding in _HIDING)
