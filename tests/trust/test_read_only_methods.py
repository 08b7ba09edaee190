"""What each public method does on an engine that only reads: as the table in docs/guarantees/reliability.md says."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from operator import attrgetter
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, LlmTextResponse, Thread, UserMessage, errors
from memory_engine.administration.compactions import ThreadCompactions
from memory_engine.administration.of_store import StoreAdmin, Transfer
from memory_engine.administration.of_thread import Admin, Replay
from memory_engine.compactors.embedded import EmbeddedCompactor
from memory_engine.projections.outbox import OUTBOX
from memory_engine.replay.what_if import Change
from memory_engine.runtime.recording import Recording
from memory_engine.views.conversation.view import Conversation
from memory_engine.views.of_thread import Views
from tests.patience import PATIENCE_S
from tests.trust.older_files import contents

TABLE = Path(__file__).resolve().parents[2] / "docs" / "guarantees" / "reliability.md"
ONLY_READS = EngineConfig(read_only=True)
Given = Mapping[str, object]
EVENT = UserMessage(content="more")


async def written(folder: Path) -> None:
    """A file with a thread of several events that nobody has searched, its export, and an archive of all."""
    async with memory_engine.open(str(folder / "m.db")) as engine:
        thread = await engine.create_thread("t")
        for n in range(4):
            said = UserMessage(content=f"Two chairs, please, and table {n}. " * 20)
            await thread.dispatch_all([said, LlmTextResponse(content=f"Noted: table {n}. " * 20)])
        await thread.compact()
        await thread.context()
        await engine.settle()
        await thread.replay.export(folder / "t.jsonl")
        await engine.transfer.export_all(folder / "all")
        (folder / "memories.json").write_text('[{"id": "1", "memory": "Likes tea"}]')


def given(folder: Path) -> dict[str, Given]:
    """Arguments, for the methods that need some. Files are made in a folder of their own."""
    made = folder / "made"
    return {
        "Engine.agent": {"agent_id": "a"},
        "Engine.blocking_reason": {"thread_id": "t"},
        "Engine.is_blocked": {"thread_id": "t"},
        "Engine.admin.backup": {"path": made / "b.db"},
        "Engine.before_compaction": {"hook": lambda _thread, _upcoming: None},
        "Engine.admin.check_anchors": {"anchored": []},
        "Engine.correlated": {"correlation_id": "c"},
        "Engine.dispatch": {"thread_id": "t", "event": EVENT},
        "Engine.dispatch_all": {"thread_id": "t", "events": [EVENT]},
        "Engine.transfer.export_all": {"folder": made / "all"},
        "Engine.transfer.export_memories": {"folder": made / "memories", "user_id": "u"},
        "Engine.transfer.import_memories": {"path": folder / "memories.json", "user_id": "u"},
        "Engine.transfer.import_all": {"folder": folder / "all"},
        "Engine.transfer.import_log": {"path": folder / "t.jsonl"},
        "Engine.industry": {"name": "retail"},
        "Engine.observe": {"observer": lambda _event: None},
        "Engine.open_thread": {"thread_id": "new"},
        "Engine.register_compactor": {"compactor": EmbeddedCompactor()},
        "Engine.admin.retain": {"rules": []},
        "Engine.admin.retain_every": {"every": timedelta(days=1), "rules": []},
        "Engine.search": {"query": "chairs"},
        "Engine.tenant": {"tenant_id": "acme"},
        "Engine.thread": {"thread_id": "t"},
        "Engine.user": {"user_id": "u"},
        "Thread.at": {"moment": 1},
        "Thread.replay.bisect": {"predicate": lambda past: past.seq > 3},
        "Thread.replay.chunk": {"chunk_id": "1.0"},
        "Thread.replay.diff": {"a": 1},
        "Thread.dispatch": {"event": EVENT},
        "Thread.dispatch_all": {"events": [EVENT]},
        "Thread.admin.erase": {"seqs": [1]},
        "Thread.replay.export": {"path": made / "t.jsonl"},
        "Thread.forget": {"seqs": [1]},
        "Thread.replay.latest": {"limit": 2},
        "Thread.views.of": {"view": Conversation},
        "Thread.compaction.offload": {"min_chars": 10, "keep_chars": 5},
        "Thread.compaction.open": {"reference": "1.0"},
        "Thread.compaction.originals": {"chunk_id": "1.0"},
        "Thread.pin": {"text": "Oak"},
        "Thread.record": {"messages": [{"role": "user", "content": "more"}]},
        "Thread.replay.rereduce": {"from_seq": 1},
        "Thread.admin.quarantine": {"source": "event:1"},
        "Thread.rewind": {"moment": 1},
        "Thread.views.row": {"projection": OUTBOX, "key": "k"},
        "Thread.views.rows": {"projection": OUTBOX},
        "Thread.views.rows_between": {"projection": OUTBOX},
        "Thread.search": {"query": "chairs"},
        "Thread.replay.to_pytest": {"first": 1, "last": 2},
        "Thread.unpin": {"pin": 1},
        "Thread.admin.update": {"metadata": {"a": "b"}},
        "Thread.views.read": {"projection": "conversation"},
        "Thread.replay.what_if": {"change": Change()},
        "Thread.replay.why": {"what": "1.0"},
    }


PLACES: dict[str, type] = {
    "Engine": Engine,
    "Engine.admin": StoreAdmin,
    "Engine.transfer": Transfer,
    "Thread": Thread,
    "Thread.admin": Admin,
    "Thread.compaction": ThreadCompactions,
    "Thread.replay": Replay,
    "Thread.views": Views,
}


def methods() -> list[str]:
    """Every public method of both, `Class.method`, those of a thread's groups with the group's name."""
    found = []
    for place, kind in PLACES.items():
        names = [name for name in dir(kind) if not name.startswith("_")]
        found += [f"{place}.{name}" for name in names if callable(inspect.getattr_static(kind, name))]
    return sorted(found)


def told() -> dict[str, str]:
    """What the table says of each method: `reads`, `raises` or `nothing`."""
    section = TABLE.read_text(encoding="utf-8").partition("## What `read_only` does")[2].partition("\n## ")[0]
    found: dict[str, str] = {}
    for line in section.splitlines():
        if not line.startswith("| **"):
            continue
        _, what, engine, thread, _ = re.split(r" *\| *", line)
        for kind, cell in (("Engine", engine), ("Thread", thread)):
            for name in re.findall(r"`([\w.]+)`", cell):
                assert f"{kind}.{name}" not in found, name
                found[f"{kind}.{name}"] = what.split("**")[1]
    return found


async def done(method: Callable[..., object], arguments: Given) -> None:
    """Call it to its end; of what follows a log without end, one step."""
    result = method(**arguments)
    if isinstance(result, AsyncIterator):
        await anext(result)
    elif isinstance(result, Recording):
        async with result:
            pass
    elif inspect.isawaitable(result):
        await asyncio.wait_for(_awaited(result), PATIENCE_S)


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def test_the_table_names_each_method_once() -> None:
    """Of engine and thread, and no other."""
    assert methods() == sorted(told())


@pytest.mark.parametrize("name", methods())
async def test_a_method_does_what_the_table_says(name: str, tmp_path: Path) -> None:
    """It reads, or raises `ReadOnly`, or does nothing; the file and its folder stay as they are."""
    folder = tmp_path / "there"
    folder.mkdir()
    (tmp_path / "made").mkdir()
    await written(folder)
    (folder / "m.db.lock").unlink()
    arguments = dict(given(folder).get(name, {}))
    for what, value in arguments.items():
        if isinstance(value, Path) and value.parent.name == "made":
            arguments[what] = tmp_path / "made" / value.name
    before = contents(folder)
    raised: errors.MemoryEngineError | None = None
    async with (
        memory_engine.open(":memory:") as target,
        memory_engine.open(str(folder / "m.db"), config=ONLY_READS) as engine,
    ):
        if name == "Engine.copy_to":
            arguments["target"] = target
        of = engine if name.startswith("Engine.") else engine.thread("t")
        try:
            await done(attrgetter(name.partition(".")[2])(of), arguments)
        except errors.MemoryEngineError as error:
            raised = error
    assert before == contents(folder)
    what = told()[name]
    if what == "raises":
        assert isinstance(raised, errors.ReadOnly), (name, raised)
    else:
        assert raised is None, (name, raised)


async def test_what_would_be_done_can_be_asked(tmp_path: Path) -> None:
    """`dry_run` writes nothing."""
    await written(tmp_path)
    before = contents(tmp_path)
    async with memory_engine.open(str(tmp_path / "m.db"), config=ONLY_READS) as engine:
        with pytest.raises(errors.CannotRereduce, match="nothing differs"):
            await engine.thread("t").replay.rereduce(1, dry_run=True)
    assert before == contents(tmp_path)
