"""Plug-ins: a set of events, reducers, compactors, projections and renderers under one name.

    billing = Plugin("billing")

    @billing.event("invoice_paid")
    class InvoicePaid(Event): ...

    @billing.reducer(InvoicePaid)
    def reduce_invoice_paid(view, event, ctx): ...

Given to `open(..., plugins=[billing])`, or published as an entry point of the group
`memory_engine.plugins` and opened with `entry_points=True`. The command line knows those that are published.
"""

import importlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from attrs import define, field

from memory_engine.context.standing import BlockSource, Place, ReadBlock
from memory_engine.core.events.base import ChunkOrigin, Delivers, Event, EventRole, event
from memory_engine.core.events.registry import EventRegistry, Upcaster
from memory_engine.core.lazy import StandIn
from memory_engine.core.reduction import Reducer, ReducerRegistry, reduce_view_change
from memory_engine.errors import InvalidArgument
from memory_engine.projections.base import Projection
from memory_engine.recall.extractors import noted, silent
from memory_engine.runtime.kernel import Kernel, ThreadKind
from memory_engine.store.passages import Extracted, Extractor

if TYPE_CHECKING:  # loaded by those who use them
    from memory_engine.compaction.base import Compactor
    from memory_engine.context.rendering import Renderer
    from memory_engine.core.recordings import Reader

ENTRY_POINT_GROUP = "memory_engine.plugins"
_log = logging.getLogger("memory_engine")

_REDUCER_PARTS = 4
_ADD_REDUCER = "`@plugin.reducer(EventClass)` above a function"

E = TypeVar("E", bound=Event)
T = TypeVar("T")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., object])


