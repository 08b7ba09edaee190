"""The command `rereduce`: what today's reducers make of a thread's events."""

import argparse

from memory_engine.cli.commands import Command, add_thread, existing, positive
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.chunks import Chunk
from memory_engine.core.excerpts import counted, escaped, number, one_line
from memory_engine.replay.rereduce import RereduceReport

LISTED = 20
"""How many differences are listed for people."""


def _declare_rereduce(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("from_seq", metavar="SEQ", nargs="?", type=positive, help="the first event to reduce again")
    parser.add_argument("--dry-run", action="store_true", help="print the differences, and write nothing")
    parser.add_argument("--undo", action="store_true", help="undo the latest one")
    parser.add_argument("--reason", metavar="TEXT", default="", help="goes to the log")


async def rereduce(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Repair a thread whose reducers were missing or wrong, or undo that."""
    async with existing(asked.db, read_only=asked.dry_run, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        if asked.undo:
            receipt = await thread.replay.undo_rereduce(reason=asked.reason)
            terminal.json({"thread_id": receipt.thread_id, "seq": receipt.seq, "event_id": receipt.event_id})
            terminal.say(f"undone by event {receipt.seq}", "bold")
            return 0
        with Progress("reducing again", terminal):
            report = await thread.replay.rereduce(asked.from_seq or 1, dry_run=asked.dry_run, reason=asked.reason)
    terminal.json(report)
    _print_rereduction(report, terminal)
    return 0


def _print_rereduction(report: RereduceReport, terminal: Terminal) -> None:
    changes = f"{counted(len(report.added), 'chunk')} added, {number(len(report.removed))} removed"
    done = f"recorded by event {report.seq}" if report.seq else "nothing was written (a dry run)"
    reduced = counted(len(report.mended), "event")
    terminal.say(f"{reduced} of {report.from_seq} to {report.upto} reduced differently: {changes}; {done}", "bold")
    for one in report.mended[:LISTED]:
        terminal.say(f"event {one.seq} ({one.type})")
        for line in one.difference:
            terminal.say(f"  {one_line(line, terminal.width)}")
    if len(report.mended) > LISTED:
        terminal.say(f"… and {number(len(report.mended) - LISTED)} more events; --json lists them")
    for mark, style, chunks in (("-", "red", report.removed), ("+", "green", report.added)):
        for chunk in chunks[:LISTED]:
            terminal.say(_changed_chunk_line(mark, chunk, terminal.width), style)
        if len(chunks) > LISTED:
            terminal.say(f"{mark} … and {number(len(chunks) - LISTED)} more")


def _changed_chunk_line(mark: str, chunk: Chunk, width: int) -> str:
    return f"{mark} {chunk.id} {chunk.type}: {escaped(one_line(chunk.text, width))}"


REREDUCE = Command(_declare_rereduce, rereduce)
