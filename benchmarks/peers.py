"""Appends the same messages to other engines' SQLite stores. Runs in their environment.

Each is used as its documentation says, with the settings that it ships with, but for how often SQLite syncs
where a job says so. `python -m benchmarks.peers` reads jobs (see `Job`) as JSON lines and answers each with
one. The libraries are imported by name, so that this file can be read where they are not installed.
"""

import asyncio
import functools
import importlib
import importlib.metadata
import itertools
import json
import os
import sqlite3
import sys
import tempfile
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Protocol, TextIO
from unittest import mock

from benchmarks.payloads import Message, conversation

Append = Callable[[Message], Awaitable[None]]
Open = Callable[[Path, AsyncExitStack], Awaitable[Append]]


@dataclass(frozen=True)
class Job:
    """Append the first `count` messages of the conversation of `seed` to a new store of `peer`.

    On these cores only, where there are any given; with SQLite's `synchronous` at this value instead of the
    one that the peer ships with.
    """

    peer: str
    seed: int
    count: int
    cores: tuple[int, ...] = ()
    synchronous: str = ""


@dataclass(frozen=True)
class Peer:
    """Another engine: the distribution it comes in, and how its store is opened for one conversation."""

    distribution: str
    open: Open


async def open_openai_agents(folder: Path, stack: AsyncExitStack) -> Append:
    """openai-agents: one session, one `add_items` a message."""
    session = importlib.import_module("agents").SQLiteSession("conversation", folder / "peer.db")
    stack.callback(session.close)

    async def append(message: Message) -> None:
        await session.add_items([_as_response_item(message)])

    return append


def _as_response_item(message: Message) -> dict[str, object]:
    if message.role == "call":
        return {
            "type": "function_call",
            "call_id": message.call_id,
            "name": message.name,
            "arguments": message.arguments,
        }
    if message.role == "result":
        return {"type": "function_call_output", "call_id": message.call_id, "output": message.text}
    return {"role": message.role, "content": message.text}


async def open_langgraph(folder: Path, stack: AsyncExitStack) -> Append:
    """LangGraph: a checkpoint a step, of a state whose channel holds the conversation so far.

    Plain dicts, which it encodes faster than message objects. Put as a graph puts them:
    the config that one `aput` returns is the parent of the next.
    """
    base = importlib.import_module("langgraph.checkpoint.base")
    saver_class = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    saver = await stack.enter_async_context(saver_class.from_conn_string(str(folder / "peer.db")))
    await saver.setup()
    config: dict[str, object] = {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}
    state: list[dict[str, object]] = []
    steps = itertools.count()

    async def append(message: Message) -> None:
        nonlocal config
        state.append(message.chat())
        step = next(steps)
        versions = {"messages": f"{step + 1:032}.0"}
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": state}
        checkpoint["channel_versions"] = versions
        metadata = {"source": "loop", "step": step, "parents": {}}
        config = await saver.aput(config, checkpoint, metadata, versions)

    return append


class _Conversation(Protocol):
    """The aggregate for this bench."""

    def say(self, message: dict[str, object]) -> None:
        """One message."""
        ...


async def open_eventsourcing(folder: Path, stack: AsyncExitStack) -> Append:
    """eventsourcing: an aggregate that is kept at hand, one event and one `save` a message."""
    application = importlib.import_module("eventsourcing.application")
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "peer.db")}
    app = application.Application(env)
    stack.callback(app.close)
    aggregate = _conversation_class()()
    app.save(aggregate)

    async def append(message: Message) -> None:
        aggregate.say(message.chat())
        app.save(aggregate)

    return append


@functools.cache
def _conversation_class() -> Callable[[], _Conversation]:
    """The aggregate's class, which may be made only once."""
    domain = importlib.import_module("eventsourcing.domain")
    body = {"__module__": __name__, "say": domain.event("Said")(_say)}
    made: Callable[[], _Conversation] = types.new_class(
        "Conversation", (domain.Aggregate,), exec_body=lambda names: names.update(body)
    )
    return made


def _say(self: object, message: dict[str, object]) -> None:
    """Nothing but the event: what the aggregate makes of it is not measured."""


