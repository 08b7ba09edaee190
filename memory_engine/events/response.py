"""What a model's response holds. Events of one response carry the same `response_id`."""

from memory_engine.events.base import Content, Event, ToolCall, event


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
