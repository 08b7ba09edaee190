"""Opening an engine: awaited or entered, by any path, in one event loop after the other."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, UserMessage, errors
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


def test_one_run_after_the_other(tmp_path: Path) -> None:
    """An engine belongs to its event loop; what it wrote is there in the next."""

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


async def test_whatever_knows_its_path_is_a_path(tmp_path: Path) -> None:
    """In every call of the public face that takes one."""

    def place(name: str) -> Place:
        return Place(tmp_path / name)

    (tmp_path / "agent.md").write_text("# Returns\n", "utf-8")
    async with memory_engine.open(place("a.db")) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="Hello"))
        await thread.export(place("t.jsonl"))
        await engine.import_log(place("t.jsonl"), thread_id="u")
        await engine.export_all(place("all"))
        await engine.import_all(place("all"))
        await engine.backup(place("backup.db"))
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
            thread.export(path),  # type: ignore[arg-type]
            engine.backup(path),  # type: ignore[arg-type]
            engine.export_all(path),  # type: ignore[arg-type]
            engine.import_all(path),  # type: ignore[arg-type]
            engine.import_log(path),  # type: ignore[arg-type]
            engine.tenant("acme").agent_md.export(path),  # type: ignore[arg-type]
        ):
            with pytest.raises(errors.InvalidArgument, match="give a path"):
                await call
