"""Input: what people and parent agents say."""

from memory_engine.events.base import Content, Event, event


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
