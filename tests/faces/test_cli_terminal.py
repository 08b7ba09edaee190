"""How text is made to fit and made harmless, and how progress is shown."""

from io import StringIO

import pytest

from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import Column, columns, duration, escaped, one_line, shortened, size


class Screen(StringIO):
    """A terminal, as far as a program can tell."""

    def isatty(self) -> bool:
        """Somebody is looking."""
        return True


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor NO_COLOR gets an escape sequence."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[31mx\x1b[0m" == Terminal(out=Screen()).styled("x", "red")
    assert "x" == Terminal(out=StringIO()).styled("x", "red")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "x" == Terminal(out=Screen()).styled("x", "red")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Cells that may shrink do; wide characters count double."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    heads = [Column("ID", least=8), Column("N", right=True), Column("TEXT", least=8)]
    Terminal(out=screen).table(heads, [("thread-" * 9, "17", "今天去北京" * 20), ("t", "1", "short")])
    lines = screen.getvalue().splitlines()
    assert all(columns(line) <= width for line in lines)
    assert "…" in lines[1]


def test_a_table_in_a_file_is_whole() -> None:
    """What a script greps for is never cut."""
    out = StringIO()
    Terminal(out=out).table([Column("ID", least=8)], [("x" * 500,)])
    assert "x" * 500 in out.getvalue()


def test_progress_is_silent_for_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line comes after a second, then ten seconds later; on a terminal it is written over and cleared."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    plain, screen = StringIO(), Screen()
    for err in (plain, screen):
        progress = Progress("verifying", Terminal(err=err))
        for now[0] in (0.0, 0.9, 1.5, 2.0, 12.0):
            progress.update({"events": int(now[0] * 10)})
        progress.end()
    assert ["verifying: 15 events, 2 s", "verifying: 120 events, 12 s"] == plain.getvalue().splitlines()
    assert screen.getvalue().endswith("verifying: 120 events, 12 s\r\x1b[K")


def test_texts_are_cut_by_columns() -> None:
    """A wide character is never halved, and a combining one takes no room."""
    assert "今…" == shortened("今天去", 4)
    assert "e\u0301e" == shortened("e\u0301e", 2)
    assert "a b" == one_line(" a\n\n b ", 10)
    assert "\\x1b[0m\ttab\nline" == escaped("\x1b[0m\ttab\nline")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0000021, "2 µs"), (0.0123, "12.3 ms"), (0.2, "200 ms"), (61, "61.0 s")]
)
def test_times_are_for_people(seconds: float, text: str) -> None:
    """Each magnitude has its unit."""
    assert text == duration(seconds)


@pytest.mark.parametrize(("count", "text"), [(999, "999 bytes"), (1_500, "1.5 kB"), (2_100_000, "2.1 MB")])
def test_sizes_are_for_people(count: int, text: str) -> None:
    """Each magnitude has its unit."""
    assert text == size(count)
