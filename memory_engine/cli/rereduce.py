"""The command `rereduce`: what today's reducers make of a thread's events."""

import argparse
from collections.abc import Iterator

from memory_engine.cli.commands import Command, Option, positive
from memory_engine.cli.rewind import chunk_line
from memory_engine.core.excerpts import counted, number, one_line
from memory_engine.replay.rereduce import RereduceReport
from memory_engine.reports import Line, Paper, Printout, first_lines, line
from memory_engine.thread import Thread

LISTED = 20
"""How many differences are listed for people."""


async def rereduce(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Repair a thread whose reducers were missing or wrong, or undo that."""
    if asked.undo:
        receipt = await thread.replay.undo_rereduce(reason=asked.reason)
        data = {"thread_id": receipt.thread_id, "seq": receipt.seq, "event_id": receipt.event_id}
        return Printout(data, [line(f"undone by event {receipt.seq}", "bold")])
    report = await thread.replay.rereduce(asked.from_seq or 1, dry_run=asked.dry_run, reason=asked.reason)
    return Printout(report, [lambda paper: _rereduced(report, paper)])


def _rereduced(report: RereduceReport, paper: Paper) -> Iterator[Line]:
    changes = f"{counted(len(report.added), 'chunk')} added, {number(len(report.removed))} removed"
    done = f"recorded by event {report.seq}" if report.seq else "nothing was written (a dry run)"
    reduced = counted(len(report.mended), "event")
    yield line(f"{reduced} of {report.from_seq} to {report.upto} reduced differently: {changes}; {done}", "bold")
    for one in report.mended[:LISTED]:
        yield line(f"event {one.seq} ({one.type})")
        yield from (line(f"  {one_line(text, paper.width)}") for text in one.difference)
    if len(report.mended) > LISTED:
        yield line(f"… and {number(len(report.mended) - LISTED)} more events; --json lists them")
    yield from first_lines(report.removed, LISTED, lambda one: chunk_line("-", one, paper), "- … and {} more")
    yield from first_lines(report.added, LISTED, lambda one: chunk_line("+", one, paper), "+ … and {} more")


REREDUCE = Command.of_thread(
    rereduce,
    Option.word("from_seq", "SEQ", "the first event to reduce again", positive),
    Option.flag("--dry-run", "print the differences, and write nothing"),
    Option.flag("--undo", "undo the latest one"),
    Option.value("--reason", "TEXT", "goes to the log", default=""),
    writes=lambda asked: not asked.dry_run,
    busy="reducing again",
)
