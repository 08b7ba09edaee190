"""The plug-in of flows and playbooks."""

from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import pieces
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

PLUGIN = Plugin("playbooks", events=[FlowCompleted, FeedbackGiven, PlaybookPromoted, PlaybookSaved, PlaybookRemoved])
PLUGIN.silent(FlowCompleted, PlaybookPromoted)
PLUGIN.projection(FLOWS)
PLUGIN.projection(PLAYBOOKS)


@PLUGIN.passages(PlaybookSaved)
def _playbook(event: PlaybookSaved, _seq: int) -> Extracted:
    key = f"playbook:{playbook_id(event.flow_dact, event.slots, event.tool_calls)}"
    told = (f" → {event.outcome}" if event.outcome else "") + "".join(f"; {c.tool_id}" for c in event.tool_calls)
    said = f"{event.user_query}{told}"
    return Extracted(tuple(Text(piece, "playbook", speaker=event.flow_dact, key=key) for piece in pieces(said)))


@PLUGIN.passages(PlaybookRemoved)
def _playbook_removed(event: PlaybookRemoved, _seq: int) -> Extracted:
    return Extracted(keys=(f"playbook:{event.playbook_id}",))
