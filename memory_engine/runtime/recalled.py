"""Events recalled in contexts, in this thread and in others: forgetting and erasing reach each copy."""

from collections.abc import Collection

from memory_engine.core.events.context import ContextRecalled
from memory_engine.core.lineage import Descent
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter

_TYPE = ContextRecalled.event_type


async def since(thread: ThreadHandle, seq: int) -> bool:
    """Whether the thread has recorded after a seq what a context recalled. Reads its head only."""
    return (await thread.kernel.store.head(thread.id)).marks.get(_TYPE, 0) > seq


async def elsewhere(
    kernel: Kernel, thread_id: str, event_ids: Collection[str], *, drop: bool = True
) -> dict[str, list[str]]:
    """The events of other threads that hold passages of these events of a thread: their ids, by thread.

    With `drop`, what waits there to be recorded is dropped. Only threads of the same tenant, and of the same user where
    the thread is one's, can have recalled from it; of these, it reads the logs of those that have recalled anything.
    """
    found = await kernel.store.threads(ThreadFilter(id=thread_id))
    if not found or not event_ids:
        return {}
    record, wanted = found[0][0], Descent(events=set(event_ids))
    if drop:
        _drop_waiting(kernel, wanted)
    near = ThreadFilter(tenant_id=record.tenant_id, user_id=record.user_id or None)
    copies: dict[str, list[str]] = {}
    for other, head in await kernel.store.threads(near):
        if other.id == thread_id or not head.marks.get(_TYPE):
            continue
        async for stored, event in kernel.reader.events_of(ContextRecalled, other.id, upto=head.seq):
            if wanted.is_source_of(event, stored.seq):
                copies.setdefault(other.id, []).append(stored.id)
    return copies


def _drop_waiting(kernel: Kernel, wanted: Descent) -> None:
    for runtime in kernel[OpenThreads].all():
        for name, note in list(runtime.notes.waiting.items()):
            if note.event_type == _TYPE and _holds(note.event((), runtime.head), wanted):
                runtime.notes.pop(name)


def _holds(event: object, wanted: Descent) -> bool:
    return isinstance(event, ContextRecalled) and wanted.is_source_of(event, 0)
