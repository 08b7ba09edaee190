"""The MCP server's tools and resources, driven by the official client in this process."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.integrations.mcp import Served, create_server


@asynccontextmanager
async def client_of(engine: Engine, **served: Any) -> AsyncIterator[Client]:
    """A client of a server over this engine."""
    async with Client(await create_server(engine, Served(**served))) as client:
        yield client


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    """A client for an agent of a user in a tenant."""
    async with client_of(engine, user_id="u1", tenant_id="acme") as client:
        yield client


def text_of(result: CallToolResult) -> str:
    """What the model reads."""
    (block,) = result.content
    assert block.type == "text"
    return block.text


async def ask(client: Client, tool: str, **arguments: object) -> Mapping[str, Any]:
    """A call that succeeds: its structured answer, which says what the text says."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert isinstance(result.structured_content, dict)
    assert text_of(result) == result.structured_content["text"]
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: object) -> str:
    """What the model is told of a call that cannot be done."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content is None
    return text_of(result)


async def read(client: Client, uri: str) -> str:
    """The text of a resource."""
    (contents,) = (await client.read_resource(uri)).contents
    return str(getattr(contents, "text", ""))


CALLS: dict[str, dict[str, object]] = {
    "memory_append": {"layer": "episodic", "content": "Moved the build to Java 21."},
    "memory_search": {"query": "Java"},
    "memory_learn": {"key": "jdk", "value": "Java 21"},
    "memory_recall": {"key": "jdk"},
    "memory_compact": {"layer": "episodic"},
    "memory_stats": {},
    "memory_clear": {"layer": "working", "confirm": True},
    "memory_open": {"reference": ""},
    "scratchpad_write": {"text": "The build is slow."},
    "scratchpad_read": {},
    "brief_pin": {"text": "Tests pass before each commit."},
    "brief_unpin": {"pin": 0},
    "brief_read": {},
    "context_compact": {"focus": "the build"},
    "memory_context": {"query": "Which Java does the build need?", "max_tokens": 500},
    "memory_why": {"id": "jdk"},
}


async def test_every_tool_answers_as_its_schemas_say(client: Client) -> None:
    """Arguments and structured answers are valid, and hints say who only reads."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools.keys() == CALLS.keys()
    entry = (await ask(client, "memory_append", **CALLS["memory_append"]))["id"]
    await ask(client, "memory_learn", **CALLS["memory_learn"])
    for name, arguments in CALLS.items():
        given = {"reference": entry} if name == "memory_open" else arguments
        if name == "brief_unpin":
            given = {"pin": (await ask(client, "brief_pin", text="For a moment."))["pin"]}
        jsonschema.validate(given, tools[name].input_schema)
        output = tools[name].output_schema
        assert output is not None
        jsonschema.validate(await ask(client, name, **given), output)
    reading = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
    only_read = (
        "memory_search memory_recall memory_stats memory_open scratchpad_read brief_read memory_context memory_why"
    )
    assert set(only_read.split()) == reading
    assert {"memory_clear", "memory_compact"} == {
        name for name, tool in tools.items() if tool.annotations and tool.annotations.destructive_hint
    }


async def test_a_search_gives_entries_to_programs(client: Client) -> None:
    """With their ids, by which `memory_why` leads to the events."""
    learned = await ask(client, "memory_learn", key="jdk", value="Java 21")
    assert "Learned" in learned["text"]
    (entry,) = (await ask(client, "memory_search", query="java"))["entries"]
    assert ("jdk", "Java 21", "semantic") == (entry["key"], entry["content"], entry["layer"])
    why = await ask(client, "memory_why", id=entry["id"])
    assert "memory_appended" in why["text"]
    assert "event" == why["tree"]["children"][0]["kind"]


async def test_a_context_holds_what_is_known_of_the_question(engine: Engine, client: Client) -> None:
    """Preferences, house rules, facts, the scratchpad, and what earlier conversations said; within limits."""
    await engine.user("u1", tenant_id="acme").preferences.update("verbosity", "concise")
    await engine.tenant("acme").agent_md.upload("# Rules\nNever deploy on Fridays.\n")
    talk = await engine.create_thread("talk", user_id="u1", tenant_id="acme")
    await talk.dispatch(UserMessage(content="The staging database is called heron."))
    await ask(client, "memory_learn", key="jdk", value="Java 21")
    await ask(client, "scratchpad_write", text="The build is slow.")
    told = await ask(client, "memory_context", query="What is the staging database called?", max_tokens=2_000)
    for words in ("concise", "Fridays", "Java 21", "The build is slow.", "heron"):
        assert words in told["text"]
    assert ["talk"] == told["threads"]
    assert told["tokens"] <= 2_000
    assert "100" in await refused(client, "memory_context", query="x", max_tokens=10)


