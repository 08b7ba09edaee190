"""What a run leaves in the agent's memory: facts for its thread, recorded in the conversation."""

from collections.abc import Sequence

from attrs import frozen

from memory_engine.events import Destination, MemoryShared
from memory_engine.lifecycle.extraction import Fact
from memory_engine.lifecycle.preparing import told

TEXT_CHARS_MAX = 500


@frozen
class Keeper:
    """Makes the events that carry entries from a conversation (`thread_id`) to an agent's memory, as of `now_us`."""

    agent: Destination
    thread_id: str
    now_us: int

    def episode(self, kind: str, texts: Sequence[str], task_id: str, sources: tuple[str, ...]) -> MemoryShared:
        """That a task started, was completed, or failed: the texts, each shortened to one line."""
        return MemoryShared(
            destination=self.agent,
            layer="episodic",
            content=told(texts, TEXT_CHARS_MAX),
            metadata={"event": kind, "agent_id": self.agent.id, "task_id": task_id},
            timestamp_us=self.now_us,
            source_thread=self.thread_id,
            sources=sources,
        )

    def knowledge(self, fact: Fact, task_id: str) -> MemoryShared:
        """Something that was learned."""
        return MemoryShared(
            destination=self.agent,
            layer="semantic",
            content=fact.value,
            key=fact.key,
            metadata={"task_id": task_id},
            timestamp_us=self.now_us,
            source_thread=self.thread_id,
            sources=fact.sources,
        )
