"""An agent's pins in the brief of its conversation, and the brief in words for it."""

from memory_engine.core.json_form import named
from memory_engine.thread import Thread
from memory_engine.views.brief.view import BriefStatement
from memory_engine.views.layers.entries import RECALLED_MARK
from memory_engine.views.layers.summaries import shortened

STATEMENT_CHARS_MAX = 1_200
"""Characters of a statement that a model is shown."""


class AgentPins:
    """The pins of an agent in one conversation. They count as the agent's, or as a tool's after it read one."""

    def __init__(self, conversation: Thread) -> None:
        self._conversation = conversation

    async def add(self, text: str) -> int:
        """Pin a text, and return the pin's seq. Raises what `BriefView.pin` raises."""
        return (await self._conversation.pin(text, by_agent=True)).seq

    async def take_out(self, pin: int) -> bool:
        """Take a pin out, unless it is a person's: then return False. Raises `UnknownPin`."""
        pins = [one for one in await self._conversation.brief.read() if one.pinned and one.origin == "person"]
        if any(one.seq == pin for one in pins):
            return False
        await self._conversation.unpin(pin, reason="asked by the agent")
        return True

    async def read(self) -> tuple[str, list[dict[str, object]]]:
        """The statements that still apply, in order of time: as lines for a model, and as data."""
        standing = (await self._conversation.brief.read()).standing
        if not standing:
            return "Nothing that people said still stands, and nothing is pinned.", []
        lines = [RECALLED_MARK, *map(_pin_line, standing)]
        return "\n".join(lines), [named(one, "seq text speaker kind status origin pinned") for one in standing]


def _pin_line(one: BriefStatement) -> str:
    pinned = "pinned by you" if one.origin in ("agent", "tool") else "pinned"
    who = pinned if one.pinned else one.speaker
    status = "superseded" if one.status == "superseded" else ""
    about = ", ".join(filter(None, (f"{one.seq}", _whence(one), who, status)))
    return f"- ({about}) {shortened(one.text, STATEMENT_CHARS_MAX)}"


def _whence(one: BriefStatement) -> str:
    return f"to the agent that started you, {one.thread_id}" if one.origin == "parent" else ""
