"""What a rerun kept, changed, left out and added."""

from attrs import asdict, define, frozen

from memory_engine.events import CompactionCompleted, CompactionFailed, Event, UnknownEvent
from memory_engine.usage import Usage


@frozen(kw_only=True)
class Refused:
    """An event that no longer fits what the change left, and why; `event_skipped` stands in its place.

    A compaction whose chunks are not all there any more is one: `compaction_abandoned` stands in the place of its end.
    """

    seq: int
    event_type: str
    why: str


@define(kw_only=True)
class EventCounts:
    """Events of the original by what became of them, and those that are new in the rerun.

    `shared`: the past that both have in common. `kept` came out with the bytes that they had, `renumbered` name others
    by their new places. `left_out` are the compactions of the original where they are made anew, `added` those made.
    """

    shared: int = 0
    kept: int = 0
    renumbered: int = 0
    replaced: int = 0
    skipped: int = 0
    refused: int = 0
    left_out: int = 0
    inserted: int = 0
    added: int = 0

    def note(self, what: str) -> None:
        """One more event of this kind."""
        setattr(self, what, getattr(self, what) + 1)

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return asdict(self)


@frozen(kw_only=True)
class Compactions:
    """The compactions of one side after the shared past, and what their models took.

    Tokens are estimates: `tokens_before` of what was replaced, `tokens_after` of what stands there.
    """

    completed: int = 0
    failed: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()

    def plus(self, event: Event | UnknownEvent) -> "Compactions":
        """With one more event of the log counted in."""
        match event:
            case CompactionCompleted():
                return Compactions(
                    completed=self.completed + 1,
                    failed=self.failed,
                    tokens_before=self.tokens_before + event.tokens_before,
                    tokens_after=self.tokens_after + event.tokens_after,
                    usage=self.usage.plus(event.usage),
                )
            case CompactionFailed():
                return Compactions(
                    completed=self.completed,
                    failed=self.failed + 1,
                    tokens_before=self.tokens_before,
                    tokens_after=self.tokens_after,
                    usage=self.usage.plus(event.usage),
                )
        return self

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "cost_usd": self.usage.cost_usd,
            },
        }
