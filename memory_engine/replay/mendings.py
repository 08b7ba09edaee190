"""The events by which a log was mended: what verifying goes by, and what may be undone. See `rereduce`."""

from hashlib import sha256

from memory_engine.core.events.compaction import ThreadRereduced
from memory_engine.core.records import StoredEvent
from memory_engine.store.reader import LogReader


def record_digest(record: bytes) -> str:
    """The digest by which an event knows the recorded bytes of a reduction."""
    return sha256(record).hexdigest()


async def mendings(reader: LogReader, thread_id: str, upto: int) -> list[tuple[StoredEvent, ThreadRereduced]]:
    """The mendings of a log that are not undone, in order."""
    found: dict[int, tuple[StoredEvent, ThreadRereduced]] = {}
    async for stored, event in reader.events_of(ThreadRereduced, thread_id, upto=upto):
        if event.undoes:
            found.pop(event.undoes, None)
        else:
            found[stored.seq] = stored, event
    return list(found.values())
