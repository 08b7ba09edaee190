"""The verdicts of a conversation: what was promoted, what was not, and why."""

import msgspec

from memory_engine.events import Destination, Event, MemoryForget, PromotionDecided, PromotionScore
from memory_engine.events.promotion import PromotionTarget
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.records import RecordedEvent


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided on a snippet, and why. An empty `target`: it was not promoted."""

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

    @property
    def promoted(self) -> bool:
        """Whether the snippet rose."""
        return bool(self.target)


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
            )
            rows.put(f"{event.seq:010d}", verdict)


def _is_forgotten(verdict: Verdict, forget: MemoryForget) -> bool:
    # compared as text: a verdict of another's making may name anything as its snippet
    made = {str(seq) for seq in forget.seqs}
    return (
        verdict.seq in forget.seqs or verdict.snippet in forget.chunk_ids or verdict.snippet.partition(".")[0] in made
    )


PROMOTION = PromotionFold()
