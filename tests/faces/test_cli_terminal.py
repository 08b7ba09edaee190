"""How text is made to fit and made harmless, and how progress is shown."""

import threading
from io import StringIO

import pytest

from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import columns, duration, escaped, one_line, shortened, size
from memory_engine.reports import Column


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


def test_a_table_too_wide_for_the_terminal_is_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even its least widths fit, each row is a few lines, with titles before the cells."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    heads = [Column("THREAD", least=12), Column("STATUS"), Column("TOKENS", right=True), Column("LAST EVENT")]
    rows = [("trip", "active", "1,204", "12 min ago"), ("x" * 50, "archived", "2", "just now")]
    Terminal(out=screen).table(heads, rows)
    assert [
        "THREAD trip",
        "  STATUS active  TOKENS 1,204",
        "  LAST EVENT 12 min ago",
        f"THREAD {'x' * 30}…",
        "  STATUS archived  TOKENS 2",
        "  LAST EVENT just now",
    ] == screen.getvalue().splitlines()


def test_a_table_in_a_file_is_whole() -> None:
    """What a script greps for is never cut."""
    out = StringIO()
    Terminal(out=out).table([Column("ID", least=8)], [("x" * 500,)])
    assert "x" * 500 in out.getvalue()


def test_progress_is_for_terminals() -> None:
    """A pipe gets nothing, and no thread is started for it."""
    plain = StringIO()
    before = threading.active_count()
    with Progress("verifying", Terminal(err=plain)) as progress:
        progress.update({"events": 3})
        assert before == threading.active_count()
    assert "" == plain.getvalue()


def test_progress_of_what_is_quick_is_silent() -> None:
    """Also on a terminal; the thread that would draw is gone at once."""
    screen = Screen()
    before = threading.active_count()
    with Progress("verifying", Terminal(err=screen)) as progress:
        progress.update({"events": 3})
    assert ("", before) == (screen.getvalue(), threading.active_count())


def test_progress_ends_with_an_error_too() -> None:
    """The line is cleared, and the error goes on."""
    screen = Screen()
    before = threading.active_count()

    def work() -> None:
        with Progress("verifying", Terminal(err=screen)) as progress:
            progress.update({"events": 1_234})
            while not screen.getvalue():
                threading.Event().wait(0.01)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert before == threading.active_count()
    assert screen.getvalue().startswith("\r\x1b[Kverifying: 1,234 events, 1 s")
    assert screen.getvalue().endswith("\r\x1b[K")


def test_texts_are_cut_by_columns() -> None:
    """A wide character is never halved, and a combining one takes no room."""
    assert "今…" == shortened("今天去", 4)
    assert "e\u0301e" == shortened("e\u0301e", 2)
    assert "a b" == one_line(" a\n\n b ", 10)
    assert "\\x1b[0m\ttab\nline" == escaped("\x1b[0m\ttab\nline")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000021, "2 µs"),
        (0.0123, "12.3 ms"),
        (0.2, "200 ms"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (61, "1 min 1 s"),
        (3_599.6, "1 h 0 min"),
        (7_380, "2 h 3 min"),
    ],
)
def test_times_are_for_people(seconds: float, text: str) -> None:
    """Each magnitude has its unit."""
    assert text == duration(seconds)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_500, "1.5 kB"),
        (999_960, "1.0 MB"),
        (2_100_000, "2.1 MB"),
        (3_400_000_000_000, "3.4 TB"),
    ],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    """Each magnitude has its unit."""
    assert text == size(count)
