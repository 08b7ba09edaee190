"""Differences between stored rows and a replay, in lines that people read: `chunk 5.0 tokens: 3 → 2`.

The stored value is left of the arrow, the value that the log gives now right of it. Of long texts the surroundings
of the first difference are shown. Snapshots are compared as a replay passes them, and the index of a thread's passages
with the passages that its log gives.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest

import msgspec
from attrs import define, field, frozen

from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_event
from memory_engine.core.chunks import Chunk
from memory_engine.core.codec import decode_reduction, resolve_chunks
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.executor import describe
from memory_engine.core.operations import Batch, Operation, place_text
from memory_engine.core.records import StoredEvent
from memory_engine.core.reduction import Reduction
from memory_engine.core.rewinding import REWINDING, Hiding, Rewinds, ShownEvents
from memory_engine.core.state import StateDraft
from memory_engine.core.threads import LiveChunk, LoadedThread
from memory_engine.language.text import terms
from memory_engine.projections.base import Projection
from memory_engine.projections.rebuild import Refolding
from memory_engine.recall.rewound import hiding_at, repeated
from memory_engine.store import snapshots
from memory_engine.store.passages import (
    PLACES_BITS,
    Extractors,
    LookedUp,
    LookUp,
    PassageIndex,
    PassageRow,
    PassageStep,
    passage_step,
)
from memory_engine.store.protocol import Store
from memory_engine.store.reader import LogReader
from memory_engine.store.snapshots import StateSnapshot

LINES_MAX = 20
"""Lines of a difference that are shown; the rest is counted."""
EXCERPT_CHARS = 72
_ABSENT, _LOST, _STRAY = "nothing", "its row is missing", "a row that the log never gave"


def records_differ(recorded: bytes, now: bytes, event: Event | UnknownEvent) -> tuple[str, ...]:
    """How an event's recorded reduction differs from that of its reducers now; empty for equal bytes."""
    if recorded == now:
        return ()
    try:
        before, after = (_resolved_reduction(record, event) for record in (recorded, now))
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        return (f"the recorded operations cannot be read: {error}",)
    found = reductions_differ(before, after)
    return found or (f"the same operations and chunks in other bytes: {arrow(_utf8_text(recorded), _utf8_text(now))}",)


def reductions_differ(before: Reduction, after: Reduction) -> tuple[str, ...]:
    """How two reductions differ: operations by their number, then chunks by id and field."""
    lines: list[str] = []
    for n, (one, other) in enumerate(zip_longest(before.operations, after.operations), 1):
        if one != other:
            lines.append(f"operation {n}: {operation_line(one)} → {operation_line(other)}")
    return limited([*lines, *chunks_differ(before.chunks, after.chunks)])


def chunks_differ(before: Iterable[Chunk], after: Iterable[Chunk]) -> Iterator[str]:
    """A line for each field of a chunk that differs, and for each chunk that is on one side only."""
    old, new = ({chunk.id: chunk for chunk in chunks} for chunks in (before, after))
    for chunk_id in dict.fromkeys((*old, *new)):
        yield from fields_differ(
            f"chunk {chunk_id}", _chunk_fields(old.get(chunk_id)), _chunk_fields(new.get(chunk_id))
        )


def rows_differ(view: str, stored: Mapping[str, bytes], made: Mapping[str, bytes]) -> tuple[str, ...]:
    """How the rows of a view differ from those that the log gives, by key and field."""
    return limited(
        line
        for key in sorted(stored.keys() | made.keys())
        if stored.get(key) != made.get(key)
        for line in _view_row_differs(f"{view} {excerpt(key)}", stored.get(key), made.get(key))
    )


