"""The verdicts on snippets, as they are kept."""

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.views.promotion.events import PromotionDecided, PromotionScore, PromotionTarget


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision on a snippet, and why. An empty `target`: it was not promoted. No `destination` for it: proposed.

    With `noted` its user's thread keeps it, for conversations that find it again.
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
        """Whether the snippet rose."""
        return bool(self.target) and not self.is_proposed

    @property
    def is_proposed(self) -> bool:
        """Whether it names a target and waits for somebody to accept it."""
        return bool(self.target) and self.destination is None


class PromotionFold:
    """Every verdict, by its seq."""

    name = "promotion"
    version = 1
    mode: ProjectionMode = "inline"
    row = Verdict
    events: tuple[type[Event], ...] = (PromotionDecided, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[Verdict], event: RecordedEvent) -> None:
        """Note a verdict; drop those that are forgotten, or whose snippet is."""
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
