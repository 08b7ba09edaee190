"""What the block of `AgentLifecycle.run` holds."""

from typing import TYPE_CHECKING

from memory_engine.events import ToolCall
from memory_engine.lifecycle.extraction import Fact
from memory_engine.lifecycle.preparing import Preparation

if TYPE_CHECKING:
    from memory_engine.lifecycle.running import AgentLifecycle


class Run:
    """A task under way in `AgentLifecycle.run`. Set `result` before the block ends; then `learned` has the facts."""

    def __init__(self, lifecycle: "AgentLifecycle", preparation: Preparation) -> None:
        self.lifecycle = lifecycle
        self.preparation = preparation
        self.result = ""
        self.learned: tuple[Fact, ...] = ()

    async def tool_used(self, call: ToolCall, result: str | None = None, *, error: str | None = None) -> None:
        """As `AgentLifecycle.tool_used`."""
        await self.lifecycle.tool_used(call, result, error=error)
