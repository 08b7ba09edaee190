"""Threads: made, found, forked, ended, archived and deleted; any id that can be stored is one."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Retention, Thread, errors
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.runtime.threads import OpenThreads
from memory_engine.testing import ManualClock
from memory_engine.testing.contract_rows import HOSTILE, IDS
from tests.conversations import NEVER, turns

STORES = ["memory", "sqlite"]


@pytest.fixture(params=STORES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the engine keeps its threads: in memory, then in a file."""
    return ":memory:" if request.param == "memory" else str(tmp_path / "log.db")


def say(text: str) -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


async def texts(thread: Thread) -> list[str]:
    """The chunks at the top of a thread's state."""
    return [chunk.text for chunk in (await thread.state()).chunks()]


async def ids(engine: Engine, *, user_id: str | None = None, tenant_id: str | None = None) -> list[str]:
    """The ids of the threads that match."""
    return [info.id for info in await engine.threads(user_id=user_id, tenant_id=tenant_id)]


async def test_a_thread_says_what_it_is(path: str) -> None:
    """Everything given at creation is told, and where the thread stands."""
    policy = CompactionPolicy(threshold=5, tokens_min=0)
    async with memory_engine.open(path, clock=ManualClock(-1)) as engine:
        thread = await engine.create_thread(
            "t",
            kind="task",
            user_id="u",
            tenant_id="n",
            agent_id="a",
            parent_id="p",
            metadata={"k": "v"},
            policy=policy,
        )
        await thread.dispatch(say("Hello"))
        info = await thread.info()
        scopes = info.user_id, info.tenant_id, info.agent_id, info.parent_id
        assert ("t", "task", *"unap") == (info.id, info.kind, *scopes)
        assert ({"k": "v"}, policy) == (info.metadata, info.policy)
        assert ("active", 1, 1, None, 999_999) == (
            info.status, info.events, info.chunks, info.forked_from, info.created_at.microsecond
        )  # fmt: skip


async def test_a_thread_without_an_id_gets_one(path: str) -> None:
    """Ids that the engine gives are different and sort by time."""
    clock = ManualClock()
    async with memory_engine.open(path, clock=clock) as engine:
        made = []
        for _ in range(5):
            made.append((await engine.create_thread()).id)
            clock.advance(1)
        assert (sorted(set(made)), made) == (made, await ids(engine))


async def test_initial_chunks_are_the_first_event(path: str) -> None:
    """They are in the log like everything else, so that replay knows of them."""
    seeds = [e.InitialChunk("Be kind."), e.InitialChunk("Hi", "user_message", "compressible")]
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread(initial_chunks=seeds)
        state = await thread.state()
        assert [Retention.CRITICAL, Retention.COMPRESSIBLE] == [chunk.retention for chunk in state.chunks()]
        assert (["thread_seeded"], True) == (
            [r.type for r in await thread.replay.latest(9)],
            (await thread.replay.verify()).ok,
        )


async def test_initial_chunks_that_are_refused_leave_no_thread(path: str) -> None:
    """A wrong seed is an error before anything is made: the id is still free."""
    seeds = [e.InitialChunk("x", retention="for ever")]
    async with memory_engine.open(path) as engine:
        with pytest.raises(errors.MemoryEngineError):
            await engine.create_thread("t", initial_chunks=seeds)
        assert [] == await ids(engine)
        await engine.create_thread("t")


async def test_any_text_is_a_thread_id(path: str) -> None:
    """UUIDs, 4 KB, emoji, SQL and paths each name a thread of their own."""
    async with memory_engine.open(path) as engine:
        for thread_id in IDS:
            await (await engine.create_thread(thread_id)).dispatch(say(thread_id), event_id=thread_id)
        assert [[thread_id] for thread_id in IDS] == [await texts(engine.thread(thread_id)) for thread_id in IDS]


BAD_IDS = ["\ud800", "a\x00b", "x" * 4097, "é" * 2049]


@pytest.mark.parametrize("bad", BAD_IDS, ids=ascii)
async def test_what_cannot_be_an_id_is_refused(path: str, bad: str) -> None:
    """Lone surrogates, NUL and more than 4 KB are a typed error wherever an id or a scope is given."""
    async with memory_engine.open(path) as engine:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: engine.create_thread(bad),
            lambda: engine.create_thread(user_id=bad),
            lambda: engine.create_thread(tenant_id=bad),
            lambda: engine.create_thread(metadata={"k": bad}),
            lambda: engine.create_thread(metadata={bad: "v"}),
        ]
        for make in calls:
            with pytest.raises(errors.InvalidIdentifier):
                await make()
        assert [] == await ids(engine)


