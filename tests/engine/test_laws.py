"""Laws of the log: they hold for any events, and are tested with many."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.engine import kernel_of
from memory_engine.events import Event
from memory_engine.testing import FakeCompactor, ManualClock, SequentialIds

TEXT = st.text(max_size=40)
KEYS = st.sampled_from(("a", "b", "c"))
LENIENT = st.just(True)  # no event of a law is refused
CHUNK_IDS = st.builds("{}.{}".format, st.integers(1, 12), st.integers(0, 2))
ITEMS = st.lists(st.builds(e.TodoItem, KEYS, TEXT), max_size=3).map(tuple)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(e.UserMessage, content=TEXT),
    st.builds(e.LlmTextResponse, content=TEXT, response_id=KEYS),
    st.builds(e.LlmThinking, content=TEXT, response_id=KEYS),
    st.builds(e.LlmToolCall, calls=st.builds(e.ToolCall, KEYS, KEYS).map(lambda call: (call,))),
    st.builds(e.ToolResult, call_id=KEYS, content=TEXT, final=st.booleans()),
    st.builds(e.ToolError, call_id=KEYS, content=TEXT),
    st.builds(e.TaskStarted, goal=TEXT, task_id=st.just("") | KEYS, single=st.booleans()),
    st.builds(e.TaskCompleted, content=TEXT, task_id=st.just("") | KEYS, lenient=LENIENT, single=st.booleans()),
    st.builds(e.TodoSet, items=ITEMS),
    st.builds(e.TodoExpanded, id=KEYS, items=ITEMS, lenient=LENIENT),
    st.builds(e.TodoCompleted, id=KEYS, lenient=LENIENT),
    st.builds(e.TodoUpdated, id=KEYS, text=st.none() | TEXT, lenient=LENIENT),
    st.builds(e.TodoDeleted, id=KEYS, lenient=LENIENT),
    st.builds(e.EnvironmentChange, content=TEXT, key=st.just("") | KEYS, single=st.booleans()),
    st.builds(e.SessionStarted, content=TEXT, session_id=KEYS, beside=st.booleans()),
    st.builds(e.MemoryMarkCritical, chunk_ids=st.lists(CHUNK_IDS, max_size=2).map(tuple), lenient=LENIENT),
    st.builds(e.MemoryForget, chunk_ids=st.lists(CHUNK_IDS, max_size=2).map(tuple), seqs=st.just(())),
    st.builds(e.SessionEnded),
)
LOGS = st.lists(EVENTS, min_size=1, max_size=14)
NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))


def opened(path: str = ":memory:") -> AbstractAsyncContextManager[Engine]:
    """An engine whose time and ids are the same in every run."""
    return memory_engine.open(path, config=NEVER, clock=ManualClock(), ids=SequentialIds())


async def appended(
    path: str, events: Sequence[Event], sizes: Sequence[int] = ()
) -> tuple[list[str], memory_engine.State]:
    """Dispatch events in groups of these sizes (then one by one); return the hashes and the state."""
    waiting, hashes = list(events), []
    async with opened(path) as engine:
        thread = await engine.create_thread("t")
        for size in sizes:
            group, waiting = waiting[:size], waiting[size:]
            hashes += [receipt.hash for receipt in await thread.dispatch_all(group)]
        for event in waiting:
            hashes.append((await thread.dispatch(event)).hash)
        return hashes, await thread.state()


@settings(max_examples=40)
@given(LOGS, st.lists(st.integers(0, 6), max_size=4))
async def test_batches_do_not_matter(log: list[Event], sizes: list[int]) -> None:
    """One by one or in any groups, a log has the same hashes and leads to the same state."""
    assert await appended(":memory:", log) == await appended(":memory:", log, sizes)


@settings(max_examples=25)
@given(LOGS)
async def test_senders_at_once_are_senders_in_turn(log: list[Event]) -> None:
    """Events that are dispatched concurrently are recorded in the order in which they were sent."""
    async with opened() as engine:
        thread = await engine.create_thread("t")
        receipts = await asyncio.gather(*map(thread.dispatch, log))
        assert (await appended(":memory:", log))[0] == [receipt.hash for receipt in receipts]


@settings(max_examples=30)
@given(LOGS)
async def test_every_state_is_the_fold_of_the_recorded_operations(log: list[Event]) -> None:
    """At each seq, the state that was live is the state that the log gives back."""
    async with opened() as engine:
        thread = await engine.create_thread("t")
        live = [await (await thread.dispatch(event)).state.load() for event in log]
        assert live == [await kernel_of(engine).reader.state_at("t", seq) for seq in range(1, len(log) + 1)]
        assert (await thread.replay.verify()).ok


@settings(max_examples=15)
@given(LOGS)
async def test_stores_agree(log: list[Event]) -> None:
    """Memory and SQLite give equal hashes and states, also after reopening and rebuilding."""
    expected = await appended(":memory:", log)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "log.db")
        assert expected == await appended(path, log)
        async with opened(path) as engine:
            thread = engine.thread("t")
            assert (expected[1], True) == (await thread.state(), (await thread.replay.verify()).ok)
            await thread.replay.rebuild()
            assert (expected[1], True) == (await thread.state(), (await thread.replay.verify()).ok)


@settings(max_examples=30)
@given(st.lists(st.tuples(KEYS, st.integers(1, 3)), min_size=1, max_size=8))
async def test_dispatch_is_idempotent(sent: list[tuple[str, int]]) -> None:
    """However often and in whatever groups an id is sent, it is recorded once and has one receipt."""
    async with opened() as engine:
        thread = await engine.create_thread("t")
        groups = [[NewEvent(e.UserMessage(content=key), id=key)] * times for key, times in sent]
        receipts = [r for group in await asyncio.gather(*map(thread.dispatch_all, groups)) for r in group]
        first: dict[str, Receipt] = {}
        for receipt in receipts:
            first.setdefault(receipt.event_id, receipt)
        assert [first[receipt.event_id] for receipt in receipts] == receipts
        assert len(first) == (await thread.info()).events


@settings(max_examples=20)
@given(LOGS.flatmap(lambda log: st.tuples(st.just(log), st.integers(0, len(log)))))
async def test_a_fork_is_its_past(cut: tuple[list[Event], int]) -> None:
    """At its cut a fork has the state of its origin, less what that has forgotten since; it leaves the origin alone."""
    log, at = cut
    async with opened() as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(log)
        fork = await thread.fork(at, thread_id="f")
        if any(isinstance(event, e.MemoryForget) for event in log[at:]):
            shown = await kernel_of(engine).reader.shown_at("t", at)
            assert [one.text for one in shown.chunks()] == [one.text for one in (await fork.state()).chunks()]
        else:
            assert await kernel_of(engine).reader.state_at("t", at) == await fork.state()
        before = await thread.info()
        await fork.dispatch(e.UserMessage(content="elsewhere"))
        assert (before, True, True) == (
            await thread.info(),
            (await fork.replay.verify()).ok,
            (await thread.replay.verify()).ok,
        )


PROBE = """
import asyncio, sys, memory_engine
from memory_engine import events as e
from memory_engine.testing import ManualClock, SequentialIds

