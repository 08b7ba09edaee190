"""Searching a thread: what every thread's handle can do."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from memory_engine.clock import to_us
from memory_engine.errors import InvalidSearch
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
        hit the signals that its score is made of. Any text may be asked for; none can break a search or widen it.
        A kind that no passage is of finds nothing. The first search of a thread makes its index.

        Raises `ThreadNotFound`, `InvalidSearch` for arguments that mean nothing, and `ValueError` for an `at` that
        the thread has no event at.
        """
        if at is not None:
            at = checked_seq(at, self.id, (await self._engine.store.head(self.id)).seq)
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
    """What is looked for. Raises `InvalidSearch`."""
    if not isinstance(limit, int):
        raise InvalidSearch("limit", limit, "it is a number of hits")
    since_us, until_us = _moment("since", since), _moment("until", until)
    if since_us is not None and until_us is not None and until_us < since_us:
        raise InvalidSearch("until", until, "it is before `since`: no moment lies between them")
    return Asked(
        query=checked_query(query),
        limit=limit,
        kinds=_kinds(kinds),
        upto=at or 0,
        since_us=since_us,
        until_us=until_us,
        explain=explain,
    )


def checked_query(query: str) -> str:
    """The query, if it is a text. Raises `InvalidSearch`: a wrong value must not be searched for as its letters."""
    if not isinstance(query, str):
        raise InvalidSearch("query", query, "it is a text; an empty one finds nothing")
    return query


def checked_seq(at: object, thread_id: str, head: int) -> int:
    """The seq, if the thread has it (0: before its first event). Raises `ValueError`."""
    if not isinstance(at, int) or not 0 <= at <= head:
        raise ValueError(f"thread {thread_id!r} has seqs 1 to {head}, not {at!r}")
    return at


def _kinds(kinds: object) -> tuple[str, ...]:
    named = (kinds,) if isinstance(kinds, str) else kinds
    if isinstance(named, Collection) and all(isinstance(kind, str) for kind in named):
        return tuple(named)
    raise InvalidSearch("kinds", kinds, 'it is one or several names of kinds, as ("message", "tool"); () is all')


def _moment(what: str, moment: object) -> int | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidSearch(what, moment, "it is a moment with a time zone: datetime(..., tzinfo=UTC)")
    return to_us(moment)
