"""The kernel: the collaborators that every part of an engine is made with. It is data; it decides nothing.

It also holds the kinds of threads, and the caches of views in memory.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from attrs import Factory, define, field

from memory_engine.core.clock import Clock, SystemClock, checked_us
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ExecutionResume
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.ids import IdSource
from memory_engine.core.loops import Home
from memory_engine.core.records import NewEvent
from memory_engine.core.reduction import ReducerRegistry
from memory_engine.core.slices import Pace
from memory_engine.core.state import State
from memory_engine.errors import EngineClosed, InvalidArgument, ReadOnly
from memory_engine.language.masking import Mask, MaskInForce
from memory_engine.projections.base import Projection
from memory_engine.runtime.config import EngineConfig
from memory_engine.runtime.entrance import Entrance
from memory_engine.runtime.probe import UNPROBED, Probe, Span
from memory_engine.runtime.queue import Prepared, Preparer, Request
from memory_engine.runtime.tasks import Tasks
from memory_engine.store.passages import Extractors
from memory_engine.store.protocol import Store
from memory_engine.store.reader import LogReader


class ThreadKind(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of threads of one kind.

    `check` raises `InvalidEvent` for an event that they do not take; `admit` does so for one with its envelope, and
    returns it as they keep it. Times are recorded to the `grain_us` (microseconds). Threads of a `pooled` kind are
    read on behalf of many tenants and belong to none: nothing in them says where it came from, and searches of a
    whole store leave them out.
    """

    name: str = ""
    check: Callable[[Event], None] | None = None
    admit: Callable[[Prepared], Prepared] | None = None
    grain_us: int = 1
    pooled: bool = False

    def recorded_us(self, now_us: int) -> int:
        """The time that is kept of a moment (both in microseconds since 1970)."""
        return now_us - now_us % self.grain_us


PLAIN = ThreadKind()
"""The kind of threads without special rules."""


T = TypeVar("T")


OF_SEVERAL = ""
"""In the place of a thread's id: values are of several threads."""


