"""The kernel: the collaborators that every part of an engine is made with. It is data; it decides nothing."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from attrs import Factory, define, field

from memory_engine.caches import Caches
from memory_engine.clock import Clock
from memory_engine.config import EngineConfig
from memory_engine.errors import EngineClosed, ReadOnly
from memory_engine.events.base import Event
from memory_engine.events.execution import ExecutionResume
from memory_engine.events.registry import EventRegistry
from memory_engine.ids import IdSource
from memory_engine.kinds import PLAIN, ThreadKind
from memory_engine.persistence import Store
from memory_engine.preparing import Preparer
from memory_engine.projections.base import Projection
from memory_engine.queue import Request
from memory_engine.reading import LogReader
from memory_engine.recall.passages import Extractors
from memory_engine.records import NewEvent
from memory_engine.reducing import ReducerRegistry
from memory_engine.tasks import Tasks

T = TypeVar("T")


@define(kw_only=True, eq=False)
class Kernel:
    """What the parts of one engine share: where it keeps things, what it knows, and the services of its rooms.

    A service, or a setting, is found by its type: `kernel[Recall]`. Each room asks for those of the rooms below it.
    """

    store: Store
    config: EngineConfig
    events: EventRegistry
    reducers: ReducerRegistry
    projections: tuple[Projection[object], ...]
    extractors: Extractors
    kinds: Mapping[str, ThreadKind]
    clock: Clock
    ids: IdSource
    reader: LogReader = field(
        init=False,
        default=Factory(lambda k: LogReader(k.store, k.events, read_only=k.config.read_only), takes_self=True),
    )
    preparer: Preparer = field(
        init=False,
        default=Factory(lambda k: Preparer(k.events, k.ids, k.clock, k.config.event_bytes_max), takes_self=True),
    )
    caches: Caches = field(init=False, factory=Caches)
    tasks: Tasks = field(init=False, factory=Tasks)
    _services: dict[type, object] = field(init=False, factory=dict)

    def provide(self, kind: type[T], service: T) -> T:
        """Let the parts find a service or a setting by its type; returns it."""
        self._services[kind] = service
        return service

    def __getitem__(self, kind: type[T]) -> T:
        """The service or setting of a type. Raises `KeyError` where none was provided."""
        service: T = self._services[kind]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # by `provide`
        return service

    def made(self, kind: type[T]) -> T:
        """The service of a type, made now without arguments if none is there yet: what a feature keeps for itself."""
        return self[kind] if kind in self._services else self.provide(kind, kind())

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return self.clock.now_us()

    def new_id(self) -> str:
        """A fresh UUIDv7."""
        return self.ids.event_id(self.now_us())

    def kind(self, name: str) -> ThreadKind:
        """What is special about threads of a kind."""
        return self.kinds.get(name, PLAIN)

    def check_writable(self, what: str) -> None:
        """Raise `ReadOnly` where this engine only looks."""
        if self.config.read_only:
            raise ReadOnly(what)

    def request(self, events: Sequence[Event | NewEvent], *, system: bool = False) -> Request:
        """Encode events so that waiting cannot change them. While the engine closes, it takes `system` ones only.

        Raises `EngineClosed`, and what `Preparer.all` raises.
        """
        if self.tasks.closed or (self.tasks.closing and not system):
            raise EngineClosed
        prepared = self.preparer.all(events)
        resuming = all(isinstance(one.event, ExecutionResume) for one in prepared)
        return Request(prepared, system=system or resuming)
