"""The command that turns a piece of a recorded log into the source of a test."""

import argparse
from pathlib import Path

from memory_engine.cli.commands import MOMENT, Command, add_plugins, add_thread, moment
from memory_engine.cli.databases import existing
from memory_engine.cli.terminal import Terminal
from memory_engine.moments import Moment


def _declare_to_pytest(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "--seqs", type=_between, required=True, metavar="A..B", help=f"the first and the last event: each {MOMENT}"
    )
    parser.add_argument("--out", metavar="FILE", help="write a new file (default: to standard output)")
    parser.add_argument("--name", metavar="NAME", default="", help="what the test is called")
    add_plugins(parser)


def _between(text: str) -> tuple[Moment, Moment]:
    """`A..B`, or `A` for one event."""
    first, dots, last = text.partition("..")
    if not first or (dots and not last):
        raise argparse.ArgumentTypeError(f"{text!r} is no range: write A..B")
    return moment(first), moment(last or first)


_between.__name__ = "range"  # what argparse calls it in its errors


async def to_pytest(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print or write a test that runs recorded events again and compares."""
    first, last = asked.seqs
    async with existing(asked.db, read_only=True, entry_points=asked.plugins) as engine:
        source = await engine.thread(asked.thread).to_pytest(first, last, name=asked.name)
    if asked.out is not None:
        _write(Path(asked.out), source)
        terminal.say(f"pytest {asked.out}")
    else:
        terminal.put(source.removesuffix("\n"))
    terminal.json({"thread_id": asked.thread, "out": asked.out, "source": source})
    return 0


def _write(path: Path, source: str) -> None:
    """A new file: nobody's test is written over."""
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(source)


TO_PYTEST = Command(_declare_to_pytest, to_pytest)
