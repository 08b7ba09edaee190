"""The commands `backup` and `restore`: whole databases, copied and checked."""

import argparse
import time
from collections.abc import Awaitable, Callable

from memory_engine.cli.commands import Command, check_is_there, existing
from memory_engine.cli.copy import copied
from memory_engine.cli.options import FOUND_PROBLEMS, add_new_key, key_for, new_key
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted, duration, size
from memory_engine.core.json_form import named
from memory_engine.errors.base import is_url, shown_place
from memory_engine.storage.places import restore
from memory_engine.store.protocol import Backup, Copied


def _declare_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="TARGET", help="the file to make; with the key of the database, if it has one"
    )
    add_new_key(parser)


async def back_up(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Copy a database. Returns 1 if a thread's hash chain is broken."""
    key, plain = new_key(asked), asked.plain
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        return await _copied(
            shown_place(asked.db),
            lambda done: engine.admin.backup(asked.target, done, key=key, plain=plain),
            "copying",
            terminal,
        )


def _declare_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", metavar="BACKUP", help="a file that `memory-engine backup` wrote")
    parser.add_argument(
        "path", metavar="NEW_PATH", help="the database to make, a path or a URL; an existing file is never replaced"
    )
    add_new_key(parser)


async def restore_backup(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Make a database from a backup; on a server, as `copy` does. Returns 1 if one of its threads is broken."""
    if is_url(asked.path) and not is_url(asked.backup):
        return await copied(asked, asked.backup, asked.path, terminal)
    check_is_there(asked.backup)
    keys = {"key": key_for(asked.backup), "new_key": new_key(asked)}
    return await _copied(
        asked.backup,
        lambda done: restore(asked.backup, asked.path, done, **keys, plain=asked.plain),
        "restoring",
        terminal,
    )


async def _copied(source: str, copy: Callable[[Copied], Awaitable[Backup]], what: str, terminal: Terminal) -> int:
    begun = time.perf_counter()
    with Progress(what, terminal) as progress:
        report = await copy(lambda done, pages: progress.update({"pages": done, "in all": pages}))
    terminal.json(named(report))
    held = f"{counted(report.threads, 'thread')}, {counted(report.events, 'event')}"
    took = duration(time.perf_counter() - begun)
    terminal.say(f"{shown_place(source)} → {report.path}: {held}, {size(report.bytes)}, in {took}")
    for thread_id in report.broken:
        terminal.say(f"thread {thread_id!r}: its hash chain is broken; `memory-engine verify` says where", "red")
    return FOUND_PROBLEMS if report.broken else 0


BACKUP = Command(_declare_backup, back_up)
RESTORE = Command(_declare_restore, restore_backup)
