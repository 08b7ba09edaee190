"""Industry patterns: the events of a tenant that shares them, and those that arrive in the industry's pool.

The events of the tenant's own thread know whose they are. `pattern_published` and `pattern_withdrawn` are for the
industry's thread: they hold nothing but an opaque name of the share, and the redacted text.
"""

from typing import Annotated

import msgspec

from memory_engine.core.events.base import Event, TextSpan, event
from memory_engine.core.events.delivery import Delivery, Destination
from memory_engine.core.events.roles import Digest, Id, Name, Reference, Role, Seq, Source, SourceSeq


class Finding(TextSpan, frozen=True, gc=False):
    """A text that a redactor took out of the original, and its replacement."""

    replacement: str


class MembershipTerms(msgspec.Struct, frozen=True):
    """A tenant's terms for an industry.

    `secret` makes the names of its shares: it never leaves this thread. Its shares are shown once `min_tenants`
    tenants share the same text.
    """

    industry: Id
    secret: Name
    min_tenants: int = 1


class SharedText(msgspec.Struct, frozen=True):
    """A redacted text in an industry's pool. `share` is opaque: one tenant's share of one text."""

    share: Digest
    text: str
    min_tenants: int = 1


@event("patterns_joined", tracked=True, role="memory", chunks="none")
class PatternsJoined(Event, MembershipTerms, frozen=True):
    """A tenant reads an industry's patterns from here on, and may share some."""

    by: str = ""


@event("patterns_left", role="memory", chunks="none", delivers="ending")
class PatternsLeft(Event):
    """A tenant neither reads nor shares an industry's patterns any more."""

    industry: Id
    by: str = ""
    reason: str = ""


@event("pattern_proposed", tracked=True, role="memory", chunks="none")
class PatternProposed(Event):
    """A promoted line (by its id, in the wording of the event at seq `source`), redacted, for a person to review."""

    industry: Id
    line: Annotated[int, Role(reference=Reference.SEQ, source=Source.WORDS)]
    source: SourceSeq
    text: str
    found: tuple[Finding, ...] = ()
    cautions: tuple[str, ...] = ()
    by: str = ""


@event("pattern_approved", role="memory", chunks="none", delivers="industry")
class PatternApproved(Event):
    """A person approves a proposal (by its seq): `text` is published under the name `share`."""

    proposal: SourceSeq
    industry: Id
    share: Digest
    text: str
    by: str
    min_tenants: int = 1

    def deliveries(self) -> tuple[Delivery, ...]:
        """The text and its name, for the industry."""
        published = PatternPublished(share=self.share, text=self.text, min_tenants=self.min_tenants)
        return (Delivery(Destination("industry", self.industry), published),)


@event("pattern_rejected", tracked=True, role="memory", chunks="none")
class PatternRejected(Event):
    """A person keeps a proposal (by its seq) in."""

    proposal: Seq
    by: str
    reason: str = ""


@event("pattern_revoked", role="memory", chunks="none", delivers="industry")
class PatternRevoked(Event):
    """A share is taken back. Texts that its approvals (`approvals`, seqs) have not delivered yet never leave."""

    industry: Id
    share: Name
    approvals: tuple[Seq, ...] = ()
    by: str = ""
    reason: str = ""

    def withdrawn(self) -> tuple[int, ...]:
        """The approvals whose texts must not leave any more."""
        return self.approvals

    def deliveries(self) -> tuple[Delivery, ...]:
        """The withdrawal for the industry: it reveals neither who withdraws nor why."""
        return (Delivery(Destination("industry", self.industry), PatternWithdrawn(share=self.share)),)


@event("pattern_published", tracked=True, role="memory", chunks="none")
class PatternPublished(Event, SharedText, frozen=True):
    """A redacted text comes into an industry's pool."""


@event("pattern_withdrawn", tracked=True, role="memory", chunks="none")
class PatternWithdrawn(Event):
    """A share is gone from an industry's pool."""

    share: Name
