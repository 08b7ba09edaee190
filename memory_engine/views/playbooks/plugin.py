"""The plug-in of flows and playbooks."""

from typing import TYPE_CHECKING

from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.core.lazy import lazy_module
from memory_engine.core.state import Mark
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
from memory_engine.recall.service import Recall
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.playbooks.events import (
    FeedbackGiven,
    FlowCompleted,
    PlaybookPromoted,
    PlaybookRemoved,
    PlaybookSaved,
    playbook_id,
)
from memory_engine.views.playbooks.flow import FLOWS
from memory_engine.views.playbooks.playbook import PLAYBOOKS

if TYPE_CHECKING:
    from memory_engine.views.playbooks import view
else:
    view = lazy_module("memory_engine.views.playbooks.view")

PLUGIN = Plugin("playbooks", events=[FlowCompleted, FeedbackGiven, PlaybookPromoted, PlaybookSaved, PlaybookRemoved])
PLUGIN.silent(FlowCompleted, PlaybookPromoted)
PLUGIN.projection(FLOWS)
PLUGIN.projection(PLAYBOOKS)


@PLUGIN.context_block("playbook", place="turn")
async def playbook_block(situation: Situation) -> StandingBlock | None:
    """The user's playbook that fits the question best, unless it is on the scratchpad already.

    A request that came without a query is compared by words alone: reading a context asks no embedder unasked.
    """
    user = await situation.user()
    if user is None or not situation.question:
        return None
    if situation.thread.kernel[Recall].embedder is not None and not situation.is_asked:
        return None
    found = await view.Playbooks(user).find(situation.question, limit=1)
    if not found or any(found[0].playbook.text == one.text for one in situation.state.marked(Mark.SNIPPET)):
        return None
    heading, *steps = found[0].playbook.text.splitlines()
    lines = tuple(StandingLine(step, user.id, found[0].playbook.seq) for step in steps)
    return StandingBlock(name="playbook", heading=heading, lines=lines)


@PLUGIN.passages(PlaybookSaved)
def _playbook(event: PlaybookSaved, _seq: int) -> Extracted:
    key = f"playbook:{playbook_id(event.flow_dact, event.slots, event.tool_calls)}"
    told = (f" → {event.outcome}" if event.outcome else "") + "".join(f"; {c.tool_id}" for c in event.tool_calls)
    said = f"{event.user_query}{told}"
    return Extracted(tuple(Text(piece, "playbook", speaker=event.flow_dact, key=key) for piece in pieces(said)))


@PLUGIN.passages(PlaybookRemoved)
def _playbook_removed(event: PlaybookRemoved, _seq: int) -> Extracted:
    return Extracted(keys=(f"playbook:{event.playbook_id}",))
