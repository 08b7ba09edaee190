"""`log` prints what belongs together, what an event caused, and what comes, as it comes; `show` goes to any moment."""

import asyncio
import json
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine import LlmTextResponse, UserMessage, caused_by, correlated
from tests.command_line import Run
from tests.interruptible import python

ROOT = Path(__file__).resolve().parents[2]


async def fill(path: str) -> None:
    """Two threads in which an order is talked about, and one in which it is not."""
    async with memory_engine.open(path) as engine:
        for thread_id in ("shop", "carrier", "other"):
            await engine.create_thread(thread_id)
        with correlated("order-17"):
            receipt = await engine.thread("shop").dispatch(UserMessage(content="Where is it?"), event_id="asked")
            with caused_by(receipt):
                await engine.thread("carrier").dispatch(UserMessage(content="Where is FW-20871?"))
                await engine.thread("shop").dispatch(LlmTextResponse(content="I'll ask the carrier."))
            await engine.thread("carrier").dispatch(LlmTextResponse(content="In Kassel."))
        await engine.thread("other").dispatch(UserMessage(content="Hello"))


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database with these threads."""
    path = str(tmp_path / "m.db")
    anyio.run(fill, path)
    return path


def places(out: str) -> list[tuple[str, int]]:
    """Threads and seqs of what was printed as JSON."""
    return [(event["thread_id"], event["seq"]) for event in map(json.loads, out.splitlines())]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--correlation", "order-17"), [("shop", 1), ("carrier", 1), ("shop", 2), ("carrier", 2)]),
        (("--correlation", "order-17", "--limit", "2"), [("shop", 2), ("carrier", 2)]),
        (("--correlation", "order-17", "--type", "user_message"), [("shop", 1), ("carrier", 1)]),
        (("--correlation", "order-17", "--causation", "asked"), [("carrier", 1), ("shop", 2)]),
        (("carrier", "--correlation", "order-17"), [("carrier", 1), ("carrier", 2)]),
        (("carrier", "--correlation", "order-17", "--after", "1"), [("carrier", 2)]),
        (("shop", "--causation", "asked"), [("shop", 2)]),
        (("other", "--correlation", "order-17"), []),
        (("--correlation", "order-1%"), []),
    ],
)
def test_what_belongs_together_is_printed(run: Run, db: str, words: tuple[str, ...], expected: object) -> None:
    """Of all threads, or of one; narrowed as every log is."""
    code, out, _ = run("log", *words, "--db", db, "--json")
    assert (0, expected) == (code, places(out))


def test_events_of_several_threads_say_which(run: Run, db: str) -> None:
    """Each line begins with its thread."""
    lines = run("log", "--correlation", "order-17", "--db", db)[1].splitlines()
    assert ["shop", "carrier", "shop", "carrier"] == [line.split()[0] for line in lines]
    assert "Where is FW-20871?" in lines[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name a THREAD"),
        (("--correlation", "k", "--after", "1"), "name the THREAD"),
        (("shop", "--follow", "--after", "1", "--limit", "1"), "leave one of them out"),
        (("nobody",), "does not exist"),
    ],
)
def test_what_means_nothing_is_refused(run: Run, db: str, words: tuple[str, ...], why: str) -> None:
    """In one line, with what to do."""
    code, out, err = run("log", *words, "--db", db)
    assert (2, "", 1) == (code, out, err.count("\n"))
    assert why in err


@asynccontextmanager
async def following(db: str, *words: str) -> AsyncIterator[Process]:
    """A process that follows."""
    process = await asyncio.create_subprocess_exec(
        *python("-m", "memory_engine", "log", *words, "--follow", "--db", db),
        stdout=PIPE,
        stderr=PIPE,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line(process: Process) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


async def test_a_log_is_followed(db: str) -> None:
    """First what is there, as asked; then what another process writes, each line at once; Ctrl-C ends it with 130."""
    async with memory_engine.open(db) as engine, following(db, "shop", "--limit", "1", "--json") as process:
        assert 2 == json.loads(await line(process))["seq"]
        for n in range(3):
            await engine.thread("shop").dispatch(UserMessage(content=f"now {n}"))
            await engine.thread("other").dispatch(UserMessage(content="not this"))
            assert f"now {n}" == json.loads(await line(process))["payload"]["content"]
        process.send_signal(signal.SIGINT)
        assert 130 == await process.wait()


async def test_one_type_is_followed_for_people(db: str) -> None:
    """Lines of text, flushed one by one."""
    async with memory_engine.open(db) as engine, following(db, "other", "--type", "llm_text_response") as process:
        await engine.thread("other").dispatch_all([UserMessage(content="no"), LlmTextResponse(content="yes")])
        assert "yes" in await line(process)


async def test_what_belongs_together_is_followed_across_threads(db: str) -> None:
    """Also in threads that are made meanwhile; nothing is printed twice."""
    async with memory_engine.open(db) as engine, following(db, "--correlation", "order-17", "--json") as process:
        first = [json.loads(await line(process)) for _ in range(4)]
        fresh = await engine.create_thread("fresh")
        await fresh.dispatch(UserMessage(content="unrelated"))
        await fresh.dispatch(UserMessage(content="new"), correlation_id="order-17")
        await engine.thread("shop").dispatch(UserMessage(content="newer"), correlation_id="order-17")
        later = [json.loads(await line(process)) for _ in range(2)]
        assert ["shop", "carrier", "shop", "carrier"] == [event["thread_id"] for event in first]
        assert [("fresh", 2), ("shop", 3)] == [(event["thread_id"], event["seq"]) for event in later]


async def test_following_ends_with_the_thread(db: str) -> None:
    """When it is deleted the command says so and is done."""
    async with memory_engine.open(db) as engine, following(db, "other", "--json") as process:
        await line(process)
        await engine.thread("other").admin.delete()
        assert 0 == await process.wait()
        assert process.stderr is not None
        assert b"the thread was deleted\n" == await process.stderr.read()


async def test_a_reader_that_has_read_enough_ends_it(db: str) -> None:
    """A closed pipe is no error."""
    async with memory_engine.open(db) as engine, following(db, "other") as process:
        await line(process)
        process.stdout._transport.close()  # type: ignore[union-attr]  # what `| head -1` does
        await engine.thread("other").dispatch(UserMessage(content="more"))
        assert 0 == await process.wait()


def test_show_goes_to_any_moment(run: Run, db: str) -> None:
    """By seq, by an event's id, by a time; before the first event there is nothing."""
    recorded = json.loads(run("log", "shop", "--limit", "1", "--db", db, "--json")[1])["recorded_at"]
    found = [
        json.loads(run("show", "shop", "--at", at, "--db", db, "--json")[1])["seq"]
        for at in ("0", "1", "asked", recorded, "2020-01-01", "2100-01-01T00:00:00+02:00")
    ]
    assert [0, 1, 1, 2, 0, 2] == found
    assert 2 == run("show", "shop", "--at", "nothing", "--db", db)[0]


def test_looking_writes_nothing(run: Run, db: str) -> None:
    """No command that looks leaves anything behind, not even what it could have mended."""
    before = Path(db).read_bytes()
    for words in (("threads",), ("stats",), ("log", "shop"), ("log", "--correlation", "order-17"), ("show", "shop")):
        assert 0 == run(*words, "--db", db)[0]
    assert before == Path(db).read_bytes()
