"""The tool cache: tool results that later exchanges may use. Durations count exchanges, not time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from inspect import isawaitable
from typing import cast

import msgspec
from msgspec.structs import replace

from memory_engine.core.arguments import checked_flag, checked_function, checked_text, checked_type
from memory_engine.core.cancellation import kept_time
from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.events.base import Event
from memory_engine.core.events.exchanges import ExchangeFinished
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.core.tool_calls import cache_key, canonical
from memory_engine.errors import InvalidArgument, MemoryEngineError
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, row_of, rows_under
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.screen.events import ScreenInjected
from memory_engine.views.tool_cache.events import ToolCacheDropped, ToolCacheHit, ToolResultCached

DURATION_MAX = 1_000_000_000
"""The longest duration, in exchanges; longer ones are capped to it."""
_EXCHANGES = "a number of exchanges"


class ResultRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="result", gc=False):
    """A cached result, written once. `seq` and `event_id` are those of the event that cached it."""

    tool: str
    parameters: str
    result: str
    duration: int
    seq: int
    event_id: str
    cached_us: int
    call_id: str = ""
    proactive: bool = False


class TermRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="term", gc=False):
    """The finished exchange until which a result is kept; a separate row, because a hit changes only this."""

    expires: int
    seq: int
    call_id: str = ""
    hits: int = 0


class DueRow(msgspec.Struct, frozen=True, tag="due", gc=False):
    """Marks that a result expires at an exchange, which the middle part of its key names."""

    key: str


class CountRow(msgspec.Struct, frozen=True, tag="count", gc=False):
    """How many exchanges have finished in this thread."""

    exchanges: int


AnyCacheRow = ResultRow | TermRow | DueRow | CountRow

_COUNT = "count"
_RESULT, _TERM, _DUE = "result/", "term/", "due/"


def _due(exchange: int, key: str = "") -> str:
    return f"{_DUE}{exchange:011d}/{key}"


class ToolCacheFold:
    """Neither a hit nor the end of an exchange touches more rows than it changes, however many are cached.

    A result keeps the number of the exchange at whose end it goes; finished exchanges are counted in one row,
    and small rows sorted by that number say which results go next.
    """

    name = "tool_cache"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = cast("type[AnyCacheRow]", AnyCacheRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (
        ToolResultCached,
        ToolCacheHit,
        ToolCacheDropped,
        ExchangeFinished,
        ScreenInjected,
        MemoryForget,
    )

    def apply(self, rows: Rows[AnyCacheRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case ToolResultCached() as cached:
                _keep(rows, event, cached)
            case ScreenInjected(results=results):
                for r in results:
                    _keep(rows, event, ToolResultCached(
                        tool=r.tool, parameters=r.parameters, result=r.result, duration=r.duration,
                        call_id=r.call_id, proactive=True,
                    ))  # fmt: skip
            case ToolCacheHit(key=key):
                _hit(rows, key)
            case ToolCacheDropped() as dropped:
                for key in list(_term_rows(rows)) if dropped.all else dropped.keys:
                    _drop(rows, key)
            case ExchangeFinished():
                _finish_exchange(rows)
            case MemoryForget() as forget:
                seqs, calls = forget.origins(), frozenset(forget.call_ids)
                for key, term in list(_term_rows(rows).items()):
                    if term.seq in seqs or term.call_id in calls:
                        _drop(rows, key)


def _keep(rows: Rows[AnyCacheRow], event: RecordedEvent, cached: ToolResultCached) -> None:
    if cached.duration <= 0:
        return
    key = cache_key(cached.tool, cached.parameters)
    _drop(rows, key)
    duration = min(cached.duration, DURATION_MAX)
    row = ResultRow(
        tool=cached.tool,
        parameters=cached.parameters,
        result=cached.result,
        duration=duration,
        seq=event.seq,
        event_id=event.id,
        cached_us=to_us(event.recorded_at),
        call_id=cached.call_id,
        proactive=cached.proactive,
    )
    rows.put(_RESULT + key, row)
    _set_term(rows, key, TermRow(expires=_exchanges(rows) + duration, seq=event.seq, call_id=cached.call_id))


def _hit(rows: Rows[AnyCacheRow], key: str) -> None:
    result, term = row_of(rows, ResultRow, _RESULT + key), row_of(rows, TermRow, _TERM + key)
    if result is not None and term is not None:
        rows.drop(_due(term.expires, key))
        renewed = replace(term, expires=_exchanges(rows) + result.duration, hits=term.hits + 1)
        _set_term(rows, key, renewed)


def _finish_exchange(rows: Rows[AnyCacheRow]) -> None:
    exchange = _exchanges(rows) + 1
    rows.put(_COUNT, CountRow(exchange))
    for _, row in rows_under(rows, DueRow, _due(exchange)):
        _drop(rows, row.key)


def _set_term(rows: Rows[AnyCacheRow], key: str, term: TermRow) -> None:
    rows.put(_TERM + key, term)
    rows.put(_due(term.expires, key), DueRow(key))


def _drop(rows: Rows[AnyCacheRow], key: str) -> None:
    term = row_of(rows, TermRow, _TERM + key)
    if term is not None:
        rows.drop(_due(term.expires, key))
        rows.drop(_TERM + key)
        rows.drop(_RESULT + key)


def _term_rows(rows: ReadableRows[AnyCacheRow]) -> dict[str, TermRow]:
    return dict(rows_under(rows, TermRow, _TERM))


def _exchanges(rows: ReadableRows[AnyCacheRow]) -> int:
    row = row_of(rows, CountRow, _COUNT)
    return 0 if row is None else row.exchanges


TOOL_CACHE = ToolCacheFold()


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A cached result. `remaining` and `duration` count exchanges; `parameters` is canonical JSON.

    `seq` and `event_id` are those of the event that cached it; `call_id` is the call that it answered.
    """

    key: str
    tool: str
    parameters: str
    result: str
    remaining: int
    duration: int
    cached_at: datetime
    call_id: str
    hits: int
    proactive: bool
    seq: int
    event_id: str

    @property
    def arguments(self) -> dict[str, object]:
        """The parameters, decoded; empty if an event dispatched by hand does not hold a JSON object."""
        try:
            return msgspec.json.decode(self.parameters, type=dict[str, object])
        except msgspec.DecodeError:
            return {}

    @property
    def tool_name(self) -> str:
        """The name of the tool: `tool`."""
        return self.tool

    @property
    def remaining_duration(self) -> int:
        """Finished exchanges for which the result is still kept: `remaining`."""
        return self.remaining

    @property
    def original_duration(self) -> int:
        """Exchanges for which the result was to be kept: `duration`."""
        return self.duration


