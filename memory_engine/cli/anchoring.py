"""The hashes of logs, kept elsewhere: the command that prints them, and the check of `verify`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
from attrs import frozen

from memory_engine.cli.commands import Command
from memory_engine.cli.databases import existing
from memory_engine.cli.terminal import Terminal
from memory_engine.cli.text import counted, escaped_in_json
from memory_engine.engine import Engine
from memory_engine.replay.anchors import Anchor, add_anchors, read_anchors


@frozen
class Compared:
    """Anchors that were compared, and those that the logs do not bear out."""

    checked: int = 0
    rewritten: Sequence[Anchor] = ()

    def as_data(self) -> dict[str, object]:
        """Plain JSON values."""
        return {"checked": self.checked, "rewritten": [one.as_data() for one in self.rewritten]}

    def put(self, terminal: Terminal) -> None:
        """Say which are not borne out."""
        for one in self.rewritten:
            what = f"thread {one.thread_id!r}, seq {one.seq}: the log is not the one whose hash was kept"
            terminal.say(f"{what} ({one.hash[:16]}…)", "red")
        if self.checked and not self.rewritten:
            terminal.say(f"{counted(self.checked, 'anchor')}: every log has the hash that was kept", "green")


async def compare(db: str, file: str, only: str | None) -> Compared:
    """Compare the logs of a database with the anchors of a file, all or those of one thread."""
    anchors = [one for one in read_anchors(Path(file)) if only in (None, one.thread_id)]
    async with existing(db, read_only=True) as engine:
        return Compared(len(anchors), await engine.check_anchors(anchors))


def _declare_anchors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread's id (default: all threads)")
    parser.add_argument("--out", metavar="FILE", help="add them to the end of a file instead of printing them")


async def anchors(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print the hashes of the logs as they are now, a JSON object on each line."""
    async with existing(asked.db, read_only=True) as engine:
        found = await _anchors_of(engine, asked.thread)
    if asked.out is not None:
        add_anchors(Path(asked.out), found)
        terminal.say(f"{counted(len(found), 'anchor')} added to {asked.out}")
    else:
        for one in found:
            terminal.put(escaped_in_json(msgspec.json.encode(one).decode()))
    terminal.json([one.as_data() for one in found])
    return 0


async def _anchors_of(engine: Engine, only: str | None) -> list[Anchor]:
    return await engine.anchors() if only is None else [await engine.thread(only).anchor()]


ANCHORS = Command(_declare_anchors, anchors)
