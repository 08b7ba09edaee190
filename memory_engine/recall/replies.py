"""Replies to what the question asks: of passages that speakers said in turn, those that follow such a question.

"Two, a cat and a dog" has no word of "which pets does she have?", but follows "do you have any pets?". The words before
a passage count for it already (see `ranking`); whether they were a question, only the text shows. It is read for the
few of the best finds that follow on the question's words.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from memory_engine.language.rough import rough_spans
from memory_engine.language.text import terms
from memory_engine.recall.question import Question
from memory_engine.recall.ranking import SCORE_DIGITS, Candidate, Ranked, Statistics, names_identifier, weights_of_terms

REPLIES_AMONG = 40
"""The best finds that are looked at."""
SHARE_MIN = 0.3
"""The least share of the question that must come before a reply."""
WEIGHT = 0.06
"""The addition to the score of a reply to all that the question asks; scores are from 0 to 1."""
ASKED_CHARS_MAX = 800
"""Characters of a text, from its end, in which questions are looked for."""

_MARKS = ("?", "\uff1f", "\u061f")


class Replies:
    """The finds of a search that may reply to what the question asks, and what they may reply to."""

    def __init__(
        self, question: Question, candidates: Mapping[int, Candidate], statistics: Statistics, ranked: Sequence[Ranked]
    ) -> None:
        self._ranked = ranked
        self._weights: Mapping[str, float] = {}
        self.asking: Mapping[int, int] = {}
        """The place before a find, by the find's: the texts to read."""
        if names_identifier(question, statistics):
            return
        self._weights = weights_of_terms(question, tuple(candidates.values()), statistics)
        self._whole = sum(self._weights.values())
        found = (candidates[one.place] for one in ranked[:REPLIES_AMONG] if one.place in candidates)
        self.asking = {
            one.place: one.before.place
            for one in found
            if one.before is not None
            and one.kind == one.before.kind == "message"
            and (one.speaker, one.role) != (one.before.speaker, one.before.role)
            and self._share(one.before.terms) >= SHARE_MIN
        }

    def promoted(self, texts: Mapping[int, str]) -> list[Ranked]:
        """Return the finds in their new order; `texts` are those that were asked for, by place."""
        best = [self._raised(one, texts) for one in self._ranked[:REPLIES_AMONG]]
        best.sort(key=lambda one: -one.score)
        return [*best, *self._ranked[REPLIES_AMONG:]]

    def _raised(self, one: Ranked, texts: Mapping[int, str]) -> Ranked:
        text = texts.get(self.asking.get(one.place, -1), "")
        read = text[-ASKED_CHARS_MAX:]
        if not any(mark in read for mark in _MARKS):
            return one  # most texts: to find their sentences takes longer than all else here
        sentences = (read[start:end].rstrip() for start, end in rough_spans(read))
        asked = [one for one in sentences if one.endswith(_MARKS)]
        added = round(WEIGHT * self._share(terms(" ".join(asked))), SCORE_DIGITS) if asked else 0.0
        if not added:
            return one
        added = min(added, 1.0 - one.score)
        return replace(one, score=round(one.score + added, SCORE_DIGITS), parts={**one.parts, "reply": added})

    def _share(self, said: Sequence[str]) -> float:
        return sum([self._weights.get(term, 0.0) for term in dict.fromkeys(said)]) / (self._whole or 1.0)
