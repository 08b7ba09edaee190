"""Scratchpad: the findings of a flow, in sentences, for the flows after it."""

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import ChunkId, Name, SourceChunkId
from memory_engine.runtime.config import SNIPPETS_MAX


@event("scratchpad_written", role="memory")
class ScratchpadWritten(Event):
    """A snippet. Above `cap` snippets the least recently used go.

    `read` are the snippets (chunk ids) that were read since the last write, in order: reading counts as use,
    and evictions must follow from the log. `recalled` marks memory that was written back, not found out.
    """

    content: str
    flow: Name = ""
    read: tuple[SourceChunkId, ...] = ()
    cap: int = SNIPPETS_MAX
    recalled: bool = False


@event("scratchpad_removed", role="memory")
class ScratchpadRemoved(Event):
    """Snippets go: those of the given chunk ids, or all."""

    chunk_ids: tuple[ChunkId, ...] = ()
    all: bool = False
