"""What a log must be after any death, seen without reducing it again: the cheap half of `verify`."""

from memory_engine import Engine
from memory_engine.core.chain import link_hash
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of

VERIFIED_EVERY = 8
"""So many deaths come between two full verifications, which reduce every log again."""


async def sound_log(engine: Engine, thread_id: str) -> list[StoredEvent]:
    """A thread's rows: numbered without a gap, each hash that of its own bytes, the head that of the last row."""
    head = await kernel_of(engine).store.head(thread_id)
    rows = list(await kernel_of(engine).store.read(thread_id, after=0, upto=head.seq, limit=head.seq + 1))
    assert list(range(1, head.seq + 1)) == [row.seq for row in rows]
    hashes = [b"", *(row.hash for row in rows)]
    assert hashes[1:] == [link_hash(row, before) for row, before in zip(rows, hashes, strict=False)]
    assert hashes[-1] == head.hash
    return rows


async def assert_verified(engine: Engine) -> None:
    """Every log, reduced again, gives what was recorded: operations, snapshots, views and index."""
    assert [] == [report.divergence for report in await engine.verify() if not report.ok]
