"""Processes that share a database are killed at random moments, and nothing that they were promised is lost."""

import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path

import memory_engine
from memory_engine import EngineConfig, NewEvent
from tests.conversations import NEVER
from tests.postgres_server import new_url
from tests.processes import crash_child
from tests.processes.sound import assert_verified, sound_log
from tests.processes.test_crash import Row

ROOT = Path(__file__).resolve().parents[2]
LIVES = 8


async def check(row: Row) -> None:
    """What was acknowledged is there, at its seq; what was begun together is there together, and in its order."""
    async with memory_engine.open(row.path, config=EngineConfig(compaction=NEVER)) as engine:
        logs = {info.id: await sound_log(engine, info.id) for info in await engine.threads()}
        recorded = {stored.id: stored.seq for rows in logs.values() for stored in rows}
        assert row.durable == {event_id: recorded.get(event_id) for event_id in row.durable}
        for ids in row.begun:
            seqs = [recorded[event_id] for event_id in ids if event_id in recorded]
            assert seqs in ([], list(range(seqs[0], seqs[0] + len(ids))) if seqs else [])
        for ids in row.begun[-2:]:  # a retry settles what the dead were not told
            events = [NewEvent(crash_child.event_of(event_id), event_id) for event_id in ids]
            receipts = await engine.dispatch_all(ids[0].partition("/")[0], events)
            row.durable.update((receipt.event_id, receipt.seq) for receipt in receipts)


async def test_killed_processes_lose_nothing_that_was_acknowledged() -> None:
    """Eight deaths, with compactions under way and several senders for each thread."""
    row = Row(new_url())
    words = "-m", "tests.processes.crash_child", row.path, "seed", str(LIVES)
    # a line names all events of a life, and a quick machine has many
    server = await create_subprocess_exec(sys.executable, *words, stdin=PIPE, stdout=PIPE, cwd=ROOT, limit=1 << 26)
    assert server.stdout is not None
    assert server.stdin is not None
    while line := await server.stdout.readline():
        row.hear(line)
        await check(row)
        server.stdin.write(b"\n")
    await server.wait()
    assert (LIVES, True) == (row.deaths, row.acknowledged > 0)
    async with memory_engine.open(row.path, config=EngineConfig(compaction=NEVER)) as engine:
        await assert_verified(engine)
