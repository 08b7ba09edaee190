"""`memory_engine.sync`: the public face for code that does not await, whole and with the same signatures."""

import ast
import asyncio
import inspect
import multiprocessing
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage, correlated, errors, sync
from memory_engine.administration.of_thread import Replay
from memory_engine.moved import where_now
from memory_engine.sync.facade import ASKED_IN_A_THREAD, HOMES, LEFT_OUT, MADE_BY_HAND, left_out, sync_class
from memory_engine.views.tool_cache.view import ToolCache as AsyncToolCache
from tests.interruptible import python
from tests.patience import PATIENCE_S
from tests.sync_stub import STUB, stubs

HELLO = UserMessage(content="Hello")


# its shape


def test_the_stub_is_fresh() -> None:
    """What type checkers read is made of the classes as they are now."""
    assert stubs()[STUB] == STUB.read_text("utf-8"), "python3 tasks.py sync"


@pytest.mark.parametrize("name", HOMES)
def test_nothing_is_missing(name: str) -> None:
    """Each public member is there, under its signature; what is left out is named, and is there to be left out."""
    handle = sync_class(name)
    kind = handle.stands_for
    assert handle is getattr(sync, name)
    for member in (one for one in dir(kind) if not one.startswith("_")):
        there, here = (inspect.getattr_static(one, member, None) for one in (kind, handle))
        if member in left_out(kind):
            assert here is None
        elif isinstance(there, property):
            assert isinstance(here, property)
            assert there.__doc__ == here.__doc__
        elif member != "close":
            assert inspect.signature(getattr(kind, member)) == inspect.signature(getattr(handle, member)), member
            assert not inspect.iscoroutinefunction(here)
    for member in LEFT_OUT.get(name, ()):
        assert hasattr(kind, member) or where_now(kind, member), "an exception that nothing needs any more"


