"""Looking out for what is new in a store, and following a log: its events, and then whatever comes."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from memory_engine.core.arguments import checked_number
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.core.threads import SCOPE_EPOCHS, Head
from memory_engine.errors import EngineClosed, InvalidArgument, StorageBusy, ThreadNotFound
from memory_engine.runtime.config import POLL_S
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import Observers
from memory_engine.store.reader import PAGE, MomentLike, seq_of

T = TypeVar("T")

SHARE = 20
"""A wait is at least this many times as long as the look before it took."""


class Lookout:
    """Looks at a store for what is new: at once after a commit of this engine, else again and again.

    Other processes write to the store too, without notice. So a wait doubles from the first number of `poll_s`
    to the second, in seconds, until something is found. Commits of threads other than `thread_id` wake no one; those of
    any thread do where it is empty, and none where it is `None`. Between two calls nothing is held.
    """

    def __init__(self, kernel: Kernel, thread_id: str | None = "", poll_s: tuple[float, float] = POLL_S) -> None:
        self._kernel = kernel
        self._thread_id = thread_id
        self._first_s, self._most_s = _checked_poll(poll_s)

    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float = math.inf) -> T | None:
        """The first find of `look`, as soon as it finds anything; `None` if `within_s` seconds have brought nothing.

        A busy file is looked at again. Raises what `look` raises, and `EngineClosed` once the engine closes.
        """
        loop = asyncio.get_running_loop()
        end, wait = loop.time() + within_s, self._first_s
        while True:
            with self._kernel[Observers].news(self._thread_id) as news:  # before the look: nothing falls between
                if self._kernel.tasks.closing:
                    raise EngineClosed
                began = loop.time()
                found: T | None = None
                with suppress(StorageBusy):
                    found = await look()
                now = loop.time()
                if found is not None or now >= end:
                    return found
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(max(wait, SHARE * (now - began)), end - now)):
                        await news.wait()
            wait = min(2 * wait, self._most_s)


def _checked_poll(poll_s: tuple[float, float]) -> tuple[float, float]:
    try:
        first, most = poll_s
    except (TypeError, ValueError):
        raise InvalidArgument(
            "poll_s", poll_s, "give two numbers of seconds: the first wait, and the longest"
        ) from None
    if not 0 < checked_number("poll_s", first) <= checked_number("poll_s", most):
        raise InvalidArgument("poll_s", poll_s, "the first wait is over 0, and the longest not below it")
    return first, most


class Following(AsyncIterator[RecordedEvent]):
    """An endless iterator over the events of a thread (see `ThreadHandle.follow`).

    It is not a generator, which a cancelled call would end for good: whatever is cancelled, the next call goes on with
    the event that was due. Several tasks may take from it; then each event goes to one of them.
    """

    def __init__(
        self,
        kernel: Kernel,
        thread_id: str,
        exists: Callable[[], Awaitable[bool]],
        after: MomentLike | None,
        lookout: Lookout,
    ) -> None:
        self._kernel = kernel
        self._thread_id = thread_id
        self._exists = exists
        self._after = after
        self._lookout = lookout
        self._taking = asyncio.Lock()
        self._begun = False
        self._seen = Head()
        self._rows: deque[StoredEvent] = deque()
        self._generation = kernel.store.generation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RecordedEvent:
        """The next event, once there is one. Raises `EngineClosed`, `ThreadNotFound`, `IntegrityError`."""
        async with self._taking:
            if not self._begun:
                self._seen = await self._lookout.until(self._begin) or Head()
                self._begun = True
            if self._generation != (now := self._kernel.store.generation):  # what was read may be erased by now
                self._rows.clear()
                self._generation = now
            while not self._rows:
                self._rows.extend(await self._lookout.until(self._page) or ())
            stored = self._rows[0]
            recorded = self._kernel.reader.decode(self._thread_id, stored)
            self._rows.popleft()
            self._seen = Head(seq=stored.seq, hash=stored.hash, epoch=self._seen.epoch)
            return recorded

    async def _begin(self) -> Head:
        """The event that it begins after, as a head."""
        if self._after in (None, 0) and not await self._exists():
            return Head()
        store = self._kernel.store
        head = await store.head(self._thread_id)
        seq = head.seq if self._after is None else await seq_of(store, self._thread_id, self._after)
        rows = await store.read_at(self._thread_id, [seq] if seq else [])
        return Head(seq=seq, hash=rows[0].hash if rows else b"", epoch=head.epoch)

    async def _page(self) -> Sequence[StoredEvent] | None:
        """The events after what was seen, if there are any: a page at most.

        Raises `ThreadNotFound` also where a scope was deleted, and another thread has its id now.
        """
        seen = self._seen
        try:
            head = await self._kernel.store.head(self._thread_id)
        except ThreadNotFound:
            if seen.seq:
                raise
            if not await self._exists():
                return None
            head = await self._kernel.store.head(self._thread_id)  # a scope's may have been made a moment ago
        if not seen.seq:
            self._seen = Head(epoch=head.epoch)
        elif head.seq < seen.seq or head.epoch // SCOPE_EPOCHS != seen.epoch // SCOPE_EPOCHS:
            raise ThreadNotFound(self._thread_id)
        found: list[StoredEvent] = []
        upto = min(head.seq, seen.seq + PAGE)
        async for page in self._kernel.reader.pages(self._thread_id, after=seen.seq, upto=upto):
            found += page
        if found and seen.seq and found[0].previous not in (None, seen.hash):
            raise ThreadNotFound(self._thread_id)  # another thread took the id a moment ago
        return found or None