@define
class Plugin:
    """What one package adds to an engine. It takes effect when you open an engine with it."""

    name: str
    events: list[type[Event]] = field(factory=list)
    upcasters: list[tuple[str, int, Upcaster]] = field(factory=list)
    reducers: list[tuple[type[Event], Reducer[Event], str, int]] = field(factory=list)
    replaced_reducers: list[tuple[str, Reducer[Event]]] = field(factory=list)
    compactors: "list[tuple[Compactor, int]]" = field(factory=list)
    projections: list[Projection[object]] = field(factory=list)
    renderers: "list[tuple[str, Renderer]]" = field(factory=list)
    extractors: dict[str, Extractor] = field(factory=dict)
    kinds: list[ThreadKind] = field(factory=list)
    blocks: list[BlockSource] = field(factory=list)
    settings: list[object] = field(factory=list)
    attachments: list[Callable[[Kernel], None]] = field(factory=list)
    readers: "list[Reader]" = field(factory=list)

    def event(  # noqa: PLR0913 - as the decorator `event`, which says what each is
        self,
        name: str,
        *,
        version: int = 1,
        tracked: bool = False,
        role: EventRole = "other",
        chunks: ChunkOrigin = "any",
        delivers: Delivers = "",
        upkeep: bool = False,
    ) -> Callable[[type[E]], type[E]]:
        """Declare an event class and add it; `tracked` if a view (see `projections.View`) reads it."""
        declare = event(
            name, version=version, tracked=tracked, role=role, chunks=chunks, delivers=delivers, upkeep=upkeep
        )

        def add(cls: type[E]) -> type[E]:
            declared = declare(cls)
            self.events.append(declared)
            return declared

        return add

    def upcaster(self, name: str, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Add the step from one schema version to the next."""

        def add(function: Upcaster) -> Upcaster:
            self.upcasters.append((name, from_version, function))
            return function

        return add

    def reducer(self, *classes: type[Event], name: str = "", order: int = 0) -> Callable[[F], F]:
        """Add a reducer for events of these classes; built-in ones have order 0."""

        def add(function: F) -> F:
            for cls in classes:
                if not isinstance(cls, type):
                    raise InvalidArgument("the event of a reducer", cls, f"give the event's class: {_ADD_REDUCER}")
                full = name or getattr(function, "__name__", self.name)
                unique = full if len(classes) == 1 else f"{full}[{cls.event_type}]"
                self.reducers.append((cls, cast("Reducer[Event]", function), unique, order))  # typed by its user
            return function

        return add

    def passages(self, cls: type[Event]) -> Callable[[F], F]:
        """Define which passages events of a class add to search, in place of the default ones."""

        def add(function: F) -> F:
            self.extractors[cls.event_type] = cast("Extractor", function)  # typed by its user
            return function

        return add

    def silent(self, *classes: type[Event]) -> None:
        """Exclude all texts in events of these classes from search."""
        for cls in classes:
            self.extractors[cls.event_type] = silent

    def kind(self, kind: ThreadKind) -> None:
        """Declare the rules for threads of a kind."""
        self.kinds.append(kind)

    def context_block(
        self, name: str, *, place: Place = "first", share: float = 0.1, least: int = 96
    ) -> Callable[[ReadBlock], ReadBlock]:
        """Contribute a standing block to the contexts of conversations (see `ContextPolicy.blocks`).

        It may take `share` of a budget, and `least` tokens of a small one. Blocks appear in the order in which they are
        contributed: with place `first` after the instructions, with `turn` before the newest turn.
        """

        def add(function: ReadBlock) -> ReadBlock:
            self.blocks.append(BlockSource(name=name, read=function, place=place, share=share, least=least))
            return function

        return add

    def setting(self, value: object) -> None:
        """Keep a value that the plug-in's views look up by its type: `thread.kernel[type(value)]`."""
        self.settings.append(value)

    def attached(self, function: Callable[[Kernel], None]) -> Callable[[Kernel], None]:
        """Call a function with the kernel of each opened engine: to follow commits, deliveries, deletions."""
        self.attachments.append(function)
        return function

    def reader(self, reader: "Reader") -> None:
        """Add a reader of recordings, which `ingest` tries before the built-in ones."""
        self.readers.append(reader)

    def replaces_reducer(self, name: str) -> Callable[[F], F]:
        """Replace the reducer with this name."""

        def add(function: F) -> F:
            self.replaced_reducers.append((name, cast("Reducer[Event]", function)))  # typed by its user
            return function

        return add

    def compactor(self, compactor: "Compactor", *, priority: int = 10) -> None:
        """Add a compactor; among those that can take the chunks, the highest priority runs. Built-in ones have 0."""
        self.compactors.append((compactor, priority))

    def projection(self, projection: Projection[V]) -> None:
        """Add a read model. `open` raises `UntrackedEvents` if only some of its `events` are tracked."""
        self.projections.append(cast("Projection[object]", projection))  # its rows are of its own type

    def install(self, events: EventRegistry, reducers: ReducerRegistry) -> None:
        """Register the events with an engine, also those that only have a reducer, and run the reducers.

        Raises `DuplicateRegistration`, `UndeclaredEvent`, `InvalidArgument` for what is no event's class or no reducer,
        and `UnknownReducer` if a reducer that it replaces does not exist.
        """
        given: list[object] = [*self.reducers]
        for entry in given:
            if not isinstance(entry, tuple) or len(entry) != _REDUCER_PARTS or not callable(entry[1]):
                raise InvalidArgument(f"a reducer of plug-in {self.name!r}", entry, f"add it by {_ADD_REDUCER}")
        reduced = {cls: None for cls, *_ in self.reducers}
        for cls in (*self.events, *reduced):
            events.register(cls)
        for name, version, upcaster in self.upcasters:
            events.register_upcaster(name, version, upcaster)
        for cls in self.events:
            if cls.event_chunks == "none" and cls not in reduced:
                reducers.add(cls, reduce_view_change, name=_view_change(cls.event_type))
        for cls, reducer, name, order in self.reducers:
            reducers.add(cls, reducer, name=name, order=order)
        for name, reducer in self.replaced_reducers:
            reducers.replace(name, reducer)

    def renderer(self, chunk_type: str) -> "Callable[[Renderer], Renderer]":
        """Define how chunks of a type look in the context."""

        def add(function: "Renderer") -> "Renderer":
            self.renderers.append((chunk_type, function))
            return function

        return add


class DeferredPlugin(Plugin):
    """A plug-in of this library whose code is loaded with the first use of something that it adds.

    `said` is all of that by name, with stand-ins in place of functions and projections. Besides: the names of its event
    types, the reducers of those that change chunks, and which of them are `delivering` facts for other threads.
    """

    def __init__(
        self,
        said: Plugin,
        event_types: Sequence[str],
        reduced: Mapping[str, StandIn] = MappingProxyType({}),
        delivering: Sequence[str] = (),
    ) -> None:
        super().__init__(
            said.name,
            projections=said.projections,
            renderers=said.renderers,
            extractors={one: partial(self._extracted, one) for one in event_types},
            kinds=said.kinds,
            blocks=said.blocks,
            settings=said.settings,
            attachments=said.attachments,
        )
        self.event_types = event_types
        self.delivering = delivering
        self._reduced = reduced

    @cached_property
    def loaded(self) -> Plugin:
        """The plug-in itself."""
        return cast("Plugin", StandIn(f"memory_engine.views.{self.name}.plugin:PLUGIN").original)

    def install(self, events: EventRegistry, reducers: ReducerRegistry) -> None:
        """Register event types and reducers by name. Raises `DuplicateRegistration`."""
        events.expect(self.event_types, self._classes, self.delivering)
        for one in self.event_types:
            reducer = self._reduced.get(one)
            if reducer is None:
                reducers.add_for(one, reduce_view_change, name=_view_change(one))
            else:
                reducers.add_for(one, cast("Reducer[Event]", reducer), name=reducer.__name__)

    @cached_property
    def _known(self) -> EventRegistry:
        known = EventRegistry()
        self.loaded.install(known, ReducerRegistry())
        return known

    def _classes(self) -> EventRegistry:
        return self._known

    def _extracted(self, event_type: str, event: Event, seq: int) -> Extracted:
        return self.loaded.extractors.get(event_type, noted)(event, seq)


def _view_change(event_type: str) -> str:
    return f"{reduce_view_change.__name__}[{event_type}]"


class RecordingReaders(msgspec.Struct, frozen=True):
    """The readers of recordings that an engine's plug-ins add."""

    added: "tuple[Reader, ...]" = ()


def installed_plugins() -> list[Plugin]:
    """The plug-ins that installed packages publish, in order of name.

    One that cannot be loaded, or is not a plug-in, is left out, with a warning in the log of `memory_engine`.
    """
    if not _is_published():
        return []
    from importlib.metadata import entry_points  # a package of mail, zip and CSV readers with it

    found: list[Plugin] = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            found.append(_checked_plugin(point.load()))
        except Exception as error:  # a package of somebody else's: the others work on
            _told_once(point.name, point.value, f"{type(error).__name__}: {error}")
    return found


def plugin_at(place: str) -> Plugin:
    """The plug-in of a module, by `"module:name"`. Raises `InvalidArgument`, with the reason."""
    return object_at(place, "a plug-in", _checked_plugin)


def object_at(place: str, what: str, checked: Callable[[object], T]) -> T:
    """An object of an application's module, by `"module:name"`, as `checked` returns it. Raises `InvalidArgument`."""
    module, _, name = place.partition(":")
    try:
        return checked(getattr(importlib.import_module(module), name))
    except Exception as error:  # an application's module may raise anything as it is imported
        why = f"{type(error).__name__}: {error}"
        raise InvalidArgument(what, place, f'{why}; name it "module:name"') from error


def _checked_plugin(found: object) -> Plugin:
    if isinstance(found, Plugin):
        return found
    raise TypeError(f"it is not a `memory_engine.Plugin` but of the type {type(found).__name__}")


@cache
def _told_once(name: str, value: str, why: str) -> None:
    _log.warning("the plug-in %r (%s) of an installed package is left out: %s", name, value, why)


def _is_published() -> bool:
    """Whether any installed package publishes plug-ins.

    It is asked at every start of the command line. `importlib.metadata` says so too, and takes as long as all the rest.
    """
    group = f"[{ENTRY_POINT_GROUP}]".encode()
    for folder in map(Path, dict.fromkeys(sys.path)):
        with suppress(OSError):
            for lists in (*folder.glob("*.dist-info/entry_points.txt"), *folder.glob("*.egg-info/entry_points.txt")):
                if group in lists.read_bytes():
                    return True
    return False
