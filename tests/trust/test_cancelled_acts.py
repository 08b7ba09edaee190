"""Acts on a store that are cancelled at every await: the store takes checkpoints, commits and further acts after it."""

import asyncio
import gc
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, UserMessage
from memory_engine.administration import proof
from memory_engine.engine import kernel_of
from memory_engine.storage.sqlite.wiping import Watch, emptied
from tests.cancelling import Call, assert_nobody_writes, by_task, moments
from tests.conversations import NEVER, opened
from tests.depth import DEEP
from tests.scripted_compactors import Yielding

SOON_S = 2.0
PROVED_EVERY = 1 if DEEP else 4
"""After so many cancelled acts another is done whole and proved; each next one shows that the last left nothing."""
SECRET = "the safe opens with 4471-Ostrava"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An act that nothing is in the way of waits for nobody; one that waits fails soon."""
    monkeypatch.setattr(proof, "WAIT_S", SOON_S)


def delete(_engine: Engine, thread: Thread, _target: Path) -> Call:
    """A thread whose bytes go."""
    return thread.admin.delete


def erase(_engine: Engine, thread: Thread, _target: Path) -> Call:
    """An event whose bytes go."""
    return lambda: thread.admin.erase(seqs=[1])


def compact(_engine: Engine, thread: Thread, _target: Path) -> Call:
    """A thread that gets shorter."""
    return thread.compact


def back_up(engine: Engine, _thread: Thread, target: Path) -> Call:
    """A copy of the file."""
    return lambda: engine.admin.backup(target)


def export(_engine: Engine, thread: Thread, target: Path) -> Call:
    """A thread's log as a file."""
    return lambda: thread.replay.export(target)


@pytest.mark.parametrize("act", [delete, erase, compact, back_up, export])
async def test_a_cancelled_act_breaks_nothing(tmp_path: Path, act: Callable[[Engine, Thread, Path], Call]) -> None:
    """Wherever it was cancelled, what is on record is finished, the log can be emptied, and the next act succeeds."""
    path = str(tmp_path / "memory.db")
    async with opened(Yielding(), NEVER, path) as engine:
        other = await engine.create_thread("other")
        for n, moment in enumerate(moments(growth=1.0)):
            thread = await engine.create_thread()
            await thread.dispatch_all([UserMessage(content=f"{SECRET}, says {n} of {k}") for k in range(3)])
            target = tmp_path / f"target-{n}"
            await by_task(act(engine, thread, target), moment)
            await engine.admin.finish_acts()
            assert_nobody_writes(path)
            assert [] == [one for one in await engine.admin.acts() if not one.done_at_us], moment
            receipt = await other.dispatch(UserMessage(content=f"{SECRET}, says the other {n}"))
            await engine.flush()
            with closing(sqlite3.connect(path, timeout=1)) as connection:
                assert emptied(connection), moment
            if n % PROVED_EVERY == 0:
                report = await other.admin.erase([receipt.event_id])
                assert report.proof is not None
                assert report.proof.ok, moment
        assert [] == [report for report in await engine.verify() if not report.ok]
        assert [] == await asyncio.to_thread(lambda: [*tmp_path.glob("*.part"), *tmp_path.glob(".*.part")])
    gc.collect()  # a file or a process that nobody closed would complain here, and a warning is an error


async def test_a_cancelled_wiping_leaves_nothing_open(tmp_path: Path) -> None:
    """Its reader and its program end, and so the log can be emptied and wiped again, though a caller keeps frames."""
    path = str(tmp_path / "memory.db")
    kept: list[BaseException] = []
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread()
        wipe = kernel_of(engine).store.wipe
        for n, moment in enumerate(moments()):
            await thread.dispatch(UserMessage(content=f"{SECRET} {n}"))

            async def call() -> None:
                try:
                    await wipe()
                except BaseException as error:  # kept as a caller might, with every local variable on the way
                    kept.append(error)
                    raise

            await by_task(call, moment)
            assert_nobody_writes(path)
            await engine.flush()
            with closing(sqlite3.connect(path, timeout=1)) as connection:
                assert emptied(connection), moment
        assert await wipe()
    assert kept
    gc.collect()


async def test_a_cancelled_deletion_goes_on_by_itself(tmp_path: Path) -> None:
    """Whoever asks for the act meanwhile gets the one outcome of it."""
    path = tmp_path / "memory.db"
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content=f"{SECRET} {n}") for n in range(20)])
        task = asyncio.create_task(thread.admin.delete(by="us"))
        while not (acts := await engine.admin.acts()):  # noqa: ASYNC110 - it ends within milliseconds
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        first, second = await asyncio.gather(engine.admin.finish_acts(), engine.finish_acts())
        assert [[acts[0].id], [acts[0].id]] == [[one.act for one in first], [one.act for one in second]]
        assert [True] == [one.proof is not None and one.proof.pieces > 0 and one.proof.ok for one in first]
        assert [True] == [bool(one.done_at_us) for one in await engine.admin.acts()]
        assert [] == await engine.admin.finish_acts()


async def test_closing_does_not_wait_for_an_act_that_a_reader_is_in_the_way_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The act is left to the next opening, which finishes it; the log says so."""
    monkeypatch.setattr(proof, "WAIT_S", 1000.0)
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path, config=EngineConfig(busy_timeout_s=0.2)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content=f"{SECRET} {n}") for n in range(20)])
        reader = Watch(path)
        task = asyncio.create_task(thread.admin.delete())
        while await engine.threads():  # noqa: ASYNC110 - it ends within milliseconds
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with caplog.at_level(logging.WARNING, "memory_engine"):
            await engine.close()
    assert ["the engine closes while" in one.getMessage() for one in caplog.records] == [True]
    reader.close()
    async with memory_engine.open(path) as engine:
        await engine.admin.finish_acts()
        assert [True] == [bool(one.done_at_us) for one in await engine.admin.acts()]
