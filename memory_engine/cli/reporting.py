"""The command that reports: what a conversation's memory holds and what its agent receives."""

import argparse

from memory_engine.cli.commands import MOMENT, Command, add_thread, moment
from memory_engine.cli.databases import existing
from memory_engine.cli.terminal import Terminal
from memory_engine.projections.reports import memory_report


def _declare_report(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"the memory as it was then: {MOMENT}")


async def report(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print a thread's memory state, its tool cache and the messages of the next model call."""
    async with existing(asked.db) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        at = (await thread.at(asked.at)).seq if asked.at is not None else None
        found = await memory_report(thread, at=at)
    terminal.json(dict(found.data))
    terminal.say(found.text)
    return 0


REPORT = Command(_declare_report, report)
