"""From a request to an answer: the route's data as JSON, or what went wrong, with a status that fits."""

import json
import logging

import msgspec

from memory_engine.errors import (
    CompactionError,
    ContextBudgetError,
    EngineClosed,
    EventNotFound,
    InvalidInput,
    MemoryEngineError,
    SeqNotInLog,
    StorageBusy,
    ThreadNotFound,
    UnknownChunk,
    UnknownRow,
    UnknownView,
)
from memory_engine.inspector.inspection import Inspection, Route
from memory_engine.inspector.query import Query, TooMuch

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
    (InvalidInput, 400),
    (EngineClosed, 503),
    (StorageBusy, 503),
)
"""The first that fits; 500 for every other."""


async def answered(route: Route, inspection: Inspection, query: bytes) -> tuple[int, bytes]:
    """The status and the JSON of what a route finds, or of what went wrong."""
    try:
        return 200, encode(await route.look(inspection, Query.parse(query, route.takes)))
    except Exception as error:  # the boundary to the page, which is told whatever it is
        return failed(route.name, error)


def failed(route: str, error: Exception) -> tuple[int, bytes]:
    """The status and the JSON of what went wrong; what nobody foresaw is logged too."""
    kind = type(error).__name__
    if isinstance(error, MemoryEngineError):
        return next((status for known, status in _STATUSES if isinstance(error, known)), 500), failure(kind, str(error))
    _log.error("the inspector's route %s failed", route, exc_info=error)
    return 500, failure(kind, f"{error} (unexpected; the server's log has the place)")


def failure(kind: str, message: str) -> bytes:
    """What went wrong, as JSON."""
    return encode({"error": {"type": kind, "message": message}})


def encode(value: object) -> bytes:
    """JSON that holds no `<`: not even taken for HTML would it run anything."""
    try:
        encoded = msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError):  # nested deeper than Python's stack, or half a surrogate pair
        encoded = _piecewise(value)
    return encoded.replace(b"<", rb"\u003c")


def _piecewise(value: object) -> bytes:
    """The same, a leaf at a time and without recursion."""
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
