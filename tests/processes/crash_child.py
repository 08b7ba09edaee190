"""The process that test_crash kills: `python -m tests.processes.crash_child PATH SEED LIVES`.

A server that has loaded everything once forks a child for each life; the child opens the file,
appends to several threads with compactions under way, and prints what was acknowledged. After
a few lines of that the server kills it, by turns at each of the stages of its work. One line of
JSON for each life goes to standard output: what the child had begun, and what it had been told is
durable.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence

from msgspec.structs import replace

import memory_engine
from memory_engine import (
    Chunk,
    CompactionContext,
    CompactionPolicy,
    CompactionResult,
    EngineConfig,
    Event,
    LlmTextResponse,
    LlmToolCall,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.errors import ThreadExists
from memory_engine.events import SummaryLine
from tests.processes.lives import one_life

THREADS = ("one", "two", "three")
STAGES = {"begin": 12, "compacting": 3, "durable": 12}
"""Where children are killed, by turns: soon after a word that they say, and how often they say it at most before."""
POLICY = CompactionPolicy(threshold=6, tokens_min=0, keep_recent=1, summary_tokens_max=60)


class Slow:
    """Takes a few milliseconds, so that death often comes in the middle of it."""

    name = "slow"

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Anything."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """One line for all."""
        await asyncio.sleep(0.003)
        lines = (SummaryLine(section="current_state", text=f"{len(chunks)} in short"), *context.earlier[:2])
        return CompactionResult(lines=lines)


class Telling(Slow):
    """Says when it begins."""

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """One line for all."""
        say("compacting")
        return await super().compact(chunks, context)


def event_of(event_id: str) -> Event:
    """The event that an id stands for: a retry must say the same."""
    n = int(event_id.rpartition("/")[2])
    text = f"{event_id} " + "word " * 30
    kinds: tuple[Event, ...] = (
        UserMessage(content=text),
        LlmToolCall(calls=(ToolCall(id=f"c{n}", name="look"),), content=text),
        ToolResult(call_id=f"c{n - 1}", content=text),
        LlmTextResponse(content=text),
    )
    return kinds[n % 4]


def say(word: str) -> None:
    """One write of one line: whole in the pipe, or not there."""
    os.write(1, f"{word}\n".encode())


async def live(path: str, life: int) -> None:
    """Append until killed: two senders for each thread, by one and by twos and threes."""
    policy = replace(POLICY, blocking=("whole", "commit")[life % 2])
    async with memory_engine.open(path, config=EngineConfig(compaction=policy), compactor=Telling()) as engine:
        for name in THREADS:
            try:
                await engine.create_thread(name)
            except ThreadExists:
                continue
        threads = [engine.thread(name) for name in THREADS]
        await asyncio.gather(*(send(thread, life, sender) for thread in threads for sender in range(2)))


async def warm(path: str) -> None:
    """Load and build once what every life needs, on a file of its own: a life's few milliseconds are for its work."""
    async with memory_engine.open(path, config=EngineConfig(compaction=POLICY), compactor=Slow()) as engine:
        thread = await engine.create_thread("warm")
        for n in range(POLICY.threshold + 4):
            await thread.dispatch(event_of(f"warm/{n}"))
        await thread.compaction.settle()


async def send(thread: Thread, life: int, sender: int) -> None:
    """Dispatch without end, saying what begins and what was acknowledged."""
    n = 0
    while True:
        count = 1 if sender == 0 else 1 + n % 3
        ids = [f"{thread.id}/{life}/{sender}/{n + step}" for step in range(count)]
        n += count
        say(f"begin {' '.join(ids)}")
        receipts = await thread.dispatch_all([memory_engine.NewEvent(event_of(id_), id_) for id_ in ids])
        say("durable " + " ".join(f"{receipt.event_id}={receipt.seq}" for receipt in receipts))


def told(path: str, life: int, dice: random.Random) -> dict[str, list[list[str]]]:
    """What the child of one life had begun, and what it had been told is durable."""
    stage = tuple(STAGES)[life % len(STAGES)]
    words_of = [line.split() for line in one_life(lambda: live(path, life), dice, STAGES[stage], stage)]
    return {kind: [words for word, *words in words_of if word == kind] for kind in ("begin", "durable")}


def main(path: str, seed: str, lives: str) -> None:
    """Serve that many lives."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(warm(f"{folder}/warm.db"))
    for life in range(int(lives)):
        sys.stdout.write(json.dumps(told(path, life, dice)) + "\n")
        sys.stdout.flush()
        if sys.stdin.readline() == "":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