def places_differ(stored: Iterable[LiveChunk], made: Iterable[LiveChunk]) -> tuple[str, ...]:
    """How the places of a state's chunks differ from those that the log gives."""
    left = {row.chunk_id: row for row in stored}
    lines: list[str] = []
    for given in made:  # one by one: a comparison of all in one call keeps other threads from the interpreter
        kept = left.pop(given.chunk_id, None)
        if kept is None:
            lines.append(f"chunk {given.chunk_id}: {_LOST}")
        elif kept != given:
            if kept.key != given.key:
                lines.append(f"chunk {given.chunk_id} key: {arrow(kept.key.hex(), given.key.hex())}")
            if kept.container != given.container:
                lines.append(f"chunk {given.chunk_id} container: {arrow(kept.container, given.container)}")
    lines += (f"chunk {chunk_id}: {_STRAY}" for chunk_id in left)
    return limited(lines)


def fields_differ(what: str, before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> Iterator[str]:
    """A line for each field whose values differ; one where there is nothing on one side."""
    if before is None or after is None:
        shown = _summary(before if before is not None else after or {})
        yield f"{what}: {_ABSENT} → {shown}" if before is None else f"{what}: {shown} → {_ABSENT}"
        return
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name, _MISSING), after.get(name, _MISSING)
        if one != other or type(one) is not type(other):
            yield f"{what} {name}: {arrow(one, other)}"


def arrow(before: object, after: object) -> str:
    """`'Hello' → 'Hi'`: both sides, cut to the surroundings of their first difference."""
    one, other = _text_or_repr(before), _text_or_repr(after)
    if len(one) <= EXCERPT_CHARS and len(other) <= EXCERPT_CHARS:
        return f"{_quoted_if_text(before, one)} → {_quoted_if_text(after, other)}"
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, at - EXCERPT_CHARS // 3)
    cut = [_elide(_quoted_if_text(value, text[start : start + EXCERPT_CHARS]), start, len(text) - start - EXCERPT_CHARS)
           for value, text in ((before, one), (after, other))]  # fmt: skip
    where = f" (from character {at + 1:,} on, of {len(one):,} and {len(other):,})"
    return f"{cut[0]} → {cut[1]}{where}"


def excerpt(value: object, chars: int = EXCERPT_CHARS) -> str:
    """The beginning of a value, as Python would write it."""
    text = _text_or_repr(value)
    return _elide(_quoted_if_text(value, text[:chars]), 0, len(text) - chars)


def limited(lines: Iterable[str], most: int = LINES_MAX) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    every = list(lines)
    if len(every) <= most:
        return tuple(every)
    return (*every[: most - 1], f"… and {len(every) - most + 1:,} more")


class _Missing:
    def __repr__(self) -> str:
        return _ABSENT


_MISSING = _Missing()


def _resolved_reduction(record: bytes, event: Event | UnknownEvent) -> Reduction:
    found = decode_reduction(record)
    return Reduction(found.operations, resolve_chunks(found, event))


def operation_line(operation: Operation | None) -> str:
    """An operation in a line, with its place, which `describe` leaves out; `nothing` for none."""
    match operation:
        case None:
            return _ABSENT
        case Batch():
            return "BATCH [" + "; ".join(map(operation_line, operation.operations)) + "]"
    return describe(operation) + place_text(operation)


def _chunk_fields(chunk: Chunk | None) -> dict[str, object] | None:
    if chunk is None:
        return None
    return {name: getattr(chunk, name) for name in chunk.__struct_fields__}


def _view_row_differs(what: str, stored: bytes | None, made: bytes | None) -> Iterator[str]:
    if stored is None:
        yield f"{what}: {_LOST}"
        return
    if made is None:
        yield f"{what}: {_STRAY}"
        return
    try:
        old, new = msgspec.json.decode(stored), msgspec.json.decode(made)
    except (msgspec.DecodeError, UnicodeDecodeError):
        old, new = _utf8_text(stored), _utf8_text(made)
    found = list(fields_differ(what, old, new)) if isinstance(old, dict) and isinstance(new, dict) else []
    if not found and old != new:
        found = [f"{what}: {arrow(old, new)}"]
    yield from found or [f"{what}: the same values in other bytes: {arrow(_utf8_text(stored), _utf8_text(made))}"]


