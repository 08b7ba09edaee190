"""What the tests of exports write, and how they spoil it."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from memory_engine import Engine, EngineConfig, Event, LlmTextResponse, Thread, UserMessage
from memory_engine import events as e
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import kernel_of
from memory_engine.wiring import builtin_projections

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
TALK: tuple[Event, ...] = (
    e.SessionStarted(content="You help with bicycles.", session_id="s1"),
    UserMessage(content="My bike is blue.", name="Ann"),
    e.LlmToolCall(calls=(e.ToolCall(id="c1", name="look", arguments='{"colour": "blue"}'),)),
    e.ToolResult(call_id="c1", content="There are 3 blue bikes.", name="look"),
    LlmTextResponse(content="There are three of them."),
    e.TodoSet(items=(e.TodoItem("1", "paint it"), e.TodoItem("2", "ride it"))),
    e.TodoCompleted(id="1"),
    e.ScratchpadWritten(content="Blue sells best."),
    e.MemoryAppended(layer="semantic", content="Ann rides a blue bike.", key="bike"),
)


async def talk(engine: Engine, thread_id: str = "t") -> Thread:
    """A thread with a short conversation."""
    thread = await engine.create_thread(thread_id, user_id="ann", metadata={"from": "a test"})
    await thread.dispatch_all(TALK)
    return thread


async def rows(engine: Engine, thread_id: str) -> list[StoredEvent]:
    """A log, byte for byte."""
    head = await kernel_of(engine).store.head(thread_id)
    return [row async for page in kernel_of(engine).reader.pages(thread_id, after=0, upto=head.seq) for row in page]


async def shown(thread: Thread) -> dict[str, object]:
    """The state of a thread, and every view."""
    placed = [(placed.chunk, placed.key, placed.container) for placed in (await thread.state()).placed()]
    return {"state": placed} | {one.name: await thread.views.read(one.name) for one in builtin_projections()}


def lines_of(path: Path) -> list[bytes]:
    """The lines of an export."""
    raw = path.read_bytes()
    return (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).splitlines()


def read(path: Path) -> list[dict[str, object]]:
    """The lines of an export as JSON values."""
    return [json.loads(line) for line in lines_of(path)]


def files_in(folder: Path) -> list[str]:
    """The names of all that is in a folder."""
    return [path.name for path in folder.iterdir()]


def spoilt(path: Path, spoil: "Spoil") -> Path:
    """The file again, its lines spoilt."""
    new = path.with_name("spoilt.jsonl")
    new.write_bytes(b"".join(line + b"\n" for line in spoil(lines_of(path))))
    return new


Spoil = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Takes the lines of an export, and gives others."""


def with_line(number: int, change: Callable[[dict[str, object]], object]) -> Spoil:
    """Change the JSON of one line (counted from 1), written as the engine writes it."""

    def spoil(lines: Sequence[bytes]) -> Sequence[bytes]:
        value = json.loads(lines[number - 1])
        change(value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        return [*lines[: number - 1], text, *lines[number:]]

    return spoil
