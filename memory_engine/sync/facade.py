"""Handles that wait: each wraps an object of an engine that lives in an event loop on a thread of its own.

All engines of a process share one loop. A method of a handle is the object's own, done there while its caller waits:
coroutines are awaited, asynchronous iterators and context managers become synchronous ones, and a result becomes a
handle again if there is one for it. Nothing here knows a method by name, except for the exceptions listed below.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, wraps
from importlib import import_module
from inspect import getattr_static, isasyncgen, isawaitable, signature
from operator import attrgetter
from types import FunctionType, MethodType
from typing import ClassVar, Self, TypeVar, cast

from anyio import to_thread
from anyio.from_thread import BlockingPortalProvider

from memory_engine import wiring
from memory_engine.engine import Engine
from memory_engine.errors import EngineClosed, EngineForked
from memory_engine.moved import where_now
from memory_engine.storage import places

T = TypeVar("T")

HOMES = {
    "Engine": "engine",
    "Thread": "thread",
    "Past": "thread",
    "Replay": "administration.of_thread",
    "Admin": "administration.of_thread",
    "ThreadCompactions": "administration.compactions",
    "Views": "views.of_thread",
    "StoreAdmin": "administration.of_store",
    "Transfer": "administration.of_store",
    "Scope": "scopes",
    "User": "scopes",
    "Tenant": "scopes",
    "Agent": "scopes",
    "Industry": "scopes",
    "BriefView": "views.brief.view",
    "Scratchpad": "views.scratchpad.view",
    "Promotion": "views.promotion.view",
    "Flows": "views.playbooks.flows",
    "Conversation": "views.conversation.view",
    "ToolCache": "views.tool_cache.view",
    "Screen": "views.screen.view",
    "Statements": "views.statements.view",
    "Memory": "views.layers.view",
    "SharedMemory": "views.layers.shared_memory",
    "Preferences": "views.preferences.view",
    "Playbooks": "views.playbooks.view",
    "Documents": "views.documents.view",
    "MemoryFiles": "views.memory_files.view",
    "Patterns": "views.patterns.view",
    "AgentMd": "views.promotion.agent_md",
    "Recording": "runtime.recording",
    "AgentLifecycle": "agents.lifecycle",
    "Run": "agents.lifecycle",
    "MemoryTools": "agents.tools",
}
"""The classes that there is a handle for, and where they are."""
LEFT_OUT = {
    "Engine": {"kernel", "reader", "recall", "store"},
    "Thread": {"check_present", "followed", "kernel", "of", "rows", "runtime", "upto"},
    "Views": {"of", "rows"},
}
"""The parts that views are made of, by class. They live in the loop: reach them through `Engine.call`."""
MADE_BY_HAND = frozenset({"AgentLifecycle", "MemoryTools"})
"""Those that you make yourself, of handles."""
ASKED_IN_A_THREAD = {"bisect": "predicate", "cached_call": "call"}
"""Functions of yours that may take long and may use handles: they run in a thread that may wait, by method."""

ITEMS_MAX = 100
"""So many items of a log are fetched at once."""

_PORTALS: dict[int, BlockingPortalProvider] = {}
"""By process: one that was forked off has none of its parent's threads."""


