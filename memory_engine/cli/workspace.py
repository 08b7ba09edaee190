"""The commands `files` and `restore-files`: the workspace files of a thread, listed or written to a folder."""

import argparse
from pathlib import Path

from memory_engine.cli.commands import MOMENT, Command, add_thread, existing, moment
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import Column, counted, escaped, number
from memory_engine.workspace import Workspace


def _declare_files(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of: {MOMENT}")


async def files(asked: argparse.Namespace, terminal: Terminal) -> int:
    """List the workspace files of a thread."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        found = await Workspace(thread, ".").files(at=asked.at)
    terminal.json(found)
    columns = [Column("PATH", least=12), Column("BYTES", right=True), Column("EVENT"), Column("SHA-256")]
    rows = [(escaped(one.path), number(one.size), str(one.seq), one.digest[:12]) for one in found]
    if rows:
        terminal.table(columns, rows)
    else:
        terminal.say("no workspace files")
    return 0


def _declare_restore(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--to", metavar="FOLDER", type=Path, required=True, help="write and remove files here")
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of: {MOMENT}")
    parser.add_argument("--ignore", metavar="PATTERN", action="append", default=[], help="leave these files alone")
    parser.add_argument("--imported", action="store_true", help="write files from an imported log, too")
    parser.add_argument("--dry-run", action="store_true", help="print what would change, and write nothing")


async def restore_files(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Make the files of a folder those that a thread recorded."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        space = Workspace(thread, asked.to, ignore=asked.ignore)
        report = await space.restore(at=asked.at, dry_run=asked.dry_run, imported=asked.imported)
    terminal.json(report)
    done = "nothing was written (a dry run)" if asked.dry_run else "done"
    changes = f"{counted(len(report.written), 'file')} written, {number(len(report.removed))} removed"
    terminal.say(f"{escaped(str(asked.to))}: {changes}; {done}", "bold")
    for mark, style, paths in (("+", "green", report.written), ("-", "red", report.removed)):
        for path in paths:
            terminal.say(f"{mark} {escaped(path)}", style)
    for one in report.left_out:
        terminal.say(f"left out: {escaped(one.path)}: {one.why}")
    for path in report.changed:
        terminal.say(f"in the way: {escaped(path)} is not as it was recorded")
    for path in report.kept:
        terminal.say(f"kept: {escaped(path)} was written meanwhile")
    return 1 if report.changed else 0


FILES = Command(_declare_files, files)
RESTORE_FILES = Command(_declare_restore, restore_files)
