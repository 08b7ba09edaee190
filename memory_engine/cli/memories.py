"""The commands of a user's memories: memories import, export, check."""

import argparse
import time
from functools import partial
from pathlib import Path

from memory_engine.cli.commands import Command, WrongArgument, existing, writable
from memory_engine.cli.options import FOUND_PROBLEMS
from memory_engine.cli.standard import check_one_is_there, limits
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.aside import on_thread
from memory_engine.core.excerpts import counted, duration, number, size
from memory_engine.errors.base import shown_place
from memory_engine.interchange.checking import check_memories
from memory_engine.interchange.exporting import MemoriesExported
from memory_engine.interchange.importing import MemoriesImported
from memory_engine.interchange.systems import SYSTEMS, read_foreign

PROBLEMS_SHOWN_MAX = 20


def _memories(count: int) -> str:
    return f"{count:,} {'memory' if count == 1 else 'memories'}"


def _declare_owner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", required=True, metavar="U", help="the user whose memories they are")
    parser.add_argument("--tenant", default="", metavar="T", help="the user's tenant")


def _declare_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what another system exported: a JSON file, or a .mem folder")
    _declare_owner(parser)
    parser.add_argument(
        "--system", default="auto", choices=SYSTEMS, metavar="NAME", help=f"one of {', '.join(SYSTEMS)} (default: auto)"
    )
    parser.add_argument("--source-user", default="", metavar="ID", help="of a file with several users: take this one")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be taken")
    limits("file_bytes=99000000")(parser)


async def import_memories(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Take the memories of a file."""
    file = Path(asked.file)
    check_one_is_there([asked.file])
    await on_thread(lambda: read_foreign(file, asked.system, asked.limits))  # before a database is made for nothing
    begun = time.perf_counter()
    opened = partial(existing, read_only=True) if asked.dry_run else writable
    async with opened(asked.db, plugins=asked.plugins) as engine:
        with Progress("importing", terminal) as progress:
            report = await engine.transfer.import_memories(
                file,
                user_id=asked.user,
                tenant_id=asked.tenant,
                system=asked.system,
                source_user=asked.source_user,
                dry_run=asked.dry_run,
                limits=asked.limits,
                progress=lambda done, every: progress.update({"memories": done, "of": every}),
            )
    terminal.json(report)
    _put_import(report, shown_place(asked.db), time.perf_counter() - begun, terminal)
    return 0


def _put_import(report: MemoriesImported, db: str, seconds: float, terminal: Terminal) -> None:
    would = "would be added" if report.dry_run else "added"
    line = f"{number(report.added)} {would} of {_memories(report.found)} of {report.system}"
    others = (("changed", report.changed), ("known before", report.known), ("removed", report.removed))
    rest = "".join(f", {number(count)} {what}" for what, count in others if count)
    terminal.say(f"{line}{rest}: user {report.user_id} of {db}, in {duration(seconds)}")
    for kind, count in report.left_out.most_common():
        terminal.say(f"not taken: {number(count)} {kind}", "dim")


def _declare_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="the new folder, such as ada.mem")
    _declare_owner(parser)
    parser.add_argument("--no-logs", action="store_true", help="only the memories, without the logs that prove them")
    parser.add_argument("--dry-run", action="store_true", help="only say how many there are")


async def export_memories(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Write a user's memories to a folder."""
    begun = time.perf_counter()
    try:
        async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
            with Progress("exporting", terminal) as progress:
                report = await engine.transfer.export_memories(
                    asked.folder,
                    user_id=asked.user,
                    tenant_id=asked.tenant,
                    logs=not asked.no_logs,
                    dry_run=asked.dry_run,
                    progress=lambda done, logs: progress.update({"memories": done, "logs": logs}),
                )
    except FileExistsError as error:
        raise WrongArgument(f"{error.filename}: {error.strerror}") from None
    terminal.json(report)
    _put_export(report, time.perf_counter() - begun, terminal)
    return 0


def _put_export(report: MemoriesExported, seconds: float, terminal: Terminal) -> None:
    held = f"{_memories(report.memories)}, {counted(report.preferences, 'preference')}"
    logs = f", {counted(report.logs, 'log')} of {counted(report.events, 'event')}"
    if report.dry_run:
        terminal.say(f"{held}{logs} of user {report.user_id} would be written")
    else:
        terminal.say(f"{held}{logs} → {report.path} ({size(report.bytes)}) in {duration(seconds)}")
        terminal.say(f"digest {report.digest}", "dim")
    for kind, count in report.left_out.items():
        terminal.say(f"not written: {number(count)} {kind}", "dim")


def _declare_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a folder that `memories export` wrote")


async def check(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Check a bundle against the logs in it. Returns 1 if something is wrong, or cannot be shown."""
    report = await on_thread(lambda: check_memories(asked.folder))
    terminal.json(report)
    logs = f"{counted(report.logs, 'log')} of {counted(report.events, 'event')}"
    terminal.say(f"{counted(report.records, 'record')} compared with {logs}", "green" if report.is_whole else "red")
    for problem in report.problems[:PROBLEMS_SHOWN_MAX]:
        terminal.say(problem, "red")
    if report.unproven:
        terminal.say(f"{counted(report.unproven, 'record')} of logs that are not in the folder", "red")
    return 0 if report.is_whole else FOUND_PROBLEMS


_ACTIONS = {
    "import": ("import the memories that another system exported", Command(_declare_import, import_memories)),
    "export": (
        "write a user's memories to a .mem folder, with the logs that prove them",
        Command(_declare_export, export_memories),
    ),
    "check": ("check a written folder: checksums, hashes, and each memory's events", Command(_declare_check, check)),
}
MEMORIES = Command.of_actions(_ACTIONS)
