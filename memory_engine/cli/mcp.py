"""The command that serves a memory to clients of the Model Context Protocol."""

import argparse
import asyncio
import os

from memory_engine.cli.commands import Command, Option, existing, writable
from memory_engine.cli.schedule import told_to_end
from memory_engine.cli.terminal import Terminal
from memory_engine.core.aside import modules_spared
from memory_engine.core.origins import Speaker
from memory_engine.engine import Engine
from memory_engine.integrations.mcp import Served, serve_stdio

TOKEN = "MEMORY_ENGINE_MCP_TOKEN"
PORTS = 65_535


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > PORTS:
        raise argparse.ArgumentTypeError(f"{text} is not an address with a port, such as 127.0.0.1:8478")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def mcp(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until the client disconnects, or, over HTTP, until Ctrl-C or SIGTERM."""
    served = Served(
        agent_id=asked.agent,
        user_id=asked.user,
        tenant_id=asked.tenant,
        read_only=asked.read_only,
        changes_shared=asked.changes_shared,
        min_trust=asked.min_trust,
    )
    # to search is to write an index, at most: with --read-only no file is made, and no event is recorded
    opened = (existing if asked.read_only else writable)(asked.db, plugins=asked.plugins)
    async with opened as engine:
        if asked.http is None:
            await serve_stdio(engine, served)
            return 0
        with told_to_end() as ended:
            await _serve_http(engine, served, asked, terminal, ended)
    return 0


async def _serve_http(
    engine: Engine, served: Served, asked: argparse.Namespace, terminal: Terminal, ended: asyncio.Event
) -> None:
    from memory_engine.integrations.mcp_http import serving

    host, port = asked.http
    token = asked.token or os.environ.get(TOKEN, "")
    hosts = asked.allow_host or ()
    async with serving(engine, served, host=host, port=port, token=token, hosts=hosts) as address:
        terminal.json({"address": address, "pid": os.getpid()})
        terminal.say(address, "bold")
        terminal.out.flush()
        with modules_spared():
            await ended.wait()


MCP = Command.of(
    mcp,
    Option.value("--agent", "AGENT", "the agent that remembers (default: mcp)", default="mcp"),
    Option.value("--user", "USER", "with the conversations and preferences of this user", default=""),
    Option.value("--tenant", "TENANT", "within this tenant (default: none)", default=""),
    Option.flag("--read-only", "offer only tools that read; record no event"),
    Option.flag(
        "--changes-shared", "let a user's client clear and compact the layers that the agent's other users share"
    ),
    lambda parser: parser.add_argument(
        "--min-trust",
        metavar="ORIGIN",
        choices=[one.value for one in Speaker],
        help="find nothing of a lower origin: operator, person, agent, imported or tool",
    ),
    Option.value(
        "--http", "HOST:PORT", "serve streamable HTTP there instead of on standard input and output", _host_and_port
    ),
    Option.value("--token", "TOKEN", f"the token that HTTP requests must carry (default: ${TOKEN})", default=""),
    lambda parser: parser.add_argument(
        "--allow-host", action="append", metavar="NAME", help="a host name that HTTP requests may use"
    ),
)
