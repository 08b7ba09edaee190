"""News as server-sent events: a log's head, or the store's totals.

The store is polled, since other processes write to it; slow polls come less often.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from memory_engine.errors import MemoryEngineError, ThreadNotFound
from memory_engine.inspector.answers import Inspection, Query, encode
from memory_engine.store.protocol import ThreadFilter

POLL_S = 0.5
SHARE = 20
"""A poll waits at least this many times as long as the last one took."""
HEARTBEAT_S = 15.0
"""Seconds without news after which a comment keeps the connection alive."""
TAKES = frozenset({"thread"})
News = dict[str, object]


async def live(inspection: Inspection, query: Query) -> AsyncGenerator[bytes, None]:
    """News of a thread, or of the store where none is named, from now on. Ends when the thread is deleted.

    Raises `ThreadNotFound` before the first news.
    """
    thread_id = query.text("thread", "")
    if thread_id:
        return _told("head", lambda: _head(inspection, thread_id), await _head(inspection, thread_id))
    return _told("threads", lambda: _threads(inspection), await _threads(inspection))


async def _head(inspection: Inspection, thread_id: str) -> News:
    head = await inspection.engine.store.head(thread_id)
    return {"head": head.seq, "status": head.status}


async def _threads(inspection: Inspection) -> News:
    found = await inspection.engine.store.threads(ThreadFilter())
    return {"total": len(found), "events": sum(head.seq for _, head in found)}


async def _told(kind: str, look: Callable[[], Awaitable[News]], first: News) -> AsyncGenerator[bytes, None]:
    known, said_at, took = first, time.monotonic(), 0.0
    yield message(kind, first)
    while True:
        await asyncio.sleep(max(POLL_S, SHARE * took))
        began = time.monotonic()
        try:
            found = await look()
        except ThreadNotFound as error:
            yield message("end", {"why": str(error)})
            return
        except MemoryEngineError:  # busy, or a failing disk: the next poll may succeed
            found = known
        took = time.monotonic() - began
        if found != known:
            yield message(kind, found)
        elif time.monotonic() - said_at >= HEARTBEAT_S:
            yield b": alive\n\n"
        else:
            continue
        known, said_at = found, time.monotonic()


def message(kind: str, news: News) -> bytes:
    """One event of the stream. JSON holds no line break."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode("ascii"), encode(news))
