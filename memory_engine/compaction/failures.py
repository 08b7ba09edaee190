"""What follows a failed or undone compaction: a wait, and another compactor in place of one that keeps failing."""

import logging
from weakref import WeakKeyDictionary

import msgspec
from attrs import define, field

from memory_engine.core.events.compaction import CompactionUndone
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors import CompactionError, CompactorFailed
from memory_engine.runtime.thread_runtime import ThreadRuntime

_log = logging.getLogger("memory_engine.compaction")
FAILURES_MAX = 3
"""Failures in a row after which the embedded compactor stands in. Before that the originals stand, and also after a
compaction that somebody has asked for: they are told, and may ask another."""
DOUBLINGS_MAX = 6
"""Failures in a row after which the wait no longer doubles."""
RESTS_MAX = 8
"""Compactions at most for which a failing compactor is not asked again."""
SUPERSEDED = "superseded"
"""The reason of a compaction that was given up since its chunks had changed: no fault of a compactor."""
TOO_SLOW = "too_slow"
"""The reason of a compactor that was given up since the thread passed its hard limit while it worked."""
INCOMPLETE = "incomplete"
"""The reason of a summary that lacks what it must hold, also when the compactor was told so."""


class Failures(msgspec.Struct):
    """The failures of a thread's compactors since the last success, in this process."""

    in_a_row: int = 0
    resting: int = 0
    last: CompactorFailed | None = None

    def passed_over(self, *, by_hand: bool) -> CompactorFailed | None:
        """The failure of the compactor that is not asked this time, if one rests."""
        if by_hand or not self.resting:
            return None
        self.resting -= 1
        return self.last

    def needs_another(self, failure: CompactorFailed, *, by_hand: bool) -> bool:
        """Count a failure. Returns whether another compactor is to stand in for the one that failed."""
        if failure.reason == SUPERSEDED:
            return False
        self.in_a_row += 1
        self.last = failure
        if self.in_a_row >= FAILURES_MAX:
            self.resting = min(2 ** (self.in_a_row - FAILURES_MAX), RESTS_MAX)
        return failure.reason == INCOMPLETE or (self.in_a_row >= FAILURES_MAX and not by_hand)

    def ended(self) -> None:
        """A compaction came to its end without anyone standing in."""
        self.in_a_row = self.resting = 0
        self.last = None


def go_on(runtime: ThreadRuntime, policy: CompactionPolicy, *, has_left_out: bool) -> None:
    """After a success, wait for nothing; where parts were left out, until they may get shorter: a quarter threshold."""
    runtime.compaction_failures = 0
    wait = runtime.state.tally.compactable + max(1, policy.threshold // 4)
    runtime.compaction_backoff = wait if has_left_out else 0


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
