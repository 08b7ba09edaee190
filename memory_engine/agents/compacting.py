"""A compaction that an agent asks for: it waits a little, and goes on while a model takes longer."""

import asyncio

from memory_engine.compaction.protocol import CompactionReport
from memory_engine.core.cancellation import observed
from memory_engine.errors import CompactorFailed, NothingToCompact
from memory_engine.thread import Thread

COMPACT_WAIT_S = 5.0
"""Seconds that an agent waits for a compaction that it asked for."""


async def compacted_soon(thread: Thread, *, focus: str) -> CompactionReport | CompactorFailed | NothingToCompact | None:
    """Compact a thread: how it ended, or `None` where it goes on in the background. Raises other errors."""
    working = asyncio.ensure_future(thread.compact(focus=focus))
    working.add_done_callback(observed)
    done, _ = await asyncio.wait([working], timeout=COMPACT_WAIT_S)
    if not done:
        return None
    try:
        return working.result()
    except (CompactorFailed, NothingToCompact) as error:
        return error
