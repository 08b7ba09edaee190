"""The failure table, row by row: what goes wrong is named, nothing acknowledged is lost, the rest goes on."""

import asyncio
import logging
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    Add,
    Chunk,
    Delete,
    EngineConfig,
    Event,
    Plugin,
    RecordedEvent,
    ReduceContext,
    Reduction,
    StateView,
    UserMessage,
)
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    EngineClosed,
    EventTooLarge,
    IntegrityError,
    QueueFull,
    ReducerError,
    SchemaError,
    StorageBusy,
    StorageError,
    StorageFailed,
)
from memory_engine.events import UnknownEvent
from tests.conversations import NEVER, flaws, log, opened, say, texts, turns, types
from tests.scripted_compactors import Scripted

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "memory.db")


def in_a_process(doing: str, path: str) -> list[str]:
    """What a child does; the lines that it prints. Fails where it does not end in time, or well."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.failing_child", doing, path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.splitlines()


def tamper(path: str, *statements: str) -> None:
    """Change a file behind the engine's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        for statement in statements:
            connection.execute(statement)


async def open_only(path: Path) -> None:
    """Open a file and close it."""
    async with memory_engine.open(str(path)):
        pass


async def written(path: str) -> None:
    """Two threads in a file, `t` with a compaction, `other` without."""
    async with opened(Scripted(), NEVER, path) as engine:
        for name in ("t", "other"):
            await say(await engine.create_thread(name), turns(6))
        await engine.thread("t").compact(["1.0", "2.0"])


# the disk


def test_a_delete_needs_no_room_for_a_second_file(path: str) -> None:
    """The bytes of the thread are gone, and other threads are written to as before."""
    assert ["[('kept', 61)]"] == in_a_process("delete_without_room", path)


def test_a_full_disk_makes_the_store_read_only(path: str) -> None:
    """Past the disk's end a dispatch raises `StorageFailed`, the next one too, and what was acknowledged is read."""
    first, second, third = in_a_process("fill_disk", path)
    kind, acknowledged = first.split()
    assert ("StorageFailed", f"StorageFailed {acknowledged}") == (kind, second)
    assert f"{acknowledged} {acknowledged}" == third

    async def reopened() -> tuple[int, object]:
        async with opened(Scripted(), NEVER, path) as engine:
            receipt = await engine.thread("t").dispatch(UserMessage(content="room again"))
            return receipt.seq, (await engine.thread("t").replay.verify()).divergence

    assert (int(acknowledged) + 1, None) == asyncio.run(reopened())


@pytest.mark.parametrize("folder_too", [True, False])
def test_a_file_that_may_not_be_written_is_refused(folder_too: bool) -> None:
    """A read-only file, or one in a read-only folder, cannot be opened: `StorageFailed` names it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        asyncio.run(written(str(path)))
        path.chmod(0o444)
        for beside in Path(folder).glob("memory.db?*"):
            beside.chmod(0o666)
        Path(folder).chmod(0o555 if folder_too else 0o777)
        [said] = in_a_process("open_read_only", str(path))
        Path(folder).chmod(0o777)
        assert said.startswith(f"StorageFailed {path}: ")


async def test_a_file_locked_by_another_program_is_busy(path: str) -> None:
    """SQLite's own lock, held past the timeout, is `StorageBusy`: nothing was applied, a retry succeeds."""
    async with memory_engine.open(path, config=EngineConfig(busy_timeout_s=0.05)) as engine:
        thread = await engine.create_thread()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageBusy, match="try again") as raised:
                await thread.dispatch(UserMessage(content="x"), event_id="e")
            assert 0.05 <= raised.value.waited_s  # as long as it really waited
            with pytest.raises(StorageBusy) as raised:
                await thread.admin.hold()
            assert 0.05 <= raised.value.waited_s
            assert [] == await log(thread)
        assert 1 == (await thread.dispatch(UserMessage(content="x"), event_id="e")).seq


# files that are no store


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE things (name TEXT)")


def _newer(path: Path) -> None:
    asyncio.run(written(str(path)))
    tamper(str(path), "PRAGMA user_version = 999")


NO_STORES: dict[str, tuple[Callable[[Path], object], type[StorageError], str]] = {
    "another program's": (_foreign, SchemaError, "another program"),
    "a newer version's": (_newer, SchemaError, "999.*upgrade"),
    "no database": (lambda path: path.write_bytes(b"hello " * 1000), SchemaError, "not an SQLite file"),
    "a directory": (lambda path: path.mkdir(), StorageFailed, "directory"),
}


