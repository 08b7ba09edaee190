"""Where a promoted snippet goes: to its user's preferences, or to the tenant's `agent.md`."""

import hashlib
from collections.abc import Callable
from typing import get_args

import msgspec
from attrs import frozen

from memory_engine.errors import InvalidEvent
from memory_engine.events import Destination, PromotionDecided
from memory_engine.events.promotion import PromotionTarget
from memory_engine.projections.promotion.phrases import ASKING, AT_LARGE, LASTING
from memory_engine.projections.promotion.wording import folded, quoted, same_text, words_of
from memory_engine.projections.scratchpad import Snippet

KEY_PREFIX = "promoted:"
SLUG_BYTES_MAX = 48
DIGEST_CHARS = 8
TARGETS: tuple[str, ...] = get_args(PromotionTarget)


@frozen
class Placement:
    """A target, for preferences the key (empty: one made from the text), and why it is the one.

    Raises `InvalidEvent` for a target that there is not: whatever is meant, it is no preference.
    """

    target: PromotionTarget
    key: str = ""
    reason: str = ""

    def __attrs_post_init__(self) -> None:
        if self.target not in TARGETS:
            why = f"there is no target {self.target!r}; use one of {', '.join(map(repr, TARGETS))}"
            raise InvalidEvent(PromotionDecided.event_type, "target", why)


Route = Callable[[Snippet], Placement]
"""Chooses a target for a snippet that is to be promoted; an empty target keeps it where it is."""


def route_by_wording(snippet: Snippet) -> Placement:
    """What speaks of one user's own way of working goes to the preferences, everything else to `agent.md`."""
    text = folded(snippet.text)
    shown = (*LASTING.found_in(text), *ASKING.found_in(text))
    if shown and not AT_LARGE.found_in(text):
        return Placement("preferences", reason=f"it speaks of the user: {quoted(shown)}")
    return Placement("agent_md", reason="it speaks of the business, not of one user")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose conversation it is; empty where nobody said."""

    user_id: str
    tenant_id: str

    def settle(self, placement: Placement, snippet: Snippet) -> tuple[Placement, Destination | None]:
        """Where a placement leads with the owners that there are.

        Without a tenant, what was meant for `agent.md` goes to the user. What is a user's own never goes
        to the tenant: without a user it stays in the scratchpad.
        """
        reason = placement.reason
        if placement.target == "agent_md" and self.tenant_id:
            return placement, Destination("tenant", self.tenant_id)
        if placement.target == "agent_md":
            reason += "; the conversation has no tenant"
        if placement.target and self.user_id:
            key = placement.key or preference_key(snippet.text)
            return Placement("preferences", key, reason), Destination("user", self.user_id, self.tenant_id)
        if placement.target:
            reason += "; the conversation has no user"
        return Placement("", reason=f"{reason}; kept in the scratchpad"), None


def preference_key(text: str) -> str:
    """A key made from a text: its first words, and a digest, so that other texts get other keys."""
    digest = hashlib.sha256(same_text(text).encode()).hexdigest()[:DIGEST_CHARS]
    slug = "-".join(words_of(folded(text)))
    short = slug.encode()[:SLUG_BYTES_MAX].decode(errors="ignore").rstrip("-")
    return f"{KEY_PREFIX}{short}-{digest}" if short else f"{KEY_PREFIX}{digest}"
