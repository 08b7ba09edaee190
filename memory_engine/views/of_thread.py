"""Views by what they are made of, and those that are read rarely: `thread.views`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from memory_engine.core.aside import imported
from memory_engine.core.lazy import lazy_module
from memory_engine.projections.base import Projection, ReadableRows
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.reader import MomentLike

if TYPE_CHECKING:
    from memory_engine.views import report as reports
    from memory_engine.views.playbooks import flows
    from memory_engine.views.statements import view as statements
else:
    reports = lazy_module("memory_engine.views.report")
    flows = lazy_module("memory_engine.views.playbooks.flows")
    statements = lazy_module("memory_engine.views.statements.view")

V = TypeVar("V")


class Views:
    """The views of a thread: your own, the rows of any by its name, flows, decisions on statements, a report."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    def of(self, view: Callable[[ThreadHandle], V]) -> V:
        """Your own view, a class that takes a `ThreadHandle`: `thread.views.of(Highlights)`."""
        return view(self._thread)

    async def read(self, projection: str, *, at: MomentLike | None = None) -> dict[str, object]:
        """The rows of a registered projection by its name, up to date with the head or as of a moment.

        Raises `UnknownView` (a `KeyError`) for an unknown projection.
        """
        return await self._thread.view(projection, at=at)

    async def rows(self, projection: Projection[V], *, at: MomentLike | None = None) -> ReadableRows[V]:
        """The rows of a projection (see `ThreadHandle.rows`).

        Rows follow the thread: read what you need from them before you await anything else.
        """
        return await self._thread.rows(projection, at=at)

    async def row(self, projection: Projection[V], key: str) -> V | None:
        """One row of a projection, straight from the store; no other row is read."""
        return await self._thread.row(projection, key)

    async def rows_between(
        self,
        projection: Projection[V],
        first: str = "",
        last: str | None = None,
        limit: int | None = None,
        *,
        latest: bool = False,
    ) -> list[tuple[str, V]]:
        """The rows with `first` <= key < `last` (`None`: to the end), in key order, straight from the store.

        `limit` keeps the first N; with `latest`, the last N.
        """
        return await self._thread.rows_between(projection, first, last, limit, latest=latest)

    @property
    def flows(self) -> "flows.Flows":
        """The flows that ran, and the playbooks made from them."""
        return flows.Flows(self._thread)

    @property
    def statements(self) -> "statements.Statements":
        """Decides which statements later ones replace; searches use what is decided."""
        return statements.Statements(self._thread)

    async def report(self, *, at: int | None = None) -> "reports.Report":
        """A report for people: memory, cached results, and the agent's messages. `at`: as of an earlier seq."""
        await imported(reports)
        return await reports.memory_report(self._thread, at=await self._thread.upto(at))

    async def delivered(self) -> None:
        """Wait until the facts that this thread has for others (a promotion, a playbook) have arrived there."""
        if self._thread.as_of is None:
            await self._thread.kernel[Relay].deliver(self._thread.id)
