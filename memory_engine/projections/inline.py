"""Inline projections of one open thread: computed before the commit, written by it.

A projection that reads every event is loaded with its thread. A view (see `base.View`) is
brought in at its first read or when one of its events comes: the head's marks say whether its rows are up
to date, so a thread's views cost nothing until their first use.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from memory_engine.core.aside import on_thread
from memory_engine.core.lazy import is_loaded, lazy_module
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.core.threads import Head
from memory_engine.errors import HeadMoved, ReadOnly, ReducerError
from memory_engine.projections.base import Projection, RowChanges, Rows, apply_one, event_types, is_lazy
from memory_engine.store.protocol import CommitUnit, ProjectionChange, Store
from memory_engine.store.reader import LogReader
from memory_engine.store.snapshots import is_rewindable, rewound_at

if TYPE_CHECKING:
    from memory_engine.store import rewinds
else:
    rewinds = lazy_module("memory_engine.store.rewinds")

V = TypeVar("V")


class Concerned(dict[str, tuple[Projection[object], ...]]):
    """Projections by event type: those that read every type, where nothing else is known of one."""

    def __init__(self, always: tuple[Projection[object], ...]) -> None:
        super().__init__()
        self._always = always

    def __missing__(self, event_type: str) -> tuple[Projection[object], ...]:
        self[event_type] = self._always
        return self._always


class InlinePlan:
    """The inline projections of an engine, and those that an event type concerns."""

    def __init__(self, projections: Sequence[Projection[object]]) -> None:
        inline = [p for p in projections if p.mode == "inline"]
        self.types = {p.name: event_types(p) for p in inline}
        self.named = {p.name: p for p in inline}
        self.always = tuple(p for p in inline if self.types[p.name] is None)
        self.concerned = Concerned(self.always)
        """The projections that read events of a type, by its name."""
        for projection in inline:
            for name in self.types[projection.name] or ():
                self.concerned[name] = (*self.concerned[name], projection)


class InlineProjections:
    """The rows of inline projections, for one thread."""

    def __init__(self, plan: InlinePlan, store: Store, reader: LogReader, thread_id: str) -> None:
        self._plan = plan
        self.concerned = plan.concerned
        self._store = store
        self._reader = reader
        self._thread_id = thread_id
        self._rows: dict[str, Rows[object]] = {}
        self._unwritten: set[str] = set()
        self._is_new = False
        self._touched: dict[str, None] = {}

    async def load(self) -> None:
        """Read back the rows of the projections that read every event, and drop those of the views.

        Raises `ReducerError` where a projection fails on an event of the log.
        """
        self._rows = {}
        self._unwritten.clear()
        self._is_new = False
        for projection in self._plan.always:
            await self.bring(projection)

    def begin(self) -> None:
        """Begin without a log: what no event has concerned has no rows."""
        self._is_new = True

    def missing(self, event_type: str) -> list[Projection[object]]:
        """The projections to bring in before an event of this type can be applied."""
        concerned = self.concerned[event_type]
        if not concerned:
            return []
        missing = [one for one in concerned if one.name not in self._rows]
        if missing and self._is_new and all(map(is_loaded, missing)):
            self._rows.update({one.name: Rows(one.row, None if is_lazy(one) else {}) for one in missing})
            return []
        return missing

    def let_go(self) -> None:
        """Drop the rows of what was shown before a rewind. Whoever reads them next has them made again."""
        self._rows = {name: rows for name, rows in self._rows.items() if not is_rewindable(name)}

    async def bring(self, projection: Projection[object], *, readable: bool = False) -> None:
        """Bring in the rows of a projection, up to date with the log. No commit of the thread may be under way.

        A lazy one's rows stay blind unless they are to be `readable`.
        """
        if not is_loaded(projection):
            await on_thread(partial(is_lazy, projection))
        rows = None
        while rows is None:
            rows = await self._caught_up(projection, blind=is_lazy(projection) and not readable)
        self._rows[projection.name] = rows

    async def _caught_up(self, projection: Projection[object], *, blind: bool) -> Rows[object] | None:
        """The rows at the head; `None` if the head moved meanwhile."""
        store, thread_id = self._store, self._thread_id
        head = await store.head(thread_id)
        stored: Mapping[str, bytes] | None = None
        if blind:
            checkpoint = await store.checkpoint(projection.name, projection.version, thread_id)
        else:
            checkpoint, stored = await store.rows(projection.name, projection.version, thread_id)
        rows = Rows(projection.row, stored)
        types = self._plan.types[projection.name]
        needed = head.seq if types is None else last_of(head, types)
        shown = None
        if (rewound := rewound_at(head)) and is_rewindable(projection.name):
            shown, needed = await rewinds.shown_at(self._reader, thread_id, head.seq, head), max(needed, rewound)
            if checkpoint < rewound:
                rows.clear()
                checkpoint = 0
        if checkpoint >= needed:
            return rows

        def apply(stored: StoredEvent) -> None:
            if (types is None or stored.type in types) and (shown is None or shown.shows(stored)):
                apply_one(projection, rows, self._reader.decode(thread_id, stored))

        await self._reader.walk(thread_id, after=checkpoint, upto=head.seq).feed(apply)
        change = _change(projection, rows.changes(), head.seq)
        try:
            # in one commit, since another process may write the same rows with its next event
            await store.commit(CommitUnit(thread_id=thread_id, expected=head, head=head, projections=[change]))
        except HeadMoved:
            return None
        except ReadOnly:  # the rows are here only
            if blind:
                return await self._caught_up(projection, blind=False)
            self._unwritten.add(projection.name)
        rows.keep()
        return rows

    def apply(self, events: Sequence[RecordedEvent]) -> None:
        """Change the rows by all of these events, or by none.

        Raises `ReducerError` naming the projection that fails.
        """
        before: dict[str, RowChanges] = {}
        try:
            for event in events:
                for projection in self.concerned[event.type]:
                    rows = self._rows[projection.name]
                    if projection.name not in before:
                        before[projection.name] = rows.changes()
                    apply_one(projection, rows, event)
        except ReducerError:
            for name, changes in before.items():
                self._rows[name].restore(changes)
            raise
        self._touched.update(dict.fromkeys(before))

    def changes(self, seq: int) -> list[ProjectionChange]:
        """The changes since the last commit, to be written with the events up to `seq`."""
        if not self._touched:
            return []
        return [_change(self._plan.named[name], self._rows[name].changes(), seq) for name in self._touched]

    def has(self, projection: Projection[V]) -> bool:
        """Whether a projection's rows are here."""
        return projection.name in self._rows

    def is_stored(self, projection: Projection[V]) -> bool:
        """Whether the store has a projection's rows as well: an engine that only reads makes what is missing there."""
        return projection.name not in self._unwritten

    def readable(self, projection: Projection[V]) -> Rows[V] | None:
        """The rows of a projection, if they are here and can be read."""
        rows = self._rows.get(projection.name)
        return cast("Rows[V]", rows) if rows is not None and not rows.is_blind else None

    def keep(self) -> None:
        """Note that the commit is durable."""
        for name in self._touched:
            self._rows[name].keep()
        self._touched.clear()

    def discard(self) -> None:
        """Note that the commit did not happen."""
        for name in self._touched:
            if name in self._rows:  # else it was dropped meanwhile, with its changes
                self._rows[name].discard()
        self._touched.clear()


def last_of(head: Head, types: Collection[str]) -> int:
    """The seq of the latest event of some tracked types, 0 without one."""
    return max((seq for name, seq in head.marks.items() if name in types), default=0)


def _change(projection: Projection[object], changes: RowChanges, seq: int) -> ProjectionChange:
    return ProjectionChange(projection.name, projection.version, changes.rows, seq, changes.ranges)
