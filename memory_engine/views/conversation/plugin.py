"""The plug-in of conversation memory."""

from memory_engine.core.events.exchanges import CycleStarted, ExchangeFinished, SummaryRolled
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import found
from memory_engine.store.passages import NOTHING, Extracted
from memory_engine.views.conversation.fold import CONVERSATION

PLUGIN = Plugin("conversation", events=[CycleStarted, ExchangeFinished, SummaryRolled])
PLUGIN.silent(SummaryRolled)
PLUGIN.projection(CONVERSATION)


@PLUGIN.passages(CycleStarted)
def _cycle(event: CycleStarted, _seq: int) -> Extracted:
    return NOTHING if event.question_at else found(event.question, "message", role="user")


@PLUGIN.passages(ExchangeFinished)
def _exchange(event: ExchangeFinished, _seq: int) -> Extracted:
    asked = () if event.cycle else found(event.question, "message", role="user").texts
    answered = () if event.answer_at else found(event.answer, "message", role="assistant").texts
    return Extracted((*asked, *answered))
