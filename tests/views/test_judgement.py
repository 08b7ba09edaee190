"""What is learned without a model is right: measured on labelled replies and statements that no rule was made for."""

from collections import Counter

import pytest

from benchmarks.judgement import HALVES, PRECISION_MIN, Half, measure, table

LINES_MIN = 150
LANGUAGES = {"en", "de", "es", "fr"}


@pytest.mark.parametrize("name", ["replies", "statements"])
def test_the_tables_are_large_and_apart(name: str) -> None:
    """At least 150 lines in four languages, each once, in two halves."""
    dev, held_out = (table(name, half) for half in HALVES)
    texts = [line.text for line in (*dev, *held_out)]
    assert LINES_MIN <= len(texts) == len(set(texts))
    assert all(Counter(line.language for line in half).keys() >= LANGUAGES for half in (dev, held_out))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("name", "recall_min"), [("replies", 0.75), ("statements", 0.8)])
async def test_what_is_learned_without_a_model_is_right(name: str, recall_min: float, half: Half) -> None:
    """Of what promotes a playbook, and of what is kept as a fact, at least 95 % should."""
    outcome = await measure(name, half)
    assert outcome.precision >= PRECISION_MIN, [line.text for line in outcome.wrong]
    assert outcome.recall >= recall_min, [line.text for line in outcome.missed]
