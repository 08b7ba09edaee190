"""Handling of failed and undone compactions: waiting, and replacing a compactor that keeps failing."""

import logging
from weakref import WeakKeyDictionary

import msgspec

from memory_engine.core.events.compaction import CompactionUndone
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors import CompactionError, CompactorFailed
from memory_engine.runtime.thread_runtime import ThreadRuntime

_log = logging.getLogger("memory_engine.compaction")
FAILURES_MAX = 3
"""Consecutive failures after which the embedded compactor takes over.

Before that, the originals stay. They also stay after a compaction that a caller asked for: the caller gets the error
and may ask another compactor.
"""
DOUBLINGS_MAX = 6
"""Consecutive failures after which the wait no longer doubles."""
RESTS_MAX = 8
"""Maximum number of compactions for which a failing compactor is skipped."""
SUPERSEDED = "superseded"
"""Reason of a compaction that was given up because its chunks had changed. The compactor is not at fault."""
TOO_SLOW = "too_slow"
"""Reason of a compactor that was given up because the thread passed its hard limit while it worked."""
INCOMPLETE = "incomplete"
"""Reason of a summary that lacks required content even after a second request names what is missing."""


class Failures(msgspec.Struct):
    """Failures of a thread's compactors since the last success, in this process."""

    in_a_row: int = 0
    resting: int = 0
    last: CompactorFailed | None = None

    def passed_over(self, *, by_hand: bool) -> CompactorFailed | None:
        """Return the failure of the compactor to skip this time, or `None`. Counts down the compactions to skip."""
        if by_hand or not self.resting:
            return None
        self.resting -= 1
        return self.last

    def needs_another(self, failure: CompactorFailed, *, by_hand: bool) -> bool:
        """Count a failure. Return True if another compactor should replace the failed one."""
        if failure.reason == SUPERSEDED:
            return False
        self.in_a_row += 1
        self.last = failure
        if self.in_a_row >= FAILURES_MAX:
            self.resting = min(2 ** (self.in_a_row - FAILURES_MAX), RESTS_MAX)
        return failure.reason == INCOMPLETE or (self.in_a_row >= FAILURES_MAX and not by_hand)

    def ended(self) -> None:
        """Reset the counters after a compaction in which no compactor was replaced."""
        self.in_a_row = self.resting = 0
        self.last = None


def go_on(runtime: ThreadRuntime, policy: CompactionPolicy, *, has_left_out: bool) -> None:
    """Clear the backoff after a success.

    If parts were left out, wait for another quarter of a threshold: they may get shorter then.
    """
    runtime.compaction_failures = 0
    wait = runtime.state.tally.compactable + max(1, policy.threshold // 4)
    runtime.compaction_backoff = wait if has_left_out else 0


def back_off(runtime: ThreadRuntime, policy: CompactionPolicy, error: BaseException) -> None:
    """Delay the next compaction after a failure: by half a threshold of chunks, then doubled for each failure.

    After a compaction that was given up because its chunks had changed, the delay is a quarter of a threshold.
    """
    wait = max(1, policy.threshold // 4)
    if not (isinstance(error, CompactorFailed) and error.reason == SUPERSEDED):
        runtime.compaction_failures = min(runtime.compaction_failures + 1, DOUBLINGS_MAX)
        wait *= 2**runtime.compaction_failures
    runtime.compaction_backoff = runtime.state.tally.compactable + wait
    if isinstance(error, CompactionError):
        _log.warning("thread %r: not compacted, and not tried before %d more chunks: %s", runtime.id, wait, error)


class RestoredChunks(msgspec.Struct):
    """Protects chunks that an undo restored until half a threshold of new chunks exists, whoever undid it and when."""

    _marks: WeakKeyDictionary[ThreadRuntime, int] = msgspec.field(default_factory=WeakKeyDictionary)

    def spare(self, runtime: ThreadRuntime, policy: CompactionPolicy) -> None:
        """Delay the next compaction of a thread if an undo occurred since the last call."""
        mark = runtime.head.marks.get(CompactionUndone.event_type, 0)
        if mark <= self._marks.get(runtime, 0):
            return
        self._marks[runtime] = mark
        until_then = [chunk for chunk in runtime.state.everything() if chunk.is_compactable and chunk.seq <= mark]
        if any(chunk.seq == mark for chunk in until_then):
            wait = max(1, policy.threshold // 2)
            runtime.compaction_backoff = max(runtime.compaction_backoff, len(until_then) + wait)
