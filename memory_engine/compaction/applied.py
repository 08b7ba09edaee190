"""The compaction policy that applied to a thread, read from its log."""

from memory_engine.core.chain import decode_row
from memory_engine.core.events.compaction import CompactionStarted
from memory_engine.core.events.memory import ThreadUpdated
from memory_engine.core.threads import CompactionPolicy, ThreadRecord, readable_policy
from memory_engine.store.reader import LogReader

_TELLING = frozenset({CompactionStarted.event_type, ThreadUpdated.event_type})


async def applied_policy(
    reader: LogReader, record: ThreadRecord, upto: int, default: CompactionPolicy
) -> CompactionPolicy:
    """Return the compaction policy that applied to a thread at a seq.

    Use the policy of the latest compaction up to that seq, or a policy that the thread received later. If the log
    records neither, return the thread's own policy, or else `default`, the engine's policy.
    """
    for row in reversed(await reader.walk(record.id, upto=upto, types=_TELLING).all()):
        event, _ = decode_row(record.id, row, reader.registry)
        if isinstance(event, ThreadUpdated) and event.default_policy:
            return default
        if isinstance(event, CompactionStarted | ThreadUpdated) and event.policy:
            return readable_policy(event.policy)[0] or default
    return record.policy or default
