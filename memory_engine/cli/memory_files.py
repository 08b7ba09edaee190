"""The command that prints a thread's memory files, one of them, or a file's history."""

import argparse
import difflib
from collections.abc import Iterator, Sequence

from memory_engine.cli.commands import AT, Command, Option, WrongArgument
from memory_engine.core.excerpts import escaped, number
from memory_engine.reports import Column, Line, Printout, line, table_of
from memory_engine.thread import Thread
from memory_engine.views.memory_files.view import FileVersion

_STYLES = {"+": "green", "-": "red", "@": "dim"}


def _check(asked: argparse.Namespace) -> None:
    if asked.history and asked.at is not None:
        raise WrongArgument("--history shows every version: give it or --at")


async def memory_files(thread: Thread, asked: argparse.Namespace) -> Printout:
    """A list of memory files, the text of one, or what each event changed in it."""
    if asked.history:
        versions = await thread.memory_files.history(asked.path or "")
        return Printout(versions, _history(versions))
    if asked.path:
        text = await thread.memory_files.read(asked.path, at=asked.at)
        return Printout({"path": asked.path, "content": text}, map(line, text.splitlines()))
    files = await thread.memory_files.list(at=asked.at)
    columns = [Column("PATH", least=12), Column("CHARS", right=True), Column("CHANGED"), Column("EVENT")]
    rows = [(one.path, number(len(one.content)), f"{one.changed:%Y-%m-%d %H:%M}", str(one.seq)) for one in files]
    return Printout(files, [table_of(columns, rows, "no memory files")])


def _history(versions: Sequence[FileVersion]) -> Iterator[Line]:
    if not versions:
        yield line("there never was a memory file")
    former: dict[str, FileVersion] = {}
    for version in versions:
        before = former.get(version.file_id)
        former[version.file_id] = version
        facts = (f"event {version.seq}", f"{version.at:%Y-%m-%d %H:%M}", version.what, version.path)
        yield line(" · ".join(facts), "bold")
        for text in _changes(before.content if before is not None else "", version.content):
            yield ("  ", ""), (escaped(text), _STYLES.get(text[:1], ""))


def _changes(before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    yield from list(lines)[2:]  # without the two headings


MEMORY_FILES = Command.of_thread(
    memory_files,
    Option.word("path", "PATH", "print this file's text (default: list the files)"),
    Option.flag("--history", "print each change: of this file, or of all"),
    AT,
    check=_check,
)
