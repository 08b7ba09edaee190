"""Eras of a thread: ids that are derived from what a thread shows say in which of them.

A view numbers what it records by its rows: the third question, the change after event 7. Clearing a thread, or going
back, gives it the rows of an earlier moment. Its next event would then get the id of one that the log has already, and
would count as recorded.
"""

from memory_engine.core.events.memory import ThreadCleared
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.snapshots import rewound_at


async def era_of(thread: ThreadHandle) -> str:
    """What an id that is derived from a thread's rows or state ends with: empty until it is cleared or rewound."""
    if not await thread.exists():
        return ""
    head = (await thread.followed()).head
    since = max(rewound_at(head), head.marks.get(ThreadCleared.event_type, 0))
    return f":{since}" if since else ""
