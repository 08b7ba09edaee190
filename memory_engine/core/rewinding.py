"""Which events of a log are shown after each of its rewinds: what everyone asks who derives something from a log.

A rewind to a moment shows what was shown at that moment, and nothing else of what came before it. The moment may be
one that an earlier rewind has taken back: that undoes it. So no event says which others it hides; all of it follows
from the moments that rewinds name. The events of facts that came from other threads, and of
sources in quarantine, are hidden and shown one by one.

Some events hold whatever is taken back around them: see `STICKY`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from memory_engine.core.events.compaction import SourceQuarantined, ThreadRewound
from memory_engine.core.events.delivery import FactsDelivered, FactsRewound
from memory_engine.core.events.memory import EventsErased, MemoryForget
from memory_engine.core.records import RecordedEvent, StoredEvent

REWINDING = frozenset({ThreadRewound.event_type, FactsRewound.event_type, SourceQuarantined.event_type})
"""The types of events that change which others are shown."""
STICKY = REWINDING | {MemoryForget.event_type, EventsErased.event_type, FactsDelivered.event_type}
"""Types of events that no rewind takes back: what was forgotten stays forgotten, what was delivered is delivered."""

Range: TypeAlias = tuple[int, int]
"""A first and a last seq."""


class ShownEvents(msgspec.Struct, frozen=True):
    """The events that are shown at a moment: all but those in the `gaps`, which are in order and do not touch."""

    gaps: tuple[Range, ...] = ()

    def has(self, seq: int) -> bool:
        """Whether the event at a seq is shown."""
        at = bisect_right(self.gaps, seq, key=lambda gap: gap[0]) - 1
        return at < 0 or self.gaps[at][1] < seq

    def shows(self, stored: StoredEvent | RecordedEvent) -> bool:
        """Whether a row is shown, or holds in any case."""
        return not self.gaps or self.has(stored.seq) or stored.type in STICKY

    def upto(self, seq: int) -> tuple[Range, ...]:
        """The gaps up to a seq."""
        return tuple((first, min(last, seq)) for first, last in self.gaps if first <= seq)

    def ranges(self, after: int, upto: int) -> list[Range]:
        """What is shown with `after` < seq <= `upto`."""
        found: list[Range] = []
        for first, last in (*self.upto(upto), (upto + 1, upto + 1)):
            if after + 1 < first:
                found.append((after + 1, first - 1))
            after = max(after, last)
        return found


ALL_SHOWN = ShownEvents()


class Rewind(msgspec.Struct, frozen=True):
    """A rewinding event: of this thread `to` a moment, or (-1) of single events, by their seqs here."""

    seq: int
    to: int = -1
    hidden: tuple[int, ...] = ()
    shown: tuple[int, ...] = ()


class Rewinds:
    """The rewinds of a log, and what was shown at each of its moments."""

    def __init__(self, each: Iterable[Rewind] = ()) -> None:
        self._seqs: list[int] = []
        self._own: list[tuple[Range, ...]] = []
        self._facts: list[frozenset[int]] = []
        self.own: list[Rewind] = []
        """Those of the thread itself."""
        self.of_facts: list[int] = []
        """The seqs of those that hid single events."""
        for one in each:
            own, facts = self._at(one.seq)
            if one.to >= 0:
                own = self._after(one)
                self.own.append(one)
            elif one.hidden:
                self.of_facts.append(one.seq)
            self._seqs.append(one.seq)
            self._own.append(own)
            self._facts.append((facts | frozenset(one.hidden)) - frozenset(one.shown))

    def _at(self, seq: int) -> tuple[tuple[Range, ...], frozenset[int]]:
        n = bisect_right(self._seqs, seq) - 1
        return (self._own[n], self._facts[n]) if n >= 0 else ((), frozenset())

    def _after(self, rewind: Rewind) -> tuple[Range, ...]:
        """The gaps of the moment that it goes to, and all that came after that moment."""
        then = ShownEvents(self._at(rewind.to)[0]).upto(rewind.to)
        return merged([*then, (rewind.to + 1, rewind.seq - 1)])

    def one_by_one(self, seq: int) -> frozenset[int]:
        """The seqs of the single events that were hidden after the event at a seq."""
        return self._at(seq)[1]

    def of_own(self, seq: int) -> ShownEvents:
        """What the rewinds of this thread alone showed after the event at a seq."""
        return ShownEvents(self._at(seq)[0])

    def at(self, seq: int) -> ShownEvents:
        """What was shown after the event at a seq."""
        own, facts = self._at(seq)
        return ShownEvents(merged([*own, *((one, one) for one in facts)])) if own or facts else ALL_SHOWN

    def then(self, rewind: Rewind) -> ShownEvents:
        """Return the events shown after one more rewind of this thread."""
        _, facts = self._at(rewind.seq)
        return ShownEvents(merged([*self._after(rewind), *((one, one) for one in facts)]))

    def seqs(self, upto: int) -> Sequence[int]:
        """The seqs of the rewinding events up to a seq."""
        return self._seqs[: bisect_right(self._seqs, upto)]


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The ranges in order, those that touch or overlap as one; empty ones go."""
    found: list[Range] = []
    for first, last in sorted(one for one in ranges if one[0] <= one[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def difference(more: ShownEvents, less: ShownEvents, upto: int) -> tuple[Range, ...]:
    """What one shows up to a seq and the other does not."""
    found: list[Range] = []
    for first, last in less.upto(upto):
        found += more.ranges(first - 1, last)
    return merged(found)


class Hiding(msgspec.Struct, frozen=True):
    """What a rewind changes in an index; `gaps` are the ranges of seqs that are hidden after it.

    First, passages that only hidden events have ended go on, and so do those of the `returned` ranges that one of the
    events at `acts` has ended: it hid facts. Then the passages of hidden events end at the rewind.
    """

    gaps: tuple[Range, ...] = ()
    returned: tuple[Range, ...] = ()
    acts: tuple[int, ...] = ()
