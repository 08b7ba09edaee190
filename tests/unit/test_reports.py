"""How reports are drawn: on the paper of `print()` and on that of a command."""

from collections.abc import Iterator
from io import StringIO
from typing import NoReturn

from attrs import frozen

from memory_engine.cli.terminal import Terminal
from memory_engine.reports import (
    PRINTED,
    Column,
    Drawable,
    Line,
    Paper,
    Printout,
    first_lines,
    line,
    one_line_of,
    table_of,
)


@frozen
class Basket(Drawable):
    """A value that draws itself."""

    owner: str
    fruits: tuple[str, ...] = ()

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """Two fruits on paper, all of them for a command."""
        yield line(self.owner, "bold")
        yield from first_lines(self.fruits, 9 if paper.of_command else 2, line)


FRUITS = Basket("Ines", ("apple", "pear", "plum\x1b[0m"))


def texts(lines: Iterator[Line]) -> list[str]:
    """The lines without their styles."""
    return [one_line_of(one) for one in lines]


def test_a_value_is_printed_and_shown_by_one_drawing() -> None:
    """`print()` shows the first and how many more; a command lists all; control characters do no harm."""
    assert "Ines\napple\npear\n  … and 1 more; --json lists them" == str(FRUITS)
    out = StringIO()
    assert 0 == Terminal(out=out).show(FRUITS)
    assert "Ines\napple\npear\nplum\\x1b[0m\n" == out.getvalue()


def never(_made: object) -> NoReturn:
    """A part of a report that must not be drawn."""
    raise AssertionError


def test_json_is_the_value() -> None:
    """Nothing is drawn for it; data may be made when it is asked for."""
    out = StringIO()
    Terminal(as_json=True, out=out).show(FRUITS)
    assert '{"owner": "Ines", "fruits": ["apple", "pear", "plum\\u001b[0m"]}\n' == out.getvalue()
    asked: list[str] = []

    def made() -> str:
        asked.append("once")
        return "data"

    Terminal(out=StringIO()).show(Printout(made))
    assert [] == asked
    Terminal(as_json=True, out=(out := StringIO())).show(Printout(made, [never]))
    assert ('"data"\n', ["once"]) == (out.getvalue(), asked)


def test_a_printout_has_parts_warnings_and_a_code() -> None:
    """Lines, and what draws lines; a warning goes to standard error, with JSON too."""
    for as_json in (False, True):
        out, err = StringIO(), StringIO()
        printout = Printout({}, [line("head"), lambda paper: [line(f"{paper.width}")]], 1, ["by words alone"])
        assert 1 == Terminal(as_json=as_json, out=out, err=err).show(printout)
        assert ("{}\n" if as_json else "head\n200\n", "by words alone\n") == (out.getvalue(), err.getvalue())


def test_a_table_without_a_row_is_a_sentence() -> None:
    """Where there is none, nothing."""
    heads = [Column("NAME", cut=True)]
    assert ["nothing here"] == texts(Printout(None, [table_of(heads, [], "nothing here")]).drawn(PRINTED))
    assert [] == texts(Printout(None, [table_of(heads, [])]).drawn(PRINTED))
    assert ["NAME", "x" * 9 + "…"] == texts(Printout(None, [table_of(heads, [["x" * 50]])]).drawn(Paper(10, None)))
