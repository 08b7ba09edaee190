"""The base handle: one thread's events, state and rows. Every view is given one."""

from bisect import bisect_left
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar, cast

import msgspec

from memory_engine.core.arguments import checked_count, checked_text, checked_type
from memory_engine.core.aside import on_thread
from memory_engine.core.chunks import Chunk
from memory_engine.core.clock import to_datetime
from memory_engine.core.codec import LARGE_CHARS, chars_of
from memory_engine.core.events.base import Event
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.records import EventLike, NewEvent, Receipt, RecordedEvent
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadInfo
from memory_engine.errors import (
    EngineClosed,
    ForgottenChunk,
    InvalidArgument,
    InvalidEvent,
    PastIsReadOnly,
    SeqNotInLog,
    ThreadNotFound,
    UnknownView,
)
from memory_engine.projections.base import Projection, ReadableRows, Rows, decoded_row, origin_of
from memory_engine.runtime.config import POLL_S
from memory_engine.runtime.kernel import Kernel, requested
from memory_engine.runtime.queue import MANY, Prepared, Request, enveloped
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.passages import Ahead
from memory_engine.store.protocol import RowSpan, ThreadFilter
from memory_engine.store.reader import MomentLike, seq_of

if TYPE_CHECKING:
    from memory_engine.core import plain_events
    from memory_engine.projections import follower, rebuild
    from memory_engine.runtime import following
else:
    plain_events = lazy_module("memory_engine.core.plain_events")
    following = lazy_module("memory_engine.runtime.following")
    follower, rebuild = lazy_modules("memory_engine.projections", "follower rebuild")

V = TypeVar("V")


def event_list(events: Iterable[EventLike], registry: EventRegistry) -> Sequence[Event | NewEvent]:
    """Several events as a list. Raises `InvalidEvent` for anything else."""
    if isinstance(events, Event | NewEvent | str | bytes | Mapping) or not isinstance(events, Iterable):
        raise InvalidEvent(type(events).__qualname__, "dispatch_all", "a list of events is expected")
    return tuple([plain_events.event_of(one, registry) if isinstance(one, Mapping) else one for one in events])


def _check_projection(projection: object) -> None:
    if not hasattr(projection, "version") or not hasattr(projection, "row"):
        raise InvalidArgument("projection", projection, "give a projection, or its name to `view`")


