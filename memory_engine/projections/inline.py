"""Inline projections of one open thread: computed before the commit, written by it."""

from collections.abc import Mapping, Sequence

from memory_engine.errors import ReducerError
from memory_engine.persistence import ProjectionChange, Store
from memory_engine.projections.base import Projection, Rows
from memory_engine.records import RecordedEvent


class InlineProjections:
    """The rows of every inline projection, for one thread."""

    def __init__(self, projections: Sequence[Projection[object]]) -> None:
        self._projections = projections
        self._rows: dict[str, Rows[object]] = {}

    def __bool__(self) -> bool:
        return bool(self._projections)

    async def load(self, store: Store, thread_id: str) -> None:
        """Read the rows back."""
        for projection in self._projections:
            _, stored = await store.rows(projection.name, projection.version, thread_id)
            self._rows[projection.name] = Rows(projection.row, stored)

    def apply(self, events: Sequence[RecordedEvent]) -> list[ProjectionChange]:
        """The changes that these events make. Raises `ReducerError` naming the projection that fails."""
        changes = []
        for projection in self._projections:
            rows = self._rows[projection.name]
            for event in events:
                apply_one(projection, rows, event)
            changes.append(ProjectionChange(projection.name, projection.version, rows.changes(), events[-1].seq))
        return changes

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
