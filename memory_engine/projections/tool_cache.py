"""The tool cache: results of tools that later exchanges may use. Durations count exchanges, not time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from memory_engine.errors import MemoryEngineError
from memory_engine.events.tool_cache import ToolCacheDropped, ToolCacheHit, ToolResultCached
from memory_engine.handle import ThreadHandle
from memory_engine.projections.cached_results import TOOL_CACHE, CacheEntry, entries_of, entry_of
from memory_engine.projections.parameters import cache_key, canonical

_log = logging.getLogger("memory_engine.tool_cache")

__all__ = ["TOOL_CACHE", "CacheEntry", "CachedCall", "ToolCache"]


class CachedCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gave. `hit`: it was cached, nothing ran. `entry` is where it is cached, if it is."""

    result: str
    hit: bool
    entry: CacheEntry | None


class Flights(dict[tuple[str, str], asyncio.Future[str]]):
    """The tools that are running in this process, by thread and key of their call."""


class ToolCache:
    """The cache of one thread. Every change is an event, so it outlives the process and forks with the thread."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def add(  # noqa: PLR0913 - what a cached result is made of, as the agent's loop has it
        self,
        tool: str,
        parameters: Mapping[str, object],
        result: str,
        duration: int,
        *,
        call_id: str = "",
        failed: bool = False,
    ) -> CacheEntry | None:
        """Keep a result for `duration` finished exchanges, in place of an older one of the same call.

        `None`, and nothing is recorded, where `duration` is 0 or less or the call `failed`. With the
        `call_id` the cached result is forgotten along with the call. Raises `InvalidParameters`, and what
        `dispatch` raises.
        """
        text = canonical(tool, parameters)
        if duration <= 0 or failed:
            return None
        cached = ToolResultCached(tool=tool, parameters=text, result=result, duration=duration, call_id=call_id)
        await self._thread.dispatch(cached)
        return entry_of(await self._thread.rows(TOOL_CACHE), cache_key(tool, text))

    async def lookup(self, tool: str, parameters: Mapping[str, object]) -> CacheEntry | None:
        """The result of this very call, if it is cached. It counts as a hit: the duration begins anew."""
        key = cache_key(tool, canonical(tool, parameters))
        if entry_of(await self._thread.rows(TOOL_CACHE), key) is None:
            return None
        await self._thread.dispatch(ToolCacheHit(key=key))
        return entry_of(await self._thread.rows(TOOL_CACHE), key)

    async def peek(self, tool: str, parameters: Mapping[str, object], *, at: int | None = None) -> CacheEntry | None:
        """The result of this very call, if it is cached (or was, `at` an earlier seq). Changes nothing."""
        key = cache_key(tool, canonical(tool, parameters))
        return entry_of(await self._thread.rows(TOOL_CACHE, at=at), key)

    async def entries(self, *, at: int | None = None) -> list[CacheEntry]:
        """All that is cached (or was, `at` an earlier seq), in the order in which it was cached."""
        return entries_of(await self._thread.rows(TOOL_CACHE, at=at))

    async def drop(self, tool: str, parameters: Mapping[str, object]) -> bool:
        """Let one result go. Returns whether it was cached."""
        key = cache_key(tool, canonical(tool, parameters))
        if entry_of(await self._thread.rows(TOOL_CACHE), key) is None:
            return False
        await self._thread.dispatch(ToolCacheDropped(keys=(key,)))
        return True

    async def clear(self) -> None:
        """Let all results go."""
        await self._thread.dispatch(ToolCacheDropped(all=True))

    async def cached_call(
        self,
        tool: str,
        parameters: Mapping[str, object],
        call: Callable[[], Awaitable[str]],
        *,
        duration: int,
        call_id: str = "",
    ) -> CachedCall:
        """The cached result, else what `call` gives, which is cached then.

        Of equal calls at once in this process one runs, and the others get its result. If it raises, its own
        caller gets the exception, nothing is cached, and the next of those who wait runs the tool itself;
        so too if its caller is cancelled. A result that cannot be recorded (too large, or
        the file is busy) is returned and not cached.
        """
        key = cache_key(tool, canonical(tool, parameters))
        if duration <= 0:
            entry = await self.lookup(tool, parameters)
            return _hit_of(entry) if entry is not None else CachedCall(result=await call(), hit=False, entry=None)
        flights, flight = self._thread.kernel.made(Flights), (self._thread.id, key)
        while (running := flights.get(flight)) is not None:
            await asyncio.wait([running])
        flights[flight] = landed = asyncio.get_running_loop().create_future()
        try:
            entry = await self.lookup(tool, parameters)
            if entry is not None:
                return _hit_of(entry)
            result = await call()
            return CachedCall(
                result=result, hit=False, entry=await self._added(tool, parameters, result, duration, call_id)
            )
        finally:
            del flights[flight]
            landed.set_result(key)

    async def _added(
        self, tool: str, parameters: Mapping[str, object], result: str, duration: int, call_id: str
    ) -> CacheEntry | None:
        """Cache a result that must not be lost because it cannot be cached."""
        try:
            return await self.add(tool, parameters, result, duration, call_id=call_id)
        except MemoryEngineError:
            _log.warning("a result of tool %r could not be cached in thread %r", tool, self._thread.id, exc_info=True)
            return None


def _hit_of(entry: CacheEntry) -> CachedCall:
    return CachedCall(result=entry.result, hit=True, entry=entry)
