"""The commands `files` and `restore-files`: the workspace files of a thread, listed or written to a folder."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from memory_engine.cli.commands import AT, DRY_RUN, Command, Option
from memory_engine.core.excerpts import counted, escaped, number
from memory_engine.reports import Column, Line, Printout, line, table_of
from memory_engine.thread import Thread
from memory_engine.workspace import Workspace, WorkspaceRestore


async def files(thread: Thread, asked: argparse.Namespace) -> Printout:
    """The workspace files of a thread."""
    found = await Workspace(thread, ".").files(at=asked.at)
    columns = [Column("PATH", least=12), Column("BYTES", right=True), Column("EVENT"), Column("SHA-256")]
    rows = [(escaped(one.path), number(one.size), str(one.seq), one.digest[:12]) for one in found]
    return Printout(found, [table_of(columns, rows, "no workspace files")])


async def restore_files(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Make the files of a folder those that a thread recorded."""
    space = Workspace(thread, asked.to, ignore=asked.ignore)
    report = await space.restore(at=asked.at, dry_run=asked.dry_run, imported=asked.imported)
    done = "nothing was written (a dry run)" if asked.dry_run else "done"
    return Printout(report, _restored(report, f"{asked.to}", done), exit_code=1 if report.changed else 0)


def _restored(report: WorkspaceRestore, folder: str, done: str) -> Iterator[Line]:
    changes = f"{counted(len(report.written), 'file')} written, {number(len(report.removed))} removed"
    yield line(f"{folder}: {changes}; {done}", "bold")
    yield from (line(f"+ {path}", "green") for path in report.written)
    yield from (line(f"- {path}", "red") for path in report.removed)
    yield from (line(f"left out: {one.path}: {one.why}") for one in report.left_out)
    yield from (line(f"in the way: {path} is not as it was recorded") for path in report.changed)
    yield from (line(f"kept: {path} was written meanwhile") for path in report.kept)


def _declare_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="FOLDER", type=Path, required=True, help="write and remove files here")


FILES = Command.of_thread(files, AT)
RESTORE_FILES = Command.of_thread(
    restore_files,
    _declare_folder,
    AT,
    Option.many("--ignore", "PATTERN", "leave these files alone"),
    Option.flag("--imported", "write files from an imported log, too"),
    DRY_RUN,
)
