"""The agent's turn: from a person's message to the agent's final answer, by whatever it does between.

A client may deliver the text and the calls of one response as separate events. A text in the middle of a turn, and a
call that repeats the words of the request, answer nothing yet: the agent is at work.
"""

from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.chunks import content_text
from memory_engine.core.events.base import ToolCall
from memory_engine.core.events.messages import (
    LlmClarification,
    LlmSkillCall,
    LlmSubagentMessage,
    LlmSubagentSpawn,
    LlmTextResponse,
    LlmToolCall,
)
from memory_engine.core.lazy import lazy_module

if TYPE_CHECKING:
    from memory_engine.formats import origin
else:
    origin = lazy_module("memory_engine.formats.origin")

Act = LlmToolCall | LlmSkillCall | LlmSubagentSpawn | LlmSubagentMessage
"""An event by which the agent acts."""


class AgentTurn(msgspec.Struct):
    """How far the agent's turn is. Plain data: it can be stored.

    `finished` is the seq of the latest final answer that a person spoke after. `answer` is the text
    that the turn ends with so far (0: it ends with something else); `goes_on`: its response, or the loop, may go on
    after it. `calling` is the id of the response that called last, `acts_in_text`: results come as messages.
    """

    finished: int = 0
    answer: int = 0
    goes_on: bool = False
    calling: str = ""
    acts_in_text: bool = False

    @property
    def answered(self) -> int:
        """The seq of the latest final answer. It is final at once if nothing of its response or loop can follow."""
        return self.finished if self.goes_on else max(self.finished, self.answer)

    def say(self, seq: int, event: LlmTextResponse) -> None:
        """Take a text as the end of the turn so far, unless it is empty or its response calls too."""
        text = content_text(event.content)
        if not text.strip() or (event.response_id and event.response_id == self.calling):
            return
        form = None if event.response_id else origin.form_of(text)
        self.answer = seq
        self.goes_on = bool(event.response_id) or self.acts_in_text or (form is not None and form.sure)

    def ask(self, seq: int, event: LlmClarification) -> None:
        """End the turn with a question to a person; a request for permission only interrupts it."""
        self.answer, self.goes_on = 0 if event.approval else seq, False

    def act(self, event: Act) -> None:
        """Go on: what was said before a call was no answer."""
        self.answer, self.calling = 0, event.response_id

    def observe(self) -> None:
        """Go on with a result that came as a message."""
        self.answer, self.acts_in_text = 0, True

    def declare(self) -> None:
        """Take the text that the turn ends with as final, since the agent said so."""
        self.goes_on = False

    def end(self) -> None:
        """End the turn, as a person speaks: a text at its end was the final answer."""
        self.finished = self.answer or self.finished
        self.answer, self.goes_on, self.calling, self.acts_in_text = 0, False, "", False


def calls_of(event: Act) -> tuple[ToolCall, ...]:
    """Return what an event calls; a message to a sub-agent counts as a call of it."""
    match event:
        case LlmToolCall():
            return event.calls
        case LlmSkillCall():
            return (ToolCall(event.call_id, event.name, event.arguments),)
        case LlmSubagentSpawn():
            return (ToolCall(event.call_id, event.agent_id, event.task),)
        case LlmSubagentMessage():
            return (ToolCall("", event.agent_id, content_text(event.content)),)
