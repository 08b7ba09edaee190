"""What a history provider gives its model of the user's other conversations."""

from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message, tool

from memory_engine import Engine
from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider
from tests.integrations.recalls import DEPOT, RecallContract, Turn


class Program(FunctionInvocationLayer, BaseChatClient):
    """Calls its tool some times, answers, and keeps what it is given."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls
        self.seen: list[list[str]] = []

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> ChatResponse:
        self.seen.append([said(message) for message in messages])
        self.left -= 1
        call = Content.from_function_call(f"c{self.left}", "depot", arguments="{}")
        return ChatResponse(messages=[Message("assistant", [call if self.left >= 0 else "Noted."])])


def said(message: Message) -> str:
    """The text of a message, or what a tool gave back."""
    return message.text or "".join(str(one.result or one.name) for one in message.contents)


async def talk(engine: Engine, turn: Turn) -> list[list[str]]:
    """A run of an agent."""

    @tool(approval_mode="never_require")
    async def depot() -> str:
        """What the depot holds."""
        for one in turn.meanwhile:
            await talk(engine, one)
        return DEPOT

    provider = MemoryEngineHistoryProvider(
        engine, user_id=turn.user, tenant_id=turn.tenant, agent_id=turn.agent, **turn.options
    )
    client = Program(turn.calls)
    agent = Agent(client, context_providers=[provider], tools=[depot])
    await agent.run(turn.text, session=agent.create_session(session_id=turn.thread))
    return client.seen


async def test_a_model_is_given_what_its_user_said_elsewhere() -> None:
    """And nobody else's words."""
    await RecallContract(talk=talk).check()
