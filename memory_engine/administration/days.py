"""How many events each day brought to a store, found without reading them."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day

from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.threads import ThreadInfo
from memory_engine.runtime.kernel import Kernel


async def events_by_day(kernel: Kernel, threads: Iterable[ThreadInfo], count: int) -> dict[date, int]:
    """The events of threads on each of the last `count` days in UTC, from the first that has some until today.

    Few events are read: how far each thread was at the end of a day is found by their times.
    """
    today = to_datetime(kernel.clock.now_us()).date()
    first = today - timedelta(days=min(count, today.toordinal()) - 1)
    found: Counter[date] = Counter()
    for info in threads:
        if not info.damaged and info.events:
            await _add_days(kernel, info, first, found)
    begun = min(found, default=today)
    return {day: found[day] for day in (begun + timedelta(days=n) for n in range((today - begun).days + 1))}


async def _add_days(kernel: Kernel, info: ThreadInfo, first: date, found: Counter[date]) -> None:
    """Count a thread's events. The past that a fork shares is counted where it was recorded."""
    after_us = max(_midnight_us(first), to_us(info.created_at) if info.forked_from else 0)
    upto = await kernel.store.seq_at(info.id, after_us - 1)
    while upto < info.events:
        (following,) = await kernel.store.read_at(info.id, [upto + 1])
        day = to_datetime(following.recorded_at_us).date()
        reached = max(upto + 1, await kernel.store.seq_at(info.id, _midnight_us(day + timedelta(days=1)) - 1))
        if day >= first:  # else the clock was set back
            found[day] += reached - upto
        upto = reached


def _midnight_us(day: date) -> int:
    return to_us(datetime.combine(day, time_of_day(), UTC))
