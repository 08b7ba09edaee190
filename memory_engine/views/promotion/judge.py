"""Judges snippets: one score at its threshold is enough to promote, and near-duplicates are promoted once.

A verdict says whether a snippet is promoted, and why. A route decides whether it goes to the user's preferences or to
the tenant's `agent.md`.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import get_args

import msgspec
from attrs import frozen

from memory_engine.core.cancellation import kept_time
from memory_engine.core.events.delivery import Destination
from memory_engine.errors import InvalidEvent
from memory_engine.language.prose import is_all_prose
from memory_engine.language.secrets import holds_secret
from memory_engine.views.promotion.events import PromotionDecided, PromotionScore, PromotionTarget
from memory_engine.views.promotion.scorers import Explicit, PromotionContext, Scorer, embedded_scorers
from memory_engine.views.promotion.wording import (
    is_first_person,
    normalized,
    quoted,
    same_text,
    says_the_same,
    wordings,
    words_of,
)
from memory_engine.views.scratchpad.view import Snippet

AT_ONCE = 8
"""Maximum number of scorings at a time, since a scorer may call a model."""
SHOWN_CHARS = 60
PROMOTED_BYTES_MAX = 8_000
"""Maximum size of a promoted snippet in bytes, since every later conversation of the user or tenant holds it."""


class Judgement(msgspec.Struct, frozen=True):
    """The judgement of a snippet. `skipped` says why there is no verdict; otherwise `rises` says if it is promoted.

    `worth_noting`: it may be promoted once other conversations find it again.
    """

    snippet: Snippet
    rises: bool = False
    reason: str = ""
    scores: tuple[PromotionScore, ...] = ()
    skipped: str = ""
    worth_noting: bool = False


class Judge:
    """Applies scorers; without one for the criterion `explicit` it adds the embedded one: requests always count."""

    def __init__(self, scorers: Sequence[Scorer], *, timeout_s: float = inf) -> None:
        """A scorer that takes longer than `timeout_s` seconds for a snippet raises `CallTimedOut`."""
        self._timeout_s = timeout_s
        self._scorers = tuple(scorers) or embedded_scorers()
        if all(scorer.criterion != "explicit" for scorer in self._scorers):
            self._scorers += (Explicit(),)

    async def judge(
        self, snippets: Sequence[Snippet], context: PromotionContext, promoted: Mapping[str, str]
    ) -> list[Judgement]:
        """Return one judgement per snippet, in their order.

        `promoted` maps the ids of this conversation's promoted snippets to their texts; `context.promoted` holds the
        texts in the targets. Raises the errors of a scorer.
        """
        fresh = [snippet for snippet in snippets if snippet.id not in promoted and not _refusal(snippet)]
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
                score = await kept_time(f"scorer {scorer.name!r}", scorer.score(snippet, context), self._timeout_s)
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
    """Return the judgement that follows from the scores and from the texts promoted so far."""
    if snippet.id in risen:
        return Judgement(snippet, skipped="it was promoted before")
    if refusal := _refusal(snippet):
        return Judgement(snippet, reason=refusal)
    passed = [score for score in scores if score.value >= score.threshold]
    if not passed:
        best = max(scores, key=lambda score: score.value - score.threshold)
        why = f"no criterion reaches its threshold; the nearest: {_score_text(best)}"
        return Judgement(snippet, reason=why, scores=scores, worth_noting=is_all_prose(snippet.text))
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
    return Judgement(snippet, rises=True, reason="; ".join(_score_text(score) for score in passed), scores=scores)


def _refusal(snippet: Snippet) -> str:
    """Return why a snippet can never be promoted, so that no scorer reads it; empty if it can."""
    if snippet.recalled:
        return "recalled: memory that was written back, nothing that was found out here"
    return "it tells a secret" if holds_secret(snippet.text) else ""


def _says_more(text: str, standing: str) -> bool:
    """Return True if a near-duplicate differs from the other text. An identical one would add its source to it."""
    return says_the_same(text, standing) and same_text(text) != same_text(standing)


def _score_text(score: PromotionScore) -> str:
    sign = "≥" if score.value >= score.threshold else "<"
    return f"{score.criterion} {score.value:.2f} {sign} {score.threshold:.2f} ({score.reason})"


KEY_PREFIX = "promoted:"
SLUG_BYTES_MAX = 48
DIGEST_CHARS = 8
TARGETS: tuple[str, ...] = get_args(PromotionTarget)


@frozen
class Placement:
    """A target, the key for a preference (empty: made from the text), and the reason.

    Raises `InvalidEvent` if the target is unknown.
    """

    target: PromotionTarget
    key: str = ""
    reason: str = ""

    def __attrs_post_init__(self) -> None:
        if self.target not in TARGETS:
            why = f"there is no target {self.target!r}; use one of {', '.join(map(repr, TARGETS))}"
            raise InvalidEvent(PromotionDecided.event_type, "target", why)


PlacementRoute = Callable[[Snippet], Placement]
"""Function that chooses the target of a snippet to be promoted; with an empty target it stays in the scratchpad."""


def route_by_wording(snippet: Snippet) -> Placement:
    """Route snippets about one user to their preferences, all others to `agent.md`.

    A text in the first person is always about its speaker.
    """
    text = normalized(snippet.text)
    if is_first_person(snippet.text):
        return Placement("preferences", reason="it is said in the first person")
    shown = (*wordings().lasting.found_in(text), *wordings().asking.found_in(text))
    if shown and not wordings().at_large.found_in(text):
        return Placement("preferences", reason=f"it speaks of the user: {quoted(shown)}")
    return Placement("agent_md", reason="it speaks of the business, not of one user")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The user and the tenant of a conversation; empty if unknown."""

    user_id: str
    tenant_id: str

    def choose_destination(self, placement: Placement, snippet: Snippet) -> tuple[Placement, Destination | None]:
        """Choose the destination of a placement, given the conversation's user and tenant.

        Without a tenant, a snippet for `agent.md` goes to the user. A user's own snippet, or one in the first person,
        never goes to the tenant, even on request: without a user it stays in the scratchpad.
        """
        reason = placement.reason
        is_own = is_first_person(snippet.text)
        if placement.target == "agent_md" and is_own:
            reason += "; in the first person it is the user's own"
        elif placement.target == "agent_md" and self.tenant_id:
            return placement, Destination("tenant", self.tenant_id)
        elif placement.target == "agent_md":
            reason += "; the conversation has no tenant"
        if placement.target and self.user_id:
            key = placement.key or preference_key(snippet.text)
            return Placement("preferences", key, reason), Destination("user", self.user_id, self.tenant_id)
        if placement.target:
            reason += "; the conversation has no user"
        return Placement("", reason=f"{reason}; kept in the scratchpad"), None


def preference_key(text: str) -> str:
    """Make a key from a text: its first words and a digest, so that different texts get different keys."""
    digest = hashlib.sha256(same_text(text).encode()).hexdigest()[:DIGEST_CHARS]
    slug = "-".join(words_of(normalized(text)))
    short = slug.encode()[:SLUG_BYTES_MAX].decode(errors="ignore").rstrip("-")
    return f"{KEY_PREFIX}{short}-{digest}" if short else f"{KEY_PREFIX}{digest}"