@pytest.mark.parametrize("bad", ["", "nobody", *BAD_IDS], ids=ascii)
async def test_a_thread_that_is_not_there_is_an_error(path: str, bad: str) -> None:
    """Every call on it says so, by a typed error."""
    async with memory_engine.open(path) as engine:
        thread = engine.thread(bad)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: thread.dispatch(say("x")), lambda: thread.replay.latest(1), thread.state, thread.info,
            thread.context, thread.replay.verify, thread.compact, thread.fork, thread.admin.delete,
            thread.admin.archive,
        ]  # fmt: skip
        for call in calls:
            with pytest.raises((errors.ThreadNotFound, errors.InvalidIdentifier)):
                await call()


@pytest.mark.parametrize("bad", BAD_IDS, ids=ascii)
async def test_no_thread_is_looked_for_by_what_cannot_be_a_scope(path: str, bad: str) -> None:
    """A value that no thread can have is an error in a filter; one that none has finds nothing."""
    async with memory_engine.open(path) as engine:
        await engine.create_thread()
        with pytest.raises(errors.InvalidIdentifier):
            await engine.threads(tenant_id=bad)
        assert [] == await engine.threads(user_id="nobody", status="none such")


async def test_an_id_is_taken_once(path: str) -> None:
    """A second thread of the id is refused, and the first is as it was."""
    async with memory_engine.open(path) as engine:
        await (await engine.create_thread("t")).dispatch(say("Hello"))
        with pytest.raises(errors.ThreadExists):
            await engine.create_thread("t", initial_chunks=[e.InitialChunk("x")])
        assert ["Hello"] == await texts(engine.thread("t"))


async def test_filters_are_exact(path: str) -> None:
    """No value acts as a pattern; a tenant's listing holds its threads and no other's."""
    async with memory_engine.open(path) as engine:
        for value in HOSTILE:
            await engine.create_thread(f"{value}/u", tenant_id=value, user_id="u")
            await engine.create_thread(f"{value}/v", tenant_id=value, user_id="v")
        assert [[f"{value}/u", f"{value}/v"] for value in HOSTILE] == [await ids(engine, tenant_id=v) for v in HOSTILE]
        assert [f"{value}/u" for value in HOSTILE] == await ids(engine, user_id="u")
        assert [["%/v"], []] == [await ids(engine, tenant_id="%", user_id=user) for user in ("v", "%")]


async def test_a_limit_keeps_the_latest(path: str) -> None:
    """`limit=N` gives the latest N, oldest first."""
    async with memory_engine.open(path) as engine:
        for number in range(5):
            await engine.create_thread(str(number), kind="even" if number % 2 == 0 else "odd")
        found = [info.id for info in await engine.threads(kind="even", limit=2)]
        assert (["2", "4"], []) == (found, await engine.threads(limit=0))


async def test_the_latest_events_come_oldest_first(path: str) -> None:
    """`latest(n)` gives the last n, and `events` any span of seqs."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([say(str(n)) for n in range(1, 6)])
        spans = [
            [r.seq async for r in thread.events(after=a, upto=u)]
            for a, u in ((0, None), (3, 99), (1, 3), (9, 2), (-3, 1))
        ]
        assert ([4, 5], []) == ([r.seq for r in await thread.replay.latest(2)], await thread.latest(0))
        assert [[1, 2, 3, 4, 5], [4, 5], [2, 3], [], [1]] == spans


# Forks.


async def test_a_fork_goes_its_own_way(path: str) -> None:
    """It shares the past up to the cut; what either does afterwards is its own."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t", user_id="u", metadata={"k": "v"})
        await thread.dispatch_all([say("a"), say("b")])
        fork = await thread.fork(1, thread_id="f", metadata={"why": "what if"})
        await thread.dispatch(say("c"))
        await fork.dispatch(say("x"))
        info = await fork.info()
        assert (["a", "b", "c"], ["a", "x"]) == (await texts(thread), await texts(fork))
        assert ("u", {"k": "v", "why": "what if"}, 2) == (info.user_id, info.metadata, info.events)
        assert [True, True] == [report.ok for report in await engine.verify()]


async def test_forks_of_forks_read_one_history(path: str) -> None:
    """Each fork's log is whole, however often its past was cut."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("0")
        for depth in range(1, 6):
            await thread.dispatch_all([say(f"{thread.id}a"), say(f"{thread.id}b")])
            thread = await thread.fork(depth, thread_id=str(depth))
        assert ["0a", "1a", "2a", "3a", "4a"] == await texts(thread)
        assert [1, 2, 3, 4, 5] == [recorded.seq async for recorded in thread.events()]
        assert (await thread.replay.verify()).ok


async def test_a_fork_does_not_replay_the_branch_it_left(path: str) -> None:
    """Compactions after the cut are the parent's: the fork has the originals, and compacts for itself."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(turns(6))
        await thread.compact()
        fork = await thread.fork(6, thread_id="f")
        assert 6 == len(await fork.state())
        report = await fork.compact()
        assert (6, True, True) == (len(report.covered), (await fork.replay.verify()).ok, (await thread.verify()).ok)


