"""Opening an engine: awaited or entered, by any path, in one event loop after the other."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import memory_engine
from memory_engine import CompactionPolicy, ConversationLimits, Engine, EngineConfig, Thread, UserMessage, errors
from memory_engine.testing import HashEmbedder


class Place(os.PathLike[str]):
    """Knows its path, and is neither a text nor a `pathlib.Path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


class Closed(HashEmbedder):
    """Says when it was closed."""

    closed = 0

    async def aclose(self) -> None:
        """Count."""
        self.closed += 1


async def test_an_engine_can_be_awaited_and_closed(tmp_path: Path) -> None:
    """What needs no block: a web application opens it when it starts, and closes it when it ends. Models go too."""
    embedder = Closed()
    engine = await memory_engine.open(tmp_path / "a.db", embedder=embedder)
    assert (f"Engine({str(tmp_path / 'a.db')!r})", Engine) == (repr(engine), type(engine))
    await (await engine.create_thread("t")).dispatch(UserMessage(content="Hello"))
    await engine.close()
    await engine.close()
    assert 1 == embedder.closed
    with pytest.raises(errors.EngineClosed):
        await engine.dispatch("t", UserMessage(content="more"))


async def test_an_awaited_engine_can_be_entered(tmp_path: Path) -> None:
    """The block closes it."""
    async with await memory_engine.open(tmp_path / "a.db") as engine:
        await engine.create_thread("t")
    with pytest.raises(errors.EngineClosed):
        await engine.dispatch("t", UserMessage(content="more"))


def test_nothing_is_made_before_it_is_awaited(tmp_path: Path) -> None:
    """What `open` gives may be kept, and left alone."""
    memory_engine.open(tmp_path / "a.db")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("place", [":memory:", "a.db"])
def test_an_engine_goes_on_in_the_next_run(tmp_path: Path, place: str) -> None:
    """Opened in one, used in others, closed in the last: also where tasks of each have waited for one another."""
    path = place if place == ":memory:" else str(tmp_path / place)
    config = EngineConfig(compaction=CompactionPolicy(tokens_min=0))

    async def begin() -> Engine:
        engine = await memory_engine.open(path, config=config)
        await use(engine, 1)
        return engine

    async def use(engine: Engine, run: int) -> None:
        threads = [await engine.open_thread(f"t{n}", user_id="u1") for n in range(5)]

        async def talk(thread: Thread) -> None:
            for n in range(22):
                await thread.dispatch(UserMessage(content=f"Invoice {n} is paid, and the next one will be late."))
            assert (await thread.search("which invoice is late")).hits
            assert (await engine.search("which invoice is late", user_id="u1")).hits
            await engine.user("u1").preferences.update(thread.id, run)

        await asyncio.gather(*map(talk, threads))
        for thread in threads:
            await thread.compaction.settle()
            kinds = [event.type async for event in thread.events()]
            assert (22 * run, run) == (kinds.count("user_message"), kinds.count("compaction_completed"))
            assert (await thread.replay.verify()).ok

    engine = asyncio.run(begin())
    for run in (2, 3):
        asyncio.run(use(engine, run))
    asyncio.run(engine.close())


def test_one_run_after_the_other(tmp_path: Path) -> None:
    """What one engine wrote is there for the next."""

    async def one(n: int) -> int:
        engine = await memory_engine.open(tmp_path / "a.db")
        thread = await engine.create_thread("t") if n == 0 else engine.thread("t")
        seq = (await thread.dispatch(UserMessage(content="Hello"))).seq
        await engine.close()
        return seq

    assert [1, 2, 3] == [asyncio.run(one(n)) for n in range(3)]


DROPPED = """
import asyncio, gc, sys
import memory_engine
from memory_engine import UserMessage

async def drop():
    engine = await memory_engine.open(sys.argv[1])
    thread = await engine.create_thread("t")
    await thread.dispatch_all([UserMessage(content="Hello")] * 3)
    await thread.dispatch(UserMessage(content="more"))

async def read():
    async with memory_engine.open(sys.argv[1]) as engine:
        print(len(await engine.thread("t").latest(9)), *[report.ok for report in await engine.verify()])

asyncio.run(drop())
gc.collect()
asyncio.run(read())
"""


def test_an_engine_that_nobody_closes_is_named_and_loses_nothing(tmp_path: Path) -> None:
    """A ResourceWarning says what to do; the process ends, and the next run reads all that was acknowledged."""
    words = (sys.executable, "-W", "default::ResourceWarning", "-c", DROPPED, str(tmp_path / "a.db"))
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "4 True\n" == ran.stdout
    assert f"ResourceWarning: Engine({str(tmp_path / 'a.db')!r}) was never closed: " in ran.stderr
    assert "await engine.close()" in ran.stderr
    assert "Traceback" not in ran.stderr


async def test_an_engine_in_memory_that_nobody_closes_does_not_say_that_anything_is_kept() -> None:
    """What it holds is gone with it."""
    engine = await memory_engine.open(":memory:")
    with pytest.warns(ResourceWarning, match="never closed: what it holds goes with it: call `await engine.close"):
        engine.__del__()
    await engine.close()


