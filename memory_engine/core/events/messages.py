"""Events of a conversation: input, a model's responses, results of calls, errors.

Events of one response carry the same `response_id`. Results and errors with a `call_id` answer that call: a failed
call is an answered one. `final=False` marks an intermediate result of a long-running call.

`native` is JSON: what a provider's message holds beyond the other fields, by the name of its format
(`memory_engine.formats`), so that the same provider can get the message back unchanged.

`uncounted` keeps what version 1 of an event did: its chunk counts no tokens for the provider's own blocks in `native`.
"""

from typing import Literal, TypeVar

import msgspec

from memory_engine.core.events.base import Content, Event, ExplainingMeta, ToolCall, event
from memory_engine.core.events.roles import Id, JsonText

MessageOrigin = Literal["", "tool", "client", "summary"]
"""The author of a message of the user role: a person (empty), a tool, the client software, or a summarising tool."""


@event("user_message", version=2, role="user", chunks="own")
class UserMessage(Event):
    """A message of the user role, which a person wrote unless `origin` says otherwise.

    `name` is the speaker, if there are several. `origin` is `tool` for an observation of a loop whose actions are
    written as text, `client` for a notice that the client software wrote, `summary` for another tool's summary of what
    went before. Providers get all of them under the role user; nothing is learned from them as from a person.
    """

    content: Content
    name: str = ""
    native: JsonText = ""
    origin: MessageOrigin = ""
    uncounted: bool = False


@event("parent_agent_message", role="user", chunks="own")
class ParentAgentMessage(Event):
    """A message from the agent that spawned this one."""

    content: Content
    agent_id: Id = ""
    native: JsonText = ""


@event("llm_text_response", version=2, role="assistant", chunks="own")
class LlmTextResponse(Event):
    """The model's text answer. `interrupted` says why it broke off before its end; empty for a whole one."""

    content: Content
    response_id: Id = ""
    name: str = ""
    interrupted: str = ""
    native: JsonText = ""
    uncounted: bool = False


@event("llm_thinking", role="assistant", chunks="own")
class LlmThinking(Event):
    """The model's reasoning. `signature` is the provider's, which wants it back unchanged."""

    content: str
    response_id: Id = ""
    signature: str = ""
    native: JsonText = ""


@event("llm_tool_call", version=2, role="assistant", chunks="own")
class LlmToolCall(Event):
    """One tool call, or the N parallel calls of one response, with the accompanying text."""

    calls: tuple[ToolCall, ...]
    content: str = ""
    response_id: Id = ""
    native: JsonText = ""
    uncounted: bool = False


@event("llm_skill_call", role="assistant", chunks="own")
class LlmSkillCall(Event):
    """A skill is invoked; `call_id` binds its result."""

    call_id: Id
    name: Id
    arguments: JsonText = "{}"
    response_id: Id = ""


@event("llm_subagent_spawn", role="assistant", chunks="own")
class LlmSubagentSpawn(Event):
    """A sub-agent is started with a task; `call_id` binds its result."""

    call_id: Id
    agent_id: Id
    task: str
    response_id: Id = ""


@event("llm_subagent_message", role="assistant", chunks="own")
class LlmSubagentMessage(Event):
    """A message to or from a running sub-agent."""

    agent_id: Id
    content: Content
    response_id: Id = ""


@event("llm_clarification", role="assistant", chunks="own")
class LlmClarification(Event):
    """The model asks a person a question, or (`approval`) for permission, and waits."""

    content: str
    clarification_id: Id = ""
    approval: bool = False
    response_id: Id = ""
    native: JsonText = ""


class Answer(Event):
    """The answer to the call `call_id`: a result, or an error."""

    call_id: Id
    content: Content


@event("tool_result", role="tool", chunks="own")
class ToolResult(Answer):
    """The result of a tool."""

    name: Id = ""
    final: bool = True
    native: JsonText = ""


@event("skill_result", role="tool", chunks="own")
class SkillResult(Answer):
    """The result of a skill."""

    name: Id = ""
    final: bool = True


@event("subagent_result", role="tool", chunks="own")
class SubagentResult(Answer):
    """The result of a sub-agent."""

    agent_id: Id = ""
    final: bool = True


@event("tool_error", role="tool", chunks="own")
class ToolError(Answer, metaclass=ExplainingMeta):
    """A tool failed, or its call was rejected."""

    name: Id = ""
    native: JsonText = ""


@event("skill_error", role="tool", chunks="own")
class SkillError(Answer, metaclass=ExplainingMeta):
    """A skill failed."""

    content: str
    name: Id = ""


@event("subagent_error", role="tool", chunks="own")
class SubagentError(Answer, metaclass=ExplainingMeta):
    """A sub-agent failed."""

    content: str
    agent_id: Id = ""


@event("system_error", role="system", chunks="own")
class SystemFailure(Event):
    """Something around the agent failed: the provider, the network, the host."""

    content: str
    code: str = ""


_Counted = TypeVar("_Counted", bound=Event)


def as_sent(event: _Counted, version: int) -> _Counted:
    """Return an event of a recorded version as it was sent: without the mark that reading version 1 sets."""
    is_marked = version == 1 and isinstance(event, UserMessage | LlmTextResponse | LlmToolCall) and event.uncounted
    return msgspec.structs.replace(event, uncounted=False) if is_marked else event