async def show(thread):
    state = await thread.state()
    print([(p.chunk.id, p.key, p.container) for p in state.placed()], (await thread.context(2000)).messages)
    print((await thread.info()).head_hash, await thread.verify())

async def main():
    async with memory_engine.open(sys.argv[1]) as engine:
        await show(engine.thread("t"))
        await engine.thread("t").rebuild()
        await show(engine.thread("t"))
    async with memory_engine.open(":memory:", clock=ManualClock(), ids=SequentialIds()) as engine:
        thread = await engine.create_thread("t")
        for n in range(300):
            await thread.dispatch(e.EnvironmentChange(content=str(n), key=f"key {n % 90}"))
        await thread.dispatch(e.SessionEnded())
        await show(thread)

asyncio.run(main())
"""


async def write_a_long_log(path: str) -> None:
    """A list, a hundred messages, and the compactions that they bring."""
    async with memory_engine.open(path, compactor=FakeCompactor("short")) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(e.TodoSet(items=tuple(e.TodoItem(str(n), f"item {n}") for n in range(5))))
        for n in range(100):
            await thread.dispatch(e.UserMessage(content=f"message {n} " * 9))
        await thread.compaction.settle()


def test_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    """Two processes that order their sets differently replay, rebuild, show and write the same."""
    path = str(tmp_path / "log.db")
    asyncio.run(write_a_long_log(path))
    seen = set()
    for seed in ("1", "2"):
        command = [sys.executable, "-c", PROBE, path]
        run = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        seen.add(run.stdout)
    assert 1 == len(seen)


class Machine(RuleBasedStateMachine):
    """Anything that users may do, in any order: the logs verify, and rebuilding changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.ids = ManualClock(), SequentialIds()
        self.sent: dict[str, dict[str, tuple[str, Receipt]]] = {"t": {}}
        self.closing = AsyncExitStack()

    async def _open(self) -> Engine:
        policy = CompactionPolicy(threshold=6, tokens_min=0, keep_recent=1)
        path = str(Path(self.folder.name) / "log.db")
        return await self.closing.enter_async_context(
            memory_engine.open(path, config=EngineConfig(compaction=policy), clock=self.clock, ids=self.ids)
        )

    @initialize()
    def begin(self) -> None:
        """Open a file with one thread."""
        self.engine = self.runner.run(self._open())
        self.runner.run(self.engine.create_thread("t"))

    def teardown(self) -> None:
        """Close the file."""
        self.runner.run(self.closing.aclose())
        self.runner.close()
        self.folder.cleanup()

    def thread(self, data: st.DataObject) -> Thread:
        """One of the threads."""
        return self.engine.thread(data.draw(st.sampled_from(sorted(self.sent))))

    @rule(data=st.data(), events=st.lists(EVENTS, min_size=1, max_size=5))
    def dispatch(self, data: st.DataObject, events: list[Event]) -> None:
        """Append some events."""
        self.runner.run(self.thread(data).dispatch_all(events))

    @rule(data=st.data(), key=KEYS, text=st.sampled_from("xy"))
    def dispatch_under_an_id(self, data: st.DataObject, key: str, text: str) -> None:
        """An id is new, or gives the first receipt, or conflicts; nothing else."""
        thread = self.thread(data)
        known = self.sent[thread.id].get(key)
        message = e.UserMessage(content=text * 30)
        if known is not None and known[0] != text:
            with pytest.raises(errors.IdempotencyConflict):
                self.runner.run(thread.dispatch(message, event_id=key))
            return
        receipt = self.runner.run(thread.dispatch(message, event_id=key))
        assert receipt.hash == self.sent[thread.id].setdefault(key, (text, receipt))[1].hash

    @precondition(lambda self: len(self.sent) < 4)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        """Go on from the head, or from some seq, in another thread."""
        thread = self.thread(data)
        head = self.runner.run(thread.info()).events
        at = data.draw(st.integers(0, head))
        fork = self.runner.run(thread.fork(at, thread_id=f"f{len(self.sent)}"))
        self.sent[fork.id] = {k: (t, r) for k, (t, r) in self.sent[thread.id].items() if r.seq <= at}

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """Compact by hand, where there is something to compact."""
        try:
            self.runner.run(self.thread(data).compact())
        except errors.CompactionError:
            return

    @rule(data=st.data(), redo=st.booleans())
    def undo_or_redo(self, data: st.DataObject, redo: bool) -> None:
        """Undo the latest compaction, or make it again, where there is one that stands."""
        thread = self.thread(data)
        try:
            self.runner.run(thread.compaction.redo() if redo else thread.compaction.undo())
        except errors.CompactionError:
            return

    @rule(data=st.data(), critical=st.booleans())
    def forget_or_keep(self, data: st.DataObject, critical: bool) -> None:
        """Forget a chunk of the state, or mark it CRITICAL."""
        thread = self.thread(data)
        ids = [chunk.id for chunk in self.runner.run(thread.state()).everything()]
        if ids:
            one = data.draw(st.sampled_from(ids))
            marked = e.MemoryMarkCritical(chunk_ids=(one,), lenient=True)  # a compaction may take it meanwhile
            self.runner.run(thread.dispatch(marked) if critical else thread.forget(chunk_ids=[one]))

    @rule()
    def reopen(self) -> None:
        """Close the file and open it again."""
        self.runner.run(self.closing.aclose())
        self.engine = self.runner.run(self._open())

    @invariant()
    def logs_verify(self) -> None:
        """Every log replays to what is stored."""
        self.runner.run(self._check())

    async def _check(self) -> None:
        for thread_id in self.sent:
            thread = self.engine.thread(thread_id)
            await thread.compaction.settle()
            report = await thread.replay.verify()
            assert report.ok, report.divergence
            state = await thread.state()
            assert state == await thread.state(at=state.seq)

    @rule(data=st.data())
    def rebuild(self, data: st.DataObject) -> None:
        """Making the state again from the log changes nothing."""
        thread = self.thread(data)
        self.runner.run(thread.compaction.settle())
        before = self.runner.run(thread.state())
        self.runner.run(thread.replay.rebuild())
        assert before == self.runner.run(thread.state())


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=12, stateful_step_count=16)
