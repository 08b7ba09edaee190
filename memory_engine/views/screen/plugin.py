"""The plug-in of screen context."""

from memory_engine.context.rendering import render_assistant
from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.core.state import Mark
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.screen.events import ScreenInjected, screen_description
from memory_engine.views.screen.view import SCREEN, reduce_screen_injected, screen_of

PLUGIN = Plugin("screen", events=[ScreenInjected])
PLUGIN.reducer(ScreenInjected)(reduce_screen_injected)
PLUGIN.projection(SCREEN)
PLUGIN.renderer("screen")(render_assistant)


@PLUGIN.context_block("screen", place="turn")
async def screen_block(situation: Situation) -> StandingBlock | None:
    """The person's screen, once its message is no longer in the context. No row is read without one."""
    ephemeral = (chunk.id for chunk in situation.state.marked(Mark.EPHEMERAL))
    if not situation.state.in_order(ephemeral):
        return None
    screen = screen_of(await situation.thread.rows(SCREEN))
    if screen is None:
        return None
    first, *others = screen_description(screen.content).splitlines()
    lines = (StandingLine(line, situation.thread.id, screen.seq) for line in others or [first])
    return StandingBlock(name="screen", heading=first if others else "", lines=tuple(lines))


@PLUGIN.passages(ScreenInjected)
def _screen(event: ScreenInjected, _seq: int) -> Extracted:
    said = [Text(piece, "note") for piece in pieces(event.content)]
    for result in event.results:
        key = f"call:{result.call_id}"
        said += (Text(piece, "tool", "tool", result.tool, key) for piece in pieces(result.result))
    return Extracted(tuple(said))
