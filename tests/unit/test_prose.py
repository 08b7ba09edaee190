"""Prose is what the author of a text says: code, data, logs and the words of others are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.language.prose import GAP, is_all_prose, prose, sentences

NOT_PROSE = [
    "```python\nmy_name = 'Ada'\n```",
    "~~~\nalways\n",
    "    indented = code",
    "\tx",
    "x: int = 5",
    "y = x + 1",
    "import os",
    "from a.b import c",
    "def f(x):\n    return x",
    "const a = 1;",
    "for (let i = 0; i < n; i++) {",
    "db:\n  user: app\n  password: hunter2",
    "- name: web\n  image: app:1",
    '{"a": 1, "b": [2]}',
    '"key": "value",',
    "[server]\nport = 8080\nhost = example.org",
    "SELECT name FROM users WHERE id = 5",
    "select a, b from t where x = 1",
    "$ pip install memory",
    "git commit -m x",
    ">>> print(1)",
    "<div class='a'>text</div>",
    "2024-05-01 12:00:01 INFO my.service is starting",
    "[12:00:01] my train is late",
    "ERROR: connection refused",
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nValueError: my value is wrong',
    "at com.acme.Main.run(Main.java:5)",
    "diff --git a/x b/x",
    "> I prefer long answers",
    "> quoted\n> lines",
    "On Mon, Nov 3, 2025 at 9:12 AM Ana <ana@example.org> wrote:\nMy address is 12 High Street.",
    "Am 03.11.2025 um 09:12 schrieb Ana:\nMeine Adresse ist Hauptstraße 12.",
    "-----Original Message-----\nMy address is 12 High Street.",
    "From: Ana\nSubject: Address\nMy address is 12 High Street.",
    "| a | b |\n|---|---|",
    "",
]
PROSE = [
    "My time zone is CET.",
    "On Monday I wrote a mail.",
    "Return to sender, please.",
    "Select the best from the list.",
    "Cat people are great.",
    "Note: our CFO is Dana.",
    "From Monday on, use CET.",
    "Error rates usually rise on Sundays.",
    "- Revenue dips every Sunday.",
    "Set up a call with Ana tomorrow!",
    "¿Mi zona horaria es CET?",
    "周日收入总是下降。",
]


@pytest.mark.parametrize("text", NOT_PROSE)
def test_code_data_logs_and_quotations_are_no_prose(text: str) -> None:
    """Nothing is left of them, nor of what stands below the head of a quoted mail."""
    assert [] == sentences(text)


@pytest.mark.parametrize("text", PROSE)
def test_prose_stays(text: str) -> None:
    """A sentence that begins like code is one all the same."""
    assert is_all_prose(text)
    assert [text.removeprefix("- ")] == sentences(text)


def test_prose_around_code_stays() -> None:
    """Only the block goes."""
    text = "Here it is:\n```\nmy_x = 1\n```\nI prefer tabs.\n\n> no, spaces\n\nThanks"
    assert ["Here it is:", "I prefer tabs.", "Thanks"] == sentences(text)
    assert not is_all_prose(text)


@pytest.mark.parametrize("text", ["Use `x`.", 'He said "x".', "Er meinte: „x“", "« x », dit-il", "See https://x.org/a"])
def test_code_and_quotations_in_a_sentence_leave_a_gap(text: str) -> None:
    """So that a rule sees that something stood there."""
    assert GAP in prose(text)
    assert is_all_prose(text)


@given(st.text(max_size=300))
def test_any_text_has_prose(text: str) -> None:
    """Each line of the prose is one of the text, but for the gaps."""
    lines = {line.strip() for line in text.splitlines()}
    assert all(line.strip() in lines or GAP in line for line in prose(text).splitlines())
