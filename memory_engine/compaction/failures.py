"""What follows when compactors fail: another stands in for one that keeps failing, which is asked less often."""

import msgspec

from memory_engine.errors import CompactorFailed

FAILURES_MAX = 3
"""Failures in a row after which the embedded compactor stands in. Before that the originals stand, and also after a
compaction that somebody has asked for: they are told, and may ask another."""
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
