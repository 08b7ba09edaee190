"""Which rules of procedural memory apply to a task."""

from collections.abc import Iterable, Sequence

from memory_engine.projections.layers.scoring import inflects, words
from memory_engine.projections.layers.values import ProceduralRule
from memory_engine.recall.words import STOP_WORDS

SHARE_MIN = 0.5
_NOT_TELLING = STOP_WORDS | {"happens", "occurs", "task", "asked", "need", "needs", "someone", "somebody"}


def applicable(rules: Iterable[ProceduralRule], text: str) -> list[ProceduralRule]:
    """The rules whose condition is met by a task's text, as they come.

    A condition is met where the text has at least half of its telling words, in any form; one without
    telling words always is.
    """
    said = list(dict.fromkeys(words(text.casefold())))
    return [rule for rule in rules if _is_met(rule.condition, said)]


def _is_met(condition: str, said: Sequence[str]) -> bool:
    asked = [word for word in dict.fromkeys(words(condition.casefold())) if word not in _NOT_TELLING]
    met = sum(any(inflects(word, other) or inflects(other, word) for other in said) for word in asked)
    return met >= SHARE_MIN * len(asked)
