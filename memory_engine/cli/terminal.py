"""A command's output: lines, tables and colours for people, JSON for programs, progress on standard error."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

from attrs import field, frozen

from memory_engine.core.excerpts import duration, escaped, escaped_in_json, one_line
from memory_engine.core.json_form import as_data
from memory_engine.reports import Column, Drawable, Line, Paper, Printout, table_lines

WIDTH_ELSEWHERE = 200
"""Columns of a line that goes to a file or a pipe."""
DRAWN_FIRST_S = 1.0
"""What is quicker shows no progress."""
DRAWN_EACH_S = 0.2
ASKING = threading.Event()
"""Set while a person is asked for something: no progress is drawn over the question."""
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
    def paper(self) -> Paper:
        """What reports are drawn on: a terminal's tables must fit into its width."""
        return Paper(self.width, self.width if self.is_terminal else None, of_command=True)

    def show(self, found: Drawable | Printout) -> int:
        """Print a report, as JSON or for people, and return the exit code."""
        printout = found if isinstance(found, Printout) else Printout(found, [found.drawn])
        if self.as_json:
            self.json(printout.data() if callable(printout.data) else printout.data)
        self.lines(printout.drawn(self.paper))
        for text in printout.warnings:
            self.warn(text)
        return printout.exit_code

    def table(self, heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under titles; on a terminal, cells that may shrink are cut so that every line fits."""
        self.lines(table_lines(heads, rows, self.paper.room))


class Progress:
    """A line on standard error about work that takes longer than a second; nothing where that is not a terminal.

    A context: the line is redrawn several times a second by a thread of its own, since the work may keep the event loop
    busy, and is gone at the end.
    """

    def __init__(self, what: str, terminal: Terminal) -> None:
        self._what = what
        self._err = terminal.err
        self._counts: Mapping[str, int] = {}
        self._begun = time.monotonic()
        self._is_shown = False
        self._ended = threading.Event()
        self._drawer = threading.Thread(target=self._draw, daemon=True) if terminal.err.isatty() else None

    def __enter__(self) -> "Progress":
        if self._drawer is not None:
            self._drawer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._drawer is not None:
            self._drawer.join()
        if self._is_shown:
            self._write("")

    def update(self, counts: Mapping[str, int], what: str | None = None) -> None:
        """Say how far it is, and what is done now if that has changed."""
        self._counts = counts
        self._what = what or self._what

    def _draw(self) -> None:
        waited = DRAWN_FIRST_S
        while not self._ended.wait(waited):
            waited = DRAWN_EACH_S
            if ASKING.is_set():
                continue
            self._is_shown = True
            parts = [f"{count:,} {name}" for name, count in [*self._counts.items()]]
            seconds = int(time.monotonic() - self._begun)
            parts.append(f"{seconds} s" if seconds < 60 else duration(seconds))
            self._write(one_line(f"{self._what}: {', '.join(parts)}", shutil.get_terminal_size().columns - 1))

    def _write(self, line: str) -> None:
        with suppress(OSError, ValueError):  # nobody is at the terminal any more
            self._err.write(f"\r\x1b[K{line}")
            self._err.flush()
