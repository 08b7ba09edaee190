"""What is learned without a model is right: measured on labelled lines that no rule was made for."""

from collections import Counter

import pytest

from benchmarks.judgement import HALVES, PRECISION_MIN, Half, measure, placed, table

LINES_MIN = 150
LANGUAGES = {"en", "de", "es", "fr"}


@pytest.mark.parametrize("name", ["replies", "statements", "snippets"])
def test_the_tables_are_large_and_apart(name: str) -> None:
    """At least 150 lines in four languages, each once, in two halves."""
    dev, held_out = (table(name, half) for half in HALVES)
    texts = [line.text for line in (*dev, *held_out)]
    assert LINES_MIN <= len(texts) == len(set(texts))
    assert all(Counter(line.language for line in half).keys() >= LANGUAGES for half in (dev, held_out))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("name", "recall_min"), [("replies", 0.75), ("statements", 0.8), ("snippets", 0.8)])
async def test_what_is_learned_without_a_model_is_right(name: str, recall_min: float, half: Half) -> None:
    """Of what promotes a playbook, what is kept as a fact, and what rises to all, at least 95 % should."""
    outcome = await measure(name, half)
    assert outcome.precision >= PRECISION_MIN, [line.text for line in outcome.wrong]
    assert outcome.recall >= recall_min, [line.text for line in outcome.missed]


@pytest.mark.parametrize("half", HALVES)
async def test_a_snippet_rises_to_whom_it_concerns(half: Half) -> None:
    """Preferences go to their user, rules to the tenant: none to the wrong one."""
    targets = {"preference": "preferences", "rule": "agent_md"}
    rising = [line for line in table("snippets", half) if line.label in targets]
    found = [(line, await placed(line.text)) for line in rising]
    assert [] == [(line.text, target) for line, target in found if target not in ("", targets[line.label])]
