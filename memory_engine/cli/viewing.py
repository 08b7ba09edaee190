"""The command that shows views: the rows behind preferences, playbooks, caches, layers, at any seq."""

import argparse

import msgspec

from memory_engine.cli.commands import MOMENT, Command, WrongArgument, add_thread, moment, positive
from memory_engine.cli.databases import existing
from memory_engine.cli.terminal import Column, Terminal
from memory_engine.cli.text import number
from memory_engine.moments import Moment
from memory_engine.thread import Thread


def _declare_view(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("view", metavar="VIEW", nargs="?", help="one view's rows (default: which views have any)")
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as it was then: {MOMENT}")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the last N rows by key")


async def view(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print which views of a thread have rows, or the rows of one."""
    async with existing(asked.db) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        names = [projection.name for projection in engine.kernel.projections]
        if asked.view is not None and asked.view not in names:
            raise WrongArgument(f"there is no view {asked.view!r}; there are {', '.join(names)}")
        if asked.view is None:
            return await _put_views(thread, names, asked.at, terminal)
        rows = list((await thread.view(asked.view, at=asked.at)).items())
    rows = rows[-asked.limit :] if asked.limit else rows
    terminal.json({key: msgspec.to_builtins(value) for key, value in rows})
    if not rows:
        terminal.say("no rows")
        return 0
    encoded = [(key, msgspec.json.encode(value).decode()) for key, value in rows]
    terminal.table([Column("KEY", least=12), Column("VALUE", least=20)], encoded)
    return 0


async def _put_views(thread: Thread, names: list[str], at: Moment | None, terminal: Terminal) -> int:
    found = {name: len(await thread.view(name, at=at)) for name in names}
    terminal.json(found)
    held = {name: count for name, count in found.items() if count}
    if not held:
        terminal.say("no view has any rows")
        return 0
    terminal.table(
        [Column("VIEW"), Column("ROWS", right=True)], [(name, number(count)) for name, count in held.items()]
    )
    return 0


VIEW = Command(_declare_view, view)