class Caches:
    """Values by thread and name. They go when their thread leaves memory, is deleted, or forgets something."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, object]] = {}
        self._bounded: dict[type, OrderedDict[tuple[str, str], None]] = {}

    def get(self, thread_id: str, name: str, kind: type[T]) -> T | None:
        """The value, if it is there and of this kind."""
        value = self._of.get(thread_id, {}).get(name)
        return value if isinstance(value, kind) else None

    def put(self, thread_id: str, name: str, value: object) -> None:
        """Keep a value."""
        self._of.setdefault(thread_id, {})[name] = value

    def made(self, thread_id: str, name: str, make: Callable[[], T], *, at_most: int = 0) -> T:
        """The value, made now if it is not there. All values of a name are of one kind.

        With `at_most`, only that number of values of the kind is kept over all threads, the most recently used.
        """
        of = self._of.setdefault(thread_id, {})
        if name not in of:
            of[name] = make()
        value: T = of[name]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # made by this caller
        if at_most:
            self._bound(type(value), (thread_id, name), at_most)
        return value

    def _bound(self, kind: type, key: tuple[str, str], at_most: int) -> None:
        order = self._bounded.setdefault(kind, OrderedDict())
        order[key] = None
        order.move_to_end(key)
        while len(order) > at_most:
            (thread_id, name), _ = order.popitem(last=False)
            self._of.get(thread_id, {}).pop(name, None)

    def drop(self, thread_id: str) -> None:
        """Drop all values of a thread, and those of several: it was deleted, or forgot something."""
        self.unload(thread_id)
        self._of.pop(OF_SEVERAL, None)

    def unload(self, thread_id: str) -> None:
        """Drop all values of a thread that leaves memory."""
        self._of.pop(thread_id, None)

    def clear(self) -> None:
        """Drop all values."""
        self._of.clear()


@define(kw_only=True, eq=False)
class Kernel:
    """The collaborators that the parts of one engine share: its store, its registries, and the services of its rooms.

    A service, or a setting, is found by its type: `kernel[Recall]`. Each room asks for those of the rooms below it.
    """

    _store: Store = field(alias="store")
    config: EngineConfig
    events: EventRegistry
    reducers: ReducerRegistry
    projections: tuple[Projection[object], ...]
    extractors: Extractors
    kinds: Mapping[str, ThreadKind]
    clock: Clock
    ids: IdSource
    probe: Probe | None = None
    _reader: LogReader = field(
        init=False,
        default=Factory(
            lambda k: LogReader(k._store, k.events, read_only=k.config.read_only, check_hashes=k.config.check_hashes),
            takes_self=True,
        ),
    )
    preparer: Preparer = field(
        init=False,
        default=Factory(
            lambda k: Preparer(k.events, k.ids, k.clock, k.config.event_bytes_max, k.probe and k.probe.correlation_id),
            takes_self=True,
        ),
    )
    read_time: Callable[[], int] = field(
        init=False,
        default=Factory(
            lambda k: k.clock.now_us if type(k.clock) is SystemClock else k.now_us,
            takes_self=True,
        ),
    )
    """As `now_us`, but of the system's own clock without a check."""
    caches: Caches = field(init=False, factory=Caches)
    tasks: Tasks = field(init=False, factory=Tasks)
    pace: Pace = field(init=False, factory=Pace)
    entrance: Entrance = field(init=False, default=Factory(lambda k: Entrance(k.preparer), takes_self=True))
    home: Home = field(
        init=False,
        default=Factory(
            lambda k: Home(
                is_fixed=k._store.is_of_one_loop, is_shared=k.config.read_only and not k._store.is_of_one_loop
            ),
            takes_self=True,
        ),
    )
    _services: dict[type, object] = field(init=False, factory=dict)
    _later: dict[str, Callable[[], object]] = field(init=False, factory=dict)

    @property
    def store(self) -> Store:
        """The store: calls from another thread's event loop than the engine's raise `WrongEventLoop`."""
        if threading.get_ident() != self.home.thread:
            self.home.look()
        return self._store

    @property
    def reader(self) -> LogReader:
        """Reads logs, decoded: the same."""
        if threading.get_ident() != self.home.thread:
            self.home.look()
        return self._reader

    def moved(self) -> None:
        """Begin on another event loop: what was paced on the one before has ended, or waits for ever."""
        self.pace = Pace()

    def span(self, operation: str, said: Mapping[str, object]) -> Span:
        """A span of the probe, if there is one: `with kernel.span("context", {"thread": id}) as span:`."""
        return UNPROBED if self.probe is None else self.probe.span(operation, said)

    @property
    def mask(self) -> Mask | None:
        """The parts of a text that may leave the engine; `None`: all."""
        return self.made(MaskInForce).mask

    def provide(self, kind: type[T], service: T) -> T:
        """Register a service or a setting under its type; returns it."""
        self._services[kind] = service
        return service

    def provide_later(self, place: str, make: Callable[[], object]) -> None:
        """Register a service by the place of its type (`"package.module:Type"`), to be made when it is first asked for.

        The type is loaded then, by the one who asks.
        """
        self._later[place] = make

    def __getitem__(self, kind: type[T]) -> T:
        """The service or setting of a type. Raises `KeyError` where none was provided."""
        if kind not in self._services:
            self._make(kind)
        service: T = self._services[kind]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # by `provide`
        return service

    def _make(self, kind: type) -> bool:
        """Make the service of a type that was to be made later. Return whether there is one."""
        make = self._later.get(f"{kind.__module__}:{kind.__qualname__}")
        if make is not None:
            self._services[kind] = make()
        return make is not None

    def made(self, kind: type[T], make: Callable[[], T] | None = None) -> T:
        """The service of a type, made now if it is missing, without arguments unless `make` does it."""
        is_made = kind in self._services or self._make(kind)
        return self[kind] if is_made else self.provide(kind, (make or kind)())

    def now_us(self) -> int:
        """Microseconds since 1970, UTC. Raises `InvalidArgument` where the clock gives what is not a time."""
        now_us = self.clock.now_us()
        try:
            return checked_us(now_us)
        except (TypeError, ValueError) as error:
            raise InvalidArgument("the clock's time", now_us, str(error)) from None

    def new_id(self) -> str:
        """A fresh UUIDv7."""
        return self.ids.event_id(self.now_us())

    def kind(self, name: str) -> ThreadKind:
        """The rules of threads of a kind."""
        return self.kinds.get(name, PLAIN)

    @property
    def pooled_kinds(self) -> tuple[str, ...]:
        """The kinds whose threads several tenants' users share."""
        return tuple(name for name, kind in self.kinds.items() if kind.pooled)

    def check_writable(self, what: str) -> None:
        """Raise `ReadOnly` if this engine only reads."""
        if self.config.read_only:
            raise ReadOnly(what)

    def request(
        self,
        events: Sequence[Event | NewEvent],
        *,
        system: bool = False,
        check: Callable[[State], None] | None = None,
        expected_seq: int | None = None,
    ) -> Request:
        """Encode events so that waiting cannot change them. While the engine closes, it takes `system` ones only.

        `check` raises if they must not be appended to a state, `expected_seq` says to which (see `Request`).

        Raises `EngineClosed`, and what `Preparer.all` raises.
        """
        if self.tasks.closed or (self.tasks.closing and not system):
            raise EngineClosed
        prepared = self.preparer.all(events)
        return requested(prepared, self.home.entered(), system=system, check=check, expected_seq=expected_seq)


def requested(
    prepared: Sequence[Prepared],
    loop: asyncio.AbstractEventLoop,
    *,
    system: bool = False,
    check: Callable[[State], None] | None = None,
    expected_seq: int | None = None,
) -> Request:
    """The request for encoded events, of a caller on this loop. Those that end a pause do not wait for its end."""
    return Request(
        events=prepared,
        has_callers_ids=any(one.id_is_callers for one in prepared),
        future=loop.create_future(),
        system=system or all(isinstance(one.event, ExecutionResume) for one in prepared),
        check=check,
        expected_seq=expected_seq,
        based_on=expected_seq,
    )
