"""An agent of Strands on a memory, with a model that needs no key; needs the extra `strands`. A second run goes on."""

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent
from strands.models import Model

from memory_engine import sync
from memory_engine.integrations.strands import MemoryEngineSessionManager


class Counting(Model):
    """In a model's place: says how many messages it was given."""

    def update_config(self, **model_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing to configure."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """It gives none."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """One short text."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": f"I was given {len(messages)} messages."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def main() -> None:
    """Two turns of one session."""
    with sync.open("strands.db") as engine:
        manager = MemoryEngineSessionManager("chat", engine, user_id="ann")
        agent = Agent(model=Counting(), session_manager=manager, callback_handler=None)
        for text in ("My cat is called Tom.", "Do you know my cat?"):
            print(text, agent(text))


if __name__ == "__main__":
    main()
