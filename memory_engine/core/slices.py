"""Work on the event loop in slices, so that whatever else waits there waits for no more than a moment.

A worker thread would do worse: while it computes, the interpreter's lock goes round between the two in turns of five
milliseconds, and each wake-up of the loop, and each statement of a commit, waits for one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from math import inf
from time import perf_counter
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that may rest at each of its steps, which take well under a millisecond."""
Pause: TypeAlias = Callable[[], Awaitable[float]]
"""Waits for a good moment, and gives the seconds of work that it has room for."""
IDLE_S = 0.000_5
"""Seconds of work once nothing else has happened for a while; twice as much each time that it goes on so."""
IDLE_S_MAX = 0.003
BUSY_S = 0.000_4
"""Seconds of work after a commit: more are coming."""
BUSY_S_MAX = 0.002
SHARE = 0.5
"""With many commits at once a slice takes this share of the time since the last one: work never starves."""
QUIET_S = 0.02
"""After this number of seconds without a commit no one waits for the next: an agent's model thinks far longer."""
LOOK_S = 0.1
"""Seconds between two looks at whether work that waits for others presses."""
PATIENCE_S = 1.0
"""Seconds for which work that can wait is put off while commits follow one another."""
REST_S = 0.001
"""After this number of seconds without a commit nothing else runs. Meanwhile other threads have the interpreter."""


def finish(steps: Steps[T]) -> T:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def in_slices(steps: Steps[T], pause: Pause) -> T:
    """Do the steps on the event loop, as many after each pause as there is room for. Raises what they raise."""
    while True:
        until = await pause() + perf_counter()
        try:
            while perf_counter() < until:
                next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def let_others() -> float:
    """The pause of work that nothing is known of: whatever waits on the loop goes first."""
    await asyncio.sleep(0)
    return IDLE_S_MAX


IN_A_ROW_MAX = 8
"""Commits that end at once, before the loop has a turn: about a millisecond."""


class Pace:
    """The pace of one engine's commits on an event loop: its turns between them, and the pauses of background work.

    Such work is done one slice at a time, after a commit or while there is none. A caller that dispatches in a row
    never waits for one of its commits; after some of them the loop has a turn. `committed_s` is when the last one
    ended, by `perf_counter`; those in `at_next_commit` are called once, when the next one has.
    """

    def __init__(self) -> None:
        self._in_a_row = 0
        self._alone = asyncio.Lock()
        self._line = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._moment: asyncio.Future[bool] | None = None
        self._idle_s = IDLE_S
        self.committed_s = -inf
        self.at_next_commit: list[Callable[[], None]] = []
        self._awaited = 0
        self._hurry = asyncio.Event()

    @asynccontextmanager
    async def after_others(self, presses: Callable[[], bool]) -> AsyncIterator[None]:
        """A block for which others are waited for, that one is done after the other; not once it presses."""
        taking = asyncio.ensure_future(self._alone.acquire())
        try:
            while not (taking.done() or presses()):
                await asyncio.wait([taking], timeout=LOOK_S)
            yield
        finally:
            if not taking.cancel() and taking.result():
                self._alone.release()

    def is_loops_turn(self) -> bool:
        """Whether the next request should wait for a round of the loop; then counting starts over."""
        if self._in_a_row < IN_A_ROW_MAX:
            return False
        self._in_a_row = 0
        return True

    def committed(self, *, at_once: bool = False) -> None:
        """A commit has ended, `at_once` if no one had to wait for it: the loop and the connection have a moment."""
        self._in_a_row += at_once
        self.committed_s = perf_counter()
        if self._moment is not None:
            self._end(after_commit=True)
        if self.at_next_commit:
            called, self.at_next_commit = self.at_next_commit, []
            for call in called:
                call()

    async def quiet(self, presses: Callable[[], bool] = lambda: False) -> None:
        """Wait until commits pause, it presses, or a caller waits for it; not for ever, and in turn."""
        latest_s = perf_counter() + PATIENCE_S
        async with self._line:
            while not presses() and (left_s := min(self.committed_s + QUIET_S, latest_s) - perf_counter()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._hurry.wait()
                        return

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """A block that waits for the work, which then waits for no quiet moment and takes no rest."""
        self._awaited += 1
        self._hurry.set()
        try:
            yield
        finally:
            self._awaited -= 1
            if not self._awaited:
                self._hurry.clear()

    def _end(self, *, after_commit: bool) -> None:
        if self._moment is not None and not self._moment.done():
            self._moment.set_result(after_commit)

    async def pause(self) -> float:
        """Wait for the end of a commit, or until none has come for a while, in turn. See `Pause`."""
        async with self._turn:
            begun = perf_counter()
            loop = asyncio.get_running_loop()
            self._moment = loop.create_future()
            rest_s = 0.0 if self._awaited else REST_S
            timer = loop.call_later(rest_s, lambda: self._end(after_commit=False))
            try:
                after_commit = await self._moment
            finally:
                timer.cancel()
            if after_commit:
                self._idle_s = IDLE_S
                return min(max((perf_counter() - begun) * SHARE, BUSY_S), BUSY_S_MAX)
            self._idle_s = min(2 * self._idle_s, IDLE_S_MAX)
            return self._idle_s
