"""Makes the golden logs of a release: what every later version must read, reduce and show the same.

    python -m tests.golden_logs            into tests/golden/logs/<version>/, which must not be there

Run once, by hand, when a version is released. What it made is never changed after that: see CONTRIBUTING.md.
"""

import asyncio
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Event, Thread
from memory_engine import events as e
from memory_engine.compaction import protocol
from memory_engine.core.chain import link_hash
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.events import builtin_registry
from memory_engine.ingest import Ingestion, IngestOptions
from memory_engine.replay.export.log_file import FileEnd, FileHead, LogFile, event_line, header_hash, line_of
from memory_engine.replay.export.redaction import Redaction
from memory_engine.testing import ManualClock, SequentialIds

ROOT = Path(__file__).parent
LOGS = ROOT / "golden" / "logs"
DIGESTS = "digests.json"
TALK = Path(memory_engine.__file__).parent / "cli" / "sample" / "support.jsonl"
TODO_V1 = b'{"items":["buy milk","drink it"]}'


def version() -> str:
    """The package's version, as pyproject.toml has it."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


async def digest_of(engine: Engine, thread_id: str) -> dict[str, object]:
    """What is to stay as it is: the log's hash, the state, and each view by the version of its rows."""
    thread = engine.thread(thread_id)
    info, state = await thread.info(), await thread.state()
    placed = [(placed.key.hex(), placed.container, placed.chunk) for placed in state.placed()]
    views = {
        f"{view.name}@{view.version}": _sha((await thread.views.rows(view, at=info.events)).encoded())
        for view in kernel_of(engine).projections
    }
    return {
        "events": info.events,
        "head": info.head_hash,
        "state": _sha(placed),
        "views": views,
        "types": sorted({f"{one.type}@{one.version}" async for one in thread.events()}),
    }


