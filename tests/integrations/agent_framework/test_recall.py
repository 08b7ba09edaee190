"""What a history provider gives its model of the user's other conversations."""

from functools import partial
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message, tool

from memory_engine import Engine
from memory_engine.integrations.agent_framework import MemoryEngineHistoryProvider, MemoryEngineRecallProvider
from tests.integrations.recalls import DEPOT, RECALL_TOKENS, RecallContract, Turn


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


async def talk(engine: Engine, turn: Turn, *, loads: bool = True) -> list[list[str]]:
    """A run of an agent; unless the provider `loads` the history, with the one that recalls beside it."""

    @tool(approval_mode="never_require")
    async def depot() -> str:
        """What the depot holds."""
        for one in turn.meanwhile:
            await talk(engine, one, loads=loads)
        return DEPOT

    scopes: dict[str, Any] = {"user_id": turn.user, "tenant_id": turn.tenant, "agent_id": turn.agent}
    options: dict[str, Any] = {} if loads else {"load_messages": False}
    providers: list[Any] = [MemoryEngineHistoryProvider(engine, **scopes, **turn.options, **options)]
    if not loads and turn.options.get("recall", False):
        tokens = turn.options.get("recall_tokens", RECALL_TOKENS)
        providers.append(MemoryEngineRecallProvider(engine, **scopes, recall_tokens=tokens))
    client = Program(turn.calls)
    agent = Agent(client, context_providers=providers, tools=[depot])
    await agent.run(turn.text, session=agent.create_session(session_id=turn.thread))
    return client.seen


async def test_a_model_is_given_what_its_user_said_elsewhere() -> None:
    """And nobody else's words."""
    await RecallContract(talk=talk).check()


async def test_a_model_whose_history_another_loads_is_given_it_too() -> None:
    """By the provider that recalls, which the framework asks."""
    await RecallContract(talk=partial(talk, loads=False)).check()
