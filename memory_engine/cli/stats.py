"""The command that prints totals over a database, and the number of events per day."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from datetime import date

from memory_engine.administration.days import events_by_day
from memory_engine.cli.commands import Command, positive
from memory_engine.core.excerpts import number, size
from memory_engine.core.json_form import named
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors.base import shown_place
from memory_engine.reports import Line, Paper, Part, Printout, line

DAYS = 30
CHART_COLUMNS = 80
_BLOCK = "█"


async def stats(engine: Engine, asked: argparse.Namespace) -> Printout:
    """Totals over the database."""
    totals, place = await engine.stats(), shown_place(asked.db)
    shown = {
        "threads": number(totals.threads),
        "events": number(totals.events),
        "chunks": f"{number(totals.chunks)} in the states of all threads",
        "tokens": f"{number(totals.tokens)} in these chunks, estimated",
        "payload": f"{size(totals.payload_bytes)} of events as JSON",
        "file": f"{size(totals.bytes)} at {place}",
    }
    parts: list[Part] = [line(f"{name:<8} {count}") for name, count in shown.items()]
    if totals.damaged:
        parts.append(line(f"without the chunks of {', '.join(totals.damaged)}: their heads are damaged", "red"))
    data = {"path": place, **named(totals)}
    if asked.chart is not None:
        days = await events_by_day(kernel_of(engine), await engine.threads(), asked.chart)
        data["days"] = {day.isoformat(): count for day, count in days.items()}
        parts.append(lambda paper: _chart(days, paper))
    return Printout(data, parts)


def _chart(days: Mapping[date, int], paper: Paper) -> Iterator[Line]:
    """A bar for each day; the longest is the day with the most events."""
    most = max(days.values(), default=0)
    if not most:
        yield line("no event in these days")
        return
    block = _BLOCK if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "#"
    digits = len(number(most))
    room = min(paper.width, CHART_COLUMNS) - len("2026-01-01") - digits - 4
    yield line("")
    yield line("events a day (UTC)", "bold")
    for day, count in days.items():
        head = f"{day}  {number(count):>{digits}}"
        bar = block * max(1 if count else 0, round(count / most * room))
        yield ((f"{head}  ", ""), (bar, "cyan")) if bar else line(head)


def _declare_chart(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chart",
        type=positive,
        nargs="?",
        const=DAYS,
        metavar="DAYS",
        help=f"draw the events of each of the last DAYS days (default: {DAYS})",
    )


STATS = Command.of_store(stats, _declare_chart)
