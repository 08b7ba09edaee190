"""Searching a thread: what every thread's handle can do."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from memory_engine.clock import to_us
from memory_engine.recall.found import Found
from memory_engine.recall.indexing import Progress
from memory_engine.recall.searching import Asked

if TYPE_CHECKING:
    from memory_engine.engine import Engine


class Searchable:
    """A handle whose thread can be searched."""

    id: str
    _engine: "Engine"

    async def search(  # noqa: PLR0913 - what narrows a search, by keyword
        self,
        query: str,
        *,
        limit: int = 10,
        kinds: Sequence[str] = (),
        at: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
    ) -> Found:
        """The passages of this thread that say most about a question, best first, also those that were compacted.

        Everything the log holds is searched, but for summaries of it, or only the given `kinds` (see `Hit.kind`).
        `at`: as of an earlier seq; `since` and `until` bound when it was said, ends included. `explain` gives each
        hit the features that its score is made of. Any text may be asked for; none can break a search or widen it.
        The first search of a thread makes its index. Raises `ThreadNotFound`, `InvalidSearch`, and `ValueError`
        for an `at` beyond the head.
        """
        if at is not None:
            head = await self._engine.store.head(self.id)
            if not 0 <= at <= head.seq:
                raise ValueError(f"thread {self.id!r} has seqs 1 to {head.seq}, not {at}")
            if at == 0:
                return Found(query=query)
        return await self._engine.recall.search(
            self._searched(), asked(query, limit=limit, kinds=kinds, at=at, since=since, until=until, explain=explain)
        )

    async def prepare_search(self, progress: Progress | None = None) -> None:
        """Bring the index and, where there is an embedder, all vectors up to date: what a first search would begin.

        `progress` is called with how much is done and how much there is. Raises `ModelError`.
        """
        await self._engine.recall.prepare(self.id, progress)

    def _searched(self) -> tuple[str, ...]:
        return (self.id,)


def asked(  # noqa: PLR0913 - what narrows a search, by keyword
    query: str,
    *,
    limit: int,
    kinds: Sequence[str],
    at: int | None,
    since: datetime | None,
    until: datetime | None,
    explain: bool,
) -> Asked:
    """What is looked for."""
    return Asked(
        query=query,
        limit=limit,
        kinds=(kinds,) if isinstance(kinds, str) else tuple(kinds),
        upto=at or 0,
        since_us=to_us(since) if since is not None else None,
        until_us=to_us(until) if until is not None else None,
        explain=explain,
    )
