"""The stored verdicts on snippets."""

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.views.promotion.events import PromotionDecided, PromotionScore, PromotionTarget


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision on a snippet, with its reason.

    With an empty `target` it was not promoted; with a target and no `destination` it is proposed. With `noted`, the
    user's thread keeps it for other conversations that find it again.
    """

    snippet: str
    content: str
    trigger: str
    seq: int
    event_id: str
    scores: tuple[PromotionScore, ...] = ()
    target: PromotionTarget = ""
    key: str = ""
    reason: str = ""
    destination: Destination | None = None
    sources: tuple[str, ...] = ()
    noted: bool = False

    @property
    def promoted(self) -> bool:
        """True if the snippet was promoted."""
        return bool(self.target) and not self.is_proposed

    @property
    def is_proposed(self) -> bool:
        """True if it has a target and waits for acceptance."""
        return bool(self.target) and self.destination is None


class PromotionFold:
    """The fold of verdicts, keyed by seq."""

    name = "promotion"
    version = 1
    mode: ProjectionMode = "inline"
    row = Verdict
    events: tuple[type[Event], ...] = (PromotionDecided, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[Verdict], event: RecordedEvent) -> None:
        """Store a verdict; drop those that were forgotten or whose snippet was."""
        body = event.event
        if isinstance(body, MemoryForget):
            for key in [key for key, verdict in rows.items() if _is_forgotten(verdict, body)]:
                rows.drop(key)
        elif isinstance(body, PromotionDecided):
            verdict = Verdict(
                snippet=body.snippet,
                content=body.content,
                trigger=body.trigger,
                seq=event.seq,
                event_id=event.id,
                scores=body.scores,
                target=body.target,
                key=body.key,
                reason=body.reason,
                destination=body.destination,
                sources=body.sources,
                noted=body.noted is not None,
            )
            rows.put(seq_key(event.seq), verdict)


def _is_forgotten(verdict: Verdict, forget: MemoryForget) -> bool:
    # compared as text: a verdict that was dispatched by hand may name anything as its snippet
    made = {str(seq) for seq in forget.seqs}
    return (
        verdict.seq in forget.seqs or verdict.snippet in forget.chunk_ids or verdict.snippet.partition(".")[0] in made
    )


PROMOTION = PromotionFold()
