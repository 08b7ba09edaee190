"""News as they come: a log's head, or the store's totals, as server-sent events.

The store is polled, since other processes write to it. A poll that takes long comes less often.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from memory_engine.errors import MemoryEngineError, ThreadNotFound
from memory_engine.inspector.answering import encode
from memory_engine.inspector.inspection import Inspection
from memory_engine.inspector.query import Query
from memory_engine.persistence import ThreadFilter

POLL_S = 0.5
SHARE = 20
"""A poll waits at least so many times as long as the last one took."""
HEARTBEAT_S = 15.0
"""How often a comment says that the connection lives where there is no news."""
TAKES = frozenset({"thread"})

News = dict[str, object]


async def live(inspection: Inspection, query: Query) -> AsyncGenerator[bytes, None]:
    """What happens to a thread, or to the store where none is named, from now on. Ends when the thread does.

    Raises `ThreadNotFound` before anything is said.
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
        except MemoryEngineError:  # busy, or a disk that fails: perhaps not the next time
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
