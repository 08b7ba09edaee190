"""Stretches of days that a question names: the second week of a month, the weekend before a date; days as shown."""

import os
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine.core.clock import DAY_US
from memory_engine.recall.question import read_question
from tests.recall.recalled import ASKED, CODE

NOW_US = 1_718_200_000_000_000  # a Wednesday: 2024-06-12, 13:46 UTC


def at_us(year: int, month: int, day: int) -> int:
    """Noon of a day."""
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What was in the second week of November?", (2023, 11, 8), (2023, 11, 14)),
        ("What happened in the week before 16 Nov?", (2023, 11, 9), (2023, 11, 15)),
        ("Where were we the week of 23 August?", (2023, 8, 21), (2023, 8, 27)),
        ("What did she do the week after June 3?", (2023, 6, 4), (2023, 6, 10)),
        ("Who came on the last weekend of May 2023?", (2023, 5, 27), (2023, 5, 28)),
        ("What did I cook the weekend before July 4th?", (2023, 7, 1), (2023, 7, 2)),
        ("Whom did I meet the weekend of 20 May 2023?", (2023, 5, 20), (2023, 5, 21)),
        ("Who called the Friday before 22 October, 2023?", (2023, 10, 20), (2023, 10, 20)),
        ("What broke the Sunday after 25 May, 2023?", (2023, 5, 28), (2023, 5, 28)),
        ("What is on the first Monday of June?", (2023, 6, 5), (2023, 6, 5)),
        ("Where was I in early June?", (2023, 6, 1), (2023, 6, 10)),
        ("Where was I at the end of February?", (2023, 2, 21), (2023, 2, 28)),
        ("What did Ann say the day after 3 June 2023?", (2023, 6, 4), (2023, 6, 4)),
    ],
)
def test_a_question_names_stretches_of_days(text: str, first: tuple[int, int, int], last: tuple[int, int, int]) -> None:
    """They are read as a whole: passages of these days fit best, and all of them are candidates."""
    question = read_question(text, now_us=at_us(2023, 12, 1))
    (stretch,) = question.days
    assert (date(*first), date(*last)) == stretch.stretch(2023)
    assert 1.0 == question.nearness(at_us(*first)) == question.nearness(at_us(*last))
    assert 0.0 == question.nearness(at_us(*first) - 30 * DAY_US)
    assert any(since <= at_us(*first) and at_us(*last) <= until for since, until in question.listed)


@pytest.mark.parametrize(
    "text", ["the fifth weekend of February", "the week after 31 February", "the last day of May 20"]
)
def test_a_stretch_that_no_calendar_has_fits_nothing(text: str) -> None:
    """Nor does it fail."""
    question = read_question(f"What was {text} 2023?", now_us=at_us(2023, 12, 1))
    assert 0.0 <= question.nearness(at_us(2023, 2, 26)) <= 0.5


@pytest.mark.parametrize(
    "question",
    [
        "What happened on 7 May 2023?",
        "Was war am 7. Mai 2023?",
        "Was war am 7. Mai?",
        "¿qué pasó el 7 de mayo de 2023?",
        "Qu'est-ce qui s'est passé le 7 mai 2023 ?",
        "Wat gebeurde er op 7 mei 2023?",
        "Wo war Ann im Mai 2023?",
        "¿dónde estuvo Ann en mayo de 2023?",
    ],
)
async def test_a_day_in_another_language_finds_what_was_said_then(question: str) -> None:
    """The passage of that day comes before those of the same year that say as much."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        for month in (1, 2, 3, 5, 8, 9, 10, 11):
            said = memory_engine.UserMessage(content=f"Trip number {month}: the harbour, with Ann and the children.")
            await thread.dispatch(said, occurred_at=datetime(2023, month, 7, 12, tzinfo=UTC))
        found = await thread.search(question, limit=3)
    assert datetime(2023, 5, 7, 12, tzinfo=UTC) == found[0].at


@given(st.text(max_size=60), st.integers(-(2**62), 2**62))
def test_any_text_has_its_days_read(text: str, at: int) -> None:
    """Whatever it says, and whenever that is compared with."""
    question = read_question(f"the last week of May {text} 31 Feb weekend after 1 January {text}", now_us=NOW_US)
    assert 0.0 <= question.nearness(at) <= 1.0


def test_the_language_of_the_process_changes_nothing(tmp_path: Path) -> None:
    """A month is told in English, whatever the locale: the same log gives the same context, byte for byte."""
    program = shutil.which("localedef")
    sources = Path("/usr/share/i18n/locales/de_DE")
    if program is None or not sources.is_file():
        pytest.skip("needs localedef and the sources of locales, to make a German one")
    made = ["-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
    subprocess.run([program, "--no-archive", *made], check=True, capture_output=True)
    code = f"""
import asyncio, locale
from datetime import UTC, datetime
import memory_engine
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
async def main():
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        said = memory_engine.UserMessage(content={CODE!r})
        await thread.dispatch(said, occurred_at=datetime(2024, 3, 5, tzinfo=UTC))
        await thread.dispatch_all([memory_engine.UserMessage(content=f"word{{n}} " * 40) for n in range(20)])
        alone = memory_engine.ContextPolicy(blocks=())
        context = await thread.context(600, query={ASKED!r}, policy=alone)
        print(f"{{datetime(2024, 3, 5):%B}}", context.recalled_text)
asyncio.run(main())
"""
    where = {**os.environ, "LOCPATH": str(tmp_path), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.startswith("März ")
    assert "[5 March 2024]" in done.stdout
