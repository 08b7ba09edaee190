"""The window, in tokens, that a thread's loop asks for, derived from the budgets of its contexts.

The window is the largest budget requested so far. Once twenty contexts in a row have requested less, it becomes the
latest of their budgets, so that a loop that moves to a smaller model is noticed. The window is read from the events
`ContextAsked`; the latest event alone is enough. Few of them are recorded: one when the window changes, one when a
process begins with a smaller budget, one when the set of standing statements that contexts lack changes, and one with
some of the responses that report their usage, to correct the token count: the first three, then one every forty events.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.context import ContextAsked
from memory_engine.core.threads import Head
from memory_engine.errors import EventDecodeError, StorageError
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.notes import Note
from memory_engine.runtime.queue import Prepared
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.store.reader import LogReader

if TYPE_CHECKING:
    from memory_engine.context.brief_block import Weighed

LESS_MAX = 20
"""Number of contexts in a row that request less than the window before it shrinks."""
REPORTS_FIRST = 3
"""Number of responses with reported usage, from the first on, that each record a count."""
EVENTS_BETWEEN = 40
"""Number of events between two later counts: about twenty calls of a model with their results."""
UNSAID_MAX = 32
"""Maximum number of messages that an event names as lacking in a context."""
_NOTE = "asked"
_TYPE = ContextAsked.event_type


def asked_window(runtime: ThreadRuntime) -> int | None:
    """Return the tokens that the thread's loop asks its contexts for, or `None` before the first context. O(1)."""
    return runtime.window


async def asked_at(reader: LogReader, thread_id: str, seq: int) -> ContextAsked | None:
    """Return the latest `ContextAsked` up to a seq, or `None`; its `window` is the one that the loop asked for then."""
    found = (await reader.rows_at(thread_id, {seq})).get(seq)
    if found is None or found.type != _TYPE:  # usually unnecessary: the head knows the seq
        found = await reader.walk(thread_id, upto=seq, types=(_TYPE,)).last()
    event = reader.decode(thread_id, found).event if found is not None else None
    return event if isinstance(event, ContextAsked) else None


class _Asking(msgspec.Struct):
    """The requests of a loop: `recorded` is the latest event, at `seq`; the other fields continue from it in memory."""

    recorded: ContextAsked | None = None
    seq: int = 0
    window: int = 0
    less: int = 0
    is_first: bool = True

    def follow(self, recorded: ContextAsked, seq: int) -> None:
        """Continue from a recorded event."""
        self.recorded, self.seq = recorded, seq
        self.window, self.less = recorded.window, recorded.less

    def ask(self, max_tokens: int) -> None:
        """Count a context with this budget."""
        if max_tokens >= self.window:
            self.window, self.less = max_tokens, 0
        elif self.less + 1 < LESS_MAX:
            self.less += 1
        else:
            self.window, self.less = max_tokens, 0

    @property
    def has_moved(self) -> bool:
        """Whether the change must be recorded with the next dispatch, whatever is dispatched."""
        if self.recorded is None or self.recorded.window != self.window:
            return True
        return self.recorded.less != self.less and (self.is_first or not self.less)

    @property
    def lacks(self) -> tuple[int, tuple[int, ...]]:
        """Recorded number of standing statements that contexts lack, and the seqs of their messages."""
        return (self.recorded.lacks, self.recorded.unsaid) if self.recorded is not None else (0, ())

    def wants_report(self, seq: int) -> bool:
        """Return whether our own count should be recorded before a response that reports its usage."""
        reports = self.recorded.reports if self.recorded is not None else 0
        return reports < REPORTS_FIRST or seq - self.seq >= EVENTS_BETWEEN


class AskedWindows:
    """Tracker of the windows that the loops of open threads ask for. One per engine."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._asking: WeakKeyDictionary[ThreadRuntime, _Asking] = WeakKeyDictionary()

    async def read(self, runtime: ThreadRuntime) -> None:
        """Read the latest recorded event of a thread if it is newer than the known one. Ignore a log that is broken."""
        mark, asking = runtime.head.marks.get(_TYPE, 0), self._of(runtime)
        if mark <= asking.seq:
            return
        try:
            recorded = await asked_at(self._kernel.reader, runtime.id, mark)
        except (StorageError, EventDecodeError):
            return
        if recorded is not None and mark > asking.seq:
            asking.follow(recorded, mark)
            _take_window(runtime, recorded.window)

    async def begin(self, runtime: ThreadRuntime, max_tokens: int) -> None:
        """Make the first budget of a thread its window at once: its content may need a compaction to fit."""
        await self.read(runtime)
        if runtime.window is None:
            _take_window(runtime, max_tokens)

    async def ask(
        self, runtime: ThreadRuntime, max_tokens: int, counted: int, unsaid: "Sequence[Weighed]" = ()
    ) -> None:
        """Register a context that a thread's loop asked for, with our own count of its tokens (0: the count is exact).

        `unsaid` are the standing statements that the context lacks.
        """
        await self.read(runtime)
        asking, upto = self._of(runtime), runtime.state.seq
        asking.ask(max_tokens)
        lacking = _message_seqs(runtime.id, unsaid)
        moved = asking.has_moved or asking.lacks != (len(unsaid), lacking)
        wants = counted > 0 and asking.wants_report(upto)
        if not moved and not wants:
            runtime.notes.pop(_NOTE)
            asking.is_first = False
            return
        reports = asking.recorded.reports if asking.recorded is not None else 0
        asked = ContextAsked(
            max_tokens=max_tokens,
            window=asking.window,
            less=asking.less,
            counted=counted,
            upto=upto,
            reports=reports,
            lacks=len(unsaid),
            unsaid=lacking,
        )

        def event(sent: Sequence[Prepared], head: Head) -> ContextAsked | None:
            if head.marks.get(_TYPE, 0) > asking.seq:
                return None  # another process has recorded a newer event: the next context reads it
            if counted and any(map(reports_usage, sent)):
                return msgspec.structs.replace(asked, reports=reports + 1)
            return asked if moved else None

        def recorded(event: Event, seq: int) -> None:
            if isinstance(event, ContextAsked):
                asking.follow(event, seq)
                asking.is_first = False
                _take_window(runtime, event.window)

        runtime.notes.put(_NOTE, Note(event_type=_TYPE, made_at=upto, event=event, recorded=recorded))

    def _of(self, runtime: ThreadRuntime) -> _Asking:
        return self._asking.setdefault(runtime, _Asking())


def _message_seqs(thread_id: str, unsaid: "Sequence[Weighed]") -> tuple[int, ...]:
    """Return the seqs of the thread's messages that contain these statements, in order, at most `UNSAID_MAX`."""
    return tuple(dict.fromkeys(one.seq for one in unsaid if one.thread_id == thread_id))[:UNSAID_MAX]


def reports_usage(sent: Prepared) -> bool:
    """Return whether an event belongs to a response whose provider reports how many tokens it read."""
    return '"usage"' in getattr(sent.event, "native", "")


def _take_window(runtime: ThreadRuntime, window: int) -> None:
    """Make a budget the window of a thread: its limits are shares of it."""
    runtime.window, runtime.due_tokens = window, 0
