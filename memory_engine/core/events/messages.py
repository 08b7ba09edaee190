"""What is said and answered: input, a model's responses, results of calls, errors.

Events of one response carry the same `response_id`. Results and errors with a `call_id` answer that call: a failed
call is an answered one. `final=False` marks an intermediate result of a long-running call.
"""

from memory_engine.core.events.base import Content, Event, ToolCall, event


@event("user_message")
class UserMessage(Event):
    """A person's message. `name` is the speaker, where there is more than one."""

    content: Content
    name: str = ""


@event("parent_agent_message")
class ParentAgentMessage(Event):
    """A message from the agent that spawned this one."""

    content: Content
    agent_id: str = ""


@event("llm_text_response")
class LlmTextResponse(Event):
    """Text that the model answered."""

    content: Content
    response_id: str = ""
    name: str = ""


@event("llm_thinking")
class LlmThinking(Event):
    """The model's reasoning. `signature` is the provider's, which it wants back unchanged."""

    content: str
    response_id: str = ""
    signature: str = ""


@event("llm_tool_call")
class LlmToolCall(Event):
    """One tool call, or the N parallel calls of one response, with the text that came along."""

    calls: tuple[ToolCall, ...]
    content: str = ""
    response_id: str = ""


@event("llm_skill_call")
class LlmSkillCall(Event):
    """A skill is invoked; `call_id` binds its result."""

    call_id: str
    name: str
    arguments: str = "{}"
    response_id: str = ""


@event("llm_subagent_spawn")
class LlmSubagentSpawn(Event):
    """A sub-agent is started with a task; `call_id` binds its result."""

    call_id: str
    agent_id: str
    task: str
    response_id: str = ""


@event("llm_subagent_message")
class LlmSubagentMessage(Event):
    """A message to or from a running sub-agent."""

    agent_id: str
    content: Content
    response_id: str = ""


@event("llm_clarification")
class LlmClarification(Event):
    """The model asks a person something, or (`approval`) to allow something, and waits."""

    content: str
    clarification_id: str = ""
    approval: bool = False
    response_id: str = ""


@event("tool_result")
class ToolResult(Event):
    """What a tool returned for `call_id`."""

    call_id: str
    content: Content
    name: str = ""
    final: bool = True


@event("skill_result")
class SkillResult(Event):
    """What a skill returned for `call_id`."""

    call_id: str
    content: Content
    name: str = ""
    final: bool = True


@event("subagent_result")
class SubagentResult(Event):
    """What a sub-agent returned for `call_id`."""

    call_id: str
    content: Content
    agent_id: str = ""
    final: bool = True


@event("tool_error")
class ToolError(Event):
    """A tool failed, or its call was rejected."""

    call_id: str
    content: str
    name: str = ""


@event("skill_error")
class SkillError(Event):
    """A skill failed."""

    call_id: str
    content: str
    name: str = ""


@event("subagent_error")
class SubagentError(Event):
    """A sub-agent failed."""

    call_id: str
    content: str
    agent_id: str = ""


@event("system_error")
class SystemFailure(Event):
    """Something around the agent failed: the provider, the network, the host."""

    content: str
    code: str = ""
