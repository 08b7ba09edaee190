"""The policy that a log was compacted by, as the log itself says."""

from memory_engine.core.chain import decode_row
from memory_engine.core.events.compaction import CompactionStarted
from memory_engine.core.events.memory import ThreadUpdated
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import CompactionPolicy, ThreadRecord, readable_policy
from memory_engine.store.reader import LogReader

_TELLING = frozenset({CompactionStarted.event_type, ThreadUpdated.event_type})


async def applied_policy(
    reader: LogReader, record: ThreadRecord, upto: int, default: CompactionPolicy
) -> CompactionPolicy:
    """The policy that applied to a thread at a seq.

    It is that of the latest compaction up to there, or the one that the thread was given since. In a log that says
    nothing of it, it is the thread's own, else `default`, the engine's.
    """
    rows: list[StoredEvent] = []
    async for page in reader.pages(record.id, after=0, upto=upto, types=_TELLING):
        rows += page
    for row in reversed(rows):
        event, _ = decode_row(record.id, row, reader.registry)
        if isinstance(event, ThreadUpdated) and event.default_policy:
            return default
        if isinstance(event, CompactionStarted | ThreadUpdated) and event.policy:
            return readable_policy(event.policy)[0] or default
    return record.policy or default
