"""Results of calls. `final=False` marks an intermediate result of a long-running call."""

from memory_engine.events.base import Content, Event, event


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
