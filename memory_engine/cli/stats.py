"""The command that prints totals over a database, and how many events each day brought."""

import argparse
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day

from memory_engine.cli.commands import Command, existing, positive
from memory_engine.cli.terminal import Terminal
from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.excerpts import number, size
from memory_engine.core.json_form import named
from memory_engine.core.threads import ThreadInfo
from memory_engine.engine import Engine
from memory_engine.errors.base import shown_place

DAYS = 30
CHART_COLUMNS = 80
_BLOCK = "█"


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chart",
        type=positive,
        nargs="?",
        const=DAYS,
        metavar="DAYS",
        help=f"draw the events of each of the last DAYS days (default: {DAYS})",
    )


async def stats(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print totals over the database."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        totals = await engine.stats()
        days = await _events_by_day(engine, asked.chart) if asked.chart is not None else {}
    place = shown_place(asked.db)
    charted = {} if asked.chart is None else {"days": {day.isoformat(): count for day, count in days.items()}}
    terminal.json({"path": place, **named(totals), **charted})
    shown: Mapping[str, str] = {
        "threads": number(totals.threads),
        "events": number(totals.events),
        "chunks": f"{number(totals.chunks)} in the states of all threads",
        "tokens": f"{number(totals.tokens)} in these chunks, estimated",
        "payload": f"{size(totals.payload_bytes)} of events as JSON",
        "file": f"{size(totals.bytes)} at {place}",
    }
    for name, value in shown.items():
        terminal.say(f"{name:<8} {value}")
    if totals.damaged:
        terminal.say(f"without the chunks of {', '.join(totals.damaged)}, whose heads are damaged", "red")
    if asked.chart is not None:
        _put_chart(days, terminal)
    return 0


async def _events_by_day(engine: Engine, count: int) -> dict[date, int]:
    """The events of each of the last days in UTC, from the first that has some until today.

    Few events are read: how far each thread was at the end of a day is found by their times.
    """
    today = to_datetime(engine.kernel.clock.now_us()).date()
    first = today - timedelta(days=min(count, today.toordinal()) - 1)
    found: Counter[date] = Counter()
    for info in await engine.threads():
        if not info.damaged and info.events:
            await _add_days(engine, info, first, found)
    begun = min(found, default=today)
    return {day: found[day] for day in (begun + timedelta(days=n) for n in range((today - begun).days + 1))}


async def _add_days(engine: Engine, info: ThreadInfo, first: date, found: Counter[date]) -> None:
    """Count a thread's events. The past that a fork shares is counted where it was recorded."""
    after_us = max(_midnight_us(first), to_us(info.created_at) if info.forked_from else 0)
    upto = await engine.store.seq_at(info.id, after_us - 1)
    while upto < info.events:
        (following,) = await engine.store.read_at(info.id, [upto + 1])
        day = to_datetime(following.recorded_at_us).date()
        reached = max(upto + 1, await engine.store.seq_at(info.id, _midnight_us(day + timedelta(days=1)) - 1))
        if day >= first:  # else the clock was set back
            found[day] += reached - upto
        upto = reached


def _midnight_us(day: date) -> int:
    return to_us(datetime.combine(day, time_of_day(), UTC))


def _put_chart(days: Mapping[date, int], terminal: Terminal) -> None:
    """A bar for each day; the longest is the day with the most events."""
    most = max(days.values(), default=0)
    if not most:
        terminal.say("no event in these days")
        return
    block = _BLOCK if (terminal.out.encoding or "utf-8").lower().startswith("utf") else "#"
    digits = len(number(most))
    room = min(terminal.width, CHART_COLUMNS) - len("2026-01-01") - digits - 4
    terminal.say()
    terminal.say("events a day (UTC)", "bold")
    for day, count in days.items():
        bar = block * max(1 if count else 0, round(count / most * room))
        terminal.put(f"{day}  {number(count):>{digits}}  {terminal.styled(bar, 'cyan')}".rstrip())


STATS = Command(_declare, stats)
