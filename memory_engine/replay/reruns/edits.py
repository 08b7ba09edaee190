"""Edits of a log for a rerun: events that are skipped, replaced, inserted."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from memory_engine.errors import InvalidChange
from memory_engine.events.base import Event
from memory_engine.records import NewEvent


@frozen
class SkipEvent:
    """As if the event at `seq` had not happened. `event_skipped` takes its place, so that no later event moves."""

    seq: int


@frozen
class ReplaceEvent:
    """As if another event had happened in place of the one at `seq`, under its id and at its time."""

    seq: int
    event: Event


@frozen
class InsertEvent:
    """As if one more event had happened directly after the one at seq `after` (0: before the first).

    It is recorded at that one's time. Several after the same seq come in the order in which they are given.
    """

    after: int
    event: Event | NewEvent


Edit = SkipEvent | ReplaceEvent | InsertEvent
EDITS = (SkipEvent, ReplaceEvent, InsertEvent)
"""Seqs, and chunk ids inside the events, are those of the original log, whatever the other edits are."""


@frozen(kw_only=True)
class Script:
    """Edits by the seqs that they concern. `first` is the earliest event that may come out otherwise."""

    skipped: frozenset[int]
    replaced: Mapping[int, Event]
    inserted: Mapping[int, Sequence[NewEvent]]
    first: int

    @classmethod
    def of(cls, edits: Sequence[Edit], upto: int) -> "Script":
        """Check edits of a log up to a seq. Raises `InvalidChange` for a seq that it does not have, or edited twice."""
        skipped: set[int] = set()
        replaced: dict[int, Event] = {}
        inserted: dict[int, list[NewEvent]] = {}
        for edit in edits:
            match edit:
                case InsertEvent(after=after, event=event):
                    _check("inserting after", after, 0, upto)
                    inserted.setdefault(after, []).append(event if isinstance(event, NewEvent) else NewEvent(event))
                case SkipEvent(seq=seq) | ReplaceEvent(seq=seq):
                    _check("skipping" if isinstance(edit, SkipEvent) else "replacing", seq, 1, upto)
                    if seq in skipped or seq in replaced:
                        raise InvalidChange(f"event {seq}", "two edits skip or replace it; give one")
                    if isinstance(edit, SkipEvent):
                        skipped.add(seq)
                    else:
                        replaced[seq] = edit.event
        first = min((*skipped, *replaced, *(after + 1 for after in inserted)), default=upto + 1)
        return cls(skipped=frozenset(skipped), replaced=replaced, inserted=inserted, first=first)

    def concerns(self, seq: int) -> bool:
        """Whether the event at a seq is skipped or replaced."""
        return seq in self.skipped or seq in self.replaced


def _check(what: str, seq: int, least: int, upto: int) -> None:
    if not least <= seq <= upto:
        raise InvalidChange(f"{what} event {seq}", f"the log has the seqs {least} to {upto}")
