"""From a request to an answer: the route's data or its error as JSON, with an HTTP status.

A request's parameters must be known, given once, and of the right type. Every route gets the engine and
the caches about its logs.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import msgspec
from attrs import Factory, field, frozen

from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import (
    CompactionError,
    ContextBudgetError,
    EngineClosed,
    EventNotFound,
    InvalidInput,
    MemoryEngineError,
    ReadOnly,
    ReducerError,
    SeqNotInLog,
    StorageBusy,
    ThreadNotFound,
    UnknownChunk,
    UnknownRow,
    UnknownView,
)
from memory_engine.errors.base import facts
from memory_engine.inspector.outlines import Outlines
from memory_engine.inspector.states import Kept, Seen, States
from memory_engine.store.protocol import StoreStats

if TYPE_CHECKING:
    from starlette.responses import Response

JSON = "application/json"
TOKEN = "token"
"""The parameter that every request may have."""
WHOLE_MAX = 2**53 - 1
"""The greatest whole number that a page's scripts hold exactly."""


@facts
class WrongQuery(InvalidInput):
    """An invalid parameter of a request."""

    parameter: str
    value: str
    why: str

    def __str__(self) -> str:
        given = f" ({self.value[:200]!r})" if self.value else ""
        return f"parameter {self.parameter!r}{given}: {self.why}"


@frozen
class Query:
    """The parameters of one request by name."""

    given: Mapping[str, str]

    @classmethod
    def parse(cls, raw: bytes, known: Collection[str]) -> "Query":
        """From the bytes after the `?`. Raises `WrongQuery` unless they are UTF-8 and name `known` ones, each once."""
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
        except ValueError as error:  # UnicodeDecodeError is one
            raise WrongQuery("?", ascii(raw), f"it cannot be read: {error}") from None
        given: dict[str, str] = {}
        for name, value in pairs:
            if name == TOKEN:
                continue
            if name not in known:
                raise WrongQuery(name, value, f"unknown; there are {', '.join(sorted(known)) or 'none at all'}")
            if name in given:
                raise WrongQuery(name, value, "it is given twice")
            given[name] = value
        return cls(given)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it is required and not empty."""
        value = self.given.get(name, "")
        if value:
            return value
        if default is None:
            raise WrongQuery(name, "", "it is missing")
        return default

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = WHOLE_MAX) -> int:
        """A whole number within the bounds; without a default it is required."""
        value = self.given.get(name, "")
        if not value:
            if default is None:
                raise WrongQuery(name, "", "it is missing")
            return default
        if not (value.isascii() and value.isdecimal()) or len(value) > len(str(WHOLE_MAX)):
            raise WrongQuery(name, value, "it is not a whole number from 0 on")
        found = int(value)
        if not least <= found <= most:
            raise WrongQuery(name, value, f"it is not between {least} and {most}")
        return found

    def number_if_given(self, name: str, *, least: int = 0, most: int = WHOLE_MAX) -> int | None:
        """A whole number, or `None` if it is missing."""
        return self.number(name, least=least, most=most) if self.given.get(name) else None


@facts
class TooMuch(InvalidInput):
    """The answer would take minutes, too long for a page."""

    what: str
    chunks: int

    def __str__(self) -> str:
        return f"{self.what} of a state of {self.chunks:,} chunks takes too long for a page: compact the thread"


@facts
class TooLong(InvalidInput):
    """The answer would take minutes, too long for a page: `instead` says what to do."""

    what: str
    events: int
    instead: str

    def __str__(self) -> str:
        return f"{self.what} ({self.events:,} events) takes too long for a page: {self.instead}"


Writer = Callable[[], AbstractAsyncContextManager[Engine]]
"""Opens the store to write to it, for as long as one act takes."""


@frozen(eq=False)
class Inspection:
    """One engine and the caches of its logs. `path` is the store's name on the page.

    With a `writer` the page may do acts.
    """

    engine: Engine
    path: str = ""
    writer: Writer | None = None
    states: States = field(init=False, default=Factory(lambda self: States(self.engine.reader), takes_self=True))
    outlines: Outlines = field(init=False, default=Factory(lambda self: Outlines(self.engine.reader), takes_self=True))
    totals: Kept[StoreStats] = field(init=False, factory=Kept)
    days: Kept[dict[str, int]] = field(init=False, factory=Kept)

    @property
    def may_write(self) -> bool:
        """Whether acts are allowed."""
        return self.writer is not None

    def writing(self) -> AbstractAsyncContextManager[Engine]:
        """The store, opened for writing. Raises `ReadOnly`."""
        if self.writer is None:
            raise ReadOnly("the inspector")
        return self.writer()

    def seen(self, thread_id: str, seq: int) -> Seen:
        """A thread at an existing seq."""
        return Seen(self.engine, self.states, thread_id, seq)

    async def past(self, query: Query, parameter: str = "seq", *, thread: str = "", least: int = 0) -> Seen:
        """The thread that a query names (by default as `thread`), at the seq that it names, at least `least`.

        Raises `WrongQuery`, `ThreadNotFound`, `SeqNotInLog`.
        """
        thread_id, seq = thread or query.text("thread"), query.number(parameter)
        head = await kernel_of(self.engine).store.head(thread_id)
        if not least <= seq <= head.seq:
            raise SeqNotInLog(thread_id, seq, head.seq)
        return self.seen(thread_id, seq)


Look = Callable[[Inspection, Query], Awaitable[object]]
"""The function of a route: from a query to plain data. It writes nothing."""


@frozen
class Route:
    """A route under /api, the parameters that it takes, and its function."""

    name: str
    takes: frozenset[str]
    look: Look

    @classmethod
    def of(cls, name: str, takes: str, look: Look) -> "Route":
        """With the parameters' names in one text."""
        return cls(name, frozenset(takes.split()), look)


