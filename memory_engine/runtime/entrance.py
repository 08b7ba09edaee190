"""The entrance of large events, and of very many: encoded in a worker thread, in the order of their senders."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.aside import aside
from memory_engine.core.codec import LARGE_CHARS, chars_of
from memory_engine.core.events.base import Event
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import NewEvent
from memory_engine.core.slices import Steps, finish, in_slices, let_others
from memory_engine.runtime.queue import MANY, Prepared, Preparer, distinct, enveloped

if TYPE_CHECKING:
    from memory_engine.core import large_events
else:
    large_events = lazy_module("memory_engine.core.large_events")


class Entrance:
    """Keeps the senders of a thread in order of arrival, while a large event is encoded in a worker thread.

    `under_way` has the last of them by thread: whoever comes to one that is in it comes after that.
    """

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer
        self.under_way: dict[str, asyncio.Future[None]] = {}

    def moved(self) -> None:
        """Wait for no one of an event loop that has ended."""
        self.under_way.clear()

    @asynccontextmanager
    async def turn(self, thread_id: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A block of one sender: it awaits what it is given, then takes its place in the queue at the block's end."""
        before = self.under_way.get(thread_id)
        mine = self.under_way[thread_id] = asyncio.get_running_loop().create_future()

        async def came() -> None:
            if before is not None:
                await asyncio.wait((before,))

        def leave(_: object = None) -> None:
            mine.set_result(None)
            if self.under_way.get(thread_id) is mine:
                del self.under_way[thread_id]

        try:
            yield came
        finally:
            if before is None or before.done():
                leave()
            else:  # it has failed or was cancelled: the next one still waits for those before
                before.add_done_callback(leave)

    async def prepared(self, events: Sequence[Event | NewEvent]) -> list[Prepared]:
        """Encode several events of one call, large ones in a worker thread. Raises what `Preparer.all` raises.

        The texts of up to `MANY` are taken before anything is awaited, so that waiting cannot change them.
        """
        steps = self._all_begun(events)
        begun = finish(steps) if len(events) <= MANY else await in_slices(steps, let_others)
        return distinct([one if isinstance(one, Prepared) else await self._finished(*one) for one in begun])

    def _all_begun(
        self, events: Sequence[Event | NewEvent]
    ) -> "Steps[list[Prepared | tuple[NewEvent, large_events.SplitEvent]]]":
        found: list[Prepared | tuple[NewEvent, large_events.SplitEvent]] = []
        for new in map(enveloped, events):
            begun = self._begun(new)
            found.append(begun if isinstance(begun, Prepared) else (new, begun))
            yield
        return found

    def _begun(self, new: NewEvent) -> "Prepared | large_events.SplitEvent":
        is_large = chars_of(new.event) > LARGE_CHARS
        split = large_events.split_event(new.event, self._preparer.events) if is_large else None
        return self._preparer.one(new) if split is None else split

    async def _finished(self, new: NewEvent, split: "large_events.SplitEvent") -> Prepared:
        salt = self._preparer.ids.salt()
        encoded = await aside(partial(split.encoded, salt), items=sum(map(len, split.texts)))
        prepared = self._preparer.one(new, (encoded.payload, split.recorded))
        return msgspec.structs.replace(
            prepared, salt=salt, commitment=encoded.commitment, tokens_of_text=encoded.measured.tokens
        )
