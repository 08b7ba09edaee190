"""Judging snippets: every scorer speaks, one that reaches its threshold is enough, twins rise once."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from memory_engine.events import PromotionScore
from memory_engine.projections.promotion.scoring import Explicit, PromotionContext, Scorer, embedded_scorers
from memory_engine.projections.promotion.wording import same_text, says_the_same
from memory_engine.projections.scratchpad import Snippet

AT_ONCE = 8
"""Scorings under way at a time: a scorer may ask a model."""
SHOWN_CHARS = 60
PROMOTED_BYTES_MAX = 8_000
"""What rises stands in every conversation of a user or tenant from there on: a few sentences, not a document."""


class Judgement(msgspec.Struct, frozen=True):
    """What was found about a snippet. `skipped` says why there is no verdict; else `rises` is the verdict."""

    snippet: Snippet
    rises: bool = False
    reason: str = ""
    scores: tuple[PromotionScore, ...] = ()
    skipped: str = ""


class Judge:
    """Applies scorers. Without any of the criterion `explicit`, the embedded one speaks too: a request counts."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self._scorers = tuple(scorers) or embedded_scorers()
        if all(scorer.criterion != "explicit" for scorer in self._scorers):
            self._scorers += (Explicit(),)

    async def judge(
        self, snippets: Sequence[Snippet], context: PromotionContext, promoted: Mapping[str, str]
    ) -> list[Judgement]:
        """One judgement a snippet, in their order.

        `promoted` are the texts of this conversation's snippets that rose before, by snippet id;
        `context.promoted` is what stands in the targets. Raises what a scorer raises.
        """
        fresh = [snippet for snippet in snippets if snippet.id not in promoted and not snippet.recalled]
        scored = dict(zip((s.id for s in fresh), await self._scores(fresh, context), strict=True))
        risen = dict(promoted)
        judgements = []
        for snippet in snippets:
            judgement = _verdict(snippet, scored.get(snippet.id, ()), context, risen)
            if judgement.rises:
                risen[snippet.id] = snippet.text
            judgements.append(judgement)
        return judgements

    async def _scores(self, snippets: Sequence[Snippet], context: PromotionContext) -> list[tuple[PromotionScore, ...]]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(snippet: Snippet, scorer: Scorer) -> PromotionScore:
            async with turns:
                score = await scorer.score(snippet, context)
            return PromotionScore(
                criterion=scorer.criterion,
                value=score.value,
                threshold=scorer.threshold,
                reason=score.reason,
                scorer=scorer.name,
                model=score.model,
                usage=score.usage,
            )

        asked = [asyncio.ensure_future(one(snippet, scorer)) for snippet in snippets for scorer in self._scorers]
        try:
            scores = await asyncio.gather(*asked)
        finally:
            for task in asked:
                task.cancel()
        width = len(self._scorers)
        return [tuple(scores[n * width : (n + 1) * width]) for n in range(len(snippets))]


def _verdict(
    snippet: Snippet, scores: tuple[PromotionScore, ...], context: PromotionContext, risen: Mapping[str, str]
) -> Judgement:
    """What the scores come to, with what has risen already."""
    if snippet.id in risen:
        return Judgement(snippet, skipped="it was promoted before")
    if snippet.recalled:
        return Judgement(snippet, reason="recalled: memory that was written back, nothing that was found out here")
    passed = [score for score in scores if score.value >= score.threshold]
    if not passed:
        best = max(scores, key=lambda score: score.value - score.threshold)
        return Judgement(
            snippet, reason=f"no criterion reaches its threshold; the nearest: {_said(best)}", scores=scores
        )
    size = len(snippet.text.encode())
    if size > PROMOTED_BYTES_MAX:
        why = f"too long to be read every time: {size} bytes, the limit is {PROMOTED_BYTES_MAX}"
        return Judgement(snippet, reason=why, scores=scores)
    if snippet.id not in context.requested:
        twin = next((known for known, text in risen.items() if says_the_same(snippet.text, text)), "")
        if twin:
            return Judgement(snippet, skipped=f"it says the same as {twin}, which was promoted")
        standing = next((text for text in context.promoted if _says_more(snippet.text, text)), "")
        if standing:
            return Judgement(
                snippet, reason=f"the same stands there already: {standing[:SHOWN_CHARS]!r}", scores=scores
            )
    return Judgement(snippet, rises=True, reason="; ".join(_said(score) for score in passed), scores=scores)


def _says_more(text: str, standing: str) -> bool:
    """Whether a text is a near-duplicate of another and not the very same, which would add its source to it."""
    return says_the_same(text, standing) and same_text(text) != same_text(standing)


def _said(score: PromotionScore) -> str:
    sign = "≥" if score.value >= score.threshold else "<"
    return f"{score.criterion} {score.value:.2f} {sign} {score.threshold:.2f} ({score.reason})"
