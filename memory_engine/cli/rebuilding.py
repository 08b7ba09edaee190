"""The command that makes again what derives from logs: the state's rows, views, the search index."""

import argparse
import time

from attrs import define, field

from memory_engine.cli.commands import Command, add_plugins
from memory_engine.cli.databases import existing
from memory_engine.cli.options import FOUND_PROBLEMS
from memory_engine.cli.terminal import Column, Progress, Terminal
from memory_engine.cli.text import counted, duration, number
from memory_engine.engine import Engine
from memory_engine.errors import MemoryEngineError, ThreadNotFound
from memory_engine.replay.rebuild import RebuildReport, chosen, rebuild


def _declare_rebuild(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread's id (default: all threads)")
    parser.add_argument("--view", action="append", metavar="NAME", help="only this view (may be repeated)")
    parser.add_argument("--search", action="store_true", help="only the search index, or with --view it too")
    add_plugins(parser)


@define
class _Outcome:
    """What was made again, and why some threads stand as they were."""

    reports: list[RebuildReport] = field(factory=list)
    failed: dict[str, MemoryEngineError] = field(factory=dict)


async def rebuild_threads(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Make rows again, thread by thread: everything, or what is named. Returns 1 where a thread of all cannot be."""
    begun = time.perf_counter()
    async with existing(asked.db, entry_points=asked.plugins) as engine:
        outcome = await _rebuilt(engine, asked, terminal)
    seconds = time.perf_counter() - begun
    reports = outcome.reports
    events = sum(report.events for report in reports)
    terminal.json(
        {
            "threads": len(reports),
            "events": events,
            "seconds": round(seconds, 3),
            "rebuilt": [report.as_data() for report in reports],
            "failed": [{"thread_id": thread_id, "why": str(error)} for thread_id, error in outcome.failed.items()],
        }
    )
    _put_reports(reports, terminal)
    for error in outcome.failed.values():
        terminal.say(f"as it was: {error}", "red")
    terminal.say(f"{counted(len(reports), 'thread')}, {counted(events, 'event')} in {duration(seconds)}", "bold")
    return FOUND_PROBLEMS if outcome.failed else 0


async def _rebuilt(engine: Engine, asked: argparse.Namespace, terminal: Terminal) -> _Outcome:
    views = asked.view if asked.view or not asked.search else []
    chosen(engine.kernel.projections, views)  # a name that is none is refused before anything is made
    progress = Progress("rebuilding", terminal)
    outcome = _Outcome()
    for thread_id in [asked.thread] if asked.thread is not None else [info.id for info in await engine.threads()]:
        done = sum(report.events for report in outcome.reports)

        def shown(events: int, before: int = done) -> None:
            progress.update({"threads": len(outcome.reports), "events": before + events})

        try:
            report = await rebuild(
                engine.kernel, thread_id, views, search=True if asked.search else None, progress=shown
            )
        except MemoryEngineError as error:
            if asked.thread is not None:
                raise
            if not isinstance(error, ThreadNotFound):  # else it was deleted meanwhile
                outcome.failed[thread_id] = error
        else:
            outcome.reports.append(report)
    progress.end()
    return outcome


def _put_reports(reports: list[RebuildReport], terminal: Terminal) -> None:
    """What was made of each thread; a thread's views are counted together."""
    if not reports:
        return
    counts_of = ("EVENTS", "CHUNKS", "ROWS", "PASSAGES")
    heads = [Column("THREAD", least=12), *(Column(title, right=True) for title in counts_of)]
    rows = []
    for report in reports:
        counts = (report.events, report.chunks, sum(report.views.values()), report.passages)
        rows.append([report.thread_id, *("-" if count is None else number(count) for count in counts)])
    terminal.table(heads, rows)


REBUILD = Command(_declare_rebuild, rebuild_threads)
