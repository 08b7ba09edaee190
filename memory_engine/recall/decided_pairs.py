"""Pairs of statements of which a later one is decided to replace the other or not, and who reads them for a search."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from memory_engine.runtime.kernel import Kernel


class DecidedPair(msgspec.Struct, frozen=True):
    """What the event `decided_by` says of two passages of a thread, each a seq and the number within its event."""

    older: tuple[int, int]
    newer: tuple[int, int]
    is_replaced: bool
    decided_by: str


async def _no_decisions(_kernel: Kernel, _thread_id: str, _upto: int) -> Sequence[DecidedPair]:
    return ()


class StatementDecisions(msgspec.Struct, frozen=True):
    """Reader of the decisions of a thread as of a seq (0: now). The plug-in of statements provides this setting."""

    read: Callable[[Kernel, str, int], Awaitable[Sequence[DecidedPair]]] = _no_decisions
