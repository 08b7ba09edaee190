"""An event loop, threads and time that one seed drives: what runs next, and when, is drawn and never depends on chance.

Callbacks run in rounds, as in asyncio. Work for other threads (SQLite's connections, `asyncio.to_thread`) runs between
two callbacks, a job at a time, each thread's in order. Nothing sleeps: time goes on when nothing else can.
"""

import asyncio
import heapq
import random
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar
from unittest.mock import patch
from weakref import WeakSet

from attrs import define, field

if TYPE_CHECKING:
    from concurrent.futures import Executor

T = TypeVar("T")
CALLBACKS_MAX = 3_000_000
"""More callbacks than any program takes: something goes round and round."""
ROUND_S = 0.00002
SLOW_S = 0.5
"""For so long a thread that has work may not get to it."""
JOBS_S = (0.0001, 0.0003, 0.001, 0.004, 0.05)
"""What a job of a thread takes."""


class Stuck(BaseException):
    """Nothing can go on any more, or everything goes on for ever."""


@define
class Trace:
    """What happened, in order, as a digest; the lines themselves only if they are wanted."""

    keeps: bool = False
    lines: list[str] = field(factory=list)
    _digest: "blake2b" = field(factory=lambda: blake2b(digest_size=8))

    def add(self, line: str) -> None:
        """One thing more."""
        self._digest.update(line.encode() + b"\n")
        if self.keeps:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """Equal for equal traces."""
        return self._digest.hexdigest()


class Dying(BaseException):
    """Raised through what a process does while it dies."""


class Owner:
    """A simulated process: what it started stops at once when it dies."""

    is_dead = False


OWNER: ContextVar[Owner | None] = ContextVar("OWNER", default=None)


def _is_dead(context: Context) -> bool:
    owner = context.get(OWNER)
    return owner is not None and owner.is_dead


