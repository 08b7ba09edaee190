"""Administrative acts: what a store keeps of an erasure, a deletion, a hold, and how far it has come."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec

DESTROYING = frozenset({"erase", "delete"})
"""Kinds of acts that destroy events and threads."""
ACT_TRIES_MAX = 3
"""Failures after which an act is not tried any more."""


class ActFailures(msgspec.Struct, frozen=True):
    """The outcome of an act so far: how many tries have failed, and why the last one did."""

    failures: int = 0
    error: str = ""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An administrative act on the store: who asked for it, why and when; `plan` and `outcome` are JSON of its own.

    Until `done_at_us` is set, it may not be finished: the next process that opens the store goes on with it, unless it
    has failed `ACT_TRIES_MAX` times. Where a server limits what its roles may reach, `role` is the one that asked
    for it and `tenants` are those whose rows that role may reach (`None`: all).
    """

    id: str
    kind: str
    plan: str
    by: str = ""
    reason: str = ""
    asked_at_us: int = 0
    done_at_us: int = 0
    outcome: str = ""
    role: str = ""
    tenants: Sequence[str] | None = None

    @property
    def state(self) -> Literal["done", "pending", "failed"]:
        """`failed`: it is not done, and is not tried any more."""
        if self.done_at_us:
            return "done"
        return "pending" if self.failures < ACT_TRIES_MAX else "failed"

    @property
    def failures(self) -> int:
        """How many tries have failed; 0 once it is done."""
        return self._failures().failures

    @property
    def error(self) -> str:
        """Why the last try failed; empty if none did."""
        return self._failures().error

    def _failures(self) -> ActFailures:
        if self.outcome and not self.done_at_us:
            with suppress(msgspec.MsgspecError):
                return msgspec.json.decode(self.outcome, type=ActFailures)
        return ActFailures()
