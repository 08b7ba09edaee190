"""Errors. Those with a `call_id` answer that call: a failed call is an answered one."""

from memory_engine.events.base import Event, event


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
