"""The command that prints totals over a database, and the number of events per day."""

import argparse
from collections.abc import Mapping
from datetime import date

from memory_engine.administration.days import events_by_day
from memory_engine.cli.commands import Command, existing, positive
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import number, size
from memory_engine.core.json_form import named
from memory_engine.engine import kernel_of
from memory_engine.errors.base import shown_place

DAYS = 30
CHART_COLUMNS = 80
_BLOCK = "█"


def _declare_stats(parser: argparse.ArgumentParser) -> None:
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
        threads = await engine.threads() if asked.chart is not None else ()
        days = await events_by_day(kernel_of(engine), threads, asked.chart or DAYS)
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
        terminal.say(f"without the chunks of {', '.join(totals.damaged)}: their heads are damaged", "red")
    if asked.chart is not None:
        _put_chart(days, terminal)
    return 0


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


STATS = Command(_declare_stats, stats)
