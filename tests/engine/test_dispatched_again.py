"""Events that are dispatched again by their ids: what answering them costs."""

import memory_engine
from memory_engine import NewEvent, UserMessage
from memory_engine.core.threads import LoadedThread
from memory_engine.storage.memory import MemoryStore


class Read(MemoryStore):
    """Remembers which threads were read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    async def load(self, thread_id: str, *, sources: bool = True) -> LoadedThread:
        """Note it, and read."""
        self.loaded.append(thread_id)
        return await super().load(thread_id, sources=sources)


async def test_an_event_of_before_does_not_have_its_thread_read_again() -> None:
    """However long the state is: what was dispatched once is answered from the log."""
    store = Read()
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread("t")
        first = await thread.dispatch_all([NewEvent(UserMessage(content=name), name) for name in "abc"])
        before = list(store.loaded)
        assert first == await thread.dispatch_all([NewEvent(UserMessage(content=name), name) for name in "abc"])
        assert before == store.loaded
        assert 4 == (await thread.dispatch(UserMessage(content="d"))).seq
