"""Industry patterns: what a tenant shares with others of its industry, and what arrives in the industry's pool.

The events of the tenant's own thread know whose they are. `pattern_published` and `pattern_withdrawn` are for the
industry's thread: they hold nothing but an opaque name of the share, and the redacted text.
"""

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.delivery import Delivery, Destination


class Finding(msgspec.Struct, frozen=True, gc=False):
    """What a redactor took out: the characters `start` to `end` of the text it was given, and what stands there now."""

    kind: str
    start: int
    end: int
    replacement: str


@event("patterns_joined", tracked=True)
class PatternsJoined(Event):
    """A tenant reads an industry's patterns from here on, and may share some.

    `secret` makes the names of its shares: it never leaves this thread. What it shares is shown once `min_tenants`
    tenants share the same.
    """

    industry: str
    secret: str
    min_tenants: int = 1
    by: str = ""


@event("patterns_left", tracked=True)
class PatternsLeft(Event):
    """A tenant neither reads nor shares an industry's patterns any more."""

    industry: str
    by: str = ""
    reason: str = ""


@event("pattern_proposed", tracked=True)
class PatternProposed(Event):
    """A promoted line (by its id, in the wording of the event at seq `source`), redacted, for a person to review."""

    industry: str
    line: int
    source: int
    text: str
    found: tuple[Finding, ...] = ()
    cautions: tuple[str, ...] = ()
    by: str = ""


@event("pattern_approved", tracked=True)
class PatternApproved(Event):
    """A person lets a text out: what is published under the name `share`, for a proposal (by its seq)."""

    proposal: int
    industry: str
    share: str
    text: str
    by: str
    min_tenants: int = 1

    def deliveries(self) -> tuple[Delivery, ...]:
        """The text and its name, for the industry."""
        published = PatternPublished(share=self.share, text=self.text, min_tenants=self.min_tenants)
        return (Delivery(Destination("industry", self.industry), published),)


@event("pattern_rejected", tracked=True)
class PatternRejected(Event):
    """A person keeps a proposal (by its seq) in."""

    proposal: int
    by: str
    reason: str = ""


@event("pattern_revoked", tracked=True)
class PatternRevoked(Event):
    """A share is taken back. What its approvals (`approvals`, seqs) have not delivered yet never leaves."""

    industry: str
    share: str
    approvals: tuple[int, ...] = ()
    by: str = ""
    reason: str = ""

    def deliveries(self) -> tuple[Delivery, ...]:
        """That the share goes, for the industry; neither who says so nor why."""
        return (Delivery(Destination("industry", self.industry), PatternWithdrawn(share=self.share)),)


@event("pattern_published", tracked=True)
class PatternPublished(Event):
    """A redacted text in an industry's pool. `share` is opaque: one tenant's share of one text."""

    share: str
    text: str
    min_tenants: int = 1


@event("pattern_withdrawn", tracked=True)
class PatternWithdrawn(Event):
    """A share is gone from an industry's pool."""

    share: str
