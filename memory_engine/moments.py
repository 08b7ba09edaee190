"""Points in a thread's history, as people name them."""

from datetime import datetime
from typing import TypeAlias

from memory_engine.clock import to_us
from memory_engine.errors import EventNotFound, SeqNotInLog
from memory_engine.persistence import Store

Moment: TypeAlias = int | str | datetime
"""A seq (0: before the first event), an event's id, or a time: after the last event that was recorded no later."""


async def seq_of(store: Store, thread_id: str, moment: Moment) -> int:
    """The seq that a moment names. Raises `SeqNotInLog`, `EventNotFound`, `ThreadNotFound`."""
    head = (await store.head(thread_id)).seq
    match moment:
        case bool():
            raise SeqNotInLog(thread_id, moment, head)
        case int():
            if not 0 <= moment <= head:
                raise SeqNotInLog(thread_id, moment, head)
            return moment
        case str():
            found = await store.find(thread_id, [moment])
            if not found:
                raise EventNotFound(thread_id, moment)
            return found[0].seq
        case datetime() if moment.tzinfo is not None:
            return min(head, await store.seq_at(thread_id, to_us(moment)))
    raise SeqNotInLog(thread_id, moment, head)
