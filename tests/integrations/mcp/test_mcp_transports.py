"""The MCP server as a real process on standard input and output, and over HTTP on loopback."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import memory_engine
from memory_engine import Engine
from memory_engine.inspector.server import CannotServe
from memory_engine.integrations.mcp import Served
from memory_engine.integrations.mcp_http import serving
from tests.integrations.examples import printed

TOKEN = "a-token-that-is-long-enough"
PROGRAM = str(Path(sys.executable).with_name("memory-engine"))


def command(*words: str) -> StdioServerParameters:
    """The server as clients start it."""
    return StdioServerParameters(command=PROGRAM, args=list(words), env=dict(os.environ))


async def test_a_client_starts_it_as_a_process(tmp_path: Path) -> None:
    """Twenty calls at once are done, and other processes see what came of them."""
    path = str(tmp_path / "m.db")
    async with Client(command("--db", path, "mcp", "--agent", "coder")) as client:
        calls = (
            client.call_tool("memory_append", {"layer": "episodic", "content": f"Did step {n}."}) for n in range(20)
        )
        assert [False] * 20 == [result.is_error for result in await asyncio.gather(*calls)]
    async with memory_engine.open(path) as engine:
        assert 20 == len(await engine.agent("coder").memory.entries("episodic"))


def test_the_wire_holds_messages_alone(tmp_path: Path) -> None:
    """What is no message goes to standard error; when the client goes, the process ends well."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"},
    }}  # fmt: skip
    done = subprocess.run(
        [PROGRAM, "--db", str(tmp_path / "m.db"), "mcp"],
        input=f"this is not JSON\n{json.dumps(asked)}\n",
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert 0 == done.returncode
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"2.0"} == {message["jsonrpc"] for message in messages}
    assert "memory-engine" == next(one for one in messages if one.get("id") == 1)["result"]["serverInfo"]["name"]


def test_a_read_only_server_needs_a_database(tmp_path: Path) -> None:
    """It makes none, and says so beside the wire."""
    path = tmp_path / "m.db"
    done = subprocess.run(
        [PROGRAM, "--db", str(path), "mcp", "--read-only"], input="", capture_output=True, encoding="utf-8", check=False
    )
    assert (2, "", False) == (done.returncode, done.stdout, path.exists())
    assert "there is no such file" in done.stderr


@asynccontextmanager
async def http(**headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client that sends these headers with each request."""
    async with httpx2.AsyncClient(headers=headers, trust_env=False) as client:
        yield client


async def test_over_http_the_official_client_works(engine: Engine) -> None:
    """On a free port of this machine, and with a token where one is asked for."""
    async with serving(engine, Served()) as address, Client(address) as client:
        assert not (await client.call_tool("memory_learn", {"key": "jdk", "value": "Java 21"})).is_error
        found = await asyncio.gather(*(client.call_tool("memory_recall", {"key": "jdk"}) for _ in range(20)))
        assert ["Java 21"] * 20 == [result.structured_content["value"] for result in found]
    async with (
        serving(engine, Served(), token=TOKEN) as address,
        http(authorization=f"Bearer {TOKEN}") as carrying,
        Client(streamable_http_client(address, http_client=carrying)) as client,
    ):
        assert not (await client.call_tool("memory_stats")).is_error


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": TOKEN}, 401),
    ],
)
async def test_requests_of_strangers_are_refused(engine: Engine, headers: dict[str, str], status: int) -> None:
    """A page that reaches the port by a name of its own (DNS rebinding), one of another site, one without the token."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = "application/json, text/event-stream"
    async with serving(engine, Served(), token=TOKEN) as address:
        sent = {"authorization": f"Bearer {TOKEN}", "accept": accept, **headers}
        async with http(**sent) as client:
            assert status == (await client.post(address, json=ping)).status_code


async def test_another_name_may_be_allowed(engine: Engine) -> None:
    """That of a proxy in front, with any port or none."""
    async with serving(engine, Served(), hosts=["memory.example.com"]) as address:
        for host in ("memory.example.com", "memory.example.com:443"):
            async with http(host=host, origin="https://memory.example.com") as client:
                assert (await client.post(address, json={})).status_code not in (421, 403)


@pytest.mark.parametrize(
    ("host", "token", "why"),
    [
        ("0.0.0.0", "", "give a token"),
        ("127.0.0.1", "short", "printable ASCII characters"),
        ("example.com", TOKEN, "not an address"),
        ("203.0.113.1", TOKEN, "port 0 takes a free one"),
    ],
)
async def test_an_open_door_is_not_opened(engine: Engine, host: str, token: str, why: str) -> None:
    """Beyond this machine nothing is served without a token."""
    with pytest.raises(CannotServe, match=why):
        async with serving(engine, Served(), host=host, token=token):
            pass


async def test_the_command_serves_http_until_it_is_told_to_end(tmp_path: Path) -> None:
    """It prints its address, and ends well with SIGTERM."""
    words = (PROGRAM, "--db", str(tmp_path / "m.db"), "mcp", "--http", "127.0.0.1:0", "--json")
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    address = json.loads(await process.stdout.readline())["address"]
    async with Client(address) as client:
        assert not (await client.call_tool("memory_stats")).is_error
    process.terminate()
    assert 0 == await process.wait()


def test_the_example_runs(tmp_path: Path) -> None:
    """It starts the server and calls it."""
    assert "jdk: Java 21" in printed("mcp", tmp_path)
