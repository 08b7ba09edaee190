"""The command `rekey`: encrypts a database, changes its key, or decrypts it."""

import argparse
import time

from memory_engine.cli.commands import Command, WrongArgument, existing
from memory_engine.cli.options import add_new_key, can_ask, new_key, typed
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted, duration, size
from memory_engine.core.json_form import named
from memory_engine.errors.base import shown_place


def _declare_rekey(parser: argparse.ArgumentParser) -> None:
    add_new_key(parser)


async def rekey(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Rewrite the database with another key, or none."""
    key = new_key(asked)
    async with existing(asked.db, plugins=asked.plugins) as engine:
        if key is None and not asked.plain:
            key = _typed_twice(terminal)
        begun = time.perf_counter()
        with Progress("writing", terminal) as progress:
            report = await engine.admin.rekey(
                key, lambda done, pages: progress.update({"pages": done, "in all": pages}), plain=asked.plain
            )
    terminal.json(named(report))
    how = "it is not encrypted any more" if asked.plain else "only the new key opens it"
    held = f"{counted(report.threads, 'thread')}, {counted(report.events, 'event')}, {size(report.bytes)}"
    terminal.say(f"{shown_place(asked.db)}: {how} ({held}, in {duration(time.perf_counter() - begun)})", "bold")
    terminal.say("backups keep the key that they were made with: copy them with the new one, or destroy them")
    return 0


def _typed_twice(terminal: Terminal) -> str:
    """A new key from a person, who could mistype it unseen. Raises `WrongArgument` without a person."""
    if terminal.as_json or not can_ask():
        raise WrongArgument(
            "name the new key: --new-key-file PATH or --new-key-env NAME; --plain decrypts the database"
        )
    key = typed("new key")
    if typed("the same again") != key:
        raise WrongArgument("the two are not the same; nothing was changed")
    return key


REKEY = Command(_declare_rekey, rekey)