class ThreadHandle:
    """One thread, now or, with `as_of` set, read-only at the event of that seq.

    A handle costs nothing; create one at any time. The first call on it raises `ThreadNotFound` if the thread does not
    exist. A method with `at`, a moment (see `Thread.at`), reads the thread as of then, and never as of later than
    `as_of`.
    """

    def __init__(self, kernel: Kernel, thread_id: str, *, as_of: int | None = None) -> None:
        self.kernel = kernel
        self.id = thread_id
        self.as_of = as_of
        self._threads = kernel[OpenThreads]
        self._state_then: State | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def exists(self) -> bool:
        """Whether there is anything to read: `False` only for a scope without events."""
        return True

    async def upto(self, at: MomentLike | None) -> int | None:
        """The seq that a read is as of; `None` for the head, which may move.

        Raises `SeqNotInLog`, `EventNotFound`.
        """
        if at is None:
            return self.as_of
        seq = await seq_of(self.kernel.store, self.id, at)
        return seq if self.as_of is None else min(seq, self.as_of)

    async def last_seq(self) -> int:
        """The seq of the last event: `as_of`, or the head's."""
        return self.as_of if self.as_of is not None else (await self.kernel.store.head(self.id)).seq

    def check_present(self, what: str) -> None:
        """Raise `PastIsReadOnly` for a past thread."""
        if self.as_of is not None:
            raise PastIsReadOnly(self.id, self.as_of, what)

    async def runtime(self) -> ThreadRuntime:
        """The thread in memory. Raises `PastIsReadOnly`."""
        self.check_present("change")
        return await self.kernel[OpenThreads].taken(self.id)

    async def followed(self) -> ThreadRuntime:
        """The thread in memory, with what other processes have committed.

        Raises `IntegrityError` if it was found broken: read it as of an earlier seq, or export it.
        """
        runtime = await self.runtime()
        runtime.check_whole()
        await runtime.follow()
        self.kernel[OpenThreads].weigh(runtime)
        return runtime

    # events

    async def dispatch(  # noqa: PLR0913 - what an envelope holds, by keyword
        self,
        event: EventLike,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
        expected_seq: int | None = None,
    ) -> Receipt:
        """Append one event. See `Thread.dispatch`."""
        if self.as_of is not None:
            self.check_present("event")
        if expected_seq is not None:
            checked_count("expected_seq", expected_seq)
        kernel = self.kernel
        loop = kernel.home.entered()
        if kernel.tasks.closing:
            raise EngineClosed
        if not isinstance(event, NewEvent):
            if not isinstance(event, Event):
                event, occurred_at = self._named(event, occurred_at)
            event = NewEvent(event, event_id, occurred_at, causation_id, correlation_id)
        if self.id in kernel.entrance.under_way or chars_of(event.event) > LARGE_CHARS:
            return (await self._submitted_large([event], expected_seq))[0]
        request = Request.of_one(kernel.preparer.one(event), loop, expected_seq)
        runtime = self._threads.held(self.id) or await self._threads.open(self.id)
        submit = runtime.submit if kernel.probe is None else partial(self._probed, runtime)
        return (await submit(request))[0]

    def _named(self, event: object, at: datetime | None) -> tuple[Event, datetime | None]:
        """The event of a mapping and its time: the given one, else its `timestamp` (milliseconds or seconds)."""
        if not isinstance(event, Mapping):
            return cast("Event", event), at  # it is no event, which its encoding refuses
        plain = plain_events.event_of(event, self.kernel.events)
        return plain.event, plain.occurred_at if at is None else at

    async def dispatch_all(
        self, events: Sequence[EventLike], *, expected_seq: int | None = None
    ) -> tuple[Receipt, ...]:
        """Append events in order, all or none. See `Thread.dispatch_all`."""
        self.check_present("events")
        if expected_seq is not None:
            checked_count("expected_seq", expected_seq)
        new = list(map(enveloped, event_list(events, self.kernel.events)))
        if not new:
            return ()
        kernel = self.kernel
        kernel.home.entered()
        is_slow = len(new) > MANY or self.id in kernel.entrance.under_way
        if not kernel.tasks.closing and (is_slow or any(chars_of(one.event) > LARGE_CHARS for one in new)):
            return await self._submitted_large(new, expected_seq)
        runtime = self._threads.held(self.id) or await self._threads.open(self.id)
        return await self._submitted(runtime, kernel.request(new, expected_seq=expected_seq))

    async def _submitted_large(
        self, events: Sequence[Event | NewEvent], expected_seq: int | None
    ) -> tuple[Receipt, ...]:
        """Very many events, or large ones among them, or behind such that are encoded: no sender is overtaken."""
        kernel = self.kernel
        async with kernel.entrance.turn(self.id) as its_turn:
            prepared = await kernel.entrance.prepared(events)
            await its_turn()
            ahead = await self._found_ahead(prepared)
            runtime = await kernel[OpenThreads].taken(self.id)
        kernel.extractors.found.update(ahead)
        try:
            return await self._submitted(runtime, requested(prepared, kernel.home.entered(), expected_seq=expected_seq))
        finally:
            for known in ahead:
                kernel.extractors.found.pop(known, None)  # another sender may have sent the same object

    async def _found_ahead(self, prepared: Sequence[Prepared]) -> Ahead:
        """The passages of large events, where the thread has an index: they are found on another thread."""
        runtime = await self.kernel[OpenThreads].taken(self.id)
        following = enumerate(prepared, runtime.head.seq + 1) if runtime.indexed else ()
        large = [(one.event, seq) for seq, one in following if len(one.payload) > LARGE_CHARS]
        return await on_thread(partial(self.kernel.extractors.ahead, large)) if large else {}

    def _submitted(self, runtime: ThreadRuntime, request: Request) -> Coroutine[object, object, tuple[Receipt, ...]]:
        """The request's way through the queue, as a span where there is a probe."""
        return runtime.submit(request) if self.kernel.probe is None else self._probed(runtime, request)

    async def _probed(self, runtime: ThreadRuntime, request: Request) -> tuple[Receipt, ...]:
        first, count = request.events[0], len(request.events)
        said = {
            "thread": self.id,
            "events": None if count == 1 else count,
            "type": first.event.event_type,
            "event": first.id,
            "causation": first.causation_id,
        }
        with self.kernel.span("create_memory", said):
            return await runtime.submit(request)

    async def events(self, *, after: int = 0, upto: int | None = None) -> AsyncIterator[RecordedEvent]:
        """The log: events with `after` < seq <= `upto` (default: the last), in order."""
        checked_type("after", after, int, give="a seq")
        last = await self.last_seq()
        last = last if upto is None else min(checked_type("upto", upto, int, give="a seq"), last)
        async for event in self.kernel.reader.events(self.id, after=max(0, after), upto=last):
            yield event

    def follow(
        self, *, after: MomentLike | None = 0, poll_s: tuple[float, float] = POLL_S
    ) -> AsyncIterator[RecordedEvent]:
        """The log and every new event. See `Thread.follow`."""
        self.check_present("following")
        lookout = following.Lookout(self.kernel, self.id, poll_s)
        return following.Following(self.kernel, self.id, self.exists, after, lookout)

    async def latest(self, limit: int) -> list[RecordedEvent]:
        """The latest `limit` events, oldest first."""
        first = max(0, await self.last_seq() - checked_count("limit", limit))
        return [event async for event in self.events(after=first)]

    # state

    async def info(self) -> ThreadInfo:
        """The thread's record and head, or its head as of then. Record and status are always today's."""
        found = await self.kernel.store.listed(ThreadFilter(id=self.id))
        if not found:
            raise ThreadNotFound(self.id)
        info = ThreadInfo.of(*found[0])
        if self.as_of is None:
            return info
        tally = (await self.state()).tally
        rows = await self.kernel.reader.rows_at(self.id, {self.as_of})
        digest = rows[self.as_of].hash.hex() if self.as_of in rows else ""
        updated_at = to_datetime(rows[self.as_of].recorded_at_us) if self.as_of in rows else info.created_at
        return msgspec.structs.replace(
            info, updated_at=updated_at, events=self.as_of, chunks=tally.chunks, tokens=tally.tokens, head_hash=digest
        )

    async def state(self, *, at: MomentLike | None = None) -> State:
        """The state after the last event, or as of an earlier moment, without what was forgotten since.

        Shows commits of other processes within `EngineConfig.follow_s`. Raises `SeqNotInLog`, `EventNotFound`.
        """
        seq = await self.upto(at)
        if seq is None:
            return (await self.followed()).state
        reader = self.kernel.reader
        if seq != self.as_of:
            return await reader.shown_at(self.id, seq)
        if self._state_then is None:
            self._state_then = await reader.state_at(self.id, seq)
        self._state_then = (await reader.forgotten(self.id)).forgettings.hidden_in(self._state_then)
        return self._state_then

    async def chunk(self, chunk_id: str) -> Chunk:
        """A chunk by id, even one that a compaction covers. Raises `UnknownChunk`, `ForgottenChunk`."""
        found = await self.kernel.reader.shown(self.id, [chunk_id])
        if chunk_id not in found:
            raise ForgottenChunk("read", chunk_id)
        return found[chunk_id]

    async def at(self, moment: MomentLike) -> "PastHandle":
        """The thread at a moment. Raises `SeqNotInLog`, `EventNotFound`, `ThreadNotFound`."""
        return PastHandle(self.kernel, self.id, await seq_of(self.kernel.store, self.id, moment))

    # rows

    async def view(self, projection: str, *, at: MomentLike | None = None) -> dict[str, object]:
        """The rows of a registered projection, up to date with the head or as of a moment.

        Raises `UnknownView` (a `KeyError`) for an unknown projection.
        """
        known = {p.name: p for p in self.kernel.projections}
        if checked_text("projection", projection) not in known:
            raise UnknownView(projection, tuple(known))
        return dict((await self.rows(known[projection], at=at)).items())

    async def rows(self, projection: Projection[V], *, at: MomentLike | None = None) -> ReadableRows[V]:
        """The rows of a projection: kept in memory once read, or folded from the log as of a moment.

        As of a moment, a view that reads `MemoryForget` leaves out what was forgotten since. Rows follow the thread:
        read what you need from them before you await anything else.
        """
        _check_projection(projection)
        if not await self.exists():
            if at is not None and type(at) is not int:
                raise SeqNotInLog(self.id, at, 0)
            return Rows(projection.row, {})
        seq = await self.upto(at)
        if seq is not None:
            # the engine's own projection of that name: it knows the engine's events
            own = next((one for one in self.kernel.projections if one.name == projection.name), projection)
            found = await rebuild.shown_rows_at(cast("Projection[V]", own), self.kernel.reader, self.id, seq)
            return await self._unforgotten(projection, found)
        if projection.mode == "async":
            worker = self.kernel[follower.ProjectionWorker]
            return cast("Rows[V]", await worker.catch_up(cast("Projection[object]", projection), self.id))
        return await self._unforgotten(projection, await (await self.followed()).rows(projection))

    async def _unforgotten(self, projection: Projection[V], rows: ReadableRows[V]) -> ReadableRows[V]:
        """The rows without those of what was forgotten, where the fold leaves that to its readers."""
        origin = origin_of(projection)
        gone = frozenset() if origin is None else (await self.kernel.reader.forgotten(self.id)).origins
        if origin is None or not gone:
            return rows
        kept = rows.encoded()
        return Rows(projection.row, {key: kept[key] for key, row in rows.items() if origin(row) not in gone})

    async def row(self, projection: Projection[V], key: str) -> V | None:
        """One row of a projection, straight from the store; no other row is read."""
        found = await self.rows_between(projection, checked_text("key", key), f"{key}\0")
        return found[0][1] if found else None

    async def rows_between(
        self,
        projection: Projection[V],
        first: str = "",
        last: str | None = None,
        limit: int | None = None,
        *,
        latest: bool = False,
    ) -> list[tuple[str, V]]:
        """The rows with `first` <= key < `last` (`None`: to the end), in key order, straight from the store.

        `limit` keeps the first N; with `latest`, the last N. As of a moment (a handle from `at`), all rows are folded
        from the log first.
        """
        _check_projection(projection)
        span = RowSpan(
            first=checked_text("first", first),
            last=None if last is None else checked_text("last", last),
            limit=None if limit is None else checked_count("limit", limit),
            latest=checked_type("latest", latest, bool, give="True or False"),
        )
        if not await self.exists():
            return []
        if not await self._is_stored(projection):
            rows = await self.rows(projection)
            keys = list(rows.keys()) if last is None else rows.between(first, last)
            keys = keys[bisect_left(keys, first) :]
            kept = ((key, rows.get(key)) for key in (keys[::-1] if latest else keys)[:limit])
            found = [(key, value) for key, value in kept if value is not None]
            return found[::-1] if latest else found
        decoder = msgspec.json.Decoder(projection.row)
        stored = await self.kernel.store.rows_between(projection.name, projection.version, self.id, span)
        return [(key, decoded_row(decoder, key, value)) for key, value in stored]

    async def _is_stored(self, projection: Projection[V]) -> bool:
        """Bring the stored rows of a projection up to date; false for those of the past, and where they cannot be."""
        if self.as_of is not None:
            return False
        if projection.mode == "async":
            worker = self.kernel[follower.ProjectionWorker]
            return await worker.bring(cast("Projection[object]", projection), self.id)
        runtime = await self.followed()
        await runtime.current(projection)
        return runtime.projections.is_stored(projection)

    async def measure(self, projection: Projection[V]) -> tuple[int, int]:
        """The number of rows in a projection and their size in bytes of JSON, without reading them."""
        _check_projection(projection)
        if not await self.exists():
            return 0, 0
        if not await self._is_stored(projection):
            encoded = (await self.rows(projection)).encoded()
            return len(encoded), sum(map(len, encoded.values()))
        return await self.kernel.store.measure_rows(projection.name, projection.version, self.id)


class PastHandle(ThreadHandle):
    """A thread after the event at `seq`, read-only."""

    def __init__(self, kernel: Kernel, thread_id: str, seq: int) -> None:
        super().__init__(kernel, thread_id, as_of=seq)

    @property
    def seq(self) -> int:
        """The seq that the thread is as of."""
        return cast("int", self.as_of)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, seq={self.seq})"

    def then(self, seq: int) -> Self:
        """The same thread at another seq."""
        return type(self)(self.kernel, self.id, seq)

    async def event(self) -> RecordedEvent | None:
        """The event at `seq`, the last one by then; `None` before the first."""
        rows = await self.kernel.reader.rows_at(self.id, {self.seq})
        return self.kernel.reader.decode(self.id, rows[self.seq]) if self.seq in rows else None