class _Loop:
    """The event loop in which an engine lives, for the threads that wait for it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._provider = _PORTALS.setdefault(self._process, BlockingPortalProvider())
        self._portal = self._provider.__enter__()
        self._is_left = False
        self._loop, self._thread = self._portal.call(_here)

    def done(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """The work's result. Ctrl-C, or another error in the thread that waits, cancels the work.

        The portal has calls for this. They open a cancel scope and a task group's task each, for three times the cost.
        Raises `EngineForked` in another process, `EngineClosed` once the loop was left, and `RuntimeError` in the
        loop's own thread, which would wait for itself.
        """
        if self._process != os.getpid():
            raise EngineForked(self._process)
        if self._is_left:
            raise EngineClosed
        if self._thread == threading.get_ident():
            raise RuntimeError("what the engine calls while it works (an observer, say) cannot wait for the engine")
        tasks: list[asyncio.Task[T]] = []
        ended = threading.Lock()
        ended.acquire()

        def start() -> None:
            tasks.append(self._loop.create_task(work()))
            tasks[0].add_done_callback(lambda _: ended.release())

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        try:
            self._loop.call_soon_threadsafe(start)
            ended.acquire()
        except BaseException:  # whatever ended the waiting, no one waits any more; it goes on to the caller
            self._loop.call_soon_threadsafe(cancel)
            raise
        if tasks[0].cancelled():
            raise EngineClosed
        return tasks[0].result()

    def leave(self) -> None:
        """End the loop, if no other engine lives in it."""
        if not self._is_left:
            self._is_left = True
            self._provider.__exit__(None, None, None)

    def used(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Enter it and leave it in one task of the loop."""
        return self._portal.wrap_async_context_manager(manager)

    @property
    def is_here(self) -> bool:
        """Whether it can be reached: it was not left, and this is its process."""
        return not self._is_left and self._process == os.getpid()

    # what goes in, and what comes out

    def asked(self, method: Callable[..., object], *values: object, **named: object) -> object:
        """A method's result, computed in the loop."""
        given = partial(
            method, *map(_unwrap_handles, values), **{name: _unwrap_handles(value) for name, value in named.items()}
        )
        return self.shown(self.done(partial(_await_result, given)))

    def shown(self, value: object) -> object:
        """A value as those see it that do not await."""
        name = type(value).__name__
        if name in HOMES and (known := sync_class(name)).stands_for is type(value):
            return known._of(value, self)
        if isinstance(value, AsyncIterator):
            return self._items(value)
        if isinstance(value, AbstractAsyncContextManager):
            return self._block(value)
        return partial(self.asked, value) if isinstance(value, FunctionType | MethodType) else value

    def _items(self, items: AsyncIterator[object]) -> Iterator[object]:
        most = ITEMS_MAX if isasyncgen(items) else 1  # what follows a log waits for each
        instead: Exception | None = None
        try:
            while instead is None:
                found, instead = self.done(partial(_next_items, items, most))
                yield from map(self.shown, found)
            if not isinstance(instead, StopAsyncIteration):
                raise instead
        finally:
            if isasyncgen(items) and self.is_here:
                self.done(partial(_await_result, items.aclose))

    @contextmanager
    def _block(self, block: AbstractAsyncContextManager[object]) -> Iterator[object]:
        with self.used(block) as entered:
            yield self.shown(entered)

    def in_a_thread(self, function: Callable[..., object]) -> Callable[..., Coroutine[object, object, object]]:
        """The function for the loop, which goes on while it runs."""

        async def asked(*values: object) -> object:
            return await to_thread.run_sync(partial(function, *map(self.shown, values)))

        return asked


def _here() -> tuple[asyncio.AbstractEventLoop, int]:
    return asyncio.get_running_loop(), threading.get_ident()


async def _await_result(work: Callable[[], object]) -> object:
    found = work()
    return await found if isawaitable(found) else found


async def _next_items(items: AsyncIterator[object], most: int) -> tuple[list[object], Exception | None]:
    """The next items, and the error or end after them."""
    found: list[object] = []
    try:
        while len(found) < most:
            found.append(await anext(items))
    except Exception as error:  # it is raised where the items before it have been given
        return found, error
    return found, None


def _unwrap_handles(value: object) -> object:
    """An argument as the loop sees it."""
    if isinstance(value, Handle):
        return value._object
    if isinstance(value, list | tuple) and any(isinstance(one, Handle) for one in value):
        return [_unwrap_handles(one) for one in value]
    return value


class Handle:
    """Stands for an object of an engine. The classes are made of the object's own when they are first needed."""

    stands_for: ClassVar[type]
    _object: object
    _loop: _Loop
    _entered: AbstractContextManager[object]

    def __init__(self, *values: object, **named: object) -> None:
        if type(self).__name__ not in MADE_BY_HAND:
            raise TypeError(f"{type(self).__name__} comes from an engine: see `memory_engine.sync.open`")
        loops = [value._loop for value in (*values, *named.values()) if isinstance(value, Handle)]
        if not loops:
            raise TypeError(f"{type(self).__name__} is made of handles of `memory_engine.sync`")
        made = cast("Handle", loops[0].asked(self.stands_for, *values, **named))
        vars(self).update(vars(made))

    @classmethod
    def _of(cls, value: object, loop: _Loop) -> Self:
        handle = cls.__new__(cls)
        vars(handle).update(_object=value, _loop=loop)
        return handle

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") or name in left_out(self.stands_for):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        path = where_now(self.stands_for, name)
        if path and not path.startswith("_"):
            return attrgetter(path)(self)
        return self._loop.shown(getattr(self._object, name))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._object, name, _unwrap_handles(value))

    def __repr__(self) -> str:
        return f"sync.{self._object!r}"

    def __dir__(self) -> list[str]:
        own = {name for name in vars(self._object) if not name.startswith("_")}
        return sorted({*super().__dir__(), *own} - left_out(self.stands_for))


