"""A process among several on one database: `python -m tests.postgres.chaos_child URL NAME THREADS ROUNDS LEASE_S`.

It sends to every thread, round after round, compacting as it goes. Each line that it writes is JSON: `["begin", ids]`
before it sends, `["written", {id: seq}]` once it was told so. What the server cannot take while it is away it sends
again.
"""

import asyncio
import json
import os
import random
import sys
from collections.abc import Sequence

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Event, NewEvent, Receipt, Thread, UserMessage
from memory_engine.errors import StorageBusy
from memory_engine.storage.postgres import PostgresStore
from tests.processes.crash_child import Slow

POLICY = CompactionPolicy(threshold=8, tokens_min=0, keep_recent=2, summary_tokens_max=60, blocking="commit")
WAIT_S = 10.0


def threads_of(count: int) -> list[str]:
    """The names of the shared threads."""
    return [f"t{n}" for n in range(count)]


def event_of(event_id: str) -> Event:
    """The event that an id stands for: a retry must say the same."""
    return UserMessage(content=f"{event_id} " + "word " * 20)


def say(word: str, what: object) -> None:
    """One write of one line: whole in the pipe, or not there."""
    os.write(1, json.dumps([word, what]).encode() + b"\n")


async def sent(thread: Thread, ids: Sequence[str]) -> Sequence[Receipt]:
    """Receipts of events, sent again for as long as the server is away."""
    say("begin", ids)
    while True:
        try:
            return await thread.dispatch_all([NewEvent(event_of(id_), id_) for id_ in ids])
        except StorageBusy:
            await asyncio.sleep(0.05)


async def work(url: str, name: str, threads: int, rounds: int, lease_s: float) -> None:
    """All threads at once, one sender each."""
    store = await PostgresStore.open(url, busy_timeout_s=WAIT_S, lease_s=lease_s)
    config = EngineConfig(compaction=POLICY)
    async with memory_engine.open(store, config=config, compactor=Slow()) as engine:

        async def send(thread: Thread) -> None:
            dice = random.Random(f"{name} {thread.id}")
            n = 0
            for _ in range(rounds):
                count = dice.randint(1, 3)
                ids = [f"p{thread.id}/{name}/{n + step}" for step in range(count)]
                n += count
                receipts = await sent(thread, ids)
                say("written", {receipt.event_id: receipt.seq for receipt in receipts})

        await asyncio.gather(*(send(engine.thread(one)) for one in threads_of(threads)))
        await engine.settle()


if __name__ == "__main__":
    url, name, *numbers = sys.argv[1:]
    asyncio.run(work(url, name, int(numbers[0]), int(numbers[1]), float(numbers[2])))