def test_whatever_waits_has_a_handle() -> None:
    """Of the classes that the face speaks of, those with coroutines of their own are handles, or protocols of yours."""
    for node in ast.walk(ast.parse(STUB.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module != "memory_engine.engine":
            for kind in (getattr(import_module(node.module or ""), alias.name) for alias in node.names):
                members = vars(kind).items() if inspect.isclass(kind) and not hasattr(kind, "_is_protocol") else ()
                assert [] == [f"{kind}.{name}" for name, held in members if inspect.iscoroutinefunction(held)]


def test_the_exceptions_name_what_is_there() -> None:
    """Methods that ask functions of yours, and classes that you make."""
    assert ASKED_IN_A_THREAD["bisect"] in inspect.signature(Replay.bisect).parameters
    assert ASKED_IN_A_THREAD["cached_call"] in inspect.signature(AsyncToolCache.cached_call).parameters
    assert set(HOMES) >= MADE_BY_HAND
    assert {*HOMES, "open", "restore"} == set(getattr(sync, "__all__"))  # noqa: B009 - of the module, not of its types


# what it does


def test_a_day_with_it(tmp_path: Path) -> None:
    """Threads, scopes, views and the past, without a loop."""
    with sync.open(tmp_path / "a.db") as engine:
        thread = engine.create_thread("t", user_id="u1", tenant_id="acme")
        assert 1 == thread.dispatch(HELLO).seq
        assert ("t", None, thread.id) == (engine.thread("t").id, thread.as_of, "t")
        thread.scratchpad.write("Revenue dips every Sunday")
        engine.user("u1").preferences.update("tone", "dry")
        assert "dry" == engine.user("u1").preferences.get("tone")
        assert [1, 2] == [event.seq for event in thread.events()]
        past = thread.at(1)
        assert (1, 1, sync.Past) == (past.seq, past.info().events, type(past))
        assert isinstance(past, sync.Thread)
        assert 2 == thread.replay.bisect(lambda then: len(then.scratchpad.read()) == 1).seq
        assert "1.0" in str(thread.replay.why("1.0"))
        assert engine.stats().events == engine.call(lambda engine: engine.stats()).events
    with pytest.raises(errors.EngineClosed):
        thread.info()


def test_a_log_longer_than_one_fetch_comes_whole() -> None:
    """Iterating stops where you stop, and goes to the end where you do not."""
    with sync.open(":memory:") as engine:
        thread = engine.create_thread(policy=memory_engine.CompactionPolicy(enabled=False))
        thread.dispatch_all([HELLO] * 250)
        assert list(range(1, 251)) == [event.seq for event in thread.events()]
        assert 1 == next(iter(thread.events())).seq
        with pytest.raises(errors.InvalidArgument):
            list(thread.events(after="x"))  # type: ignore[arg-type]


def test_following_sees_what_other_threads_write() -> None:
    """Each event once, as it comes."""
    with sync.open(":memory:") as engine:
        thread = engine.create_thread("t")
        with ThreadPoolExecutor(1) as pool:
            following = thread.follow()
            coming = pool.submit(lambda: [next(following).seq for _ in range(3)])
            for _ in range(3):
                thread.dispatch(HELLO)
            assert [1, 2, 3] == coming.result()


def test_blocks_that_await_are_blocks() -> None:
    """A response that streams in, and a run of an agent; what the block sets is set."""
    with sync.open(":memory:") as engine:
        thread = engine.create_thread("t")
        delta = {"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        with thread.recording("openai.chat") as turn:
            turn.feed({"object": "chat.completion.chunk", "id": "r1", "choices": [delta]})
        assert ("Hi", 1) == (turn.text, len(turn.receipts))
        with sync.AgentLifecycle(engine, thread, agent_id="a").run("count the parcels") as run:
            run.result = "The parcel count is 17."
        assert [] == [event for event in thread.events() if "abandoned" in event.type]
        with pytest.raises(ZeroDivisionError), sync.AgentLifecycle(engine, thread, agent_id="a").run("divide") as run:
            run.result = str(1 / 0)
        assert "task_abandoned" in [event.type for event in thread.events()]
        assert not sync.MemoryTools(thread).call("memory_stats").is_error


def test_functions_of_yours_may_use_handles() -> None:
    """A tool whose result is cached runs beside the loop, which it may ask."""
    with sync.open(":memory:") as engine:
        cache = engine.create_thread("t").tool_cache
        found = cache.cached_call("count", {}, lambda: str(engine.thread("t").info().events), duration=2)
        assert ("0", False) == (found.result, found.hit)
        assert cache.cached_call("count", {}, lambda: "another", duration=2).hit


def test_an_observer_that_would_wait_for_itself_is_told() -> None:
    """It runs in the loop: a call from there would never end."""
    heard: list[BaseException] = []

    def observe(_event: memory_engine.RecordedEvent) -> None:
        with pytest.raises(RuntimeError, match="cannot wait for the engine") as raised:
            engine.stats()
        heard.append(raised.value)

    with sync.open(":memory:") as engine:
        end = engine.observe(observe)
        thread = engine.create_thread("t")
        thread.dispatch(HELLO)
        end()
        thread.dispatch(HELLO)
    assert 1 == len(heard)


def test_what_surrounds_a_call_goes_with_it() -> None:
    """Correlation ids of a block."""
    with sync.open(":memory:") as engine:
        with correlated("order-17"):
            engine.create_thread("t").dispatch(HELLO)
        assert ["order-17"] == [event.correlation_id for event in engine.correlated("order-17")]


def test_what_it_is_made_of_is_checked() -> None:
    """A handle comes from an engine, an agent's life from handles, and a typing error is an error of ours."""
    with pytest.raises(TypeError, match="comes from an engine"):
        sync.Thread()
    with pytest.raises(TypeError, match="made of handles"):
        sync.MemoryTools(5)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument):
        sync.open(5)  # type: ignore[arg-type]
    with sync.open(":memory:") as engine, pytest.raises(AttributeError, match="no attribute 'kernel'"):
        _ = engine.kernel  # type: ignore[attr-defined]


# where it runs


async def test_a_loop_that_runs_already_is_no_hindrance() -> None:
    """A notebook's cell."""
    assert asyncio.get_running_loop().is_running()
    with sync.open(":memory:") as engine:
        assert 1 == engine.create_thread("t").dispatch(HELLO).seq


def test_many_threads_and_two_engines(tmp_path: Path) -> None:
    """They share one loop; it ends with the last engine."""
    before = threading.active_count()
    with sync.open(tmp_path / "a.db") as one, sync.open(tmp_path / "b.db") as other:
        one.create_thread("t"), other.create_thread("t")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: (one, other)[n % 2].dispatch("t", HELLO), range(40)))
        assert [20, 20] == [engine.thread("t").info().events for engine in (one, other)]
        with sync.open(tmp_path / "c.db") as third:
            one.thread("t").replay.export(tmp_path / "t.jsonl")
            assert 20 == one.copy_to(third).events
            one.close()
            assert 20 == third.thread("t").info().events
    assert before == threading.active_count()


