"""What a search is asked for, checked: a wrong value is refused, never searched for as something else."""

from collections.abc import Collection, Sequence
from datetime import datetime

from memory_engine.clock import to_us
from memory_engine.errors import InvalidSearch
from memory_engine.handle import ThreadHandle
from memory_engine.recall.found import Found
from memory_engine.recall.searching import Asked
from memory_engine.recall.service import Recall


async def search_thread(  # noqa: PLR0913 - what narrows a search, by keyword
    thread: ThreadHandle,
    query: str,
    *,
    limit: int = 10,
    kinds: Sequence[str] = (),
    at: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    explain: bool = False,
) -> Found:
    """See `Thread.search`."""
    if not await thread.exists():
        return Found(query=query)
    if at is not None:
        at = checked_seq(at, thread.id, (await thread.kernel.store.head(thread.id)).seq)
    upto = await thread.upto(at)
    if upto == 0:
        return Found(query=query)
    wanted = asked(query, limit=limit, kinds=kinds, at=upto, since=since, until=until, explain=explain)
    return await thread.kernel[Recall].search((thread.id,), wanted)


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
