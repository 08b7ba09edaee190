"""Server-sent events: a log's head, or the store's totals.

The store is polled, since other processes write to it; slow looks come less often.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable

from memory_engine.engine import kernel_of
from memory_engine.errors import EngineClosed, MemoryEngineError, ThreadNotFound
from memory_engine.inspector.answers import Inspection, Query, encode
from memory_engine.runtime.following import Lookout
from memory_engine.store.protocol import ThreadFilter

POLL_S = (0.1, 0.5)
"""Seconds between two looks: at first, and at most."""
HEARTBEAT_S = 15.0
"""Seconds without events after which a comment keeps the connection alive."""
TAKES = frozenset({"thread"})
News = dict[str, object]


async def live(inspection: Inspection, query: Query) -> AsyncGenerator[bytes, None]:
    """Events about a thread, or the store if none is named, from now on. Ends when the thread is deleted.

    Raises `ThreadNotFound` before the first event.
    """
    thread_id = query.text("thread", "")
    if thread_id:
        first = await _head_news(inspection, thread_id)
        return _news_stream("head", lambda: _head_news(inspection, thread_id), first, _lookout(inspection, thread_id))
    return _news_stream("threads", lambda: _threads(inspection), await _threads(inspection), _lookout(inspection))


def _lookout(inspection: Inspection, thread_id: str | None = None) -> Lookout:
    """Totals read all threads, so not every commit causes another reading at once."""
    return Lookout(kernel_of(inspection.engine), thread_id, POLL_S)


async def _head_news(inspection: Inspection, thread_id: str) -> News:
    head = await kernel_of(inspection.engine).store.head(thread_id)
    return {"head": head.seq, "status": head.status}


async def _threads(inspection: Inspection) -> News:
    found = await kernel_of(inspection.engine).store.threads(ThreadFilter())
    return {"total": len(found), "events": sum(head.seq for _, head in found)}


async def _news_stream(
    kind: str, look: Callable[[], Awaitable[News]], first: News, lookout: Lookout
) -> AsyncGenerator[bytes, None]:
    known = first

    async def changed() -> News | None:
        try:
            found = await look()
        except (ThreadNotFound, EngineClosed):
            raise
        except MemoryEngineError:  # a failing disk: the next look may succeed
            return None
        return found if found != known else None

    yield message(kind, first)
    while True:
        try:
            found = await lookout.until(changed, within_s=HEARTBEAT_S)
        except (ThreadNotFound, EngineClosed) as error:
            yield message("end", {"why": str(error)})
            return
        if found is None:
            yield b": alive\n\n"
        else:
            known = found
            yield message(kind, found)


def message(kind: str, news: News) -> bytes:
    """One event of the stream. JSON has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode("ascii"), encode(news))
