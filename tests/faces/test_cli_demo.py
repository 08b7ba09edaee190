"""The demo, as a stranger sees it first."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine.cli import story
from tests.command_line import Run


def test_the_demo_tells_its_story(run: Run, tmp_path: Path) -> None:
    """Three agents, their compactions, contexts and proofs; then what to try next."""
    path = str(tmp_path / "demo.db")
    code, out, err = run("demo", "--db", path)
    assert (0, "") == (code, err)
    for word in ("1/3 support", "2/3 coding", "3/3 datenanalyse", "compacted 2 times", "### ", "← event"):
        assert word in out
    assert 4 == out.count("every hash, operation and state is as recorded")
    assert "“Never email a tenant before I have read the text.” is still in front of the model" in out
    assert f"export MEMORY_ENGINE_DB={path}" in out
    assert out.endswith(f"memory-engine inspect --open --thread cold-store --seq 46 --db {path}\n")
    again = run("demo", "--db", path)[1]
    assert "dispatched again: all were here" in again
    assert again.partition("cold-store  ")[2].splitlines()[:5] == out.partition("cold-store  ")[2].splitlines()[:5]


def test_the_story_is_what_the_demo_says_of_it(run: Run, tmp_path: Path) -> None:
    """The events that it names are there, something for each tab of the inspector, and the times of three days."""
    path = str(tmp_path / "demo.db")
    run("demo", "--db", path)
    asyncio.run(told_in(path))


async def told_in(path: str) -> None:
    """Check the story in a database."""
    async with memory_engine.open(path) as engine:
        thread = engine.thread(story.THREAD)
        events = {event.seq: event async for event in thread.events()}
        assert story.RULE in str(events[story.TOLD].event)
        assert "-16" in str(events[story.ALARM].event)
        assert "-18" in str(events[story.CORRECTED].event)
        assert "5550199" not in str(events[story.ERASED].event)
        assert story.DAYS_AGO == len({event.recorded_at.date() for event in events.values()})
        wanted = "compaction_completed events_erased llm_subagent_spawn report_saved scratchpad_written tool_cache_hit"
        assert {event.type for event in events.values()} >= {*wanted.split(), "todo_set"}
        assert [story.USER] == [info.user_id for info in await engine.threads(kind="user")]


def test_the_demo_makes_a_database_of_its_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --db it writes to a new file, whatever the environment says."""
    monkeypatch.setenv("MEMORY_ENGINE_DB", str(tmp_path / "mine.db"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = json.loads(run("demo", "--json")[1])
    assert Path(found["db"]).is_file()
    assert [True] * 3 == [conversation["verified"] for conversation in found["conversations"]]
    assert not (tmp_path / "mine.db").exists()


def test_a_demo_refuses_a_database_with_other_threads_of_its_names(run: Run, tmp_path: Path) -> None:
    """What is in the way is named, and nothing is overwritten."""
    path = str(tmp_path / "x.db")
    other = tmp_path / "support.jsonl"
    other.write_text('{"role": "user", "content": "Hi"}\n', encoding="utf-8")
    run("ingest", str(other), "--db", path)
    code, _, err = run("demo", "--db", path)
    assert 2 == code
    assert "with other content" in err
    assert "give the demo a new database" in err
