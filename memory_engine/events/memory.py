"""Memory: what the agent or a person says about the memory itself."""

import msgspec

from memory_engine.events.base import Body, Content, Event, event


@event("memory_mark_critical")
class MemoryMarkCritical(Event):
    """These chunks may never be compacted from here on."""

    chunk_ids: tuple[str, ...]


@event("memory_forget")
class MemoryForget(Event):
    """Hide chunks, or all that came of the events at `seqs`, from every view.

    Summary lines that cite a forgotten chunk go too. `summaries` names the summaries that stand
    for what is forgotten, through other summaries too: `Thread.forget` fills it in. The log
    keeps its bytes (to destroy them is another, administrative act).
    """

    chunk_ids: tuple[str, ...] = ()
    seqs: tuple[int, ...] = ()
    reason: str = ""
    summaries: tuple[str, ...] = ()


class InitialChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chunk that a thread starts with. `type` and `retention` are wire names of theirs."""

    content: Content
    type: str = "system"
    retention: str = "critical"
    name: str = ""


@event("thread_seeded")
class ThreadSeeded(Event):
    """The chunks that a thread was created with."""

    chunks: tuple[InitialChunk, ...]

    def bodies(self) -> tuple[Body, ...]:
        """One body for each chunk."""
        return tuple(Body(content=chunk.content) for chunk in self.chunks)
