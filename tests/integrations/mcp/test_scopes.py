"""A server shows nothing of another user or tenant, whatever tool or resource a client asks for."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define
from mcp import Client
from mcp.shared.exceptions import MCPError

import memory_engine
from memory_engine import Engine, EngineConfig, UserMessage
from memory_engine.errors import ScopeRequired, ThreadDiffers
from memory_engine.integrations.mcp import Served, create_server
from tests.integrations.scoped import SECRET, THREAD, Asked, Contract, Table, logs

QUERY = "Where is the spare key of the observatory?"


@define
class Server:
    """What is served, and over which engine; outside of `connected` each call has a client of its own."""

    engine: Engine
    served: Served
    client: Client | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        """One client, for all calls within the outermost block."""
        if self.client is not None:
            yield self.client
            return
        async with Client(await create_server(self.engine, self.served), cache=None) as client:
            self.client = client
            try:
                yield client
            finally:
                self.client = None

    async def tool(self, name: str, arguments: Mapping[str, object]) -> object:
        """What a tool answers."""
        async with self.connected() as client:
            return await client.call_tool(name, dict(arguments))

    async def resource(self, name: str) -> object:
        """What a resource holds; `None` if it is not there."""
        async with self.connected() as client:
            try:
                return await client.read_resource(f"memory://{name}")
            except MCPError:  # the protocol's word for a resource that is not there
                return None

    async def listed(self) -> object:
        """The list of resources."""
        async with self.connected() as client:
            return await client.list_resources()

    async def seed(self) -> None:
        """A conversation, and what a user has in it, in preferences, and (said by nobody known) with the agent."""
        user, tenant = self.served.user_id, self.served.tenant_id
        thread = await self.engine.create_thread(THREAD, user_id=user, tenant_id=tenant, agent_id=self.served.agent_id)
        await thread.dispatch(UserMessage(content=SECRET))
        writing = Server(self.engine, Served(agent_id="keeper", user_id=user, tenant_id=tenant))
        await writing.tool("scratchpad_write", {"text": SECRET})
        await writing.tool("brief_pin", {"text": SECRET})
        if user:
            await self.engine.user(user, tenant_id=tenant).preferences.update("verbosity", SECRET)
            await writing.tool("memory_learn", {"key": "spare key", "value": SECRET})
            await writing.tool("memory_append", {"layer": "episodic", "content": SECRET})


def tool(name: str, *, shows: bool = False, **arguments: object) -> list[Asked[Server]]:
    """A call of a tool."""
    return [Asked(lambda server: server.tool(name, arguments), "hidden", shows)]


def resource(name: str, *, shows: bool = False) -> list[Asked[Server]]:
    """A resource."""
    return [Asked(lambda server: server.resource(name), "hidden", shows)]


READING: Table[Server] = {
    "memory_search": [*tool("memory_search", query=QUERY, shows=True), *tool("memory_search", last=9, shows=True)],
    "memory_recall": tool("memory_recall", key="spare key", shows=True),
    "memory_stats": tool("memory_stats"),
    "memory_open": tool("memory_open", reference="spare key"),
    "scratchpad_read": tool("scratchpad_read", shows=True),
    "brief_read": tool("brief_read", shows=True),
    "memory_context": tool("memory_context", query=QUERY, shows=True),
    "memory_why": [
        *tool("memory_why", id="spare key", shows=True),
        *tool("memory_why", id="view:layers/semantic/spare key"),
        *tool("memory_why", id="view:episodic/0000000002"),
        *tool("memory_why", id="1.0"),
    ],
}
WRITING: Table[Server] = {
    "memory_append": tool("memory_append", layer="episodic", content="Mine."),
    "memory_learn": tool("memory_learn", key="spare key", value="Mine."),
    "memory_compact": tool("memory_compact", layer="episodic"),
    "memory_clear": tool("memory_clear", layer="working", confirm=True),
    "scratchpad_write": tool("scratchpad_write", text="Mine."),
    "brief_pin": tool("brief_pin", text="Mine."),
    "brief_unpin": tool("brief_unpin", pin=1),
    "context_compact": tool("context_compact"),
}
RESOURCES: Table[Server] = {
    "memory://threads": resource("threads"),
    "memory://preferences": resource("preferences", shows=True),
    "memory://agent.md": resource("agent.md"),
    "memory://threads/{id}/context": resource(f"threads/{THREAD}/context", shows=True),
    "memory://files/{+path}": resource("files/keys.md"),
    "resources": [Asked(Server.listed, "hidden")],
}


async def names(*, read_only: bool) -> set[str]:
    """All tools, resources and templates that a server offers."""
    async with memory_engine.open(":memory:") as engine:
        served = Served(user_id="ann", tenant_id="acme", read_only=read_only)
        async with Client(await create_server(engine, served)) as client:
            resources = (await client.list_resources()).resources
            templates = (await client.list_resource_templates()).resource_templates
            tools = (await client.list_tools()).tools
            return {
                "resources",
                *(one.name for one in tools),
                *(str(one.uri) for one in resources),
                *(one.uri_template for one in templates),
            }


@pytest.mark.parametrize("read_only", [False, True])
async def test_every_tool_and_resource_stays_with_its_user(*, read_only: bool) -> None:
    """And in its tenant; also where one is left out, and before a server that only reads has a conversation."""
    table = READING | RESOURCES | ({} if read_only else WRITING)
    await Contract(
        methods=await names(read_only=read_only),
        make=lambda engine, user, tenant: Server(
            engine, Served(agent_id="keeper", user_id=user, tenant_id=tenant, read_only=read_only)
        ),
        seed=Server.seed,
        table=table,
        shared=lambda thread_id: thread_id.startswith("agent:"),
        served=Server.connected,
    ).check()


async def test_a_server_does_not_take_another_users_thread_for_its_conversation() -> None:
    """Its id can be guessed."""
    async with memory_engine.open(":memory:") as engine:
        made = await engine.create_thread("mcp:acme/bob/keeper", user_id="ann", tenant_id="acme", agent_id="keeper")
        await made.scratchpad.write(SECRET)
        before = await logs(engine)
        for read_only in (False, True):
            served = Served(agent_id="keeper", user_id="bob", tenant_id="acme", read_only=read_only)
            with pytest.raises(ThreadDiffers):
                await create_server(engine, served)
        assert before == await logs(engine)


async def test_an_engine_that_requires_a_scope_refuses_servers_without_one() -> None:
    """An agent alone is nobody."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        for read_only in (False, True):
            with pytest.raises(ScopeRequired):
                await create_server(engine, Served(agent_id="keeper", read_only=read_only))
        scoped: list[Any] = [{"user_id": "ann"}, {"tenant_id": "acme"}]
        for scopes in scoped:
            await create_server(engine, Served(agent_id="keeper", **scopes))