def _summary(fields: Mapping[str, object]) -> str:
    """A chunk or row in a few words: its type and its text."""
    said = [excerpt(fields[name], EXCERPT_CHARS // 2) for name in ("type", "content", "value") if fields.get(name)]
    return " ".join(said) or excerpt(dict(fields))


def _text_or_repr(value: object) -> str:
    """A text unchanged, anything else as Python writes it."""
    if isinstance(value, str):
        return str(value)
    return repr(value if isinstance(value, _Missing) else msgspec.to_builtins(value))


def _quoted_if_text(value: object, text: str) -> str:
    return repr(text) if isinstance(value, str) else text


def _elide(text: str, before: int, after: int) -> str:
    return ("…" if before > 0 else "") + text + ("…" if after > 0 else "")


def _utf8_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def reducers_behind(parts: Sequence[tuple[str, Reduction]], recorded: Reduction) -> tuple[str, ...]:
    """The names of the reducers, of those that ran in this order, that may do otherwise than was recorded.

    One if it can be located: the others' reductions are at their places, counted from the first or from the last.
    """
    front = next(_misfits(parts, recorded.operations, recorded.chunks), len(parts))
    backwards = [(name, Reduction(part.operations[::-1], part.chunks[::-1])) for name, part in reversed(parts)]
    back = len(parts) - 1 - next(_misfits(backwards, recorded.operations[::-1], recorded.chunks[::-1]), len(parts))
    return tuple(name for name, _ in parts[max(0, min(front, back)) : max(front, back) + 1])


def _misfits(
    parts: Iterable[tuple[str, Reduction]], operations: Sequence[Operation], chunks: Sequence[Chunk]
) -> Iterator[int]:
    """The numbers of the parts that differ from the record at their place."""
    for n, (_, part) in enumerate(parts):
        if (*operations[: len(part.operations)],) != part.operations or (*chunks[: len(part.chunks)],) != part.chunks:
            yield n
        operations, chunks = operations[len(part.operations) :], chunks[len(part.chunks) :]


_STATE, _VIEW = "state", "view/"
_STATES = msgspec.msgpack.Decoder(StateSnapshot)
_ROWS = msgspec.msgpack.Decoder(dict[str, bytes])


@frozen
class KeptSnapshots:
    """Snapshots by their seq, and by the state or view that they hold."""

    _by_seq: Mapping[int, Mapping[str, bytes]]

    @classmethod
    async def of(cls, store: Store, thread_id: str, projections: Sequence[Projection[object]] = ()) -> "KeptSnapshots":
        """Return the snapshots of a thread's state and projections, without those of the past that a fork shares."""
        known = {_STATE, *(f"{_VIEW}{p.name}/{p.version}" for p in projections)}
        by_seq: dict[int, dict[str, bytes]] = {}
        _, rows = await store.rows(snapshots.PROJECTION, snapshots.VERSION, thread_id)
        for key, value in rows.items():
            name, _, seq = key.rpartition(":")
            if name in known and seq.isdecimal():
                by_seq.setdefault(int(seq), {})[name] = value
        return cls(by_seq)

    def differences(self, stored: StoredEvent, draft: StateDraft, refolding: Refolding) -> tuple[str, ...]:
        """How the snapshots after this event differ from the replay. Snapshots that no reader uses are passed over."""
        kept = self._by_seq.get(stored.seq)
        if kept is None:
            return ()
        lines: list[str] = []
        for name, value in kept.items():
            if name == _STATE:
                lines += _state_differs(value, stored, draft)
            elif refolding.is_of(stored.seq):
                lines += _rows_differ(name.removeprefix(_VIEW).rpartition("/")[0], value, refolding)
        return limited(lines)


def _state_differs(value: bytes, stored: StoredEvent, draft: StateDraft) -> list[str]:
    try:
        kept = _STATES.decode(value)
    except msgspec.MsgspecError:
        return []
    if kept.hash != stored.hash:
        return []
    made = (LiveChunk(p.chunk.id, p.key, p.container) for p in draft.placed())
    counted = {"chunks": kept.chunks, "tokens": kept.tokens}
    lines = [*places_differ(kept.live, made)]
    lines += fields_differ("state", counted, {"chunks": draft.tally.chunks, "tokens": draft.tally.tokens})
    return lines


def _rows_differ(view: str, value: bytes, refolding: Refolding) -> list[str]:
    try:
        kept = _ROWS.decode(value)
    except msgspec.MsgspecError:
        return []
    made = refolding.rows[view].encoded()
    return [] if kept == made else [*rows_differ(view, kept, made)]


PAGE = 4_000
"""Passages that are looked up at a time."""
_NUMBER = (1 << PLACES_BITS) - 1


@define
class PassageFold:
    """Passages by place, as steps make, end and drop them: `PassageIndex.write` in memory."""

    rows: dict[int, PassageRow] = field(factory=dict)
    _keyed: dict[str, list[int]] = field(factory=dict)
    _keys: list[str] = field(factory=list)
    _of_event: dict[int, int] = field(factory=dict)  # how many: a list of each would make garbage collections long
    _drawn: set[int] = field(factory=set)
    _ending: list[PassageStep] = field(factory=list)

    def rewind(self, seq: int, hiding: Hiding) -> None:
        """Hide and show again what the rewind at a seq does: see `Hiding`."""
        but_hidden, but_returned = ShownEvents(hiding.gaps), ShownEvents(hiding.returned)
        for place, row in self.rows.items():
            at, ended = place >> PLACES_BITS, row.ended
            if not but_hidden.has(ended) or (ended in hiding.acts and not but_returned.has(at)):
                ended = 0
            ended = seq if not (ended or but_hidden.has(at)) else ended
            if ended != row.ended:
                self.rows[place] = msgspec.structs.replace(row, ended=ended)
        for step in repeated(self._ending, hiding):
            self._end(step)

    def apply(self, step: PassageStep) -> None:
        """First what the step ends and destroys, then what it brings."""
        if not step.only_adds:
            self._end(step)
            self._ending.append(step)
        for row in step.rows:
            self._add(row)

    def fold(self, steps: Sequence[PassageStep], rewinds: Rewinds, upto: int) -> None:
        """Apply the steps of events in order, and the rewinds between them, up to a seq."""
        acts = ((seq, None) for seq in rewinds.seqs(upto))
        for seq, step in sorted([*((step.seq, step) for step in steps), *acts], key=lambda one: one[0]):
            self.rewind(seq, hiding_at(rewinds, seq)) if step is None else self.apply(step)

    def _add(self, row: PassageRow) -> None:
        self.rows[row.place] = row
        self._of_event[row.seq] = max(self._of_event.get(row.seq, 0), (row.place & _NUMBER) + 1)
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
        if step.ends_all:
            ended.update(self.rows)
        for place in ended:
            if not self.rows[place].ended and place >> PLACES_BITS < step.seq:
                self.rows[place] = msgspec.structs.replace(self.rows[place], ended=step.seq)
        doomed = {place for seq in step.drops for place in self._at(seq)}
        doomed.update(self._drawn_from(step.drops))
        doomed.update(place for key in step.drop_keys for place in self._keyed.get(key, ()))
        for place in doomed:
            self._drop(place)

    def _at(self, seq: int) -> Iterator[int]:
        """The places of an event's passages that are not destroyed."""
        first = seq << PLACES_BITS
        return (place for place in range(first, first + self._of_event.get(seq, 0)) if place in self.rows)

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


def final_steps(steps: Sequence[PassageStep], rewinds: Rewinds, upto: int) -> list[PassageStep]:
    """The passages of a log up to a seq as they are at its end, as steps that only add."""
    folded = PassageFold()
    folded.fold(steps, rewinds, upto)
    found: dict[int, list[PassageRow]] = {}
    for place in sorted(folded.rows):
        found.setdefault(place >> PLACES_BITS, []).append(folded.rows[place])
    return [PassageStep(seq, tuple(rows)) for seq, rows in found.items()]


@define
class PassagesCheck:
    """The passages of a log while it goes by, up to the seq that the index stood at when this began."""

    thread_id: str
    upto: int
    _extractors: Extractors
    _rewinds: Rewinds = field(factory=Rewinds)
    _folded: PassageFold = field(factory=PassageFold)

    @classmethod
    async def of(
        cls, index: PassageIndex, extractors: Extractors, loaded: LoadedThread, rewinds: Rewinds
    ) -> "PassagesCheck | None":
        """`None` where there is no index of this version, or it has come further than the thread was loaded."""
        looked = await index.look_up(loaded.record.id, LookUp())
        if not 0 <= looked.seq <= loaded.head.seq:
            return None
        return cls(loaded.record.id, looked.seq, extractors, rewinds)

    def apply(self, stored: StoredEvent, reader: LogReader, event: Event | None = None) -> None:
        """Go on by one row; its `event` saves decoding it. Raises `ReducerError` where an extractor fails."""
        if stored.type in REWINDING and stored.seq <= self.upto:
            self._folded.rewind(stored.seq, hiding_at(self._rewinds, stored.seq))
        elif stored.seq <= self.upto:
            known = event if event is not None else decode_event(self.thread_id, stored, reader.registry)
            step = passage_step(self._extractors, self.thread_id, known, stored)
            if step is not None:
                self._folded.apply(step)

    def take(self, steps: Sequence[PassageStep]) -> None:
        """Go on by the changes of several events."""
        self._folded.fold([step for step in steps if step.seq <= self.upto], self._rewinds, self.upto)

    async def differences(self, index: PassageIndex, *, while_written: bool = False) -> tuple[str, ...]:
        """How the index differs; empty if it was written to since this began, unless this goes on `while_written`."""
        lines: list[str] = []
        counted = -1
        rows = self._folded.rows
        places = await aside(partial(sorted, rows), items=len(rows))
        for some in [places[at : at + PAGE] for at in range(0, len(places), PAGE)] or [[]]:
            looked = await index.look_up(self.thread_id, LookUp(near=tuple(some), upto=self.upto))
            if looked.seq != self.upto and not (while_written and looked.seq > self.upto):
                return ("passages: the index is behind",) if while_written else ()
            counted = looked.passages
            lines += await aside(partial(self._compared, some, looked), items=len(some))
        if not lines and counted != len(places) and self.upto:
            lines.append(f"passages: {counted:,} → {len(places):,}")
        return limited(lines)

    def _compared(self, places: Sequence[int], looked: LookedUp) -> list[str]:
        made = self._folded.rows  # each is released once it is compared: freed by one call, they would hold up others
        return [
            line
            for place in places
            for line in _passage_row_differs(place, self._then(looked.rows.get(place), looked.seq), made.pop(place))
        ]

    def _then(self, kept: PassageRow | None, seq: int) -> PassageRow | None:
        """A row before later events ended it."""
        is_later = kept is not None and self.upto < kept.ended <= seq
        return msgspec.structs.replace(kept, ended=0) if kept is not None and is_later else kept


def _passage_row_differs(place: int, kept: PassageRow | None, made: PassageRow) -> Iterator[str]:
    what = f"passage {place >> PLACES_BITS}.{place & _NUMBER}"
    if kept is None:
        yield f"{what}: it is missing"
        return
    one = _passage_values(kept, kept.terms)
    other = _passage_values(made, made.terms or " ".join(terms(made.text)))
    if one != other or [*map(type, one)] != [*map(type, other)]:
        yield from fields_differ(
            what, dict(zip(_PASSAGE_NAMES, one, strict=True)), dict(zip(_PASSAGE_NAMES, other, strict=True))
        )


_PASSAGE_NAMES = ("kind", "role", "speaker", "at_us", "key", "origins", "ended", "words")


def _passage_values(row: PassageRow, words: str) -> tuple[object, ...]:
    return row.kind, row.role, row.speaker, row.at_us, row.key, row.origins, row.ended, words


def marks_differ(kept: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """The marks of a head that are below the latest events of their types. One may be too high, in a fork."""
    return [f"mark of {name}: {kept.get(name, 0)} → {seq}" for name, seq in found.items() if kept.get(name, 0) < seq]