@pytest.mark.parametrize(("make", "error", "words"), NO_STORES.values(), ids=NO_STORES)
def test_what_is_no_store_is_refused_untouched(
    tmp_path: Path, make: Callable[[Path], object], error: type[StorageError], words: str
) -> None:
    """A path that holds something else gives a typed error that names it, and stays as it was, byte for byte."""
    path = tmp_path / "memory.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(error, match=words) as raised:
        asyncio.run(open_only(path))
    assert str(path) in str(raised.value)
    assert before == (path.read_bytes() if path.is_file() else b"")


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A file in a directory that is not there is refused, and no directory is made."""
    with pytest.raises(StorageFailed, match=r"nowhere does not exist; create it"):
        asyncio.run(open_only(tmp_path / "nowhere" / "memory.db"))
    assert [] == list(tmp_path.iterdir())


# broken logs

POSITION = "pos = (SELECT tid << 32 | {} FROM threads WHERE id = 't')"
BROKEN: dict[str, tuple[str, str, int]] = {
    "a changed hash": (f"UPDATE events SET hash = x'00' WHERE {POSITION.format(3)}", "hash", 3),
    "a changed payload": (
        f"UPDATE events SET payload = x'7b7d' WHERE {POSITION.format(3)}",
        "hash",
        3,
    ),
    "a changed record": (f"UPDATE events SET record = x'7b7d' WHERE {POSITION.format(7)}", "hash", 7),
    "an unreadable record": (f"UPDATE events SET record = x'00' WHERE {POSITION.format(3)}", "hash", 3),
    "a covered payload": (f"UPDATE events SET payload = x'7b7d' WHERE {POSITION.format(1)}", "hash", 1),
    "a changed type": (f"UPDATE events SET type = 'llm_thinking' WHERE {POSITION.format(1)}", "hash", 1),
    "a missing payload": (f"UPDATE events SET payload = NULL WHERE {POSITION.format(2)}", "hash", 2),
    "a missing row": (f"DELETE FROM events WHERE {POSITION.format(2)}", "gap", 2),
    "a missing end": (f"DELETE FROM events WHERE {POSITION.format(8)}", "gap", 8),
}


@pytest.mark.parametrize(("statement", "kind", "seq"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_log_is_named_and_read_only(path: str, statement: str, kind: str, seq: int) -> None:
    """`verify` names the thread and the seq, the thread takes no events from then on, all others do."""
    await written(path)
    tamper(path, statement)
    async with opened(Scripted(), NEVER, path) as engine:
        [broken] = [report.divergence for report in await engine.verify() if report.divergence is not None]
        assert ("t", seq, kind) == (broken.thread_id, broken.seq, broken.kind)
        with pytest.raises(IntegrityError) as raised:
            await engine.thread("t").dispatch(UserMessage(content="no"))
        assert ("t", seq) == (raised.value.thread_id, raised.value.seq)
        assert 7 == (await engine.thread("other").dispatch(UserMessage(content="yes"))).seq


async def test_a_gap_is_never_an_end(path: str) -> None:
    """Reading over a missing row raises `IntegrityError` with thread and seq, after what came before it."""
    await written(path)
    tamper(path, f"DELETE FROM events WHERE {POSITION.format(5)}")
    async with opened(Scripted(), NEVER, path) as engine:
        with pytest.raises(IntegrityError) as raised:
            await log(engine.thread("t"))
        assert ("t", 5) == (raised.value.thread_id, raised.value.seq)
        assert 6 == len(await log(engine.thread("other")))


async def test_a_log_that_goes_on_past_its_head_is_not_written_over(path: str) -> None:
    """A stray row where the next event belongs: `IntegrityError` for this thread, and the store goes on."""
    await written(path)
    tamper(path, "UPDATE heads SET seq = 5 WHERE tid = (SELECT tid FROM threads WHERE id = 'other')")
    async with opened(Scripted(), NEVER, path) as engine:
        await engine.thread("other").replay.rebuild()
        beside = asyncio.ensure_future(engine.thread("t").dispatch(UserMessage(content="yes")))
        with pytest.raises(IntegrityError, match="seq 6"):
            await engine.thread("other").dispatch(UserMessage(content="no"))
        assert 9 == (await beside).seq


# the state's rows are a cache

TID = "tid = (SELECT tid FROM threads WHERE id = 't')"
SPOILED = {
    "rows deleted": (f"DELETE FROM live WHERE {TID}",),
    "one row deleted": (f"DELETE FROM live WHERE {TID} AND seq = 4",),
    "a row of nothing": (f"UPDATE live SET seq = 99 WHERE {TID} AND seq = 4",),
    "a covered original": (
        "INSERT INTO live (tid, seq, n, key, container) SELECT tid, 1, 0, x'99', '' FROM threads WHERE id = 't'",
    ),
    "counters": (f"UPDATE heads SET tokens = tokens + 1 WHERE {TID}",),
    "an original for its summary": (f"UPDATE live SET seq = 1 WHERE {TID} AND seq = 8",),
}


@pytest.mark.parametrize("statements", SPOILED.values(), ids=SPOILED)
async def test_spoiled_rows_are_made_again_from_the_log(path: str, statements: tuple[str, ...]) -> None:
    """Opening a thread whose rows are not those of its head mends them; nothing is lost."""
    await written(path)
    tamper(path, *statements)
    async with opened(Scripted(), NEVER, path) as engine:
        thread = engine.thread("t")
        assert ["2", "word3", "word4", "word5", "word6"] == await texts(thread)
        assert None is (await thread.replay.verify()).divergence


async def test_rows_in_a_wrong_order_are_found_and_mended(path: str) -> None:
    """A changed order key is what `verify` finds and `rebuild` mends."""
    await written(path)
    tamper(path, f"UPDATE live SET key = x'7f00' WHERE {TID} AND seq = 4")
    async with opened(Scripted(), NEVER, path) as engine:
        thread = engine.thread("t")
        assert "state" == getattr((await thread.replay.verify()).divergence, "kind", "")
        await thread.replay.rebuild()
        assert ["2", "word3", "word4", "word5", "word6"] == await texts(thread)
        assert None is (await thread.replay.verify()).divergence


# reducers

odd = Plugin("odd")


@odd.event("odd_event")
class OddEvent(Event):
    """An event that only this module knows."""

    content: str
    how: str = ""


@odd.reducer(OddEvent)
def reduce_odd(_view: StateView, event: OddEvent, ctx: ReduceContext) -> Reduction:
    """Fail in the way that the event asks for."""
    chunk = Chunk(id=ctx.new_id(), type="user_message", content=event.content)
    match event.how:
        case "raise":
            raise ValueError("out of order")
        case "unknown":
            return Reduction(operations=(Delete("99.0"),))
        case "undeclared":
            return Reduction(operations=(Add("1.7"),))
        case "unplaced":
            return Reduction(chunks=(chunk,))
        case "none":
            return None  # type: ignore[return-value]  # a reducer that breaks its promise
    return Reduction(operations=(Add(chunk.id),), chunks=(chunk,))


@pytest.mark.parametrize(
    ("how", "operation", "why"),
    [
        ("raise", "", "ValueError: out of order"),
        ("unknown", "DELETE", "99.0"),
        ("undeclared", "ADD", "1.7"),
        ("unplaced", "", "placed by no operation"),
        ("none", "", "NoneType"),
    ],
)
async def test_a_reducer_that_fails_writes_nothing(how: str, operation: str, why: str) -> None:
    """`ReducerError` names the event, the reducer and the operation; the queue goes on with what waits behind."""
    async with memory_engine.open(":memory:", plugins=[odd]) as engine:
        thread = await engine.create_thread()
        bad = asyncio.ensure_future(thread.dispatch(OddEvent(content="x", how=how)))
        good = asyncio.ensure_future(thread.dispatch(OddEvent(content="y")))
        with pytest.raises(ReducerError, match=why) as raised:
            await bad
        error = raised.value
        assert ("odd_event", "reduce_odd", operation) == (error.event_type, error.reducer, error.operation)
        assert (1, ["y"]) == ((await good).seq, await texts(thread))


async def test_one_failing_event_of_several_writes_none() -> None:
    """All or none: an event that its reducer refuses takes the others of its call along."""
    async with memory_engine.open(":memory:", plugins=[odd]) as engine:
        thread = await engine.create_thread()
        with pytest.raises(ReducerError):
            await thread.dispatch_all(
                [OddEvent(content="a"), OddEvent(content="b", how="raise"), OddEvent(content="c")]
            )
        assert [] == await log(thread)


async def test_events_of_an_unknown_type_are_kept_and_shown(path: str) -> None:
    """Without the plug-in of an event its log can be read, gives a context and takes events; `verify` says so."""
    async with memory_engine.open(path, plugins=[odd]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content="a"), OddEvent(content="b"), UserMessage(content="c")])
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        second = (await log(thread))[1].event
        assert UnknownEvent("odd_event", 1, b'{"content":"b"}') == second
        await thread.dispatch(UserMessage(content="d"))
        context = await thread.context()
        assert ([], ("1.0", "2.0", "3.0", "4.0")) == (flaws(context), context.included)
        found = (await thread.replay.verify()).divergence
        assert (2, "unloaded", "odd_event") == (
            getattr(found, "seq", 0),
            getattr(found, "kind", ""),
            getattr(found, "event_type", ""),
        )
    async with memory_engine.open(path, plugins=[odd]) as engine:
        assert None is (await engine.thread("t").replay.verify()).divergence


# limits, observers, ends


async def test_a_full_queue_refuses_after_its_deadline() -> None:
    """Past the deadline an event is refused with the reason why nothing moves, and was not taken."""
    async with memory_engine.open(":memory:", config=EngineConfig(queue_capacity=2, queue_timeout_s=0.01)) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        waiting = asyncio.ensure_future(thread.dispatch_all(turns(2)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match=r"holds 2 events .*paused"):
            await thread.dispatch(UserMessage(content="refused"))
        await thread.admin.resume()
        await waiting
        assert ["word1", "word2"] == await texts(thread)


@pytest.mark.parametrize("together", [1, 3])
async def test_an_event_over_the_limit_leaves_the_log_as_it_was(together: int) -> None:
    """A too large event is refused by its size, alone or among others, before anything is written."""
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=1000)) as engine:
        thread = await engine.create_thread()
        with pytest.raises(EventTooLarge, match="over the limit of 1000"):
            await thread.dispatch_all([UserMessage(content="x" * 100 * 5 ** (n + 1)) for n in range(together + 1)])
        assert [] == await log(thread)


async def test_an_observer_that_raises_hinders_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The event is durable, the other observers are called, and the failure is logged."""
    seen: list[int] = []

    def broken(_recorded: RecordedEvent) -> None:
        raise ValueError("no")

    async with memory_engine.open(":memory:") as engine:
        engine.observe(broken)
        engine.observe(lambda recorded: seen.append(recorded.seq))
        thread = await engine.create_thread()
        with caplog.at_level(logging.ERROR):
            await say(thread, turns(3))
            await engine.close()
    assert ([1, 2, 3], 3) == (seen, len(caplog.records))


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_a_closed_engine_says_so(path: str, kind: str) -> None:
    """Whatever is asked of an engine after its end raises `EngineClosed`."""
    async with memory_engine.open(":memory:" if kind == "memory" else path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="x"))
    asked = [
        lambda: thread.dispatch(UserMessage(content="y")),
        lambda: thread.dispatch_all([UserMessage(content="y")]),
        thread.state,
        thread.context,
        thread.compact,
        thread.info,
        thread.replay.verify,
        thread.fork,
        thread.admin.archive,
        thread.admin.delete,
        lambda: thread.state(at=0),
        lambda: thread.replay.latest(1),
        lambda: log(thread),
        lambda: engine.create_thread("u"),
        engine.threads,
        engine.stats,
        engine.flush,
    ]
    for ask in asked:
        with pytest.raises(EngineClosed):
            await ask()


async def test_closing_twice_is_closing_once(path: str) -> None:
    """Two who close at once both wait for the end; a third finds it done."""
    async with memory_engine.open(path) as engine:
        await asyncio.gather(engine.close(), engine.close())
        await engine.close()
        assert kernel_of(engine).tasks.closed


@pytest.mark.parametrize("how", ["leave_open", "leave_store_open", "leave_compacting", "unclean"])
def test_an_engine_that_nobody_closed_lets_the_process_end(path: str, how: str) -> None:
    """A process that forgets to close its engine ends all the same, and the file holds together."""
    assert [] == in_a_process(how, path)

    async def look() -> list[str]:
        async with opened(Scripted(), NEVER, path) as engine:
            assert [] == [report for report in await engine.verify() if not report.ok]
            return [kind for info in await engine.threads() for kind in await types(engine.thread(info.id))]

    assert (["compaction_started", "compaction_abandoned"] if how == "leave_compacting" else []) == asyncio.run(look())