async def test_a_fork_of_a_paused_thread_is_not_paused(path: str) -> None:
    """Its queue is its own."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        fork = await thread.fork()
        assert 2 == (await fork.dispatch(say("a"))).seq


@pytest.mark.parametrize("at", [-1, 2])
async def test_there_is_no_fork_beyond_the_log(path: str, at: int) -> None:
    """A cut where nothing is recorded is an error."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(say("a"))
        with pytest.raises(ValueError, match="has seqs 1 to 1"):
            await thread.fork(at)
        assert ["t"] == await ids(engine)


# Ends.


async def test_ephemeral_chunks_end_with_the_session(path: str) -> None:
    """What was there for the session goes, all else stays."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([say("a"), e.EnvironmentChange(content="rain"), e.SessionStarted(content="Be kind.")])
        await thread.admin.end_session("bye")
        assert ["a", "Be kind."] == await texts(thread)


async def test_an_archived_thread_takes_no_events(path: str) -> None:
    """Its log is read, its context shown, and a fork goes on."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(say("a"), event_id="x")
        await thread.admin.archive()
        with pytest.raises(errors.ThreadClosed):
            await thread.dispatch(say("b"))
        assert 1 == (await thread.dispatch(say("a"), event_id="x")).seq
        assert (["a"], "archived", True) == (
            await texts(thread),
            (await thread.info()).status,
            (await thread.replay.verify()).ok,
        )
        await (await thread.fork(thread_id="f")).dispatch(say("b"))
        assert ["t"] == [info.id for info in await engine.threads(status="archived")]


@pytest.mark.parametrize("end", ["archive", "delete"])
async def test_who_waits_in_a_thread_that_ends_is_told(path: str, end: str) -> None:
    """Events that wait in a paused thread are refused when it is archived or deleted."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread()
        await thread.admin.pause()
        sender = asyncio.create_task(thread.dispatch(say("a")))
        await asyncio.sleep(0)
        await (thread.admin.archive() if end == "archive" else thread.admin.delete())
        with pytest.raises(errors.ThreadError):
            await sender


async def test_an_archived_thread_stays_archived(tmp_path: Path) -> None:
    """Also for who opens the file next, and for an engine that had the thread open already."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as other:
        await (await one.create_thread("t")).dispatch(say("a"))
        await other.thread("t").dispatch(say("b"))
        await one.thread("t").admin.archive()
        for engine in (one, other):
            with pytest.raises(errors.ThreadClosed):
                await engine.thread("t").dispatch(say("c"))


async def test_a_deleted_thread_is_gone(path: str) -> None:
    """Nothing of it is listed or read, and its id is free."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(say("a"))
        await thread.admin.delete()
        with pytest.raises(errors.ThreadNotFound):
            await thread.dispatch(say("b"))
        assert ([], 0) == (await ids(engine), (await engine.stats()).events)
        assert 0 == (await (await engine.create_thread("t")).info()).events


async def test_a_thread_with_forks_is_not_deleted(path: str) -> None:
    """The forks live on its past; once they are gone, it can go."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(say("a"))
        fork = await thread.fork(thread_id="f")
        with pytest.raises(errors.ThreadHasForks, match="f"):
            await thread.admin.delete()
        await fork.admin.delete()
        await thread.admin.delete()
        assert [] == await ids(engine)


def files_with(folder: Path, text: bytes) -> list[str]:
    """The files that hold a text."""
    return [file.name for file in folder.iterdir() if text in file.read_bytes()]


async def test_a_deleted_threads_bytes_are_destroyed(tmp_path: Path) -> None:
    """After `delete` the file and its log hold nothing of what was said, small or spilled."""
    path = tmp_path / "log.db"
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t", user_id="SECRET user")
        await thread.dispatch(say("SECRET small"))
        await thread.dispatch(say("SECRET large" * 20_000))
        await thread.admin.delete()
        await engine.flush()
        assert [] == files_with(tmp_path, b"SECRET")


async def test_two_engines_share_one_file(tmp_path: Path) -> None:
    """Each takes up what the other wrote; nothing is lost and each thread is in order."""
    path = str(tmp_path / "log.db")
    never = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(path, config=never) as one, memory_engine.open(path, config=never) as other:
        await one.create_thread("t")
        engines = [one, other] * 20
        await asyncio.gather(*(engine.dispatch("t", say(f"{n}")) for n, engine in enumerate(engines)))
        said = [recorded.event async for recorded in one.thread("t").events()]
        assert {str(n) for n in range(40)} == {event.content for event in said if isinstance(event, e.UserMessage)}
        assert (40, True) == (len(said), (await other.thread("t").replay.verify()).ok)


