"""How each error of the package is come by: what a user does wrong, or what goes wrong around them."""

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from attrs import frozen

import memory_engine
from memory_engine import (
    Add,
    AgentLifecycle,
    Batch,
    BatchReplace,
    Chunk,
    CompactionPolicy,
    Delete,
    EngineConfig,
    Operation,
    Plugin,
    RecordedEvent,
    ReduceContext,
    Reduction,
    Retention,
    Rows,
    StateView,
    Thread,
    errors,
    sync,
)
from memory_engine import events as e
from memory_engine.cli.log import LOG
from memory_engine.cli.program import build_parser
from memory_engine.cli.terminal import Terminal
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.engine import Engine, kernel_of
from memory_engine.files import verify_file as verifying
from memory_engine.ingest.records import read_records
from memory_engine.inspector.answers import Inspection, Query
from memory_engine.inspector.routes_replay import ledger
from memory_engine.llm import Completion
from memory_engine.projections import ProjectionMode
from memory_engine.store.protocol import Store
from memory_engine.testing import FaultyStore
from memory_engine.testing.contract_rows import event, unit
from memory_engine.workspace import Workspace
from tests.patterns import promoted
from tests.scripted_compactors import Scripted

SAID = e.UserMessage(content="Hello")
LONG = e.ExternalInject(content="x" * 4_000, retention="critical")
BOX = Chunk(id="3.0", type="box", content="", is_container=True)
CRITICAL = Chunk(id="3.0", type="note", retention=Retention.CRITICAL)
SCATTERED = (Add("3.0"), Add("3.1", container="3.0"), BatchReplace(("1.0", "3.1")))


class Undeclared(e.Event):
    """Has no wire name."""


@e.event("of_no_plugin")
class OfNoPlugin(e.Event):
    """Declared, and in no plug-in of the engine."""


@frozen
class Place:
    """Where things go wrong: an engine in memory with a thread of two messages, and an empty folder."""

    engine: Engine
    store: FaultyStore
    thread: Thread
    folder: Path
    patched: pytest.MonkeyPatch

    @property
    def path(self) -> str:
        """Of a database that is not there yet."""
        return str(self.folder / "log.db")

    def file(self, name: str, content: bytes) -> Path:
        """Write a file."""
        (self.folder / name).write_bytes(content)
        return self.folder / name


Row = Callable[[Place], object]
"""Does what is wrong. What it gives back is awaited, if it can be."""


async def opened(path: str | Store = ":memory:", *, plugins: Sequence[Plugin] = ()) -> None:
    """Open a memory, and close it."""
    async with memory_engine.open(path, plugins=plugins):
        pass


async def to_a_closed_engine(p: Place) -> None:
    """A message to an engine that was left."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
    await thread.dispatch(SAID)


def use_it_in_a_forked_process(p: Place) -> None:
    """The engine of the parent, as a child sees it: a copy without its threads."""
    with sync.open(":memory:") as engine, p.patched.context() as patched:
        patched.setattr("os.getpid", lambda: 1)
        engine.stats()


async def fill_the_queue(_: Place) -> None:
    """More events at once than a paused thread has room for."""
    small = EngineConfig(queue_capacity=1, queue_timeout_s=0.01, compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=small) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        waiting = asyncio.create_task(thread.dispatch(SAID))
        try:
            await asyncio.sleep(0)
            await thread.dispatch(SAID)
        finally:
            await thread.admin.resume()
            await waiting


async def lose_every_race(p: Place) -> None:
    """Another process is first, however often one tries."""
    for commit in range(1, 100):
        p.store.fail(errors.HeadMoved(), commit=commit)
    await p.thread.dispatch(SAID)


async def ingest_what_is_no_json(p: Place) -> None:
    """Reading a file goes on after a bad record, so its error is handed over; here it is raised."""
    raise next(one for one in read_records(p.file("log.jsonl", b"{")) if isinstance(one, errors.IngestError))


def without_litellm(p: Place) -> object:
    """A model's name where the package is missing that calls it."""
    p.patched.setattr("importlib.util.find_spec", lambda _name: None)
    return memory_engine.open(compact_model="openai/gpt").__aenter__()


def without_time_zones(p: Place) -> object:
    """A zone's name on a machine that keeps no table of them."""
    p.patched.setattr("zoneinfo._tzpath.TZPATH", ())
    p.patched.setitem(sys.modules, "tzdata", None)
    return EngineConfig(timezone="Africa/Ndjamena")


async def make_a_thread(p: Place, config: EngineConfig) -> None:
    """In a file that was opened to read, or where a user or a tenant has to be named."""
    await opened(p.path)
    async with memory_engine.open(p.path, config=config) as engine:
        await engine.create_thread(agent_id="coder")


async def take_a_conversation_for_a_user(p: Place) -> None:
    """An id that is kept for a user's own thread."""
    await kernel_of(p.engine).store.create(ThreadRecord(id="user:u1"), Head(), ())
    await p.engine.user("u1").dispatch(SAID)


def twice_registered(_: Place) -> object:
    """A name that an engine has already."""
    plugin = Plugin("p")
    plugin.event("user_message")(Undeclared)
    return opened(plugins=[plugin])


class Partly:
    """A projection of these events: of a tracked one and one that is not."""

    name = "partly"
    version = 1
    mode: ProjectionMode = "inline"
    row: type[str] = str
    lazy = False

    def __init__(self, *events: type[memory_engine.Event]) -> None:
        self.events = events

    def apply(self, rows: Rows[str], event: RecordedEvent) -> None:
        """Nothing: no engine opens with it."""


def partly_tracked(_: Place) -> object:
    """A view that would be given every event."""
    plugin = Plugin("p")
    plugin.projection(Partly(e.MemoryForget, e.UserMessage))
    return opened(plugins=[plugin])


