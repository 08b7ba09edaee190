"""Inline projections of one open thread: computed before the commit, written by it."""

from collections.abc import Mapping, Sequence

from memory_engine.errors import ReducerError
from memory_engine.persistence import CommitUnit, HeadMoved, ProjectionChange, Store
from memory_engine.projections.base import Projection, Rows
from memory_engine.reading import LogReader
from memory_engine.records import RecordedEvent


class InlineProjections:
    """The rows of every inline projection, for one thread."""

    def __init__(self, projections: Sequence[Projection[object]], store: Store, reader: LogReader) -> None:
        self._projections = projections
        self._store = store
        self._reader = reader
        self._rows: dict[str, Rows[object]] = {}

    def __bool__(self) -> bool:
        return bool(self._projections)

    async def load(self, thread_id: str) -> None:
        """Read the rows back. One that is new here, or new in a fork, is made from the log first.

        Raises `ReducerError` where a projection fails on what the log holds.
        """
        for projection in self._projections:
            rows = None
            while rows is None:
                rows = await self._caught_up(projection, thread_id)
            self._rows[projection.name] = rows

    async def _caught_up(self, projection: Projection[object], thread_id: str) -> Rows[object] | None:
        """The rows at the head; `None` if the head moved meanwhile."""
        head = await self._store.head(thread_id)
        checkpoint, stored = await self._store.rows(projection.name, projection.version, thread_id)
        rows = Rows(projection.row, stored)
        if checkpoint < head.seq:
            async for event in self._reader.events(thread_id, after=checkpoint, upto=head.seq):
                apply_one(projection, rows, event)
            change = ProjectionChange(projection.name, projection.version, rows.changes(), head.seq)
            try:
                # as a commit, since another process may write the same rows with its next event
                await self._store.commit(
                    CommitUnit(thread_id=thread_id, expected=head, head=head, projections=[change])
                )
            except HeadMoved:
                return None
            rows.keep()
        return rows

    def apply(self, events: Sequence[RecordedEvent]) -> None:
        """Change the rows by these events, by all or none.

        Raises `ReducerError` naming the projection that fails.
        """
        before = {name: rows.changes() for name, rows in self._rows.items()}
        try:
            for projection in self._projections:
                for event in events:
                    apply_one(projection, self._rows[projection.name], event)
        except ReducerError:
            for name, rows in self._rows.items():
                rows.restore(before[name])
            raise

    def changes(self, seq: int) -> list[ProjectionChange]:
        """What was applied since the last commit, to be written with the events up to `seq`."""
        rows = self._rows
        return [ProjectionChange(p.name, p.version, rows[p.name].changes(), seq) for p in self._projections]

    def rows(self, name: str) -> Mapping[str, bytes] | None:
        """The encoded rows of a projection, if it is an inline one."""
        rows = self._rows.get(name)
        return rows.encoded() if rows is not None else None

    def keep(self) -> None:
        """The commit is durable."""
        for rows in self._rows.values():
            rows.keep()

    def discard(self) -> None:
        """The commit did not happen."""
        for rows in self._rows.values():
            rows.discard()


def apply_one(projection: Projection[object], rows: Rows[object], event: RecordedEvent) -> None:
    """Apply one event; whatever the projection raises becomes a `ReducerError` that names it."""
    try:
        projection.apply(rows, event)
    except Exception as error:  # the boundary to user code
        why = f"{type(error).__name__}: {error}"
        raise ReducerError(event.thread_id, event.type, f"projection {projection.name}", "", why) from error