@define
class _Job:
    work: Callable[[], None]
    context: Context


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose order and time come from `dice`. With `shuffles`, callbacks of one round run in any order."""

    _ready: deque[asyncio.Handle]
    """asyncio's own: what runs in the next round."""
    _asyncgens: WeakSet[AsyncGenerator[object, object]]
    _scheduled: list[asyncio.TimerHandle]
    """And what runs at a time, as a heap."""

    def __init__(self, dice: random.Random, trace: Trace) -> None:
        super().__init__()
        self.dice = dice
        self.trace = trace
        self.now_s = 1000.0
        self.callbacks = 0
        self.shuffles = dice.random() < 0.5
        self._slowness = dice.choice((0.1, 0.5, 0.9))
        self._round: deque[asyncio.Handle] = deque()
        self._workers: dict[object, deque[_Job]] = {}
        self._alarms: list[tuple[float, int, SimulatedTimer]] = []
        self._numbers = count()
        self.errors: list[str] = []
        self._afterwards: list[Callable[[], None]] = []
        self.set_exception_handler(self._heard)

    def _heard(self, _loop: asyncio.AbstractEventLoop, about: dict[str, object]) -> None:
        if not _is_dead(copy_context()) and not isinstance(about.get("exception"), Dying):
            self.errors.append(
                f"{about.get('message')}: {about.get('exception')!r} {about.get('future')} {about.get('handle')}"
            )

    @property
    def generators(self) -> list[object]:
        """The asynchronous generators that have begun and not ended."""
        return list(self._asyncgens)

    def time(self) -> float:
        """Seconds; they pass only here."""
        return self.now_s

    def call_soon_threadsafe(  # type: ignore[override,no-untyped-def]
        self, callback, *args, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self, executor: "Executor | None", func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        """Run a function as a job of a thread of its own."""
        outcome: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if outcome.cancelled() and self.dice.random() < 0.5:
                return  # it had not begun
            try:
                result = func(*args)
            except BaseException as error:  # it belongs to whoever waits
                self.call_soon(_fail, outcome, error)
            else:
                self.call_soon(_answer, outcome, result)

        self.put(object(), work)
        return outcome

    def put(self, worker: object, work: Callable[[], None]) -> None:
        """Add a job to those of a thread."""
        self._workers.setdefault(worker, deque()).append(_Job(work, copy_context()))

    def set_alarm(self, timer: "SimulatedTimer", seconds: float) -> None:
        """Have a `threading.Timer` ring."""
        heapq.heappush(self._alarms, (self.now_s + seconds, next(self._numbers), timer))

    def sleep(self, seconds: float) -> None:
        """A thread sleeps: alarms of others ring meanwhile."""
        until = self.now_s + max(0.0, seconds)
        while self._alarms and self._alarms[0][0] <= until:
            self._ring()
        self.now_s = max(self.now_s, until)

    def _ring(self) -> None:
        when, _, timer = heapq.heappop(self._alarms)
        self.now_s = max(self.now_s, when)
        timer.ring()

    def _run_once(self) -> None:
        while not self._round:
            self._fill()
        self.callbacks += 1
        if self.callbacks > CALLBACKS_MAX:
            raise Stuck(f"{self.callbacks} callbacks")
        handle = self._round.popleft()
        if not handle.cancelled() and not _is_dead(_context_of(handle)):
            handle._run()
        self._do_afterwards()

    def afterwards(self, act: Callable[[], None]) -> None:
        """Do something once what runs now is over, before anything else runs."""
        self._afterwards.append(act)

    def _do_afterwards(self) -> None:
        acts, self._afterwards = self._afterwards, []
        for act in acts:
            act()

    def _fill(self) -> None:
        """The next round: what is ready, beside one job of a thread, or else what comes next in time."""
        self.now_s += ROUND_S
        self._wake()
        if self._workers and self.dice.random() > self._slowness:
            self._do_one()
        if self._ready:
            self._round.extend(self._ready)
            self._ready.clear()
            if self.shuffles and len(self._round) > 1:
                self._shuffle()
        elif self._workers and self.dice.random() < 0.95:
            self._do_one()
        else:
            self._pass_time()

    def _shuffle(self) -> None:
        """Let tasks take their turns in any order. Other callbacks keep theirs: asyncio promises it."""
        places = [at for at, handle in enumerate(self._round) if _is_task(handle)]
        turns = [self._round[at] for at in places]
        self.dice.shuffle(turns)
        for at, handle in zip(places, turns, strict=True):
            self._round[at] = handle

    def _wake(self) -> None:
        while self._alarms and self._alarms[0][0] <= self.now_s:
            self._ring()
        while self._scheduled and (self._scheduled[0].when() <= self.now_s or self._scheduled[0].cancelled()):
            timer = heapq.heappop(self._scheduled)
            if not timer.cancelled():
                self._ready.append(timer)

    def _pass_time(self) -> None:
        times = [when for when, _, _ in self._alarms[:1]] + [timer.when() for timer in self._scheduled[:1]]
        if times:
            latest = [self.now_s + SLOW_S] if self._workers else []
            self.now_s = max(self.now_s, min(times + latest))
        elif self._workers:
            self._do_one()
        else:
            raise Stuck("nothing is ready, and nobody waits for a time")

    def _do_one(self) -> None:
        worker = self.dice.choice(list(self._workers))
        jobs = self._workers[worker]
        job = jobs.popleft()
        if not jobs:
            del self._workers[worker]
        if _is_dead(job.context):
            return
        self.now_s += self.dice.choice(JOBS_S)
        asyncio._set_running_loop(None)  # as on a thread
        try:
            job.context.run(job.work)
        finally:
            asyncio._set_running_loop(self)
        self._do_afterwards()


def part_of(handle: asyncio.Handle, name: str) -> object:
    """A part of a handle that asyncio keeps to itself."""
    return getattr(handle, name, None)


def _context_of(handle: asyncio.Handle) -> Context:
    context = part_of(handle, "_context")
    assert isinstance(context, Context)
    return context


def _is_task(handle: asyncio.Handle) -> bool:
    """Whether it is a task's turn."""
    callback: object = part_of(handle, "_callback")
    is_wakeup = isinstance(getattr(callback, "__self__", None), asyncio.Task)
    return is_wakeup or type(callback).__name__ == "TaskStepMethWrapper"


def _answer(outcome: "asyncio.Future[T]", result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _fail(outcome: "asyncio.Future[T]", error: BaseException) -> None:
    if not outcome.done():
        outcome.set_exception(error)


class SimulatedTimer:
    """`threading.Timer`, in the loop's time."""

    def __init__(self, interval: float, function: Callable[[], object]) -> None:
        self._interval = interval
        self._function = function
        self._is_cancelled = False
        self._context = copy_context()
        self.daemon = False

    def start(self) -> None:
        """Ring in a while."""
        _running().set_alarm(self, self._interval)

    def cancel(self) -> None:
        """Do not."""
        self._is_cancelled = True

    def ring(self) -> None:
        """It is time."""
        if not self._is_cancelled and not _is_dead(self._context):
            self._context.run(self._function)


class _Thread:
    """The thread of a connection, which is none: `_Jobs` are the loop's."""

    daemon = False

    def __init__(self, target: object = None, args: object = ()) -> None:
        pass

    def start(self) -> None:
        """There is nothing to start."""

    def join(self) -> None:
        """There is nothing to wait for."""


class _Jobs(Generic[T]):
    """The queue of a connection's thread: what aiosqlite's thread does with an entry, the loop does as a job."""

    def __init__(self) -> None:
        self._loop = _running()

    def put_nowait(self, entry: "tuple[asyncio.Future[T] | None, Callable[[], T]]") -> None:
        """Add one."""
        outcome, function = entry

        def work() -> None:
            try:
                result = function()
            except BaseException as error:  # as aiosqlite's thread does
                if outcome is not None:
                    outcome.get_loop().call_soon_threadsafe(_fail, outcome, error)
            else:
                if outcome is not None:
                    outcome.get_loop().call_soon_threadsafe(_answer, outcome, result)

        self._loop.put(self, work)


_LOOPS: list[SimulatedLoop] = []


def _running() -> SimulatedLoop:
    return _LOOPS[-1]


@contextmanager
def simulated(loop: SimulatedLoop) -> Iterator[None]:
    """Within the block, threads of connections, timers, sleeps and clocks of this process are the loop's."""
    ticks = count(1)
    with (
        patch("aiosqlite.core.Thread", _Thread),
        patch("aiosqlite.core.SimpleQueue", _Jobs),
        patch.object(threading, "Timer", SimulatedTimer),
        patch.object(time, "sleep", loop.sleep),
        patch.object(time, "monotonic", loop.time),
        patch.object(time, "perf_counter", loop.time),
        patch("memory_engine.core.slices.perf_counter", loop.time),  # they have it by its name
        patch("memory_engine.recall.ahead.perf_counter", loop.time),
        patch("memory_engine.recall.index.perf_counter", loop.time),
        patch.object(time, "monotonic_ns", lambda: int(loop.now_s * 1e9) + next(ticks)),
        patch.object(time, "time", lambda: 1_700_000_000 + loop.now_s),
        patch.object(time, "time_ns", lambda: int((1_700_000_000 + loop.now_s) * 1e9) + next(ticks)),
    ):
        _LOOPS.append(loop)
        try:
            yield
        finally:
            _LOOPS.pop()
