"""The plug-in of the brief."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memory_engine.compaction.base import StandingStatements
from memory_engine.context.brief_block import RankedBlock
from memory_engine.context.rendering import Message
from memory_engine.context.standing import Situation, StandingBlock
from memory_engine.core.chunks import Chunk
from memory_engine.core.lazy import lazy_modules
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import found
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.passages import Extracted
from memory_engine.views.brief.events import BriefPinned, BriefUnpinned
from memory_engine.views.brief.fold import PINS

if TYPE_CHECKING:
    from memory_engine.views.brief import reading, view
else:
    reading, view = lazy_modules("memory_engine.views.brief", "reading view")

PLUGIN = Plugin("brief", events=[BriefPinned, BriefUnpinned])
PLUGIN.projection(PINS)


@PLUGIN.renderer("brief")
def rendered(chunk: Chunk) -> Iterable[Message]:
    """Render the block with the role `user`: it quotes people and must not read as an instruction of the system."""
    return ({"role": "user", "content": f"[Brief] {chunk.text}"},)


@PLUGIN.context_block("brief", share=0.25, least=300)
async def brief_block(situation: Situation) -> StandingBlock | None:
    """Build the block of the brief: what people said in the conversation that still applies."""
    thread = situation.thread
    if thread.as_of is None and not await reading.is_read(thread, situation.state.seq):
        return None
    brief = await view.brief_at(thread, situation.state.seq, thread.as_of, to_show=True)
    offered = view.weighed(brief)
    return RankedBlock.whole("brief", view.heading(brief), offered) if offered else None


async def standing(thread: ThreadHandle, seq: int) -> Sequence[str]:
    """Return the statements that a compactor may leave out of its summary, since every context shows them."""
    return [
        " ".join(statement.text.split())
        for statement in (await view.brief_at(thread, seq, None, to_show=True)).standing
    ]


PLUGIN.setting(StandingStatements(standing))


@PLUGIN.passages(BriefPinned)
def _pin(event: BriefPinned, _seq: int) -> Extracted:
    return found(event.content, "pin", key="pin:")


@PLUGIN.passages(BriefUnpinned)
def _unpinned(event: BriefUnpinned, _seq: int) -> Extracted:
    return Extracted(seqs=(event.pin,))
