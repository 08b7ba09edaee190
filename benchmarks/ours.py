"""The engine's side: messages as events, and dispatching that is timed one by one."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from unittest import mock

import msgspec

import memory_engine
from benchmarks.payloads import Message, messages
from memory_engine import (
    CompactionPolicy,
    EngineConfig,
    Event,
    LlmTextResponse,
    LlmToolCall,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)

WITHOUT_COMPACTION = EngineConfig(compaction=CompactionPolicy(enabled=False))
BATCH = 256


def as_event(message: Message) -> Event:
    """The event that a message is to the engine."""
    match message.role:
        case "user":
            return UserMessage(content=message.text)
        case "assistant":
            return LlmTextResponse(content=message.text)
        case "call":
            call = ToolCall(id=message.call_id, name=message.name, arguments=message.arguments)
            return LlmToolCall(calls=(call,), content=message.text)
        case "result":
            return ToolResult(call_id=message.call_id, content=message.text, name=message.name)


def events(seed: int, count: int) -> list[Event]:
    """The first `count` messages of a conversation, as events."""
    return [as_event(message) for message in islice(messages(seed), count)]


def payload(event: Event) -> bytes:
    """The event's JSON: the payload of its row."""
    return msgspec.json.encode(event)


async def dispatch_timed(thread: Thread, batch: Sequence[Event]) -> list[int]:
    """Dispatch one after the other; nanoseconds that each took."""
    times: list[int] = []
    for event in batch:
        begun = perf_counter_ns()
        await thread.dispatch(event)
        times.append(perf_counter_ns() - begun)
    return times


async def build_log(path: Path, count: int, seed: int = 1, *, compacted: bool = True, threads: int = 1) -> None:
    """Make a database of threads, `log`, `log1` and so on, of `count` messages each.

    Compacted after every batch of messages, as a conversation is that pauses now and then; or never.
    """
    async with memory_engine.open(str(path), config=EngineConfig() if compacted else WITHOUT_COMPACTION) as engine:
        for number in range(threads):
            thread = await engine.create_thread(f"log{number or ''}")
            source = islice(messages(seed + number), count)
            while batch := [as_event(message) for message in islice(source, BATCH)]:
                await thread.dispatch_all(batch)
                await thread.compaction.settle()
        await engine.settle()


class StatementCount:
    """Statements, and rows that they changed, on all connections opened while it watched."""

    def __init__(self) -> None:
        self.statements = 0
        self._connections: list[sqlite3.Connection] = []

    @property
    def rows(self) -> int:
        """Rows inserted, changed or deleted so far."""
        return sum(connection.total_changes for connection in self._connections)

    def watch(self, connection: sqlite3.Connection) -> None:
        """Count what this connection does from here on."""
        connection.set_trace_callback(self._count)
        self._connections.append(connection)

    def _count(self, _statement: str) -> None:
        self.statements += 1


@contextmanager
def counting_statements() -> Iterator[StatementCount]:
    """Count on every connection that is opened within: whatever the store is built on, it opens them here."""
    count = StatementCount()
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect_watched(*words: str, **settings: bool) -> sqlite3.Connection:
        connection = connect(*words, **settings)
        count.watch(connection)
        return connection

    with mock.patch.object(sqlite3, "connect", connect_watched):
        yield count


def database_bytes(path: Path) -> int:
    """The size of a closed database, with its write-ahead log if there is one left."""
    beside = path.with_name(path.name + "-wal")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
