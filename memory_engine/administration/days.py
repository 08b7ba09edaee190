"""How many events each day brought to a store, found without reading most of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise

from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.threads import ThreadInfo
from memory_engine.runtime.kernel import Kernel

WAYS = 4
"""Pieces that a stretch of a log is cut into, in order to find the midnights in it."""


async def events_by_day(kernel: Kernel, threads: Iterable[ThreadInfo], count: int) -> dict[date, int]:
    """The events of threads on each of the last `count` days in UTC, from the first that has some until today.

    Nothing is read of a thread that began and ended on one day. Of others a few events are, since the midnights in a
    log are found by cutting it into ever shorter pieces. Events that a clock set back are counted on the days around
    them.
    """
    today = to_datetime(kernel.clock.now_us()).date()
    first = today - timedelta(days=min(count, today.toordinal()) - 1)
    found: Counter[date] = Counter()
    for info in threads:
        if not info.damaged and info.events and info.updated_at.date() >= first:
            for day, events in (await _days_of(kernel, info, first)).items():
                found[day] += events
    begun = min((day for day in found if day >= first), default=today)
    return {day: found[day] for day in (begun + timedelta(days=n) for n in range((today - begun).days + 1))}


async def _days_of(kernel: Kernel, info: ThreadInfo, first: date) -> Mapping[date, int]:
    """A thread's events on each day. The past that a fork shares is counted where it was recorded."""
    last = info.updated_at.date()
    if info.forked_from is None and info.created_at <= info.updated_at and info.created_at.date() == last:
        return {last: info.events}
    before = 0
    if (origin := info.forked_from) is not None:
        before = max(origin.seq, await kernel.store.seq_at(info.id, to_us(info.created_at) - 1))
    if before >= info.events:
        return {}
    days = await _days_at(kernel, info.id, [before + 1]) | {info.events: last}
    found = Counter([days[before + 1]])
    cut = [(before + 1, info.events)]
    while cut:
        points = {part: _points(*part) for part in cut if days[part[0]] != days[part[1]] and part[1] - part[0] > 1}
        days |= await _days_at(kernel, info.id, [seq for inner in points.values() for seq in inner])
        pieces: list[tuple[int, int]] = []
        for a, b in cut:
            if (a, b) in points:
                pieces += (piece for piece in pairwise((a, *points[a, b], b)) if days[piece[1]] >= first)
            else:
                found[days[b]] += b - a
        cut = pieces
    return found


def _points(a: int, b: int) -> list[int]:
    """The seqs that cut what is after `a` and up to `b` into pieces."""
    return sorted({a + (b - a) * n // WAYS for n in range(1, WAYS)} - {a, b})


async def _days_at(kernel: Kernel, thread_id: str, seqs: Sequence[int]) -> dict[int, date]:
    rows = await kernel.store.read_at(thread_id, seqs) if seqs else ()
    return {row.seq: to_datetime(row.recorded_at_us).date() for row in rows}
