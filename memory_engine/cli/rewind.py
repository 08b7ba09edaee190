"""The command `rewind`: go back to a moment of a thread, or undo that."""

import argparse
import shlex

from memory_engine.cli.commands import MOMENT, Command, WrongArgument, add_thread, existing, moment
from memory_engine.cli.life import add_reason
from memory_engine.cli.terminal import Terminal
from memory_engine.core.chunks import Chunk
from memory_engine.core.excerpts import counted, escaped, number, one_line
from memory_engine.replay.rewind import LearnedElsewhere, RewindReport

LISTED = 20
"""How many chunks and facts are listed for people."""


def _declare_rewind(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--to", type=moment, metavar="MOMENT", help=f"go back to {MOMENT}")
    parser.add_argument("--redo", action="store_true", help="bring back what the latest rewind in force took back")
    parser.add_argument("--dry-run", action="store_true", help="print what would change, and write nothing")
    add_reason(parser)


async def rewind(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Go back to a moment of a thread, with what was learned since; or undo that."""
    if (asked.to is None) is not asked.redo:
        raise WrongArgument("say where to go: either --to MOMENT or --redo")
    async with existing(asked.db, read_only=asked.dry_run, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        report = await thread.rewind(asked.to, redo=asked.redo, dry_run=asked.dry_run, reason=asked.reason)
    terminal.json(report)
    _print_rewind(report, terminal)
    return 0


def _print_rewind(report: RewindReport, terminal: Terminal) -> None:
    back = f"{counted(report.events, 'event')} taken back" if report.events else "nothing taken back"
    changes = f"{counted(len(report.removed), 'chunk')} removed, {number(len(report.restored))} restored"
    done = f"recorded by event {report.seq}" if report.seq else "nothing was written (a dry run)"
    terminal.say(f"{report.thread_id} at event {report.to}: {back}, {changes}; {done}", "bold")
    for mark, style, chunks in (("-", "red", report.removed), ("+", "green", report.restored)):
        for chunk in chunks[:LISTED]:
            terminal.say(_chunk_line(mark, chunk, terminal.width), style)
        if len(chunks) > LISTED:
            terminal.say(f"{mark} … and {number(len(chunks) - LISTED)} more; --json lists them")
    for what, found in (("learned from it", report.learned), ("built on it", report.built_on)):
        if found:
            terminal.say(f"{what}:", "bold")
        for one in found[:LISTED]:
            terminal.say(f"  {one_line(_fact_line(one), terminal.width)}")
        if len(found) > LISTED:
            terminal.say(f"  … and {number(len(found) - LISTED)} more; --json lists them")
    if report.seq:
        terminal.say(f"to undo it: memory-engine rewind {shlex.quote(report.thread_id)} --to {report.upto}")


def _chunk_line(mark: str, chunk: Chunk, width: int) -> str:
    return f"{mark} {chunk.id} {chunk.type}: {escaped(one_line(chunk.text, width))}"


def _fact_line(one: LearnedElsewhere) -> str:
    where = f"event {one.seq} of {one.thread_id}" if one.seq else f"on its way to {one.thread_id}"
    return f"{one.change}: {where} ({one.type}) {escaped(one.text)}".rstrip()


REWIND = Command(_declare_rewind, rewind)
