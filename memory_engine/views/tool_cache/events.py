"""The tool cache: results that later exchanges may use again. Durations count exchanges, not time."""

from hashlib import sha256

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Name, SourceCallId
from memory_engine.views.screen.events import ResultOfTool


def cache_key(tool: str, parameters: str) -> str:
    """32 hexadecimal digits for a tool and the canonical text of its parameters."""
    return sha256(f"{len(tool)}:{tool}{parameters}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


@event("tool_result_cached", tracked=True, role="memory", chunks="none")
class ToolResultCached(Event, ResultOfTool, frozen=True):
    """A result is kept for `duration` exchanges.

    `call_id` is the call that it answered: forgetting that call or its result forgets this too.
    """

    duration: int
    call_id: SourceCallId = ""
    proactive: bool = False

    def digests(self) -> tuple[str, ...]:
        """The key that the result is kept under."""
        return (cache_key(self.tool, self.parameters),)


@event("tool_cache_hit", tracked=True, role="memory", chunks="none")
class ToolCacheHit(Event):
    """A cached result was used: its duration begins again."""

    key: Name


@event("tool_cache_dropped", tracked=True, role="memory", chunks="none")
class ToolCacheDropped(Event):
    """Cached results go: those under the given keys, or all."""

    keys: tuple[Name, ...] = ()
    all: bool = False
