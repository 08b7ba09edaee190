"""The commands that work on what is there: compact and verify."""

import argparse
import time
from collections.abc import Callable

import msgspec
from attrs import asdict

from memory_engine.cli.commands import FOUND_PROBLEMS, Command, add_thread
from memory_engine.cli.databases import existing
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.cli.text import counted, duration, number
from memory_engine.compaction.base import render_lines
from memory_engine.compaction.running import CompactionReport
from memory_engine.engine import Engine
from memory_engine.errors import IntegrityError
from memory_engine.replay.verify import Divergence, VerifyReport


async def compact(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Compact a thread now."""
    async with existing(asked.db) as engine:
        thread = engine.thread(asked.thread)
        report = await thread.compact()
        summaries = [await thread.chunk(chunk_id) for chunk_id in report.new_chunks]
    terminal.json(_compaction_as_json(report))
    terminal.say(compaction_line(report), "bold")
    for chunk in summaries:
        terminal.say()
        terminal.say(render_lines(chunk.lines))
    return 0


def _compaction_as_json(report: CompactionReport) -> dict[str, object]:
    shown: dict[str, object] = asdict(report)
    shown["usage"] = msgspec.to_builtins(report.usage)
    return shown


def compaction_line(report: CompactionReport) -> str:
    """What a compaction did, in a line."""
    covered = counted(len(report.covered), "chunk")
    into = counted(len(report.new_chunks), "summary").replace("summarys", "summaries")
    dropped = f", {counted(len(report.dropped), 'chunk')} dropped" if report.dropped else ""
    tokens = f"{number(report.tokens_before)} → {number(report.tokens_after)} tokens"
    return f"{covered} → {into}{dropped}: {tokens} (by {report.compactor})"


def _declare_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread's id (default: all threads)")


async def verify(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Replay logs and compare. Returns 1 where one diverges."""
    begun = time.perf_counter()
    async with existing(asked.db) as engine:
        reports = await verify_threads(engine, asked.thread, terminal)
    seconds = time.perf_counter() - begun
    found = [report.divergence for report in reports if report.divergence is not None]
    events = sum(report.events for report in reports)
    terminal.json(
        {
            "ok": not found,
            "threads": len(reports),
            "events": events,
            "seconds": round(seconds, 3),
            "divergences": [asdict(divergence) for divergence in found],
            "heads": {report.thread_id: report.head_hash for report in reports},
        }
    )
    for divergence in found:
        terminal.say(str(divergence), "red")
    measure = f"{counted(len(reports), 'thread')}, {counted(events, 'event')} in {duration(seconds)}"
    if found:
        terminal.say(f"{measure}: {counted(len(found), 'thread')} diverged", "red")
        return FOUND_PROBLEMS
    terminal.say(f"{measure}: every hash, operation and state is as recorded", "green")
    return 0


async def verify_threads(engine: Engine, only: str | None, terminal: Terminal) -> list[VerifyReport]:
    """Verify one thread or all, showing how far it is."""
    ids = [only] if only is not None else [info.id for info in await engine.threads()]
    progress = Progress("verifying", terminal)
    reports: list[VerifyReport] = []
    done = 0
    for thread_id in ids:

        def shown(events: int, before: int = done) -> None:
            progress.update({"threads": len(reports), "events": before + events})

        reports.append(await _verified(engine, thread_id, shown))
        done += reports[-1].events
        shown(0, done)
    progress.end()
    return reports


async def _verified(engine: Engine, thread_id: str, progress: Callable[[int], None]) -> VerifyReport:
    """A thread's report; what keeps its log from being read at all counts as a divergence too."""
    try:
        return await engine.thread(thread_id).verify(progress)
    except IntegrityError as error:
        found = Divergence(thread_id=thread_id, seq=error.seq, kind="gap", found=error.why)
        return VerifyReport(
            thread_id=thread_id, events=max(0, error.seq - 1), head_seq=0, head_hash="", divergence=found
        )


COMPACT = Command("compact", "compact a thread now", add_thread, compact)
VERIFY = Command("verify", "replay logs and compare hashes, operations and states", _declare_verify, verify)