async def open_adk_sqlite(folder: Path, _stack: AsyncExitStack) -> Append:
    """google-adk: the session service that its own tools use for SQLite."""
    service = importlib.import_module("google.adk.sessions.sqlite_session_service").SqliteSessionService
    return await _append_to_adk(service(str(folder / "peer.db")))


async def open_adk_database(folder: Path, stack: AsyncExitStack) -> Append:
    """google-adk: the SQLAlchemy session service, on aiosqlite. Needs its `db` extra."""
    importlib.import_module("sqlalchemy.ext.asyncio")
    service = importlib.import_module("google.adk.sessions.database_session_service").DatabaseSessionService
    opened = service(f"sqlite+aiosqlite:///{folder / 'peer.db'}")
    stack.push_async_callback(opened.close)
    return await _append_to_adk(opened)


class _AdkService(Protocol):
    """A session service for this bench."""

    async def create_session(self, *, app_name: str, user_id: str, session_id: str) -> object:
        """A new session."""
        ...

    async def append_event(self, session: object, event: object) -> object:
        """One more event."""
        ...


async def _append_to_adk(service: _AdkService) -> Append:
    genai = importlib.import_module("google.genai.types")
    event = importlib.import_module("google.adk.events.event").Event
    session = await service.create_session(app_name="bench", user_id="u1", session_id="conversation")

    async def append(message: Message) -> None:
        part = genai.Part(text=message.text)
        if message.role == "call":
            call = genai.FunctionCall(id=message.call_id, name=message.name, args=json.loads(message.arguments))
            part = genai.Part(function_call=call)
        elif message.role == "result":
            answer = {"result": message.text}
            part = genai.Part(
                function_response=genai.FunctionResponse(id=message.call_id, name=message.name, response=answer)
            )
        author, role = ("user", "user") if message.role == "user" else ("agent", "model")
        content = genai.Content(role=role, parts=[part])
        await service.append_event(session, event(author=author, invocation_id="i1", content=content))

    return append


PEERS = {
    "openai-agents SQLiteSession": Peer("openai-agents", open_openai_agents),
    "LangGraph AsyncSqliteSaver": Peer("langgraph-checkpoint-sqlite", open_langgraph),
    "eventsourcing on SQLite": Peer("eventsourcing", open_eventsourcing),
    "google-adk SqliteSessionService": Peer("google-adk", open_adk_sqlite),
    "google-adk DatabaseSessionService": Peer("google-adk", open_adk_database),
}


async def perform(job: Job) -> dict[str, object]:
    """Nanoseconds that each message took, and the bytes that the closed store takes."""
    times: list[int] = []
    with tempfile.TemporaryDirectory() as name, _every_connection(job.synchronous):
        folder = Path(name)
        async with AsyncExitStack() as stack:
            append = await PEERS[job.peer].open(folder, stack)
            for message in conversation(job.seed, job.count):
                begun = perf_counter_ns()
                await append(message)
                times.append(perf_counter_ns() - begun)
        return {"ns": times, "bytes": _size(folder)}


@contextmanager
def _every_connection(synchronous: str) -> Iterator[None]:
    """Give each connection that a peer opens this `synchronous`: not every peer has a setting for it."""
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connected(*args: object, **options: object) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    if not synchronous:
        yield
        return
    with mock.patch.object(sqlite3, "connect", connected):
        yield


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("peer.db*"))


def versions() -> dict[str, str]:
    """The version of each peer's distribution that is installed."""
    found: dict[str, str] = {}
    for name, peer in PEERS.items():
        try:
            found[name] = importlib.metadata.version(peer.distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Say which peers there are, then do one job after the other until there are no more."""
    print(json.dumps(versions()), file=answers, flush=True)
    for line in jobs:
        job = Job(**json.loads(line))
        if job.cores and sys.platform == "linux":
            os.sched_setaffinity(0, job.cores)
        try:
            answer = asyncio.run(perform(job))
        except ImportError as error:
            answer = {"missing": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """Answer on the standard output, and keep what the libraries print away from it."""
    os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
