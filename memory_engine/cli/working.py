"""The commands that work on what is there: compact and verify."""

import argparse
import time
from collections.abc import Sequence

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.cli.anchoring import Compared, compare
from memory_engine.cli.commands import Command, add_plugins, add_thread, whole
from memory_engine.cli.databases import check_is_there, existing
from memory_engine.cli.options import FOUND_PROBLEMS
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.cli.text import counted, duration, escaped, number, one_line
from memory_engine.compaction.base import render_lines
from memory_engine.compaction.running import CompactionReport
from memory_engine.files.verify_file import verify_file
from memory_engine.replay import Divergence

LINE_COLUMNS = 400
"""What is shown of a line that says what differs."""


async def compact(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Compact a thread now."""
    async with existing(asked.db) as engine:
        thread = engine.thread(asked.thread)
        report = await thread.compact()
        summaries = [await thread.chunk(chunk_id) for chunk_id in report.new_chunks]
    put_compaction(report, summaries, terminal)
    return 0


def put_compaction(report: CompactionReport, summaries: Sequence[Chunk], terminal: Terminal) -> None:
    """Print what a compaction did, and the summaries that it made."""
    terminal.json(msgspec.to_builtins(report))
    terminal.say(compaction_line(report), "bold")
    for chunk in summaries:
        terminal.say()
        terminal.say(render_lines(chunk.lines))


def compaction_line(report: CompactionReport) -> str:
    """What a compaction did, in a line."""
    covered = counted(len(report.covered), "chunk")
    into = counted(len(report.new_chunks), "summary").replace("summarys", "summaries")
    dropped = f", {counted(len(report.dropped), 'chunk')} dropped" if report.dropped else ""
    tokens = f"{number(report.tokens_before)} → {number(report.tokens_after)} tokens"
    return f"{covered} → {into}{dropped}: {tokens} (by {report.compactor})"


def _declare_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread's id (default: all threads)")
    parser.add_argument(
        "--jobs", type=whole, default=1, metavar="N", help="verify N threads at a time (0: one for each core)"
    )
    parser.add_argument("--fail-fast", action="store_true", help="begin no other thread after one has diverged")
    parser.add_argument(
        "--anchors", metavar="FILE", help="compare with these hashes too, kept from `memory-engine anchors`"
    )
    add_plugins(parser)


async def verify(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Replay logs and compare. Returns 1 where one diverges."""
    check_is_there(asked.db)
    begun = time.perf_counter()
    anchors = await compare(asked.db, asked.anchors, asked.thread) if asked.anchors is not None else Compared()
    progress = Progress("verifying", terminal)
    reports = await verify_file(
        asked.db,
        jobs=asked.jobs,
        thread_ids=None if asked.thread is None else [asked.thread],
        entry_points=asked.plugins,
        fail_fast=asked.fail_fast,
        progress=lambda threads, events: progress.update({"threads": threads, "events": events}),
    )
    progress.end()
    seconds = time.perf_counter() - begun
    found = [report.divergence for report in reports if report.divergence is not None]
    events = sum(report.events for report in reports)
    redacted = sum(report.redacted for report in reports)
    terminal.json(
        {
            "ok": not found and not anchors.rewritten,
            "threads": len(reports),
            "events": events,
            "seconds": round(seconds, 3),
            "divergences": [divergence.as_data() for divergence in found],
            "heads": {report.thread_id: report.head_hash for report in reports},
            "redacted": redacted,
            "anchors": anchors.as_data(),
        }
    )
    for divergence in found:
        put_divergence(divergence, terminal)
    anchors.put(terminal)
    measure = f"{counted(len(reports), 'thread')}, {counted(events, 'event')} in {duration(seconds)}"
    if found:
        terminal.say(f"{measure}: {counted(len(found), 'thread')} diverged", "red")
        return FOUND_PROBLEMS
    terminal.say(f"{measure}: every hash, operation and state is as recorded", "green")
    if redacted:
        terminal.say(f"{counted(redacted, 'event')} redacted: what stands in place of their texts cannot be checked")
    return FOUND_PROBLEMS if anchors.rewritten else 0


def put_divergence(divergence: Divergence, terminal: Terminal) -> None:
    """Where a log diverges, and how: what is kept in red, what a replay gives now in green."""
    terminal.say(divergence.title, "red")
    for line in divergence.lines:
        kept, arrow, now = escaped(one_line(line, LINE_COLUMNS)).partition(" → ")
        what, colon, value = kept.partition(": ")
        shown = (terminal.styled(value, "red"), arrow, terminal.styled(now, "green")) if arrow else (value,)
        terminal.put(f"  {what}{colon}{''.join(shown)}")


COMPACT = Command(add_thread, compact)
VERIFY = Command(_declare_verify, verify)