async def test_mistakes_are_told_to_the_model(client: Client) -> None:
    """As errors of tools, in our words; nothing is written."""
    assert "There is no tool 'forget_all'" in await refused(client, "forget_all")
    assert "Wrong arguments for memory_learn" in await refused(client, "memory_learn", key="a")
    assert "confirm=true" in await refused(client, "memory_clear", layer="working", confirm=False)
    assert "Wrong arguments for memory_context" in await refused(client, "memory_context")
    assert "no-such-id" in await refused(client, "memory_why", id="no-such-id")
    assert "9.0" in await refused(client, "memory_why", id="9.0")
    await ask(client, "memory_learn", key="jdk", value="Java 21")
    assert "no-such-view" in await refused(client, "memory_why", id="view:no-such-view/x")


async def test_nothing_crosses_tenants(engine: Engine, client: Client) -> None:
    """Neither entries nor conversations nor resources: another tenant's look as if they were not there."""
    await engine.create_thread("theirs", user_id="u1", tenant_id="rival")
    await engine.thread("theirs").dispatch(UserMessage(content="The secret database is called heron."))
    for tenant_id in ("rival", ""):
        other = engine.agent("mcp", tenant_id=tenant_id)
        await other.memory.learn("database", "heron")
        await other.memory_files.create("secret.md", "heron")
    assert [] == (await ask(client, "memory_search", query="heron database"))["entries"]
    assert "heron" not in (await ask(client, "memory_context", query="secret database"))["text"]
    assert "is known" in (await ask(client, "memory_recall", key="database"))["text"]
    assert "theirs" not in await read(client, "memory://threads")
    for uri in ("memory://threads/theirs/context", "memory://files/secret.md", "memory://threads/none/context"):
        with pytest.raises(MCPError, match="there is no resource"):
            await read(client, uri)
    assert await refused(client, "memory_why", id="database")


async def test_resources_are_listed_and_read(engine: Engine, client: Client) -> None:
    """House rules, preferences, conversations, and the agent's files by their paths."""
    await engine.user("u1", tenant_id="acme").preferences.update("verbosity", "concise")
    await engine.tenant("acme").agent_md.upload("# Rules\n")
    await engine.agent("mcp", tenant_id="acme").memory_files.create("a b/é.md", "text")
    await engine.create_thread("t/1", user_id="u1", tenant_id="acme")
    await engine.thread("t/1").dispatch(UserMessage(content="Hello"))
    listed = [resource.uri for resource in (await client.list_resources()).resources]
    file = "memory://files/a%20b/%C3%A9.md"
    assert ["memory://threads", "memory://agent.md", "memory://preferences", file] == listed
    assert "text" == await read(client, file)
    assert "# Rules" in await read(client, "memory://agent.md")
    assert {"verbosity": "concise"} == json.loads(await read(client, "memory://preferences"))
    assert "t/1" in [thread["id"] for thread in json.loads(await read(client, "memory://threads"))]
    assert "Hello" in await read(client, "memory://threads/t%2F1/context")
    templates = (await client.list_resource_templates()).resource_templates
    assert ["memory://threads/{id}/context", "memory://files/{+path}"] == [one.uri_template for one in templates]
    for uri in ("memory://nothing", "http://agent.md", "memory://files/../x", "memory://threads/a/b"):
        with pytest.raises(MCPError):
            await read(client, uri)


async def test_clients_of_the_former_protocol_are_served(engine: Engine) -> None:
    """Those that begin with `initialize`, as most clients do."""
    async with Client(await create_server(engine, Served()), mode="legacy") as client:
        assert "Learned" in (await ask(client, "memory_learn", key="jdk", value="Java 21"))["text"]
        assert "Java 21" in (await ask(client, "memory_recall", key="jdk"))["text"]
        assert "mcp:" in await read(client, "memory://threads")


async def test_a_server_that_only_reads_records_nothing(tmp_path: Path) -> None:
    """Not even the conversation for its scratchpad; tools that write are not offered, and say so if called."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await engine.agent("mcp").memory.learn("jdk", "Java 21")
        await engine.create_thread("talk", agent_id="mcp")
        await engine.thread("talk").dispatch(UserMessage(content="The build needs Java 21."))
        before = await engine.stats()
    async with memory_engine.open(path) as engine, client_of(engine, read_only=True) as client:
        assert "memory_learn" not in [tool.name for tool in (await client.list_tools()).tools]
        assert "only reads" in await refused(client, "memory_learn", key="jdk", value="Java 8")
        assert "Java 21" in (await ask(client, "memory_recall", key="jdk"))["text"]
        assert "The build needs Java 21." in (await ask(client, "memory_context", query="which Java?"))["text"]
        assert "empty" in (await ask(client, "scratchpad_read"))["text"]
        after = await engine.stats()
    assert (before.events, before.threads) == (after.events, after.threads)