async def test_whatever_knows_its_path_is_a_path(tmp_path: Path) -> None:
    """In every call of the public face that takes one."""

    def place(name: str) -> Place:
        return Place(tmp_path / name)

    (tmp_path / "agent.md").write_text("# Returns\n", "utf-8")
    async with memory_engine.open(place("a.db")) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="Hello"))
        await thread.replay.export(place("t.jsonl"))
        await engine.transfer.import_log(place("t.jsonl"), thread_id="u", scopes="as exported")
        await engine.transfer.export_all(place("all"))
        await engine.transfer.import_all(place("all"), scopes="as exported")
        await engine.admin.backup(place("backup.db"))
        acme = engine.tenant("acme")
        await acme.agent_md.upload(place("agent.md"))
        await acme.agent_md.export(place("out.md"))
        assert 1 == len(await acme.documents.add(place("agent.md")))
        assert 0 == (await acme.documents.ingest([place("agent.md")])).added
        assert await acme.documents.get(place("agent.md"))
        assert 1 == await acme.documents.remove(place("agent.md"))
    await memory_engine.restore(place("backup.db"), place("b.db"))
    assert (tmp_path / "b.db").is_file()


@pytest.mark.parametrize("path", [5, b"a.db", "", "a\0.db", ["a.db"], {}])
async def test_what_is_not_a_path_is_named(path: object, tmp_path: Path) -> None:
    """By each call that takes one, and nothing is made."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        for call in (
            memory_engine.open(path),  # type: ignore[arg-type]
            memory_engine.restore(path, tmp_path / "a.db"),  # type: ignore[arg-type]
            thread.replay.export(path),  # type: ignore[arg-type]
            engine.admin.backup(path),  # type: ignore[arg-type]
            engine.transfer.export_all(path),  # type: ignore[arg-type]
            engine.transfer.import_all(path),  # type: ignore[arg-type]
            engine.transfer.import_log(path),  # type: ignore[arg-type]
            engine.tenant("acme").agent_md.export(path),  # type: ignore[arg-type]
        ):
            with pytest.raises(errors.InvalidArgument, match="give a path"):
                await call


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"compaction": None}, "CompactionPolicy(enabled=False) turns compaction off"),
        ({"compaction": {"threshold": 5}}, "give a CompactionPolicy"),
        ({"queue_capacity": "1024"}, "give a whole number from 1 on"),
        ({"queue_capacity": True}, "give a whole number from 1 on"),
        ({"follow_s": 0}, "give seconds above 0"),
        ({"busy_timeout_s": float("nan")}, "give a number"),
        ({"read_only": "no"}, "give True or False"),
        ({"conversation": None}, "give ConversationLimits"),
    ],
)
def test_a_wrong_setting_is_named_before_anything_is_opened(wrong: dict[str, Any], advice: str) -> None:
    """The error says which setting, what it was given and what to give."""
    with pytest.raises(errors.InvalidArgument) as caught:
        EngineConfig(**wrong)
    assert str(caught.value).startswith(next(iter(wrong)))
    assert advice in str(caught.value)
    with pytest.raises(errors.InvalidArgument, match="summary_bytes_max is 100: give that or less"):
        ConversationLimits(summary_bytes_max=100)
