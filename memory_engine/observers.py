"""Observers: what is told of events once they are durable."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from memory_engine.attempt import Reduced
from memory_engine.correlation import UNLINKED, linked
from memory_engine.records import RecordedEvent
from memory_engine.runtime import ThreadRuntime

_log = logging.getLogger("memory_engine")

Observer = Callable[[RecordedEvent], None]
"""Called after an event became durable, at most once for each, in the order of its thread. Must not block."""


class Observers:
    """The observers of one engine."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def add(self, observer: Observer) -> Callable[[], None]:
        """Tell `observer` from now on; returns what ends it."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def after_commit(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        """Tell of a commit in the loop's next round: its senders go on first."""
        if self._observers:
            asyncio.get_running_loop().call_soon(self._tell, runtime, reduced)

    def _tell(self, runtime: ThreadRuntime, reduced: Sequence[Reduced]) -> None:
        for step in reduced:
            recorded = runtime.recorded(step)
            for observer in list(self._observers):
                self._notify(observer, recorded)

    def _notify(self, observer: Observer, recorded: RecordedEvent) -> None:
        try:
            with linked(UNLINKED):  # of whoever sent the events that were committed, there may be several
                observer(recorded)
        except Exception:  # the boundary to user code: the event is durable, whatever an observer makes of it
            _log.exception("an observer failed on seq %d of thread %r", recorded.seq, recorded.thread_id)
