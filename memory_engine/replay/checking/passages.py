"""The index of a thread's passages, compared with the passages that its log gives."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from attrs import define, field

from memory_engine.log import decode_row
from memory_engine.persistence import LoadedThread
from memory_engine.reading import LogReader
from memory_engine.recall.analysis import terms
from memory_engine.recall.passages import PLACES_BITS, Extractors, PassageRow, PassageStep, passage_step
from memory_engine.recall.storing import LookUp, PassageIndex
from memory_engine.records import StoredEvent
from memory_engine.replay.checking.differences import fields_differ, limited

PAGE = 4_000
"""Passages that are looked up at a time."""


@define
class PassageFold:
    """Passages by place, as steps make, end and drop them: what `PassageIndex.write` does, in memory."""

    rows: dict[int, PassageRow] = field(factory=dict)
    _keyed: dict[str, list[int]] = field(factory=dict)
    _keys: list[str] = field(factory=list)
    _of_event: dict[int, list[int]] = field(factory=dict)
    _drawn: set[int] = field(factory=set)

    def apply(self, step: PassageStep) -> None:
        """First what the step ends and destroys, then what it brings."""
        if not step.only_adds:
            self._end(step)
        for row in step.rows:
            self._add(row)

    def _add(self, row: PassageRow) -> None:
        self.rows[row.place] = row
        self._of_event.setdefault(row.seq, []).append(row.place)
        if row.key:
            if row.key not in self._keyed:
                insort(self._keys, row.key)
            self._keyed.setdefault(row.key, []).append(row.place)
        if row.origins:
            self._drawn.add(row.place)

    def _end(self, step: PassageStep) -> None:
        twins = [place for seq in step.twins for place in self._at(seq)]
        keys = {*step.keys, *(self.rows[place].key for place in twins), *self._beginning_with(step.prefixes)}
        ended = {place for key in keys for place in self._keyed.get(key, ())}
        ended.update(twins, (place for seq in step.seqs for place in self._at(seq)), self._drawn_from(step.origins))
        for place in ended:
            if not self.rows[place].ended:
                self.rows[place] = msgspec.structs.replace(self.rows[place], ended=step.seq)
        doomed = {place for seq in step.drops for place in self._at(seq)}
        doomed.update(self._drawn_from(step.drops))
        doomed.update(place for key in step.drop_keys for place in self._keyed.get(key, ()))
        for place in doomed:
            self._drop(place)

    def _at(self, seq: int) -> Iterator[int]:
        """The places of an event's passages that are not destroyed."""
        return (place for place in self._of_event.get(seq, ()) if place in self.rows)

    def _beginning_with(self, prefixes: Iterable[str]) -> Iterator[str]:
        for prefix in prefixes:
            for at in range(bisect_left(self._keys, prefix), len(self._keys)):
                if not self._keys[at].startswith(prefix):
                    break
                yield self._keys[at]

    def _drawn_from(self, seqs: Sequence[int]) -> list[int]:
        if not seqs:
            return []
        wanted = frozenset(seqs)
        return [place for place in self._drawn if not wanted.isdisjoint(self.rows[place].origins)]

    def _drop(self, place: int) -> None:
        row = self.rows.pop(place)
        self._drawn.discard(place)
        if row.key:
            self._keyed[row.key].remove(place)


@define
class PassagesCheck:
    """The passages of a log while it goes by, up to the seq that the index stood at when this began."""

    thread_id: str
    upto: int
    _extractors: Extractors
    _folded: PassageFold = field(factory=PassageFold)

    @classmethod
    async def of(cls, index: PassageIndex, extractors: Extractors, loaded: LoadedThread) -> "PassagesCheck | None":
        """`None` where there is no index of this version, or it has come further than the thread was loaded."""
        looked = await index.look_up(loaded.record.id, LookUp())
        if not 0 <= looked.seq <= loaded.head.seq:
            return None
        return cls(loaded.record.id, looked.seq, extractors)

    def apply(self, stored: StoredEvent, reader: LogReader) -> None:
        """Go on by one event. Raises `ReducerError` where an extractor fails."""
        if stored.seq <= self.upto:
            event, _ = decode_row(self.thread_id, stored, reader.registry)
            step = passage_step(self._extractors, self.thread_id, event, stored)
            if step is not None:
                self._folded.apply(step)

    async def differences(self, index: PassageIndex) -> tuple[str, ...]:
        """How the index differs; nothing if it has been written to since this began."""
        lines: list[str] = []
        counted = -1
        places = sorted(self._folded.rows)
        for some in [places[at : at + PAGE] for at in range(0, len(places), PAGE)] or [[]]:
            looked = await index.look_up(self.thread_id, LookUp(near=tuple(some), upto=self.upto))
            if looked.seq != self.upto:
                return ()
            counted = looked.passages
            for place in some:
                lines += _row_differs(place, looked.rows.get(place), self._folded.rows[place])
        if not lines and counted not in (len(places), -1) and self.upto:
            lines.append(f"passages: {counted:,} → {len(places):,}")
        return limited(lines)


def _row_differs(place: int, kept: PassageRow | None, made: PassageRow) -> Iterator[str]:
    seq, number = place >> PLACES_BITS, place & ((1 << PLACES_BITS) - 1)
    what = f"passage {seq}.{number}"
    if kept is None:
        yield f"{what}: it is missing"
        return
    yield from fields_differ(what, _fields(kept, kept.terms), _fields(made, made.terms or " ".join(terms(made.text))))


def _fields(row: PassageRow, words: str) -> Mapping[str, object]:
    return {
        "kind": row.kind,
        "role": row.role,
        "speaker": row.speaker,
        "at_us": row.at_us,
        "key": row.key,
        "origins": row.origins,
        "ended": row.ended,
        "words": words,
    }
