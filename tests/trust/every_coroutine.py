"""A call of each public coroutine of an engine and of a thread. One that is added to a class has to be added here."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from attrs import frozen

import memory_engine
from memory_engine import AgentLifecycle, Engine, RetentionRule, Thread, UserMessage
from memory_engine.projections.outbox import OUTBOX
from memory_engine.replay.what_if import Change
from memory_engine.replay.what_if.change import SkipEvent
from memory_engine.thread import handle_of


@frozen
class Given:
    """What a call is made on: a thread of some events, the engine that holds it, a folder to write to, and a tool."""

    engine: Engine
    thread: Thread
    folder: Path
    tool: Callable[[], Awaitable[str]]

    @property
    def target(self) -> Path:
        """A file that is not there yet."""
        return self.folder / "target"


async def all_of(events: AsyncIterator[object]) -> list[object]:
    """The items of an iterator."""
    return [event async for event in events]


async def copied(given: Given) -> object:
    """A copy to another engine, which answers."""
    async with memory_engine.open(":memory:") as target:
        return await given.engine.copy_to(target)


SAID = UserMessage(content="The crates are in hall 4")

OF_ENGINE: dict[str, Callable[[Given], Awaitable[object]]] = {
    "acts": lambda given: given.engine.admin.acts(),
    "anchors": lambda given: given.engine.admin.anchors(),
    "backup": lambda given: given.engine.admin.backup(given.target),
    "blocking_reason": lambda given: given.engine.blocking_reason(given.thread.id),
    "check_anchors": lambda given: given.engine.admin.check_anchors([]),
    "close": lambda given: given.engine.close(),
    "copy_to": copied,
    "correlated": lambda given: given.engine.correlated("run"),
    "create_thread": lambda given: given.engine.create_thread("new"),
    "dispatch": lambda given: given.engine.dispatch(given.thread.id, SAID),
    "dispatch_all": lambda given: given.engine.dispatch_all(given.thread.id, [SAID, SAID]),
    "export_all": lambda given: given.engine.transfer.export_all(given.target),
    "export_memories": lambda given: given.engine.transfer.export_memories(given.target, user_id="u1"),
    "finish_acts": lambda given: given.engine.admin.finish_acts(),
    "flush": lambda given: given.engine.flush(),
    "holds": lambda given: given.engine.admin.holds(),
    "import_all": lambda given: given.engine.transfer.import_all(given.folder / "exported"),
    "import_log": lambda given: given.engine.transfer.import_log(given.folder / "exported.jsonl", thread_id="imported"),
    "import_memories": lambda given: given.engine.transfer.import_memories(
        given.folder / "memories.json", user_id="u1"
    ),
    "is_blocked": lambda given: given.engine.is_blocked(given.thread.id),
    "open_thread": lambda given: given.engine.open_thread("new"),
    "rekey": lambda given: given.engine.admin.rekey("a passphrase"),
    "retain": lambda given: given.engine.admin.retain(
        [RetentionRule(act="delete", older_than=timedelta(microseconds=1))]
    ),
    "search": lambda given: given.engine.search("crates", user_id="u"),
    "settle": lambda given: given.engine.settle(),
    "stats": lambda given: given.engine.stats(),
    "threads": lambda given: given.engine.threads(),
    "verify": lambda given: given.engine.verify(),
}
OF_THREAD: dict[str, Callable[[Given], Awaitable[object]]] = {
    "anchor": lambda given: given.thread.replay.anchor(),
    "archive": lambda given: given.thread.admin.archive(),
    "at": lambda given: given.thread.at(2),
    "bisect": lambda given: given.thread.replay.bisect(lambda past: past.seq > 3),
    "blocking_reason": lambda given: given.thread.admin.blocking_reason(),
    "cache_ledger": lambda given: given.thread.replay.ledger(),
    "chunk": lambda given: given.thread.replay.chunk("1.0"),
    "clear": lambda given: given.thread.admin.clear(),
    "compact": lambda given: given.thread.compact(),
    "compactions": lambda given: given.thread.compaction.history(),
    "context": lambda given: given.thread.context(200, query="crates", recall_from=[given.engine.user("u")]),
    "delete": lambda given: given.thread.admin.delete(),
    "delivered": lambda given: given.thread.views.delivered(),
    "diff": lambda given: given.thread.replay.diff(1, 3),
    "dispatch": lambda given: given.thread.dispatch(SAID),
    "dispatch_all": lambda given: given.thread.dispatch_all([SAID, SAID]),
    "end_session": lambda given: given.thread.admin.end_session(),
    "erase": lambda given: given.thread.admin.erase(seqs=[1]),
    "events": lambda given: all_of(given.thread.events()),
    "exists": lambda given: handle_of(given.thread).exists(),
    "export": lambda given: given.thread.replay.export(given.target),
    "followed": lambda given: handle_of(given.thread).followed(),
    "forget": lambda given: given.thread.forget(seqs=[1]),
    "fork": lambda given: given.thread.fork(3),
    "quarantine": lambda given: given.thread.admin.quarantine("event:3"),
    "rewind": lambda given: given.thread.rewind(3),
    "hold": lambda given: given.thread.admin.hold(),
    "info": lambda given: given.thread.info(),
    "is_blocked": lambda given: given.thread.admin.is_blocked(),
    "quarantines": lambda given: given.thread.admin.quarantines(),
    "last_seq": lambda given: handle_of(given.thread).last_seq(),
    "latest": lambda given: given.thread.replay.latest(3),
    "mark_critical": lambda given: given.thread.compaction.mark_critical("1.0"),
    "measure": lambda given: handle_of(given.thread).measure(OUTBOX),
    "offload": lambda given: given.thread.compaction.offload(),
    "open": lambda given: given.thread.compaction.open("1.0"),
    "originals": lambda given: given.thread.compaction.originals("1.0"),
    "pause": lambda given: given.thread.admin.pause(),
    "pin": lambda given: given.thread.pin("Label every crate"),
    "prepare_search": lambda given: given.thread.admin.prepare_search(),
    "rebuild": lambda given: given.thread.replay.rebuild(search=True),
    "record": lambda given: given.thread.record([{"role": "user", "content": "Where are the crates?"}]),
    "redo_compaction": lambda given: given.thread.compaction.redo(),
    "release": lambda given: given.thread.admin.release(),
    "report": lambda given: given.thread.views.report(),
    "rereduce": lambda given: given.thread.replay.rereduce(1, dry_run=True),
    "resume": lambda given: given.thread.admin.resume(),
    "row": lambda given: handle_of(given.thread).row(OUTBOX, "1"),
    "rows": lambda given: given.thread.views.rows(OUTBOX),
    "rows_between": lambda given: handle_of(given.thread).rows_between(OUTBOX),
    "runtime": lambda given: handle_of(given.thread).runtime(),
    "search": lambda given: given.thread.search("crates"),
    "settle": lambda given: given.thread.compaction.settle(),
    "state": lambda given: given.thread.state(),
    "to_pytest": lambda given: given.thread.replay.to_pytest(1),
    "unarchive": lambda given: given.thread.admin.unarchive(),
    "undo_compaction": lambda given: given.thread.compaction.undo(),
    "undo_rereduce": lambda given: given.thread.replay.undo_rereduce(),
    "unpin": lambda given: given.thread.unpin(1),
    "update": lambda given: given.thread.admin.update(metadata={"hall": "4"}),
    "upto": lambda given: handle_of(given.thread).upto(2),
    "verify": lambda given: given.thread.replay.verify(),
    "view": lambda given: given.thread.views.read("outbox"),
    "what_if": lambda given: given.thread.replay.what_if(Change(edits=[SkipEvent(2)])),
    "why": lambda given: given.thread.replay.why("1.0"),
}


async def lived(given: Given) -> object:
    """A run of an agent, whose facts an extractor finds."""
    async with AgentLifecycle(given.engine, given.thread, agent_id="porter").run("Count the crates") as run:
        run.result = "There are 12"
    return run


OF_VIEWS: dict[str, Callable[[Given], Awaitable[object]]] = {
    "lifecycle": lived,
    "playbooks": lambda given: given.engine.user("u").playbooks.find("count crates"),
    "promotion": lambda given: given.thread.promotion.evaluate(),
    "tool_cache": lambda given: given.thread.tool_cache.cached_call("count", {}, given.tool, duration=1),
}
"""Those of views that wait for a model or for somebody's function."""


EVERY = {
    **{f"engine.{name}": call for name, call in OF_ENGINE.items()},
    **{f"thread.{name}": call for name, call in OF_THREAD.items()},
}


def coroutines_of(kind: type) -> set[str]:
    """The names of a class's public coroutines, and of what iterates over some."""
    found = inspect.getmembers(kind, lambda one: inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one))
    return {name for name, _ in found if not name.startswith("_")}
