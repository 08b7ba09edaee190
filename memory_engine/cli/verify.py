"""The commands that check and remake what a log says: verify and rebuild."""

import argparse
import time

from memory_engine.cli.commands import Command, Option, always, check_is_there, existing, whole
from memory_engine.cli.export import Compared, compare
from memory_engine.cli.options import FAILED, FOUND_PROBLEMS, key_for
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted, duration, number
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import MemoryEngineError, PluginNotLoaded, ThreadNotFound
from memory_engine.files.verify_file import verify_file
from memory_engine.replay.divergence import divergence_lines, lacking_lines, redaction_lines
from memory_engine.replay.rebuild import RebuildReport, chosen_projections, rebuild
from memory_engine.reports import Column, Part, Printout, line, table_of


def _declare_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread's id (default: all threads)")
    parser.add_argument(
        "--jobs", type=whole, default=1, metavar="N", help="verify N threads at a time (0: one per core)"
    )
    parser.add_argument("--fail-fast", action="store_true", help="start no other thread after one has diverged")
    parser.add_argument("--anchors", metavar="FILE", help="also compare with these hashes of `memory-engine anchors`")


async def verify(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Replay logs and compare. Returns 1 if one diverges, 2 if nothing is wrong but a missing plug-in."""
    check_is_there(asked.db)
    begun = time.perf_counter()
    anchors = await compare(asked.db, asked.anchors, asked.thread) if asked.anchors is not None else Compared()
    try:
        with Progress("verifying", terminal) as progress:
            reports = await verify_file(
                asked.db,
                jobs=asked.jobs,
                thread_ids=None if asked.thread is None else [asked.thread],
                entry_points=asked.plugins.published,
                plugins=asked.plugins.named,
                fail_fast=asked.fail_fast,
                key=key_for(asked.db),
                progress=lambda threads, events: progress.update({"threads": threads, "events": events}),
            )
    except ThreadNotFound as error:
        async with existing(asked.db, read_only=True) as engine:
            await engine.thread(error.thread_id).info()  # raises it with what was probably meant
        raise
    seconds = time.perf_counter() - begun
    found = [report.divergence for report in reports if report.divergence is not None]
    events = sum(report.events for report in reports)
    redacted = sum(report.redacted for report in reports)
    unattested = sum(report.unattested for report in reports)
    terminal.json(
        {
            "ok": not found and not anchors.rewritten,
            "threads": len(reports),
            "events": events,
            "seconds": round(seconds, 3),
            "divergences": found,
            "heads": {report.thread_id: report.head_hash for report in reports},
            "redacted": redacted,
            "unattested": unattested,
            "lacking": [one for report in reports for one in report.lacking],
            "unloaded_types": sorted({name for report in reports for name in report.unloaded_types}),
            "anchors": anchors,
        }
    )
    unloaded = [report for report in reports if report.unloaded_types]
    for divergence in found:
        if divergence.kind != "unloaded":
            terminal.lines(divergence_lines(divergence))
    anchors.put(terminal)
    measure = f"{counted(len(reports), 'thread')}, {counted(events, 'event')} in {duration(seconds)}"
    if unloaded:
        missing = PluginNotLoaded(
            tuple(report.thread_id for report in unloaded),
            tuple(sorted({name for report in unloaded for name in report.unloaded_types})),
        )
        terminal.error(f"{missing}")
        if len(unloaded) == len(found) and not anchors.rewritten:
            return FAILED
    if found:
        terminal.say(f"{measure}: {counted(len(found), 'thread')} diverged", "red")
        return FOUND_PROBLEMS
    terminal.say(f"{measure}: every hash, operation and state is as recorded", "green")
    terminal.lines(redaction_lines(redacted, unattested))
    terminal.lines(lacking_lines([one for report in reports for one in report.lacking]))
    return FOUND_PROBLEMS if anchors.rewritten else 0


VERIFY = Command(_declare_verify, verify)


async def rebuild_threads(engine: Engine, asked: argparse.Namespace) -> Printout:
    """Remake rows, thread by thread: of all, or of the one named. Returns 1 if one of all cannot be rebuilt."""
    begun = time.perf_counter()
    views = asked.view or ([] if asked.search else None)
    chosen_projections(kernel_of(engine).projections, views)  # unknown names are refused before anything is made
    reports: list[RebuildReport] = []
    failed: dict[str, MemoryEngineError] = {}
    for thread_id in [asked.thread] if asked.thread is not None else [info.id for info in await engine.threads()]:
        done = sum(report.events for report in reports)

        def shown(events: int, before: int = done) -> None:
            asked.progress.update({"threads": len(reports), "events": before + events})

        try:
            search = True if asked.search else None
            reports.append(await rebuild(kernel_of(engine), thread_id, views, search=search, progress=shown))
        except MemoryEngineError as error:
            if asked.thread is not None:
                raise
            if not isinstance(error, ThreadNotFound):  # else it was deleted meanwhile
                failed[thread_id] = error
    seconds, events = time.perf_counter() - begun, sum(report.events for report in reports)
    data = {
        "threads": len(reports),
        "events": events,
        "seconds": round(seconds, 3),
        "rebuilt": reports,
        "failed": [{"thread_id": thread_id, "why": str(error)} for thread_id, error in failed.items()],
    }
    parts = [line(f"as it was: {error}", "red") for error in failed.values()]
    total = f"{counted(len(reports), 'thread')}, {counted(events, 'event')} in {duration(seconds)}"
    code = FOUND_PROBLEMS if failed else 0
    return Printout(data, [_rebuilt_table(reports), *parts, line(total, "bold")], code)


def _rebuilt_table(reports: list[RebuildReport]) -> Part:
    """The rows made for each thread; its views are counted together."""
    counts_of = ("EVENTS", "CHUNKS", "ROWS", "PASSAGES")
    heads = [Column("THREAD", least=12), *(Column(title, right=True) for title in counts_of)]
    rows = []
    for report in reports:
        counts = (report.events, report.chunks, sum(report.views.values()), report.passages)
        rows.append([report.thread_id, *("-" if count is None else number(count) for count in counts)])
    return table_of(heads, rows)


REBUILD = Command.of_store(
    rebuild_threads,
    Option.word("thread", "THREAD", "a thread's id (default: all threads)"),
    Option.many("--view", "NAME", "only this view (may be repeated)"),
    Option.flag("--search", "only the search index, or with --view it too"),
    writes=always,
    busy="rebuilding",
)
