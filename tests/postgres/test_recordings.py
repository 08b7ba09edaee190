"""Recorded conversations over a server: taken in, compacted, verified, shown and found as in a file.

The recordings are not part of the project; without them these tests are skipped and say so.
"""

import asyncio
import json
from pathlib import Path

import memory_engine
from memory_engine import Engine, Thread
from tests.command_line import Run
from tests.engine.test_real_conversations import RECORDINGS, faults, recorded

TAKEN = 12
"""The first conversations of a hundred."""
QUESTIONS = ("refund of the insurance", "which seats are free in economy", "baggage allowance of a gold member", "JFK")


def taken(tmp_path: Path) -> Path:
    """A file of some of the recordings."""
    path = tmp_path / "airline.json"
    path.write_text(json.dumps(json.loads(RECORDINGS.read_text(encoding="utf-8"))[:TAKEN]), encoding="utf-8")
    return path


async def seen(thread: Thread) -> object:
    """What an agent sees of a thread: its facts, its contexts and what it finds."""
    contexts = [(await thread.context(max_tokens=most)).messages for most in (2_000, 32_000)]
    return await thread.info(), contexts, [await thread.search(question) for question in QUESTIONS]


async def of_all(engine: Engine) -> dict[str, object]:
    """The same of each thread."""
    return {info.id: await seen(engine.thread(info.id)) for info in await engine.threads()}


@recorded
def test_recordings_are_taken_in_and_found_as_in_a_file(url: str, run: Run, tmp_path: Path) -> None:
    """Nothing is invalid or there twice, all of it verifies, and a copy in a file shows and finds the same."""
    words = ("ingest", str(taken(tmp_path)), "--db", url, "--window", "2500", "--json")
    first, again = (json.loads(run(*words)[1]) for _ in range(2))
    assert (TAKEN, 0, first["messages"]) == (len(first["threads"]), first["invalid"], first["added"])
    assert (0, first["messages"]) == (again["added"], again["known"])
    assert first["compactions"] > TAKEN // 3
    assert 0 < first["tokens_after"] < first["tokens_before"] / 3
    file = str(tmp_path / "airline.db")

    async def compared() -> None:
        async with memory_engine.open(url) as there, memory_engine.open(file) as here:
            assert (await there.copy_to(here)).ok
            shown = await of_all(there)
            assert await of_all(here) == shown
            for thread_id in shown:
                assert [] == faults((await there.thread(thread_id).context(max_tokens=8_000)).messages)

    asyncio.run(compared())
    verified = [json.loads(run("verify", "--db", place, "--json")[1]) for place in (url, file)]
    assert verified[0]["ok"]
    assert verified[0]["heads"] == verified[1]["heads"]
