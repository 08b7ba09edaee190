"""Many deaths: a process is killed at every stage of its work, and nothing that it was promised is lost."""

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from attrs import define, field

import memory_engine
from memory_engine import Engine, EngineConfig, NewEvent
from memory_engine.engine import kernel_of
from tests.conversations import NEVER
from tests.depth import DEEP
from tests.processes import crash_child
from tests.processes.sound import VERIFIED_EVERY, assert_verified, sound_log

ROOT = Path(__file__).resolve().parents[2]
LIVES = 102 if DEEP else 30
"""Deaths in each of the two rows, which run at once; a third of them at each stage."""
STARTED = "compaction_started"
ENDS = ("compaction_completed", "compaction_failed", "compaction_abandoned")


@define
class Row:
    """One file, the ids begun on it, and the acknowledged ones with their seqs."""

    path: str
    begun: list[list[str]] = field(factory=list)
    durable: dict[str, int] = field(factory=dict)
    deaths: int = 0
    acknowledged: int = 0
    abandoned: int = 0
    unheard: int = 0

    def hear(self, line: bytes) -> None:
        """Take in what a child said before it died."""
        said = json.loads(line)
        self.deaths += 1
        self.begun = said["begin"]
        for acknowledged in said["durable"]:
            self.acknowledged += len(acknowledged)
            self.durable.update(
                (event_id, int(seq)) for event_id, _, seq in (word.rpartition("=") for word in acknowledged)
            )


async def _next_life(server: Process) -> bytes:
    assert server.stdout is not None
    return await server.stdout.readline()


def _go_on(server: Process) -> None:
    assert server.stdin is not None
    server.stdin.write(b"\n")


async def check(row: Row, *, retry: bool, verify: bool) -> None:
    """After a death: nothing acknowledged is lost, nothing is half there, a retry settles what was unknown."""
    async with memory_engine.open(row.path, config=EngineConfig(compaction=NEVER)) as engine:
        logs = {info.id: await sound_log(engine, info.id) for info in await engine.threads()}
        recorded = {stored.id: stored.seq for rows in logs.values() for stored in rows}
        assert row.durable == {event_id: recorded[event_id] for event_id in row.durable if event_id in recorded}
        row.unheard += sum(ids[0] in recorded and ids[0] not in row.durable for ids in row.begun)
        for ids in row.begun:
            assert len({event_id in recorded for event_id in ids}) == 1
            seqs = [recorded[event_id] for event_id in ids if event_id in recorded]
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
        for name in logs:
            await engine.thread(name).state()
        if verify:
            await assert_verified(engine)
        for name in logs:
            await _check_compactions(engine, row, name)
        if retry:
            await _retry(engine, row, recorded)


async def _check_compactions(engine: Engine, row: Row, thread_id: str) -> None:
    """Every compaction that was started has an end, and one that was abandoned changed nothing."""
    rows = await sound_log(engine, thread_id)
    events = [kernel_of(engine).reader.decode(thread_id, stored) for stored in rows if stored.type in (STARTED, *ENDS)]

    def ids(*types: str) -> list[str]:
        return [getattr(event.event, "compaction_id", "") for event in events if event.type in types]

    assert ids(STARTED) == ids(*ENDS)
    assert "" not in ids(STARTED)
    given_up = [event for event in events if event.type == "compaction_abandoned"]
    row.abandoned = max(row.abandoned, len(given_up))
    assert [] == [event.seq for event in given_up if event.operations]


async def _retry(engine: Engine, row: Row, recorded: dict[str, int]) -> None:
    """Dispatching again by id gives the first receipt of what is there, and appends the rest, once."""
    for ids in row.begun:
        thread = engine.thread(ids[0].partition("/")[0])
        receipts = await thread.dispatch_all([NewEvent(crash_child.event_of(event_id), event_id) for event_id in ids])
        for receipt in receipts:
            if receipt.event_id in recorded:
                assert recorded[receipt.event_id] == receipt.seq
            row.durable[receipt.event_id] = receipt.seq
    everything = [stored.id for info in await engine.threads() for stored in await sound_log(engine, info.id)]
    assert len(set(everything)) == len(everything)


async def die_again_and_again(row: Row, seed: int, *, fresh_every: int, lives_count: int = LIVES) -> Row:
    """Kill a child over and over on a growing file; every so often begin with a new one."""
    dice = random.Random(seed)
    first = row.path
    for number in range(0, lives_count, fresh_every):
        row.path, row.durable = f"{first}.{number}", {}
        lives = min(fresh_every, lives_count - number)
        arguments = ("-m", "tests.processes.crash_child", row.path, f"{seed}/{number}", str(lives))
        server = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        try:
            for life in range(lives):
                row.hear(await _next_life(server))
                last = life == lives - 1
                await check(row, retry=dice.random() < 0.5, verify=last or life % VERIFIED_EVERY == 0)
                _go_on(server)
        finally:
            await server.communicate()  # the end of its input is the server's end
    return row


async def test_many_deaths_lose_nothing(tmp_path: Path) -> None:
    """Killed amid dispatches and compactions, the file holds every acknowledged event, whole and in order."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rows = await asyncio.gather(
        die_again_and_again(Row(str(tmp_path / "grows.db")), seed, fresh_every=LIVES),
        die_again_and_again(Row(str(tmp_path / "fresh.db")), seed + 1, fresh_every=LIVES // 3),
    )
    assert 2 * LIVES == sum(row.deaths for row in rows)
    # and they came at the moments that matter: in the middle of compactions, and between a commit and its receipt
    assert 0 < sum(row.abandoned for row in rows)
    assert 0 < sum(row.unheard for row in rows)
