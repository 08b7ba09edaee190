"""The command that reports: what a conversation's memory holds and what its agent receives."""

import argparse

from memory_engine.cli.commands import Command, WrongArgument, add_thread, whole
from memory_engine.cli.databases import existing
from memory_engine.cli.terminal import Terminal
from memory_engine.projections.reports import memory_report


def _declare_report(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--at", type=whole, metavar="SEQ", help="the memory as it was after this event")


async def report(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print a thread's memory state, its tool cache and the messages of the next model call."""
    async with existing(asked.db) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        try:
            found = await memory_report(thread, at=asked.at)
        except ValueError as error:
            raise WrongArgument(str(error)) from None
    terminal.json(dict(found.data))
    terminal.say(found.text)
    return 0


REPORT = Command("report", "print what the memory holds and what the agent receives", _declare_report, report)