_log = logging.getLogger("memory_engine.inspector")

_STATUSES: tuple[tuple[type[MemoryEngineError], int], ...] = (
    (ThreadNotFound, 404),
    (EventNotFound, 404),
    (SeqNotInLog, 404),
    (UnknownChunk, 404),
    (UnknownView, 404),
    (UnknownRow, 404),
    (ContextBudgetError, 409),
    (CompactionError, 409),
    (TooMuch, 409),
    (TooLong, 409),
    (ReducerError, 409),
    (ReadOnly, 409),
    (InvalidInput, 400),
    (EngineClosed, 503),
    (StorageBusy, 503),
)
"""The first that matches counts; any other error is 500."""


async def answered(route: Route, inspection: Inspection, query: bytes) -> tuple[int, bytes]:
    """The status and the JSON of a route's data, or of its error."""
    return await answered_by_work(route.name, lambda: route.look(inspection, Query.parse(query, route.takes)))


async def answered_by_work(name: str, work: Callable[[], Awaitable[object]]) -> tuple[int, bytes]:
    """The status and the JSON of some work's result, or of its error."""
    try:
        return 200, encode(await work())
    except Exception as error:  # the boundary to the page, which gets any error
        return failed(name, error)


def failed(route: str, error: Exception) -> tuple[int, bytes]:
    """The status and the JSON of an error; unexpected ones are logged too."""
    kind = type(error).__name__
    if isinstance(error, MemoryEngineError):
        return next((status for known, status in _STATUSES if isinstance(error, known)), 500), failure(kind, str(error))
    _log.error("the inspector's route %s failed", route, exc_info=error)
    return 500, failure(kind, f"{error} (unexpected; the server's log has the place)")


def failure(kind: str, message: str) -> bytes:
    """An error, as JSON."""
    return encode({"error": {"type": kind, "message": message}})


def http_response(status: int, body: bytes, kind: str = JSON, headers: Mapping[str, str] | None = None) -> "Response":
    """An answer as a response of starlette."""
    from starlette.responses import Response

    return Response(body, status, headers, media_type=kind)


def encode(value: object) -> bytes:
    """JSON without `<`: even a browser that takes it for HTML runs nothing."""
    try:
        encoded = msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError):  # nested deeper than Python's stack, or half a surrogate pair
        encoded = _piecewise(value)
    return encoded.replace(b"<", rb"\u003c")


def _piecewise(value: object) -> bytes:
    """The same, one leaf at a time and without recursion."""
    written: list[bytes] = []
    waiting: list[object] = [value]
    while waiting:
        one = waiting.pop()
        match one:
            case _Written():
                written.append(one.text)
            case dict():
                written.append(b"{")
                waiting.append(_Written(b"}"))
                for n, (key, inner) in enumerate(reversed(one.items())):
                    comma = b"," if n < len(one) - 1 else b""
                    waiting += [inner, _Written(comma + _leaf(str(key)) + b":")]
            case list() | tuple():
                written.append(b"[")
                waiting.append(_Written(b"]"))
                for n, inner in enumerate(reversed(one)):
                    waiting += [inner, _Written(b",")] if n < len(one) - 1 else [inner]
            case _:
                written.append(_leaf(one))
    return b"".join(written)


class _Written(msgspec.Struct, frozen=True):
    text: bytes


def _leaf(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")