async def raise_what_is_behind(dispatched: Awaitable[object]) -> None:
    """The cause of a reducer's failure."""
    with pytest.raises(errors.ReducerError) as failed:
        await dispatched
    assert failed.value.__cause__ is not None
    raise failed.value.__cause__


async def refused(*operations: Operation, chunks: Sequence[Chunk] = ()) -> None:
    """What a reducer is refused for that returns these operations, in a thread with the chunks 1.0 and 2.0."""
    plugin = Plugin("p")

    @plugin.event("odd")
    class Odd(e.Event):
        """Reduced to what does not fit."""

    @plugin.reducer(Odd)
    def reduce_odd(_view: StateView, _event: Odd, _ctx: ReduceContext) -> Reduction:
        return Reduction(operations=operations, chunks=tuple(chunks))

    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([SAID, SAID])
        await raise_what_is_behind(thread.dispatch(Odd()))


def nested(depth: int) -> Operation:
    """A batch in a batch."""
    return Batch((nested(depth - 1),)) if depth else Delete("1.0")


async def undo_on_a_state_that_has_changed(p: Place) -> None:
    """An undoing that was made before the newest event."""
    await raise_what_is_behind(
        p.thread.dispatch(e.CompactionUndone(compaction_id="x", completed=1, summaries=(), restored=(), seen=1))
    )


async def read_what_was_forgotten(p: Place) -> None:
    """A chunk of a forgotten event."""
    await p.thread.forget(event_ids=["first"])
    await p.thread.replay.chunk("1.0")


async def compact_with(compactor: Scripted, p: Place) -> None:
    """Compact the two messages."""
    async with memory_engine.open(p.path, compactor=compactor) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([SAID] * 30)
        await thread.compact()


def no_summary(*_: object) -> memory_engine.CompactionResult:
    """Fails."""
    raise ValueError("no")


class Silent:
    """A model that gives nothing that could be read."""

    name = "silent"

    async def complete(self, *_: object, **__: object) -> Completion:
        """No text."""
        return Completion(text=None, model="silent")  # type: ignore[arg-type]

    async def aclose(self) -> None:
        """Nothing to close."""


async def tampered(p: Place) -> None:
    """Somebody deletes an event from the file."""
    async with memory_engine.open(p.path) as engine:
        await (await engine.create_thread("t")).dispatch_all([SAID] * 3)
    with sqlite3.connect(p.path) as raw:
        raw.execute("DELETE FROM events WHERE pos = (SELECT max(pos) - 1 FROM events)")
    raw.close()
    async with memory_engine.open(p.path) as engine:
        [_ async for _ in engine.thread("t").events()]


async def propose_nothing_that_is_left(p: Place) -> None:
    """A line that is not in `agent.md`."""
    tenant = p.engine.tenant("acme")
    await tenant.patterns.join("retail")
    await promoted(p.engine, "acme", "Returns double")
    await tenant.patterns.propose("Margins are low.")


async def worker_dies(p: Place) -> None:
    """A process that is to verify part of a file ends."""
    await opened(p.path)
    async with memory_engine.open(p.path) as engine:
        for name in "ab":
            await (await engine.create_thread(name)).dispatch(SAID)
    p.patched.setattr(verifying, "_BEGIN", "raise SystemExit(3)")
    await verifying.verify_file(p.path, jobs=2)


async def ledger_of_too_much(p: Place) -> None:
    """A page would wait for minutes."""
    p.patched.setattr("memory_engine.inspector.routes_replay.LEDGER_STATE_CHUNKS_MAX", 1)
    await ledger(Inspection(p.engine, ""), Query({"thread": "t"}))


async def restore_over_what_was_not_recorded(p: Place) -> None:
    """A file that was changed since it was recorded."""
    p.file("a.txt", b"recorded")
    await Workspace(p.thread, p.folder).record()
    p.file("a.txt", b"not recorded")
    await Workspace(p.thread, p.folder).restore()


async def restore_a_strangers_files(p: Place) -> None:
    """From an imported log, without a word about it."""
    work = p.folder / "work"
    work.mkdir()
    (work / "a.txt").write_bytes(b"run me")
    await Workspace(p.thread, work).record()
    await p.thread.replay.export(p.folder / "log.jsonl")
    await p.engine.transfer.import_log(p.folder / "log.jsonl", thread_id="theirs")
    await Workspace(p.engine.thread("theirs"), work).restore()


async def end_what_was_not_begun(p: Place) -> None:
    """The end of a task without a task."""
    await AgentLifecycle(p.engine, p.thread, agent_id="a").end("x")


async def another_question(p: Place) -> None:
    """An answer to what was not asked."""
    await p.thread.conversation.prepare_messages("open")
    await p.thread.conversation.finalize_cycle("other", "answer")


def note(id: str) -> Chunk:
    """A chunk."""
    return Chunk(id=id, type="note", content="x")


async def needs_more_than_the_budget(p: Place) -> None:
    """What is CRITICAL does not fit."""
    await p.thread.dispatch(LONG)
    await p.thread.context(10)


async def compact_what_is_critical(p: Place) -> None:
    """Nothing else is in the thread."""
    thread = await p.engine.create_thread()
    await thread.dispatch(LONG)
    await thread.compact()


async def use_an_id_twice(p: Place) -> None:
    """Two events of one id in one commit."""
    await p.engine.create_thread("new")
    await p.store.commit(unit("new", event(1, id="x"), event(2, id="x")))


async def log_of_nothing(p: Place) -> None:
    """Neither a thread nor a correlation."""
    await LOG.run(build_parser(["log"]).parse_args(["log"]), Terminal())


class Asking(Scripted):
    """Costs time and money."""

    calls_model = True
