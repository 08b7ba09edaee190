"""Limits of a policy against the counters of a state: whether a compaction is due, pressing, overdue.

Every commit asks; the plan itself (`compaction.plan`) is loaded once one is due.
"""

import sys
from typing import Literal

from memory_engine.core.state import Tally
from memory_engine.core.threads import CompactionPolicy

PRESSING = 2
"""Multiple of the chunk threshold from which a compaction waits for no quiet moment, if a token limit is passed too."""
PRESSING_TOKENS = 1.25
"""Multiple of a token limit from which a compaction waits for no quiet moment."""
FLOODED = 10
"""Multiple of the chunk threshold from which writers wait for the running compaction."""
FLOODED_TOKENS = 2


def is_due(tally: Tally, policy: CompactionPolicy) -> bool:
    """Return True if the limits of an applied policy ask for a compaction. O(1): the state maintains the counters.

    The counters include all compactable chunks. `plan_auto` determines whether a compaction may take enough of them.
    """
    return policy.enabled and (_passes(tally, policy, policy.threshold, 1) or exceeds(tally, policy.soft_tokens))


def due_from(policy: CompactionPolicy) -> int:
    """Return the tokens of compactable chunks below which an applied policy asks for no compaction, however many."""
    least = [tokens for tokens in (policy.tokens_min, policy.soft_tokens) if tokens is not None]
    return min(least, default=0) if policy.enabled else sys.maxsize


def is_pressing(tally: Tally, policy: CompactionPolicy) -> bool:
    """Return True if so much waits that a compaction must not wait for a quiet moment: busy writers leave none."""
    many = _passes(tally, policy, PRESSING * policy.threshold, PRESSING_TOKENS)
    return many or exceeds(tally, PRESSING_TOKENS * (policy.soft_tokens or 0))


def is_flooded(tally: Tally, policy: CompactionPolicy) -> bool:
    """Return True if so much waits that events must wait too: else a state grows faster than a compactor reads it."""
    return _passes(tally, policy, FLOODED * policy.threshold, FLOODED_TOKENS) or is_overdue(tally, policy)


def is_overdue(tally: Tally, policy: CompactionPolicy) -> bool:
    """Return True if the hard limit asks for a compaction before the next context."""
    return policy.enabled and exceeds(tally, policy.hard_tokens)


def is_needed(tally: Tally, policy: CompactionPolicy, trigger: Literal["auto", "manual", "hard"]) -> bool:
    """Return True if a compaction for this reason is still needed: another process may have done it."""
    return {"auto": is_due, "hard": is_overdue}[trigger](tally, policy) if trigger != "manual" else True


def _passes(tally: Tally, policy: CompactionPolicy, chunks: int, times: float) -> bool:
    return tally.compactable >= chunks and tally.compactable_tokens >= times * (policy.tokens_min or 0)


def exceeds(tally: Tally, tokens: float | None) -> bool:
    """Return True if a state has more compactable tokens than a limit, if there is one."""
    return tokens is not None and tally.compactable_tokens > tokens
