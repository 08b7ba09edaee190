"""The tool cache: results that later exchanges may use again. Durations count exchanges, not time."""

from memory_engine.core.events.base import Event, event


@event("tool_result_cached", tracked=True)
class ToolResultCached(Event):
    """A result is kept for `duration` exchanges. `parameters` is canonical JSON (sorted keys).

    `call_id` is the call that it answered: to forget that call or its result is to forget this.
    """

    tool: str
    parameters: str
    result: str
    duration: int
    call_id: str = ""
    proactive: bool = False


@event("tool_cache_hit", tracked=True)
class ToolCacheHit(Event):
    """A cached result was used: its duration begins anew."""

    key: str


@event("tool_cache_dropped", tracked=True)
class ToolCacheDropped(Event):
    """Cached results go: those under the given keys, or all."""

    keys: tuple[str, ...] = ()
    all: bool = False