def forked(told: "multiprocessing.queues.Queue[object]", engine: sync.Engine, path: Path) -> None:
    """A worker: the engine of its parent refuses, its own works."""
    try:
        engine.stats()
    except errors.EngineForked as error:
        told.put(str(error))
    engine.close()
    with sync.open(path) as own:
        told.put(own.dispatch("t", HELLO).seq)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there is no fork on Windows")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_worker_opens_its_own(tmp_path: Path) -> None:
    """The parent's engine says so at once; the parent goes on with it."""
    fork = multiprocessing.get_context("fork")
    told = fork.Queue()
    with sync.open(tmp_path / "a.db") as engine:
        engine.create_thread("t").dispatch(HELLO)
        worker = fork.Process(target=forked, args=(told, engine, tmp_path / "a.db"))
        worker.start()
        assert "open one in each process" in told.get(timeout=PATIENCE_S)
        assert 2 == told.get(timeout=PATIENCE_S)
        worker.join()
        assert 3 == engine.dispatch("t", HELLO).seq


def opening(told: "multiprocessing.queues.Queue[object]", path: Path) -> None:
    """A worker that opens an engine of its own."""
    with sync.open(path) as own:
        told.put(own.dispatch("t", HELLO).seq)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there is no fork on Windows")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_worker_that_is_forked_while_the_parent_reads_and_writes_does_not_hang(tmp_path: Path) -> None:
    """SQLite is at rest at each fork: no lock of the process stays taken in the child."""
    fork = multiprocessing.get_context("fork")
    told = fork.Queue()
    with sync.open(tmp_path / "a.db") as engine:
        thread = engine.create_thread("t")
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                thread.dispatch(HELLO)
                list(thread.events())

        working = threading.Thread(target=work)
        working.start()
        workers = [fork.Process(target=opening, args=(told, tmp_path / "a.db"), daemon=True) for _ in range(12)]
        try:
            for worker in workers:
                worker.start()
                assert told.get(timeout=PATIENCE_S)
                worker.join()
        finally:
            done.set()
            working.join()
            for worker in workers:
                worker.kill() if worker.pid else None


UNCLOSED = """
import sys
from memory_engine import UserMessage, sync
engine = sync.open(sys.argv[1])
print(engine.create_thread("t").dispatch(UserMessage(content="Hello")).seq)
"""
INTERRUPTED = """
import sys
from memory_engine import UserMessage, sync
with sync.open(":memory:") as engine:
    thread = engine.create_thread("t")
    try:
        print("waiting", flush=True)
        next(thread.follow())
    except KeyboardInterrupt:
        print(thread.dispatch(UserMessage(content="Hello")).seq)
"""


def test_python_ends_what_nobody_closed(tmp_path: Path) -> None:
    """The file is closed as by `close`, without a warning."""
    words = (sys.executable, "-W", "error", "-c", UNCLOSED, str(tmp_path / "a.db"))
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ("1\n", "") == (ran.stdout, ran.stderr)
    assert ["a.db", "a.db.lock"] == sorted(path.name for path in tmp_path.iterdir())


def test_ctrl_c_ends_the_waiting_and_not_the_engine() -> None:
    """What was waited for is cancelled; the engine goes on."""
    with subprocess.Popen(python("-c", INTERRUPTED), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert "waiting\n" == child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert "1\n" == child.stdout.read()
    assert 0 == child.returncode
