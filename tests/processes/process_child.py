"""An engine in a process of its own: `python -m tests.processes.process_child`, told what to do line by line.

Each line of standard input is a JSON list, a word and what it needs; each answer is a line of JSON.
What the engine raises is answered as `["error", class, text]`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from msgspec.structs import replace

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, LlmTextResponse, NewEvent, Receipt
from memory_engine.errors import MemoryEngineError, ThreadExists
from memory_engine.storage.sqlite.locking import FileLock
from tests.conversations import LONG
from tests.scripted_compactors import Held, Yielding

Answer = list[object]


class Child:
    """One engine at a time, and what it is doing."""

    def __init__(self) -> None:
        self._open = AsyncExitStack()
        self._engine: Engine | None = None
        self._compactor = Held()
        self._compacting: asyncio.Task[Answer] | None = None
        self._lock: FileLock | None = None

    async def do(self, word: str, *rest: str) -> Answer:
        """Do what a line says."""
        tasks: dict[str, Callable[..., Awaitable[Answer]]] = {
            "open": self.open,
            "create": self.create,
            "append": self.append,
            "together": self.together,
            "conflict": self.conflict,
            "forget": self.forget,
            "pause": self.pause,
            "resume": self.resume,
            "archive": self.archive,
            "compact": self.compact,
            "release": self.release,
            "hold": self.hold,
            "let_go": self.let_go,
            "close": self.close,
        }
        try:
            return await tasks[word](*rest)
        except MemoryEngineError as error:
            return ["error", type(error).__name__, str(error)]

    @property
    def engine(self) -> Engine:
        """The engine that was opened."""
        assert self._engine is not None
        return self._engine

    async def open(self, path: str, busy_timeout_s: str = "20", threshold: str = "", blocking: str = "whole") -> Answer:
        """Open a file; with a threshold threads are compacted by themselves, else by hand and held."""
        policy = CompactionPolicy(enabled=bool(threshold), threshold=int(threshold or 20), tokens_min=0, keep_recent=0)
        policy = replace(policy, blocking=blocking)
        config = EngineConfig(compaction=policy, busy_timeout_s=float(busy_timeout_s))
        self._compactor = Held()
        compactor = Yielding() if threshold else self._compactor
        self._engine = await self._open.enter_async_context(
            memory_engine.open(path, config=config, compactor=compactor)
        )
        return ["opened"]

    async def create(self, thread_id: str) -> Answer:
        """Make a thread, if it is not there."""
        try:
            await self.engine.create_thread(thread_id)
        except ThreadExists:
            return ["exists"]
        return ["created"]

    async def append(self, thread_id: str, *ids: str) -> Answer:
        """Dispatch events one after the other."""
        return [
            _told(await self.engine.dispatch(thread_id, LlmTextResponse(content=i + LONG), event_id=i)) for i in ids
        ]

    async def together(self, thread_id: str, *ids: str) -> Answer:
        """Dispatch events all or none."""
        events = [NewEvent(LlmTextResponse(content=i + LONG), i) for i in ids]
        return [_told(receipt) for receipt in await self.engine.dispatch_all(thread_id, events)]

    async def conflict(self, thread_id: str, event_id: str) -> Answer:
        """Dispatch something else under an id."""
        return [_told(await self.engine.dispatch(thread_id, LlmTextResponse(content="else"), event_id=event_id))]

    async def forget(self, thread_id: str, chunk_id: str) -> Answer:
        """Forget a chunk."""
        return [_told(await self.engine.thread(thread_id).forget(chunk_ids=[chunk_id]))]

    async def pause(self, thread_id: str) -> Answer:
        """Pause a thread."""
        return [_told(await self.engine.thread(thread_id).admin.pause())]

    async def resume(self, thread_id: str) -> Answer:
        """Let a thread go on."""
        return [_told(await self.engine.thread(thread_id).admin.resume())]

    async def archive(self, thread_id: str) -> Answer:
        """Archive a thread."""
        await self.engine.thread(thread_id).admin.archive()
        return ["archived"]

    async def compact(self, thread_id: str) -> Answer:
        """Begin a compaction; answered as soon as the compactor is at work, or will not be asked."""

        async def whole() -> Answer:
            return [*(await self.engine.thread(thread_id).compact()).covered]

        self._compacting = asyncio.ensure_future(whole())
        entered = asyncio.ensure_future(self._compactor.entered.wait())
        await asyncio.wait([self._compacting, entered], return_when=asyncio.FIRST_COMPLETED)
        return ["compacting"]

    async def release(self) -> Answer:
        """Let the compactor answer, and wait for the end of the compaction."""
        assert self._compacting is not None
        self._compactor.release.set()
        return await self._compacting

    async def hold(self, path: str) -> Answer:
        """Take the lock of a file, as a writer does, and keep it."""
        self._lock = FileLock(path, 5.0)
        self._lock.__enter__()
        return ["held"]

    async def let_go(self) -> Answer:
        """Release the lock."""
        assert self._lock is not None
        self._lock.__exit__(None, None, None)
        self._lock.close()
        return ["released"]

    async def close(self) -> Answer:
        """Close the engine."""
        await self._open.aclose()
        return ["closed"]


def _told(receipt: Receipt) -> list[object]:
    return [receipt.event_id, receipt.seq, receipt.hash]


async def main() -> None:
    """Do what is told until there is nothing more."""
    child = Child()
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(json.dumps(await child.do(*json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
