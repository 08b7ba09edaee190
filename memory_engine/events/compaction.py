"""Compaction, recorded and never re-run: its result is an event."""

from typing import Literal

import msgspec

from memory_engine.events.base import Body, Event, SummaryLine, event
from memory_engine.usage import Usage


class Replacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands in place of the covered chunks: the lines of one summary, or nothing (dropped)."""

    covers: tuple[str, ...]
    lines: tuple[SummaryLine, ...] = ()


@event("compaction_started")
class CompactionStarted(Event):
    """The queue is blocked and a compactor is at work on these chunks until `deadline_us`."""

    compaction_id: str
    trigger: Literal["auto", "manual", "hard"]
    chunk_ids: tuple[str, ...]
    compactor: str
    owner: str
    deadline_us: int


@event("compaction_completed")
class CompactionCompleted(Event):
    """The result: what replaces what, by whom, and what it cost."""

    compaction_id: str
    trigger: Literal["auto", "manual", "hard"]
    replacements: tuple[Replacement, ...]
    compactor: str
    model: str = ""
    usage: Usage = Usage()
    tokens_before: int = 0
    tokens_after: int = 0

    def bodies(self) -> tuple[Body, ...]:
        """One body for each replacement."""
        return tuple(Body(lines=replacement.lines) for replacement in self.replacements)


@event("compaction_failed")
class CompactionFailed(Event):
    """The compactor failed or its result was refused; nothing was replaced."""

    compaction_id: str
    compactor: str
    reason: str
    error: str = ""
    usage: Usage = Usage()


@event("compaction_abandoned")
class CompactionAbandoned(Event):
    """A compaction that nobody can finish any more; the originals stand."""

    compaction_id: str
    reason: str
