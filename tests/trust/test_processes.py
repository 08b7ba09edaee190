"""Processes that share a file take turns, and what one leaves behind when it dies stands in nobody's way."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.errors import StorageBusy, StoreReplaced
from memory_engine.storage.sqlite import locking
from memory_engine.storage.sqlite.locking import FileLock

LONG_S = 60.0
"""Longer than any test: what waits for it does not wait for time to pass."""
linux = pytest.mark.skipif(sys.platform != "linux", reason="chance decides where the kernel keeps no line")
HOLDER = """
import os, sys, time
from memory_engine.storage.sqlite.locking import FileLock
lock = FileLock(sys.argv[1], 5.0)
lock.__enter__()
if os.fork() == 0:
    print("forked", flush=True)
    time.sleep(60)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "m.db")


@pytest.fixture
def lock(path: str) -> Iterator[Callable[[float], FileLock]]:
    """Opens the lock of the file, as one process more would."""
    with ExitStack() as opened:
        yield lambda timeout_s: opened.enter_context(closing(FileLock(path, timeout_s)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_that_is_forked_off_draws_its_own_salts() -> None:
    """What the parent has drawn ahead, it gives to nobody else."""
    program = """
import os
from memory_engine.core.ids import RandomIds
ids = RandomIds()
ids.salt()
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*(ids.salt().hex() for _ in range(300)), flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    salts = done.stdout.split()
    assert 600 == len(salts) == len(set(salts))


@linux
def test_who_waits_comes_before_who_was_there(lock: Callable[[float], FileLock]) -> None:
    """A process that releases the lock and wants it again stands behind those that waited for it."""
    ours, theirs = lock(LONG_S), lock(LONG_S)
    order: list[str] = []

    def wait() -> None:
        with theirs:
            order.append("who waited")

    with ours:
        waiting = threading.Thread(target=wait)
        waiting.start()
        while ours.is_wanted is False:
            pass
    with ours:
        order.append("who was there")
    waiting.join()
    assert ["who waited", "who was there"] == order


def test_a_lock_is_kept_until_its_holder_comes_again(lock: Callable[[float], FileLock]) -> None:
    """Who has to do again what others were ahead of finds none of them in its way."""
    ours, theirs = lock(LONG_S), lock(0.0)
    with ours:
        ours.keep(LONG_S)
    with pytest.raises(StorageBusy), theirs:
        pass
    with ours:
        pass
    with theirs:
        pass


def test_a_lock_is_not_kept_for_long(lock: Callable[[float], FileLock]) -> None:
    """A process that does not come again lets the others go on, without doing anything."""
    ours, theirs = lock(LONG_S), lock(LONG_S)
    with ours:
        ours.keep(0.001)
    with theirs:
        pass


def test_a_lock_seems_kept_until_it_is_let_go(
    lock: Callable[[float], FileLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that begins while the time runs out waits for that: else its lock would be let go behind its back."""
    ours, entered, go_on, ended = lock(LONG_S), threading.Event(), threading.Event(), threading.Event()
    let_go = locking._unlock

    def slowly(descriptor: int) -> None:
        entered.set()
        assert go_on.wait(LONG_S)
        let_go(descriptor)
        ended.set()

    with ours:
        ours.keep(0.01)
    monkeypatch.setattr(locking, "_unlock", slowly)
    assert entered.wait(LONG_S)
    threading.Timer(0.05, go_on.set).start()
    with ours:
        monkeypatch.undo()
        assert ended.wait(LONG_S)
        assert not lock(0.0).try_enter()


def test_a_lock_that_is_closed_is_kept_no_longer(lock: Callable[[float], FileLock]) -> None:
    """Closing releases it."""
    ours, theirs = lock(LONG_S), lock(0.0)
    with ours:
        ours.keep(LONG_S)
    ours.close()
    with theirs:
        pass


def test_a_forked_child_does_not_hold_the_lock_of_a_dead_parent(path: str) -> None:
    """A process is killed in the middle of a commit; the child that it has forked off lives on."""
    with Popen([sys.executable, "-c", HOLDER, path], stdout=PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        try:
            parent.kill()
            parent.wait()
            with closing(FileLock(path, 0.0)) as ours, ours:
                pass
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


async def test_two_engines_write_to_one_thread_by_turns(path: str) -> None:
    """Each event is applied to what the other engine has written, once it was seen that it has."""
    async with memory_engine.open(path) as one, memory_engine.open(path) as other:
        await one.create_thread("t")
        for n in range(4):
            await one.dispatch("t", UserMessage(content=f"one {n}"))
            await other.dispatch("t", UserMessage(content=f"other {n}"))
        assert [f"{who} {n}" for n in range(4) for who in ("one", "other")] == await said(other)
        assert [] == [report for report in await one.verify() if not report.ok]


def moved(path: str, to: str = "") -> None:
    """Move a file, or remove it, if it is there."""
    file = Path(path)
    if file.exists() and to:
        file.replace(to)
    elif file.exists():
        file.unlink()


async def said(engine: Engine) -> list[str]:
    """The texts of the thread `t`."""
    return [chunk.text for chunk in (await engine.thread("t").state()).chunks()]


async def opened_and_said(engine: Engine, *texts: str) -> Engine:
    """An engine whose thread `t` has these messages."""
    thread = await engine.create_thread("t")
    for text in texts:
        await thread.dispatch(UserMessage(content=text))
    return engine


async def test_nothing_is_acknowledged_for_a_file_that_is_gone(path: str) -> None:
    """A store whose file was removed says so at the next event, and shows what it held."""
    async with memory_engine.open(path) as engine:
        await opened_and_said(engine, "there")
        moved(path)
        for _ in range(2):
            with pytest.raises(StoreReplaced, match=r"m\.db: it was removed while it was open"):
                await engine.dispatch("t", UserMessage(content="lost"))
        assert ["there"] == await said(engine)


async def test_nothing_is_written_over_a_file_that_took_its_place(path: str, tmp_path: Path) -> None:
    """A backup is put in place under a running engine: what it holds stays as it is, also when the engine closes."""
    backup = str(tmp_path / "backup.db")
    async with memory_engine.open(backup) as engine:
        await opened_and_said(engine, "in the backup")
    async with memory_engine.open(path) as engine:
        await opened_and_said(engine, "there")
        for end in ("-wal", "-shm"):
            moved(path + end)
        moved(backup, path)
        with pytest.raises(StoreReplaced, match="another file took its place"):
            await engine.dispatch("t", UserMessage(content="lost"))
        with pytest.raises(StoreReplaced):
            await engine.create_thread("u")
    async with memory_engine.open(path) as engine:
        assert ["in the backup"] == await said(engine)
        assert [] == [report for report in await engine.verify() if not report.ok]


async def test_a_file_that_is_put_back_is_written_on(path: str) -> None:
    """Once the store is opened again, everything that was acknowledged is there."""
    async with memory_engine.open(path) as engine:
        await opened_and_said(engine, "there")
        for end in ("", "-wal"):
            moved(path + end, path + end + ".away")
        with pytest.raises(StoreReplaced):
            await engine.dispatch("t", UserMessage(content="lost"))
    for end in ("", "-wal"):
        moved(path + end + ".away", path + end)
    async with memory_engine.open(path) as engine:
        await engine.dispatch("t", UserMessage(content="here"))
        assert ["there", "here"] == await said(engine)


async def test_a_lock_that_was_removed_is_made_anew(path: str) -> None:
    """Processes that opened the file before and after its lock was tidied away keep out of each other's way."""
    async with memory_engine.open(path) as engine:
        await opened_and_said(engine, "there")
        moved(path + ".lock")
        with closing(FileLock(path, 0.0)) as ours, ours:
            pass
        await engine.dispatch("t", UserMessage(content="here"))
        assert ["there", "here"] == await said(engine)
