"""The plug-in of the tool cache."""

from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import found
from memory_engine.store.passages import Extracted
from memory_engine.views.tool_cache.events import ToolCacheDropped, ToolCacheHit, ToolResultCached
from memory_engine.views.tool_cache.view import TOOL_CACHE

PLUGIN = Plugin("tool_cache", events=[ToolResultCached, ToolCacheHit, ToolCacheDropped])
PLUGIN.projection(TOOL_CACHE)


@PLUGIN.passages(ToolResultCached)
def _cached(event: ToolResultCached, _seq: int) -> Extracted:
    key = f"call:{event.call_id}" if event.call_id else ""
    return found(event.result, "tool", role="tool", speaker=event.tool, key=key)