class Block(Handle):
    """A handle that is a context manager."""

    def __enter__(self) -> Self:
        vars(self).update(_entered=self._loop.used(cast("AbstractAsyncContextManager[object]", self._object)))
        self._entered.__enter__()
        return self

    def __exit__(self, *error: object) -> bool | None:
        return self._entered.__exit__(*error)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as Python gives them


class Closable(Handle):
    """Operations of an engine besides the engine's own."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End running compactions (their originals stay), finish commits, fail waiting dispatches, and close the store.

        An engine that you do not close is closed when the interpreter ends.
        """
        atexit.unregister(self.close)
        if self._loop.is_here:
            try:
                self._loop.done(cast("Engine", self._object).close)
            finally:
                self._loop.leave()

    def call(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Run a coroutine function with the asynchronous engine, and return its result: for what this face lacks.

        A view of your own: `engine.call(lambda engine: engine.thread("t").views.of(Highlights).latest())`.
        """

        async def given() -> T:
            return await work(cast("Engine", self._object))

        return self._loop.done(given)


_CLASSES: dict[str, type[Handle]] = {}


def sync_class(name: str) -> type[Handle]:
    """The class of handles of a name, made of the asynchronous class."""
    if name not in _CLASSES:
        kind: type = getattr(import_module(f"memory_engine.{HOMES[name]}"), name)
        _CLASSES[name] = _made_of(kind)
    return _CLASSES[name]


def left_out(kind: type) -> set[str]:
    """The public names of a class that its handles do not have."""
    return set().union(*(LEFT_OUT.get(one.__name__, ()) for one in kind.__mro__))


def _made_of(kind: type) -> type[Handle]:
    bases = [sync_class(one.__name__) for one in kind.__mro__[1:] if one.__name__ in HOMES]
    own = Closable if kind is Engine else Block if hasattr(kind, "__aenter__") else Handle
    members: dict[str, object] = {"__doc__": kind.__doc__, "__module__": "memory_engine.sync", "stands_for": kind}
    for name in dir(kind):
        if not name.startswith("_") and name not in left_out(kind) and name not in vars(own):
            members[name] = _member(name, getattr_static(kind, name))
    if hasattr(kind, "_repr_html_"):
        members["_repr_html_"] = lambda self: self._loop.asked(self._object._repr_html_)
    made: type[Handle] = type(kind.__name__, (bases[0] if bases else own,), members)  # pyright: ignore[reportAssignmentType]  # its base is one
    return made


def _member(name: str, held: object) -> object:
    if isinstance(held, property):
        return property(lambda self: self._loop.shown(getattr(self._object, name)), doc=held.__doc__)
    method = cast("Callable[..., object]", held)
    function = ASKED_IN_A_THREAD.get(name)

    @wraps(method)
    def asked(self: Handle, *values: object, **named: object) -> object:
        if function is not None:
            bound = signature(method).bind(self, *values, **named)
            bound.arguments[function] = self._loop.in_a_thread(bound.arguments[function])
            values, named = bound.args[1:], bound.kwargs
        return self._loop.asked(getattr(self._object, name), *values, **named)

    return asked


@wraps(wiring.open)
def open(*values: object, **named: object) -> Closable:
    """Open a memory as `memory_engine.open` does; the engine is a context manager that closes it."""

    async def opened() -> Engine:
        return await wiring.open(*values, **named)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # as given

    loop = _Loop()
    try:
        engine = cast("Closable", loop.shown(loop.done(opened)))
    except BaseException:  # any error: the loop is not left running; it goes on to the caller
        loop.leave()
        raise
    atexit.register(engine.close)
    return engine


@wraps(places.restore)
def restore(*values: object, **named: object) -> object:
    """Create a new store from a backup, as `memory_engine.restore` does."""
    loop = _Loop()
    try:
        return loop.asked(places.restore, *values, **named)
    finally:
        loop.leave()
