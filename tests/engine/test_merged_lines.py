"""The lines of several summaries read as those of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.context.rendering import render_lines
from memory_engine.context.work_lines import CommandLine, FileLine, merged_lines
from memory_engine.core.events.base import SummaryLine

FIRST = (
    SummaryLine("said", "User: Keep the names of the till.", ("1.0",)),
    SummaryLine("files", "shop/till.py: read 1-40; edit failed: text not found", ("2.0",)),
    SummaryLine("commands", "ruff check shop ✗ exit 1: E501", ("3.0",)),
    SummaryLine("tests", "pytest -q tests/a.py ✗ 1 failed; tests/a.py::t - boom", ("4.0",)),
    SummaryLine("asked", "User: Is the till open?", ("5.0",)),
)
SECOND = (
    SummaryLine("files", "shop/till.py: read 30-90; edited: `a` => `b`", ("7.0",)),
    SummaryLine("commands", "ruff check shop → All checks passed!", ("8.0",)),
    SummaryLine("tests", "pytest -q → 44 passed", ("9.0",)),
    SummaryLine("said", "User: Keep the names of the till.", ("10.0",)),
)


def test_each_file_and_command_has_one_line() -> None:
    """With the last state and all sources; a run that covers an earlier one replaces it."""
    assert (
        SummaryLine("said", "User: Keep the names of the till.", ("1.0", "10.0")),
        SummaryLine("said", "User: Is the till open?", ("5.0",)),
        SummaryLine("files", "shop/till.py: read 1-90; edited: `a` => `b`", ("2.0", "7.0")),
        SummaryLine("commands", "ruff check shop (×2) → All checks passed!", ("3.0", "8.0")),
        SummaryLine("tests", "pytest -q → 44 passed", ("4.0", "9.0")),
    ) == merged_lines([FIRST, SECOND])


def test_the_last_summarys_questions_still_wait() -> None:
    """Nothing has come since that could have answered them."""
    assert "asked" in {line.section for line in merged_lines([SECOND, FIRST])}


def test_a_merged_summary_merges_with_the_next() -> None:
    """In one go or one after the other, the lines are the same."""
    third = (SummaryLine("files", "shop/till.py: deleted", ("12.0",)),)
    assert merged_lines([merged_lines([FIRST, SECOND]), third]) == merged_lines([FIRST, SECOND, third])


def test_lines_in_a_form_of_their_own_stay() -> None:
    """A model writes what it likes; equal lines are told once."""
    own = SummaryLine("files", "I looked through the whole till", ("1.0",))
    assert (own,) == merged_lines([(own,), (own,)])


def test_a_line_that_may_come_from_anywhere_stays_so() -> None:
    """Its sources are unknown, and a known one beside them does not change that."""
    [line] = merged_lines(
        [(SummaryLine("files", "a.py: read 1-2"),), (SummaryLine("files", "a.py: read 3-4", ("7.0",)),)]
    )
    assert ("a.py: read 1-4", ()) == (line.text, line.sources)


def test_nothing_merges_to_nothing() -> None:
    """No summaries, no lines."""
    assert () == merged_lines([])


WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)
PATHS = st.lists(WORDS, min_size=1, max_size=3).map("/".join).map(lambda path: f"{path}.py")
RANGES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 90)).map(lambda at: (at[0], sum(at))), max_size=3)


@given(PATHS, RANGES, st.integers(0, 9), st.lists(WORDS, max_size=3, unique=True), WORDS)
def test_a_files_line_can_be_read_back(
    path: str, ranges: list[tuple[int, int]], edits: int, changes: list[str], why: str
) -> None:
    """The text is the record, so nothing is lost however often summaries are merged."""
    line = FileLine(path, is_read=True).then(
        FileLine(
            path,
            is_read=True,
            ranges=tuple(ranges),
            edits=edits,
            changes=tuple(changes) if edits else (),
            edit_failure=why,
        )
    )
    assert line == FileLine.read(line.text)


@given(WORDS, WORDS, st.booleans(), st.integers(1, 9))
def test_a_commands_line_can_be_read_back(command: str, outcome: str, has_failed: bool, times: int) -> None:
    """The same of commands and runs of tests."""
    line = CommandLine(command, outcome, has_failed, times)
    assert line == CommandLine.read(line.text)


@pytest.mark.parametrize("section", ["files", "commands", "tests"])
def test_work_has_headings_in_the_language_of_the_talk(section: str) -> None:
    """Paths and commands have no language: what people said decides."""
    said = SummaryLine("said", "User: Die Kasse ist noch nicht fertig, und sie soll am Freitag laufen.")
    shown = render_lines([said, SummaryLine(section, "till.py: read 1-4")])
    assert {"files": "### Dateien", "commands": "### Befehle", "tests": "### Tests"}[section] in shown
    assert "### Gesagt" in shown
