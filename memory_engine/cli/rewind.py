"""The command `rewind`: go back to a moment of a thread, or undo that."""

import argparse
import shlex
from collections.abc import Iterator

from memory_engine.cli.commands import DRY_RUN, MOMENT, REASON, Command, Option, WrongArgument, moment
from memory_engine.core.chunks import Chunk
from memory_engine.core.excerpts import counted, escaped, number, one_line
from memory_engine.replay.rewind import LearnedElsewhere, RewindReport
from memory_engine.reports import Line, Paper, Printout, first_lines, line
from memory_engine.thread import Thread

LISTED = 20
"""How many chunks and facts are listed for people."""


def _names_a_way(asked: argparse.Namespace) -> None:
    if (asked.to is None) is not asked.redo:
        raise WrongArgument("say where to go: either --to MOMENT or --redo")


async def rewind(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Go back to a moment of a thread, with what was learned since; or undo that."""
    report = await thread.rewind(asked.to, redo=asked.redo, dry_run=asked.dry_run, reason=asked.reason)
    return Printout(report, [lambda paper: _rewound(report, paper)])


def _rewound(report: RewindReport, paper: Paper) -> Iterator[Line]:
    back = f"{counted(report.events, 'event')} taken back" if report.events else "nothing taken back"
    changes = f"{counted(len(report.removed), 'chunk')} removed, {number(len(report.restored))} restored"
    done = f"recorded by event {report.seq}" if report.seq else "nothing was written (a dry run)"
    yield line(f"{report.thread_id} at event {report.to}: {back}, {changes}; {done}", "bold")
    rest = " … and {} more; --json lists them"
    yield from first_lines(report.removed, LISTED, lambda one: chunk_line("-", one, paper), f"-{rest}")
    yield from first_lines(report.restored, LISTED, lambda one: chunk_line("+", one, paper), f"+{rest}")
    for what, found in (("learned from it", report.learned), ("built on it", report.built_on)):
        if found:
            yield line(f"{what}:", "bold")
        yield from first_lines(found, LISTED, lambda one: line(f"  {one_line(_fact_line(one), paper.width)}"))
    if report.seq:
        yield line(f"to undo it: memory-engine rewind {shlex.quote(report.thread_id)} --to {report.upto}")


def chunk_line(mark: str, chunk: Chunk, paper: Paper) -> Line:
    """A chunk that is added (`+`) or removed (`-`)."""
    said = f"{mark} {chunk.id} {chunk.type}: {one_line(chunk.text, paper.width)}"
    return line(said, "green" if mark == "+" else "red")


def _fact_line(one: LearnedElsewhere) -> str:
    where = f"event {one.seq} of {one.thread_id}" if one.seq else f"on its way to {one.thread_id}"
    return f"{one.change}: {where} ({one.type}) {escaped(one.text)}".rstrip()


REWIND = Command.of_thread(
    rewind,
    Option.value("--to", "MOMENT", f"go back to {MOMENT}", moment),
    Option.flag("--redo", "bring back what the latest rewind in force took back"),
    DRY_RUN,
    REASON,
    writes=lambda asked: not asked.dry_run,
    check=_names_a_way,
)
