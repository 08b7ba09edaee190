"""Events of promotion: snippets become preferences of the user or lines of the tenant's `agent.md`."""

from typing import Literal

import msgspec

from memory_engine.core.events.base import Content, Event, event
from memory_engine.core.events.delivery import Delivery, Destination
from memory_engine.core.events.roles import Id, Name, SeqText, SourceChunkId, SourceEventId
from memory_engine.errors.effects import Usage
from memory_engine.views.preferences.events import PreferenceUpdated, PromotedName

PromotionTarget = Literal["", "preferences", "agent_md"]
"""Target of a promoted snippet; empty if it is not promoted."""


@event("report_saved", role="memory", chunks="none")
class ReportSaved(Event):
    """A person saved an analysis, which triggers judging the snippets of the scratchpad."""

    title: str
    content: Content = ""
    flow: Name = ""


class PromotionScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The score of a snippet by one criterion: 0 to 1, with its threshold and reason."""

    criterion: Id
    value: float
    threshold: float
    reason: str = ""
    scorer: Id = ""
    model: Id = ""
    usage: Usage | None = None


@event("promotion_decided", version=2, role="memory", chunks="none", delivers="tenant")
class PromotionDecided(Event):
    """The verdict on one snippet (a chunk id), with the scores behind it.

    With a `target` the text is delivered to the thread `destination`, for preferences under `key`; without a
    `destination` it is only proposed. Without a target, the snippet may be `noted` for the user, so that their other
    conversations may find it again. `trigger` names the cause of the verdict. `sources` are the ids of the events in
    `source_thread` that the snippet came from. Version 1 had no `noted` (see `upcast_promotion_decided_v1`).
    """

    snippet: SourceChunkId
    content: str
    trigger: Id
    scores: tuple[PromotionScore, ...] = ()
    target: PromotionTarget = ""
    key: PromotedName = ""
    reason: str = ""
    destination: Destination | None = None
    source_thread: Id = ""
    sources: tuple[SourceEventId, ...] = ()
    noted: Destination | None = None

    def deliveries(self) -> tuple[Delivery, ...]:
        """Return the deliveries: the `agent.md` line or the user's preference, and the note for the user."""
        found = []
        if self.destination is not None and self.target:
            found.append(Delivery(self.destination, self._risen()))
        if self.noted is not None:
            note = FindingNoted(content=self.content, source_thread=self.source_thread, sources=self.sources)
            found.append(Delivery(self.noted, note))
        return tuple(found)

    def _risen(self) -> Event:
        if self.target == "agent_md":
            return AgentMdPromoted(
                content=self.content, reason=self.reason, source_thread=self.source_thread, sources=self.sources
            )
        return PreferenceUpdated(
            key=self.key, value=self.content, origin="promotion", reason=self.reason, sources=self.sources
        )


def upcast_promotion_decided_v1(payload: dict[str, object]) -> dict[str, object]:
    """Upcast a verdict of version 1, which delivered only promoted snippets: nothing is noted."""
    return payload


@event("finding_noted", tracked=True, role="memory", chunks="none")
class FindingNoted(Event):
    """A snippet that one of a user's conversations found and did not promote. Other conversations may find it again.

    `sources` are the ids of the events in `source_thread` that it came from.
    """

    content: str
    source_thread: Id = ""
    sources: tuple[SourceEventId, ...] = ()


@event("agent_md_uploaded", tracked=True, role="memory", chunks="none")
class AgentMdUploaded(Event):
    """A tenant's `agent.md` as a person wrote it. Promoted lines are kept separately and stay."""

    content: str


@event("agent_md_promoted", tracked=True, role="memory", chunks="none")
class AgentMdPromoted(Event):
    """A line promoted to a tenant's `agent.md`; `sources` are the ids of the events in `source_thread` behind it."""

    content: str
    reason: str = ""
    source_thread: Id = ""
    sources: tuple[SourceEventId, ...] = ()


@event("agent_md_removed", role="memory", chunks="none", delivers="ending")
class AgentMdRemoved(Event):
    """Promoted lines were removed, by id."""

    lines: tuple[SeqText, ...]
    reason: str = ""
