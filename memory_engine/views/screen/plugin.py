"""The plug-in of screen context."""

from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.screen.events import ScreenInjected
from memory_engine.views.screen.view import SCREEN, reduce_screen_injected

PLUGIN = Plugin("screen", events=[ScreenInjected])
PLUGIN.reducer(ScreenInjected)(reduce_screen_injected)
PLUGIN.projection(SCREEN)


@PLUGIN.passages(ScreenInjected)
def _screen(event: ScreenInjected, _seq: int) -> Extracted:
    said = [Text(piece, "note") for piece in pieces(event.content)]
    for result in event.results:
        key = f"call:{result.call_id}"
        said += (Text(piece, "tool", "tool", result.tool, key) for piece in pieces(result.result))
    return Extracted(tuple(said))