def _sha(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


async def make(folder: Path) -> None:
    """Write the logs, and what is to stay as it is of each."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    with _nobodys_process():
        async with _engine("everything", compacting=False) as engine:
            await everything(engine)
            await _paused(engine)
            await _cleared(engine)
            await _rewound(engine)
            await _export(engine, folder, "everything", "paused", "cleared", "rewound")
            await _older(folder / "paused.jsonl.gz", folder / "todo-v1.jsonl.gz")
        async with _engine("talk") as engine:
            thread = await talk(engine)
            await _fork(thread)
            await _export(engine, folder, "talk", "fork")
            taken_out = Redaction(types=("tool_result",), patterns=(r"Ines\w*", r"FW-\d+"), fields=("reason",))
            await thread.replay.export(folder / "talk-redacted.jsonl.gz", redaction=taken_out)
        async with _engine("tenant", compacting=False) as engine:
            await _tenant(engine)
            await _export(engine, folder, *[info.id for info in await engine.threads()])
    digests = {}
    async with memory_engine.open(":memory:") as engine:
        for path in logs_in(folder):
            report = await engine.transfer.import_log(path, thread_id=path.name, scopes="as exported")
            verified = await engine.thread(path.name).replay.verify()
            assert verified.ok, verified.divergence
            digests[path.name] = {"redacted": report.redacted, **await digest_of(engine, path.name)}
    text = json.dumps(digests, indent=1, ensure_ascii=False) + "\n"
    await asyncio.to_thread((folder / DIGESTS).write_text, text, encoding="utf-8")


def logs_in(folder: Path) -> list[Path]:
    """The logs of a release, by name."""
    return sorted(folder.glob("*.jsonl.gz"))


@contextmanager
def _nobodys_process() -> Iterator[None]:
    """Compactions name their process: here the same one on every machine."""
    real = protocol.this_process
    protocol.this_process = lambda: "golden/1/1"
    try:
        yield
    finally:
        protocol.this_process = real


@asynccontextmanager
async def _engine(seed: str, *, compacting: bool = True) -> AsyncIterator[Engine]:
    config, clock = (
        EngineConfig(compaction=CompactionPolicy(enabled=compacting, threshold=12, tokens_min=0)),
        ManualClock(),
    )
    async with memory_engine.open(":memory:", clock=clock, ids=SequentialIds(seed), config=config) as engine:
        engine.observe(lambda _event: clock.advance(1.5))
        yield engine


async def _export(engine: Engine, folder: Path, *thread_ids: str) -> None:
    for thread_id in thread_ids:
        await engine.thread(thread_id).replay.export(folder / f"{re.sub('[^a-z]', '-', thread_id)}.jsonl.gz")


async def everything(engine: Engine) -> None:
    """One of each event that can stand anywhere, every field set; those of compactions are in the talk."""
    undoing = e.CompactionUndone | e.ThreadRewound | e.SourceQuarantined
    elsewhere = e.CompactionCompleted | e.ExecutionPause | e.ThreadCleared | undoing
    thread = await engine.create_thread("everything", user_id="u1", tenant_id="acme", metadata={"note": "é"})
    for event in samples():
        if not isinstance(event, elsewhere):
            of_here = (  # the sample is of another log
                msgspec.structs.replace(event, removed=(), seen=0) if isinstance(event, e.ThreadRereduced) else event
            )
            await thread.dispatch(of_here, causation_id="cause", correlation_id="together")
            await thread.views.delivered()


def samples() -> list[Event]:
    """The newest version of each event in the golden file of events."""
    registry = builtin_registry()
    lines = (ROOT / "golden" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    found = []
    for line in map(json.loads, lines):
        event = registry.decode(line["type"], line["version"], line["payload"].encode())
        assert isinstance(event, Event)
        if line["version"] == event.event_version:
            found.append(event)
    return found


async def _cleared(engine: Engine) -> None:
    """A log that began again: what came before is shown in no state and no view."""
    thread = await engine.create_thread("cleared")
    await thread.dispatch(e.UserMessage(content="My bicycle is blue."))
    await thread.scratchpad.write("The bicycle has a flat tyre")
    for event in samples():
        if isinstance(event, e.ThreadCleared):
            await thread.dispatch(event)
    await thread.dispatch(e.UserMessage(content="My car is red."))


async def _rewound(engine: Engine) -> None:
    """A log that went back, over a compaction, and back again; an agent has learned from what is taken back."""
    thread = await engine.create_thread("rewound")
    for n in range(4):
        await thread.dispatch(e.UserMessage(content=f"My bicycle number {n} is blue, and its bell is loud."))
    await thread.memory.append("episodic", "We spoke of bicycles")
    moment = await thread.last_seq()
    await thread.compact()
    await thread.dispatch(e.MemoryShared(destination=e.Destination("agent", "ann"), layer="episodic", content="Blue"))
    await thread.delivered()
    await thread.rewind(moment, reason="a wrong turn")
    await thread.scratchpad.write("The bicycle has a flat tyre")
    await thread.rewind(redo=True)
    await thread.rewind(moment)
    await thread.admin.quarantine("event:1", by="Ann", reason="not her bicycle")
    await thread.admin.quarantine("event:1", release=True)


async def _paused(engine: Engine) -> None:
    """A log that ends in a pause, with what an older version of a type upcasts to."""
    thread = await engine.create_thread("paused")
    todo = builtin_registry().decode("todo_set", 1, TODO_V1)
    assert isinstance(todo, e.TodoSet)
    await thread.dispatch(e.UserMessage(content="What is left to do?"))
    await thread.dispatch(todo)
    await thread.dispatch(e.TodoCompleted(id=todo.items[0].id))
    await thread.admin.pause("until tomorrow")


async def _older(source: Path, path: Path) -> None:
    """The same log as its first version would have written it: other payloads, the same operations, other hashes."""
    with await asyncio.to_thread(LogFile, source) as file:
        header, batch = file.header, file.take(512, 1 << 20)
    assert batch is not None
    rows: list[StoredEvent] = []
    for row in batch.rows:
        older = msgspec.structs.replace(row, version=1, payload=TODO_V1) if row.type == "todo_set" else row
        digest = link_hash(older, rows[-1].hash if rows else b"")
        rows.append(msgspec.structs.replace(older, hash=digest))
    head = FileHead(rows[-1].seq, rows[-1].hash.hex())
    first = line_of(msgspec.structs.replace(header, head=head))
    lines = [
        first,
        *(line_of(event_line(row)) for row in rows),
        line_of(FileEnd(end=head.seq, hash=head.hash, header=header_hash(first))),
    ]
    await asyncio.to_thread(_write_compressed, path, lines)


def _write_compressed(path: Path, lines: Sequence[bytes]) -> None:
    import gzip

    path.write_bytes(gzip.compress(b"".join(lines), mtime=0))


async def talk(engine: Engine) -> Thread:
    """A recorded conversation: compacted on the way, changed by hand, partly forgotten, a compaction undone."""
    ingestion = Ingestion(engine, IngestOptions(thread_id="talk", user_id="ines", tenant_id="acme"))
    assert await ingestion.file(TALK)
    thread = engine.thread("talk")
    await thread.compaction.settle()
    chunks = [chunk for chunk in (await thread.state()).everything() if chunk.is_compactable]
    await thread.compaction.mark_critical(chunks[-1].id)
    await thread.compaction.offload(min_chars=200, keep_chars=50)
    await thread.scratchpad.write("Batteries are sent within a week.", flow="orders")
    await thread.forget(chunk_ids=[chunks[-2].id], reason="asked to")
    [said] = (await kernel_of(engine).reader.rows_at("talk", {2})).values()
    await thread.forget(event_ids=[said.id], reason="asked to")
    await thread.compact()
    await thread.compaction.undo(reason="too short")
    await thread.dispatch(e.MemoryRecalled(content="They ride an FW-20871.", query="bike", sources=("elsewhere",)))
    await thread.admin.end_session("done")
    return thread


async def _fork(thread: Thread) -> None:
    """Another way from the middle on, with a compaction of its own."""
    fork = await thread.fork(20, thread_id="fork")
    for n in range(16):
        await fork.dispatch(e.UserMessage(content=f"Question {n}: is order FW-{n} on its way?"))
        await fork.dispatch(e.LlmTextResponse(content=f"Order FW-{n} was handed over on day {n}."))
        await fork.compaction.settle()


async def _tenant(engine: Engine) -> None:
    """What crosses threads: promotions, shared memory, documents, patterns."""
    talk = await engine.create_thread("sales", user_id="ben", tenant_id="acme", agent_id="helper")
    await talk.scratchpad.write("Always show totals below a table.")
    await talk.dispatch(e.ReportSaved(title="Q3", content="Up by 3 %."))
    user, tenant = engine.user("ben", tenant_id="acme"), engine.tenant("acme")
    await user.preferences.update("verbosity", "concise")
    [snippet] = await talk.scratchpad.read()
    await talk.promotion.request(snippet.id, target="agent_md")
    await talk.views.delivered()
    await tenant.agent_md.upload("# House rules\n")
    await tenant.documents.add_text("Prices rise by 3 % in May.\n\nSundays are closed.", title="Prices", id="prices")
    await tenant.documents.add_text("Prices rise by 4 % in May.\n\nSundays are closed.", title="Prices", id="prices")
    await tenant.patterns.join("retail", by="ann")
    [line] = await tenant.agent_md.lines()
    proposal = await tenant.patterns.propose(line.id, by="ann")
    await tenant.patterns.approve(proposal.id, by="ann")
    await tenant.views.delivered()
    await engine.settle()


def main() -> None:
    """Make the logs of this version."""
    folder = LOGS / (sys.argv[1] if len(sys.argv) > 1 else version())
    asyncio.run(make(folder))
    for path in sorted(folder.iterdir()):
        sys.stdout.write(f"{path.relative_to(ROOT.parent)}  {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
