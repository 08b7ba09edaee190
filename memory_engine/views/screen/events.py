"""Screen context: the person's screen, given to the agent once a session, with tools run ahead of the question."""

import msgspec

from memory_engine.core.events.base import Body, Event, event
from memory_engine.core.events.roles import Id, JsonText


def screen_description(content: str) -> str:
    """The agent's description of a screen: it is part of the conversation, in its own words."""
    return f"I can see you're on a specific screen. {content}".rstrip()


class ResultOfTool(msgspec.Struct, frozen=True):
    """What a tool gave for `parameters`, which are canonical JSON (sorted keys)."""

    tool: Id
    parameters: JsonText
    result: str


class ProactiveResult(ResultOfTool, frozen=True, omit_defaults=True):
    """A tool that was run before anybody asked. A `duration` caches the result."""

    call_id: Id
    duration: int = 0


@event("screen_injected", tracked=True)
class ScreenInjected(Event):
    """The screen and the proactive results for the agent.

    `claim` is drawn again by every sender: of two that report the same session at once, one is recorded.
    """

    content: str
    results: tuple[ProactiveResult, ...] = ()
    session_id: Id = ""
    claim: Id = ""

    def bodies(self) -> tuple[Body, ...]:
        """Each result under its call's id, as its chunk holds it."""
        return tuple(Body(content=r.result, call_id=r.call_id, label=r.tool) for r in self.results)
