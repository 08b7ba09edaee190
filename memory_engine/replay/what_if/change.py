"""Edits of a log for a rerun (events to skip, replace, insert), and the number of events that each outcome had."""

from collections.abc import Mapping, Sequence

from attrs import define, frozen

from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.compaction import CompactionCompleted, CompactionFailed
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import NewEvent
from memory_engine.errors import InvalidChange
from memory_engine.errors.effects import Usage


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

    It is recorded at that one's time. Several after the same seq come in the given order.
    """

    after: int
    event: Event | NewEvent


Edit = SkipEvent | ReplaceEvent | InsertEvent
EDITS = (SkipEvent, ReplaceEvent, InsertEvent)
"""Seqs, and chunk ids inside the events, are those of the original log, regardless of the other edits."""


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
                    _check_seq_range("inserting after", after, 0, upto)
                    inserted.setdefault(after, []).append(event if isinstance(event, NewEvent) else NewEvent(event))
                case SkipEvent(seq=seq) | ReplaceEvent(seq=seq):
                    _check_seq_range("skipping" if isinstance(edit, SkipEvent) else "replacing", seq, 1, upto)
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


def _check_seq_range(what: str, seq: int, least: int, upto: int) -> None:
    if not least <= seq <= upto:
        raise InvalidChange(f"{what} event {seq}", f"the log has the seqs {least} to {upto}")


@frozen(kw_only=True)
class Refused:
    """An event that no longer fits after the change, and why; `event_skipped` replaces it.

    A compaction whose chunks are not all there any more is one: `compaction_abandoned` replaces its end.
    """

    seq: int
    event_type: str
    why: str


@define(kw_only=True)
class EventCounts(JsonForm):
    """The number of the original's events by their outcome, and of those that are new in the rerun.

    `shared`: the past that both have in common. `kept` came out with the bytes that they had, `renumbered` name others
    by their new places. `left_out` are the compactions of the original, if they are made again, `added` those made.
    """

    shared: int = 0
    kept: int = 0
    renumbered: int = 0
    replaced: int = 0
    skipped: int = 0
    refused: int = 0
    left_out: int = 0
    inserted: int = 0
    added: int = 0

    def note(self, what: str) -> None:
        """One more event of this kind."""
        setattr(self, what, getattr(self, what) + 1)


@frozen(kw_only=True)
class Compactions(JsonForm):
    """The compactions of one side after the shared past, and the tokens of their models.

    Tokens are estimates: `tokens_before` of the originals, `tokens_after` of their summaries.
    """

    completed: int = 0
    failed: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()

    def plus(self, event: Event | UnknownEvent) -> "Compactions":
        """With one more event of the log counted in."""
        match event:
            case CompactionCompleted():
                return Compactions(
                    completed=self.completed + 1,
                    failed=self.failed,
                    tokens_before=self.tokens_before + event.tokens_before,
                    tokens_after=self.tokens_after + event.tokens_after,
                    usage=self.usage.plus(event.usage),
                )
            case CompactionFailed():
                return Compactions(
                    completed=self.completed,
                    failed=self.failed + 1,
                    tokens_before=self.tokens_before,
                    tokens_after=self.tokens_after,
                    usage=self.usage.plus(event.usage),
                )
        return self
