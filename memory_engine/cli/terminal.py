"""A command's output: lines, tables and colours for people, JSON for programs, progress on standard error."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from attrs import field, frozen

from memory_engine.core.excerpts import Column, Line, escaped, escaped_in_json, one_line, table_lines
from memory_engine.core.json_form import as_data

WIDTH_ELSEWHERE = 200
"""Columns of a line that goes to a file or a pipe."""
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


def _styled(stream: TextIO, text: str, *styles: str) -> str:
    """The text in colour, if the stream is a terminal that shows colours."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    codes = ";".join(_COLOURS[style] for style in styles)
    return f"\x1b[{codes}m{text}\x1b[0m" if text and codes else text


@frozen
class Terminal:
    """A command's output. With `as_json`, standard output has JSON only."""

    as_json: bool = False
    out: TextIO = field(factory=lambda: sys.stdout)
    err: TextIO = field(factory=lambda: sys.stderr)

    @property
    def is_terminal(self) -> bool:
        """Whether a person is looking at standard output."""
        return self.out.isatty()

    @property
    def width(self) -> int:
        """The width of a line, in columns."""
        return max(40, shutil.get_terminal_size().columns) if self.is_terminal else WIDTH_ELSEWHERE

    def styled(self, text: str, *styles: str) -> str:
        """The text in colour, if the terminal shows colours."""
        return _styled(self.out, text, *styles)

    def say(self, text: str = "", *styles: str) -> None:
        """Print text for people, with control characters escaped."""
        if not self.as_json:
            self.out.write(self.styled(escaped(text), *styles) + "\n")

    def put(self, line: str) -> None:
        """Print a line for people that is already escaped and styled."""
        if not self.as_json:
            self.out.write(line + "\n")

    def json(self, value: object) -> None:
        """Print one value as a line of JSON, if JSON is asked for."""
        if self.as_json:
            self.out.write(
                escaped_in_json(json.dumps(value, ensure_ascii=False, allow_nan=False, default=as_data)) + "\n"
            )

    def confirmed(self, question: str) -> bool:
        """Ask the person at the terminal; anything but y or yes means no."""
        self.out.write(f"{escaped(question)} [y/N] ")
        self.out.flush()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the loop's would wait for the answer
        try:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
        finally:
            signal.signal(signal.SIGINT, before)

    def warn(self, text: str) -> None:
        """Print a line on standard error."""
        self.err.write(escaped(text) + "\n")

    def error(self, text: str) -> None:
        """Print on standard error what went wrong."""
        self.err.write(f"memory-engine: {_styled(self.err, 'error:', 'red')} {escaped(text)}\n")

    def lines(self, lines: Iterable[Line]) -> None:
        """Print lines for people, in their styles."""
        for pieces in () if self.as_json else lines:
            self.put("".join(self.styled(text, style) if style else text for text, style in pieces))

    @property
    def room(self) -> int | None:
        """The width that tables must fit into: that of a terminal."""
        return self.width if self.is_terminal else None

    def table(self, heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under titles; on a terminal, cells that may shrink are cut so that every line fits."""
        self.lines(table_lines(heads, rows, self.room))


@frozen
class Progress:
    """A progress line on standard error, once something takes longer than a second.

    On a terminal the line is overwritten; elsewhere a new line is printed now and then.
    """

    what: str
    terminal: Terminal
    _state: dict[str, float] = field(factory=dict)

    def update(self, counts: Mapping[str, int]) -> None:
        """Show how far it is."""
        now = time.monotonic()
        begun = self._state.setdefault("begun", now)
        every = 0.1 if self.terminal.err.isatty() else 10.0
        if now - begun < 1 or now - self._state.get("shown", begun) < min(every, now - begun):
            return
        self._state["shown"] = now
        text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        line = f"{self.what}: {text}, {now - begun:.0f} s"
        if self.terminal.err.isatty():
            self.terminal.err.write(f"\r\x1b[K{one_line(line, shutil.get_terminal_size().columns - 1)}")
            self.terminal.err.flush()
        else:
            self.terminal.warn(line)

    def end(self) -> None:
        """Clear the line."""
        if "shown" in self._state and self.terminal.err.isatty():
            self.terminal.err.write("\r\x1b[K")
            self.terminal.err.flush()
