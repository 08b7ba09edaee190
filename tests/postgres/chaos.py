"""Processes that write to one database together, through crashes of theirs and of the server's; and what must hold.

Each child (`chaos_child`) says on its standard output what it was told is written. When all is over every event that
was acknowledged is there once, at its place; each sender's are in its order; nothing is there that nobody sent.
"""

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from attrs import define, field

import memory_engine
from memory_engine import EngineConfig, NewEvent
from tests.conversations import NEVER
from tests.postgres.chaos_child import event_of, threads_of
from tests.processes.sound import assert_verified, sound_log

ROOT = Path(__file__).resolve().parents[2]
Disturb = Callable[["Crowd"], Awaitable[None]]


@define
class Crowd:
    """Children on one database. `acknowledged` gives each event's seq, `begun` what a sender sent at once, in order."""

    url: str
    threads: int
    rounds: int
    children: list["Process"] = field(factory=list)
    acknowledged: dict[str, int] = field(factory=dict)
    begun: list[list[str]] = field(factory=list)
    compactions: int = 0
    deaths: int = 0
    _hearing: list["asyncio.Task[None]"] = field(factory=list)
    _names: int = 0
    _heard: asyncio.Event = field(factory=asyncio.Event)

    async def join(self, *, lease_s: float = 30.0) -> "Process":
        """Start one more child."""
        self._names += 1
        words = (self.url, f"p{self._names}", str(self.threads), str(self.rounds), str(lease_s))
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.postgres.chaos_child", *words, stdout=PIPE, cwd=ROOT
        )
        self.children.append(child)
        self._hearing.append(asyncio.create_task(self._hear(child)))
        return child

    async def _hear(self, child: "Process") -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            if not line.endswith(b"\n"):
                return
            word, what = json.loads(line)
            if word == "begin":
                self.begun.append(what)
            elif word == "written":
                assert not set(what) & set(self.acknowledged), f"acknowledged twice: {what}"
                self.acknowledged.update(what)
            self._heard.set()

    async def more(self, count: int, *, asleep: "Process | None" = None) -> None:
        """Wait until so many more events are acknowledged, or nobody sends any more but one who is `asleep`."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted and not all(
            task.done() for child, task in zip(self.children, self._hearing, strict=True) if child is not asleep
        ):
            self._heard.clear()
            waiting = asyncio.create_task(self._heard.wait())
            await asyncio.wait([waiting, *self._hearing], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            await asyncio.sleep(0)
            if any(task.done() for task in self._hearing):
                await asyncio.sleep(0.01)  # those that have ended would end the wait at once

    def kill(self, child: "Process") -> None:
        """Kill a child, wherever it is."""
        if child.returncode is None:
            child.send_signal(signal.SIGKILL)
            self.deaths += 1

    async def ended(self) -> None:
        """Wait for all children. One that was not killed has done all its rounds."""
        await asyncio.gather(*self._hearing)
        codes = [await child.wait() for child in self.children]
        assert set(codes) <= {0, -signal.SIGKILL}, codes
        assert self.deaths >= sum(code != 0 for code in codes)


async def crowd(
    url: str, disturb: Disturb | None = None, *, processes: int = 4, threads: int = 16, rounds: int = 6
) -> Crowd:
    """Let processes write to shared threads, disturb them, and check all that was promised when they have ended."""
    async with memory_engine.open(url, config=EngineConfig(compaction=NEVER)) as engine:
        for name in threads_of(threads):
            await engine.create_thread(name)
    all_of_them = Crowd(url, threads, rounds)
    try:
        for _ in range(processes):
            await all_of_them.join()
        if disturb is not None:
            await disturb(all_of_them)
        await all_of_them.ended()
    finally:
        for child in all_of_them.children:
            if child.returncode is None:
                child.kill()
    await check(all_of_them)
    return all_of_them


async def check(crowd: Crowd, url: str = "") -> None:
    """Nothing is lost, doubled, out of order or torn, and every log verifies; a retry finds what the dead had sent."""
    async with memory_engine.open(url or crowd.url, config=EngineConfig(compaction=NEVER)) as engine:
        logs = {info.id: await sound_log(engine, info.id) for info in await engine.threads()}
        rows = [row for log in logs.values() for row in log]
        placed = {row.id: row.seq for row in rows}
        assert len(rows) == len(placed)
        assert crowd.acknowledged == {event_id: placed.get(event_id) for event_id in crowd.acknowledged}
        sent = {event_id for ids in crowd.begun for event_id in ids}
        assert {row.id for row in rows if row.id.startswith("p")} <= sent
        for ids in crowd.begun:
            seqs = [placed[event_id] for event_id in ids if event_id in placed]
            assert seqs in ([], list(range(seqs[0], seqs[0] + len(ids))) if seqs else [])
        for ids in crowd.begun:
            if not set(ids) <= set(crowd.acknowledged):
                receipts = await engine.dispatch_all(ids[0].split("/")[0][1:], [NewEvent(event_of(i), i) for i in ids])
                assert not [r for r in receipts if placed.get(r.event_id, r.seq) != r.seq]
        for log in logs.values():
            _in_order([row.id for row in log])
        crowd.compactions = sum(row.type == "compaction_completed" for row in rows)
        await assert_verified(engine)


def _in_order(ids: Sequence[str]) -> None:
    """Each sender's events are in the order in which it sent them."""
    last: dict[str, int] = {}
    for event_id in ids:
        if event_id.startswith("p"):
            sender, _, number = event_id.rpartition("/")
            assert last.get(sender, -1) < int(number), event_id
            last[sender] = int(number)


async def kill_now_and_then(crowd: Crowd, dice: random.Random, times: int, every: int = 20) -> None:
    """Kill a child after some events, and let another come in its place."""
    for _ in range(times):
        await crowd.more(dice.randint(1, every))
        alive = [child for child in crowd.children if child.returncode is None]
        if not alive:
            return
        crowd.kill(dice.choice(alive))
        await crowd.join()
