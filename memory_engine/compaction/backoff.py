"""How long the next compaction of a thread waits, after a failure or an undo."""

import logging
from weakref import WeakKeyDictionary

from attrs import define, field

from memory_engine.compaction.failures import SUPERSEDED
from memory_engine.core.events.compaction import CompactionUndone
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors import CompactionError, CompactorFailed
from memory_engine.runtime.thread_runtime import ThreadRuntime

_log = logging.getLogger("memory_engine.compaction")
DOUBLINGS_MAX = 6
"""Failures in a row after which the wait no longer doubles."""


def back_off(runtime: ThreadRuntime, policy: CompactionPolicy, error: BaseException) -> None:
    """After a failure, wait until more has come: half a threshold, then twice as much each time.

    After a compaction that was given up, since its chunks had changed, wait for a quarter only.
    """
    wait = max(1, policy.threshold // 4)
    if not (isinstance(error, CompactorFailed) and error.reason == SUPERSEDED):
        runtime.compaction_failures = min(runtime.compaction_failures + 1, DOUBLINGS_MAX)
        wait *= 2**runtime.compaction_failures
    runtime.compaction_backoff = runtime.state.tally.compactable + wait
    if isinstance(error, CompactionError):
        _log.warning("thread %r: not compacted, and not tried before %d more chunks: %s", runtime.id, wait, error)


@define
class RestoredChunks:
    """Leaves chunks alone that an undo put back, until half a threshold has come, whoever undid it and when."""

    _marks: WeakKeyDictionary[ThreadRuntime, int] = field(factory=WeakKeyDictionary)

    def spare(self, runtime: ThreadRuntime, policy: CompactionPolicy) -> None:
        """Let the next compaction of a thread wait, if there was an undo since the last look."""
        mark = runtime.head.marks.get(CompactionUndone.event_type, 0)
        if mark <= self._marks.get(runtime, 0):
            return
        self._marks[runtime] = mark
        until_then = [chunk for chunk in runtime.state.everything() if chunk.is_compactable and chunk.seq <= mark]
        if any(chunk.seq == mark for chunk in until_then):
            wait = max(1, policy.threshold // 2)
            runtime.compaction_backoff = max(runtime.compaction_backoff, len(until_then) + wait)
