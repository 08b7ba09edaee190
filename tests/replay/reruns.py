"""A what-if, tried out: with all that must hold of any of them."""

from memory_engine import Thread
from memory_engine.core.records import StoredEvent
from memory_engine.replay.what_if import Change, WhatIfReport
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.thread import handle_of


async def rows(thread: Thread) -> list[StoredEvent]:
    """The rows of a log, byte for byte."""
    head = await handle_of(thread).kernel.store.head(thread.id)
    return [
        row async for page in handle_of(thread).kernel.reader.pages(thread.id, after=0, upto=head.seq) for row in page
    ]


async def tried(thread: Thread, change: Change) -> tuple[WhatIfReport, Thread]:
    """A what-if and its fork, after it was made sure that the original is as it was, and that the fork verifies."""
    store = handle_of(thread).kernel.store
    before = await store.load(thread.id), await rows(thread)
    report = await thread.replay.what_if(change)
    assert before == (await store.load(thread.id), await rows(thread))
    fork = Thread(ThreadHandle(handle_of(thread).kernel, report.fork_id))
    assert None is (await fork.replay.verify()).divergence
    assert (report.head, report.state.as_data()["b"]) == (
        (await fork.info()).events, {"thread_id": fork.id, "seq": report.head}
    )  # fmt: skip
    return report, fork