def entry_of(rows: ReadableRows[AnyCacheRow], key: str) -> CacheEntry | None:
    """The entry under a key."""
    result, term = row_of(rows, ResultRow, _RESULT + key), row_of(rows, TermRow, _TERM + key)
    if result is None or term is None:
        return None
    return CacheEntry(
        key=key,
        tool=result.tool,
        parameters=result.parameters,
        result=result.result,
        remaining=term.expires - _exchanges(rows),
        duration=result.duration,
        cached_at=to_datetime(result.cached_us),
        call_id=result.call_id,
        hits=term.hits,
        proactive=result.proactive,
        seq=result.seq,
        event_id=result.event_id,
    )


def entries_of(rows: ReadableRows[AnyCacheRow]) -> list[CacheEntry]:
    """All entries, in the order they were cached."""
    return sorted(_cache_entries(rows), key=lambda entry: (entry.seq, entry.key))


def _cache_entries(rows: ReadableRows[AnyCacheRow]) -> Iterator[CacheEntry]:
    for key in _term_rows(rows):
        entry = entry_of(rows, key)
        if entry is not None:
            yield entry


_log = logging.getLogger("memory_engine.tool_cache")


class CachedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call. `hit`: it was cached, nothing ran. `entry` is its cache entry, if it has one."""

    result: str
    hit: bool
    entry: CacheEntry | None


class Flights(dict[tuple[str, str], asyncio.Future[str]]):
    """The tools now running in this process, by thread and key of their call."""


class ToolCache:
    """The cache of one thread. Every change is an event, so it outlives the process and forks with the thread."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def add(  # noqa: PLR0913 - what a cached result is made of, as the agent's loop has it
        self,
        tool: str,
        parameters: Mapping[str, object],
        result: str,
        duration: int | None = None,
        *,
        llm_cache_duration: int | None = None,
        call_id: str = "",
        failed: bool = False,
    ) -> CacheEntry | None:
        """Keep a result for `duration` finished exchanges, replacing an older one of the same call.

        You may call the duration `llm_cache_duration`; give one of the two. Returns `None` and records nothing if it is
        0 or less or the call `failed`. With a `call_id` the cached result is forgotten along with the call. Raises
        `InvalidParameters`, `InvalidArgument`, and the errors of `dispatch`.
        """
        checked_flag("failed", failed)
        text = canonical(tool, parameters)
        if (duration is None) == (llm_cache_duration is None):
            raise InvalidArgument("duration", duration, f"give {_EXCHANGES}, either as `llm_cache_duration` or so")
        duration = llm_cache_duration if duration is None else duration
        if not isinstance(duration, int):
            raise InvalidArgument("duration", duration, f"give {_EXCHANGES}")
        if duration <= 0 or failed:
            return None
        cached = ToolResultCached(tool=tool, parameters=text, result=result, duration=duration, call_id=call_id)
        await self._thread.dispatch(cached)
        return entry_of(await self._thread.rows(TOOL_CACHE), cache_key(tool, text))

    async def lookup(self, tool: str, parameters: Mapping[str, object]) -> CacheEntry | None:
        """The result of exactly this call, if cached. It counts as a hit: the duration starts over."""
        key = cache_key(tool, canonical(tool, parameters))
        if entry_of(await self._thread.rows(TOOL_CACHE), key) is None:
            return None
        await self._thread.dispatch(ToolCacheHit(key=key))
        return entry_of(await self._thread.rows(TOOL_CACHE), key)

    async def peek(self, tool: str, parameters: Mapping[str, object], *, at: int | None = None) -> CacheEntry | None:
        """The result of exactly this call, if cached (or if it was, with `at` an earlier seq). Changes nothing."""
        key = cache_key(tool, canonical(tool, parameters))
        return entry_of(await self._thread.rows(TOOL_CACHE, at=at), key)

    async def entries(self, *, at: int | None = None) -> list[CacheEntry]:
        """Everything cached (now, or at an earlier seq `at`), in the order it was cached."""
        return entries_of(await self._thread.rows(TOOL_CACHE, at=at))

    async def drop(self, tool: str, parameters: Mapping[str, object]) -> bool:
        """Remove one result. Returns whether it was cached."""
        key = cache_key(tool, canonical(tool, parameters))
        if entry_of(await self._thread.rows(TOOL_CACHE), key) is None:
            return False
        await self._thread.dispatch(ToolCacheDropped(keys=(key,)))
        return True

    async def clear(self) -> None:
        """Remove all results."""
        await self._thread.dispatch(ToolCacheDropped(all=True))

    async def cached_call(
        self,
        tool: str,
        parameters: Mapping[str, object],
        call: Callable[[], Awaitable[str] | str],
        *,
        duration: int,
        call_id: str = "",
    ) -> CachedCall:
        """The cached result, else the result of `call`, which is then cached. `call` may be a function without `async`.

        Of equal concurrent calls in this process one runs, and the others get its result. If it raises, its own caller
        gets the exception, nothing is cached, and the next waiting caller runs the tool itself; cancelling that caller
        has the same effect, and so has a call that takes longer than `EngineConfig.call_timeout_s`, which raises
        `CallTimedOut`. A result that cannot be recorded (too large, or the file is busy) is returned but not cached.
        """
        checked_text("call_id", call_id)
        key = cache_key(tool, canonical(tool, parameters))
        checked_type("duration", duration, int, give=_EXCHANGES)
        checked_function("call", call)
        if duration <= 0:
            entry = await self.lookup(tool, parameters)
            if entry is not None:
                return _hit_of(entry)
            return CachedCall(result=await self._called(tool, call), hit=False, entry=None)
        flights, flight = self._thread.kernel.made(Flights), (self._thread.id, key)
        while (running := flights.get(flight)) is not None:
            await asyncio.wait([running])
        flights[flight] = landed = asyncio.get_running_loop().create_future()
        try:
            entry = await self.lookup(tool, parameters)
            if entry is not None:
                return _hit_of(entry)
            result = await self._called(tool, call)
            return CachedCall(
                result=result, hit=False, entry=await self._added(tool, parameters, result, duration, call_id)
            )
        finally:
            del flights[flight]
            landed.set_result(key)

    async def _called(self, tool: str, call: Callable[[], Awaitable[str] | str]) -> str:
        found = call()
        if not isawaitable(found):
            return found
        return await kept_time(f"tool {tool!r}", found, self._thread.kernel.config.call_timeout_s)

    async def _added(
        self, tool: str, parameters: Mapping[str, object], result: str, duration: int, call_id: str
    ) -> CacheEntry | None:
        """Try to cache a result; if that fails, the result is not lost."""
        try:
            return await self.add(tool, parameters, result, duration, call_id=call_id)
        except MemoryEngineError:
            _log.warning("a result of tool %r could not be cached in thread %r", tool, self._thread.id, exc_info=True)
            return None


def _hit_of(entry: CacheEntry) -> CachedCall:
    return CachedCall(result=entry.result, hit=True, entry=entry)
