"""The command that prints a thread's memory files, one of them, or a file's history."""

import argparse
import difflib
from collections.abc import Iterator, Sequence

from memory_engine.cli.commands import MOMENT, Command, WrongArgument, add_thread, existing, moment
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import Column, escaped, number
from memory_engine.views.memory_files.view import FileVersion

_STYLES = {"+": ("green",), "-": ("red",), "@": ("dim",)}


def _declare_memory_files(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("path", metavar="PATH", nargs="?", help="print this file's text (default: list the files)")
    parser.add_argument("--history", action="store_true", help="print each change: of this file, or of all")
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of: {MOMENT}")


async def memory_files(asked: argparse.Namespace, terminal: Terminal) -> int:
    """List memory files, print one, or print what each event changed in it."""
    if asked.history and asked.at is not None:
        raise WrongArgument("--history shows every version: give it or --at")
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        if asked.history:
            _put_history(await thread.memory_files.history(asked.path or ""), terminal)
        elif asked.path:
            text = await thread.memory_files.read(asked.path, at=asked.at)
            terminal.json({"path": asked.path, "content": text})
            for line in text.splitlines():
                terminal.put(escaped(line))
        else:
            files = await thread.memory_files.list(at=asked.at)
            terminal.json(files)
            columns = [Column("PATH", least=12), Column("CHARS", right=True), Column("CHANGED"), Column("EVENT")]
            rows = [
                (one.path, number(len(one.content)), f"{one.changed:%Y-%m-%d %H:%M}", str(one.seq)) for one in files
            ]
            if rows:
                terminal.table(columns, rows)
            else:
                terminal.say("no memory files")
    return 0


def _put_history(versions: Sequence[FileVersion], terminal: Terminal) -> None:
    terminal.json(versions)
    if not versions:
        terminal.say("there never was a memory file")
    former: dict[str, FileVersion] = {}
    for version in versions:
        before = former.get(version.file_id)
        former[version.file_id] = version
        facts = (f"event {version.seq}", f"{version.at:%Y-%m-%d %H:%M}", version.what, version.path)
        terminal.put(terminal.styled(escaped(" · ".join(facts)), "bold"))
        for line in _changes(before.content if before is not None else "", version.content):
            terminal.put("  " + terminal.styled(escaped(line), *_STYLES.get(line[:1], ())))


def _changes(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    yield from list(lines)[2:]  # without the two headings


MEMORY_FILES = Command(_declare_memory_files, memory_files)