async def test_threads_are_read_in_pages(path: str) -> None:
    """Each comes once, whatever is made and deleted on the way; wrong cursors are errors."""
    async with memory_engine.open(path) as engine:
        for n in range(5):
            await engine.create_thread(str(n), user_id="u")
        first = await engine.threads(user_id="u", after="", limit=2)
        await engine.thread("1").admin.delete()
        await engine.create_thread("5", user_id="u")
        second = await engine.threads(user_id="u", after=first[-1].id, limit=3)
        third = await engine.threads(user_id="u", after=second[-1].id, limit=3)
        assert [["0", "1"], ["2", "3", "4"], ["5"]] == [[info.id for info in page] for page in (first, second, third)]
        assert ["4", "5"] == [info.id for info in await engine.threads(limit=2)]
        with pytest.raises(errors.ThreadNotFound):
            await engine.threads(after="nobody")
        with pytest.raises(errors.InvalidArgument):
            await engine.threads(after=3)  # type: ignore[arg-type]


async def test_a_thread_is_there_for_whoever_made_it_while_others_looked_for_it(tmp_path: Path) -> None:
    """Those looked before it was made: that they found nothing is not what its maker is told."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:

        async def looked(thread_id: str) -> None:
            with suppress(errors.ThreadNotFound):
                await engine.thread(thread_id).state()

        async def made(thread_id: str) -> int:
            thread = await engine.open_thread(thread_id)
            return (await thread.dispatch(say("Hello"))).seq

        for thread_id in map(str, range(20)):
            *_, seq = await asyncio.gather(*(looked(thread_id) for _ in range(4)), made(thread_id))
            assert 1 == seq


async def test_large_threads_leave_memory_before_there_are_too_many(path: str) -> None:
    """Those used least recently go, as they were loaded and as others grow; the one that needs the room stays."""
    config = EngineConfig(open_bytes_max=150_000, compaction=NEVER)
    async with memory_engine.open(path, config=config) as engine:
        opened = kernel_of(engine)[OpenThreads]
        for n in range(4):
            thread = await engine.create_thread(f"t{n}")
            await thread.dispatch_all([say("word " * 200) for _ in range(30)])
        assert ["t2", "t3"] == [runtime.id for runtime in opened.all()]
        assert 30 == len(await texts(engine.thread("t0")))
        assert ["t3", "t0"] == [runtime.id for runtime in opened.all()]
        for _ in range(3):  # whoever waited for it to be loaded goes first
            await asyncio.sleep(0)
        await engine.thread("t3").dispatch_all([say("word " * 200) for _ in range(300)])
        assert ["t3"] == [runtime.id for runtime in opened.all()]
        assert [330, 30] == [len(await texts(engine.thread(one))) for one in ("t3", "t0")]
        await engine.thread("t0").dispatch(say("more"))
        assert ["t0"] == [runtime.id for runtime in opened.all()]


async def test_a_thread_may_leave_memory_while_it_is_rebuilt(path: str) -> None:
    """Others need the room, and it is loaded again meanwhile; what it was before is held no more."""
    async with memory_engine.open(path, config=EngineConfig(open_bytes_max=1)) as engine:
        thread, other = await engine.create_thread("t"), await engine.create_thread("other")
        await thread.dispatch_all([say(f"message {n}") for n in range(2_000)])
        rebuilding = asyncio.create_task(thread.replay.rebuild())
        while not rebuilding.done():
            await other.dispatch(say("more"))
            await thread.info()
        await rebuilding
        assert (await thread.replay.verify()).ok


async def test_what_another_process_adds_is_weighed_too(tmp_path: Path) -> None:
    """A thread that is only read grows with what others write to it."""
    path, config = str(tmp_path / "log.db"), EngineConfig(open_bytes_max=150_000)
    async with memory_engine.open(path) as writing, memory_engine.open(path, config=config) as reading:
        for name in ("t0", "t1"):
            await (await writing.create_thread(name, policy=NEVER)).dispatch(say("short"))
            assert 1 == len(await texts(reading.thread(name)))
        await writing.thread("t1").dispatch_all([say("word " * 200) for _ in range(300)])
        while len(await texts(reading.thread("t1"))) < 301:  # noqa: ASYNC110 - it looks now and then
            await asyncio.sleep(0.01)
        assert ["t1"] == [runtime.id for runtime in kernel_of(reading)[OpenThreads].all()]
