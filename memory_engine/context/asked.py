"""The window that a thread's loop asks for, by the budgets of its contexts.

It is the largest budget that was asked; once twenty contexts in a row asked for less, it is the latest of these, so
that a loop that moves to a smaller model is seen. It is read off the events `ContextAsked`. The latest says it all, and
there are few: one when the window changes, one when a process begins with a smaller budget, and those that go with a
response that reports its usage, to correct the count of tokens by it: the first three, then one every forty events.
And one when contexts begin to lack a statement that stands in the brief, lack others, or lack none any more.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import msgspec

from memory_engine.context.brief_block import Weighed
from memory_engine.core.events.base import Event
from memory_engine.core.events.context import ContextAsked
from memory_engine.core.threads import Head
from memory_engine.errors import EventDecodeError, StorageError
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.notes import Note
from memory_engine.runtime.queue import Prepared
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.store.reader import LogReader

LESS_MAX = 20
"""Contexts in a row that ask for less than the window before it shrinks."""
REPORTS_FIRST = 3
"""Responses with a reported usage that are counted at once."""
EVENTS_BETWEEN = 40
"""Events between two counts after the first ones: about twenty calls of a model with their results."""
UNSAID_MAX = 32
"""Messages that an event names of which a context lacks something."""
_NOTE = "asked"
_TYPE = ContextAsked.event_type


def asked_window(runtime: ThreadRuntime) -> int | None:
    """The tokens that the thread's loop asks its contexts for, as recorded; `None` before the first. O(1)."""
    return runtime.window


async def asked_at(reader: LogReader, thread_id: str, seq: int) -> ContextAsked | None:
    """The latest of these events up to a seq: its `window` is the one that the loop asked for then."""
    found = (await reader.rows_at(thread_id, {seq})).get(seq)
    if found is None or found.type != _TYPE:  # else nothing more of the log is read: the head knows the latest one
        async for page in reader.pages(thread_id, after=0, upto=seq, types=(_TYPE,)):
            found = page[-1]
    event = reader.decode(thread_id, found).event if found is not None else None
    return event if isinstance(event, ContextAsked) else None


class _Asking(msgspec.Struct):
    """What a loop has asked for: `recorded` is the latest event, at `seq`; the rest goes on from there in memory."""

    recorded: ContextAsked | None = None
    seq: int = 0
    window: int = 0
    less: int = 0
    is_first: bool = True

    def follow(self, recorded: ContextAsked, seq: int) -> None:
        """Go on from a recorded event."""
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
        """Whether the log must learn of it now, whatever is dispatched next."""
        if self.recorded is None or self.recorded.window != self.window:
            return True
        return self.recorded.less != self.less and (self.is_first or not self.less)

    @property
    def lacks(self) -> tuple[int, tuple[int, ...]]:
        """How many standing statements the log says that contexts lack, and the seqs of their messages."""
        return (self.recorded.lacks, self.recorded.unsaid) if self.recorded is not None else (0, ())

    def wants_report(self, seq: int) -> bool:
        """Whether a response that reports its usage should have our count before it."""
        reports = self.recorded.reports if self.recorded is not None else 0
        return reports < REPORTS_FIRST or seq - self.seq >= EVENTS_BETWEEN


class AskedWindows:
    """Follows what the loops of the open threads ask for. One per engine."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._asking: WeakKeyDictionary[ThreadRuntime, _Asking] = WeakKeyDictionary()

    async def read(self, runtime: ThreadRuntime) -> None:
        """Take over what the log of a thread holds, where that is more than is known. A broken log holds nothing."""
        mark, asking = runtime.head.marks.get(_TYPE, 0), self._of(runtime)
        if mark <= asking.seq:
            return
        try:
            recorded = await asked_at(self._kernel.reader, runtime.id, mark)
        except (StorageError, EventDecodeError):
            return
        if recorded is not None and mark > asking.seq:
            asking.follow(recorded, mark)
            runtime.window = recorded.window

    async def begin(self, runtime: ThreadRuntime, max_tokens: int) -> None:
        """Let the first budget of a thread be its window at once: what it holds may need a compaction for it."""
        await self.read(runtime)
        if runtime.window is None:
            runtime.window = max_tokens

    async def ask(self, runtime: ThreadRuntime, max_tokens: int, counted: int, unsaid: Sequence[Weighed] = ()) -> None:
        """Take note of a context that the loop of a thread has asked for, and of our count of it (0: it is exact).

        `unsaid` are the standing statements that it lacks.
        """
        await self.read(runtime)
        asking, upto = self._of(runtime), runtime.state.seq
        asking.ask(max_tokens)
        lacking = _messages(runtime.id, unsaid)
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
                return None  # another process has recorded what its loop asks for: the next context reads that
            if counted and any(map(reports_usage, sent)):
                return msgspec.structs.replace(asked, reports=reports + 1)
            return asked if moved else None

        def recorded(event: Event, seq: int) -> None:
            if isinstance(event, ContextAsked):
                asking.follow(event, seq)
                asking.is_first = False
                runtime.window = event.window

        runtime.notes.put(_NOTE, Note(event_type=_TYPE, made_at=upto, event=event, recorded=recorded))

    def _of(self, runtime: ThreadRuntime) -> _Asking:
        return self._asking.setdefault(runtime, _Asking())


def _messages(thread_id: str, unsaid: Sequence[Weighed]) -> tuple[int, ...]:
    """The seqs of the messages of a thread that these statements come from, in their order."""
    return tuple(dict.fromkeys(one.seq for one in unsaid if one.thread_id == thread_id))[:UNSAID_MAX]


def reports_usage(sent: Prepared) -> bool:
    """Whether an event is of a response whose provider reports how many tokens it read."""
    return '"usage"' in getattr(sent.event, "native", "")
