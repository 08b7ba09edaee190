"""The inspector's what-ifs: run in memory, contexts side by side; and what it writes where it may."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

import memory_engine
from memory_engine import EngineConfig
from memory_engine.cli import main
from memory_engine.inspector import routes_what_if
from memory_engine.replay.what_if import Change, SkipEvent, try_change
from memory_engine.thread import handle_of
from tests.inspecting import Answer, Browser, inspected

SAMPLE = Path(memory_engine.__file__).parent / "cli" / "sample" / "coding.jsonl"
HEAD = 44
Data = dict[str, object]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with a recorded conversation."""
    path = str(tmp_path / "agent.db")
    assert 0 == main(["ingest", str(SAMPLE), "--db", path])
    assert 0 == main(["compact", "coding", "--db", path])
    return path


@asynccontextmanager
async def looking(path: str, *, write: bool = False) -> AsyncIterator[tuple[Browser, int]]:
    """A client of the inspector of a store that is open to be read, and the head of its thread."""
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        head = await handle_of(engine.thread("coding")).last_seq()
        async with inspected(engine, path, write=write) as browser:
            yield browser, head


async def tried(browser: Browser, upto: int, **change: object) -> Answer:
    """A what-if."""
    return await browser.api("what_if", {"thread": "coding", "upto": upto, "change": json.dumps(change)})


def error(answer: Answer) -> tuple[int, str, str]:
    """The status, the type and the words of what went wrong."""
    said = cast(dict[str, dict[str, str]], answer.data())["error"]
    return answer.status, said["type"], said["message"]


def digest(path: str) -> str:
    """The bytes of the file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


async def test_changes_are_run_in_memory_and_leave_no_trace(path: str) -> None:
    """An event, a policy, a compactor, a reducer less, an undone compaction: contexts of both, and the same file."""
    before = digest(path)
    async with looking(path) as (browser, head):
        offered = cast(Data, (await browser.api("options", {"thread": "coding"})).data())
        (done,) = cast(list[Data], offered["compactions"])
        other = {"type": "user_message", "payload": {"content": "Say <b>nothing</b>."}}
        changes: list[Data] = [
            {"edits": [{"do": "skip", "seq": 2}]},
            {"edits": [{"do": "replace", "seq": 2, "event": other}]},
            {"edits": [{"do": "insert", "seq": head, "event": other}]},
            {"policy": {"enabled": False}},
            {"compactor": "embedded", "policy": {"threshold": 8, "tokens_min": 0}},
            {"without": ["reduce_tool_result"]},
            {"undo": done["compaction_id"]},
        ]
        found = [cast(Data, (await tried(browser, head, **change)).data()) for change in changes]
        # the same as the engine says
        async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
            trial = await try_change(handle_of(engine.thread("coding")), Change(edits=[SkipEvent(2)]))
    assert all("pairs" in one for one in found), [one.get("error") for one in found]
    assert trial.as_data()["totals"] == found[0]["totals"]
    assert [1, 1, head] == [cast(int, one["shared"]) for one in found[:3]]
    last = cast(list[Data], found[2]["pairs"])[-1]
    assert (None, "Say <b>nothing</b>.") == (last["original"], cast(Data, last["fork"])["content"])
    tokens = [cast(dict[str, list[int]], one["contexts"])["tokens"] for one in found]
    assert tokens[3][1] > tokens[3][0] == tokens[0][0]
    assert tokens[6][1] > tokens[6][0]
    assert before == digest(path)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({}, "InvalidChange", "changes nothing"),
        ({"policy": {"threshold": 0}}, "WrongQuery", "threshold"),
        ({"policy": {"limit": 3}}, "WrongQuery", "no such field"),
        ({"compactor": "magic"}, "WrongQuery", "embedded"),
        ({"without": ["nothing"]}, "WrongQuery", "no such reducer"),
        ({"edits": [{"do": "burn", "seq": 1}]}, "WrongQuery", "an object"),
        ({"edits": [{"do": "replace", "seq": 3, "event": {"type": "x", "payload": {}}}]}, "WrongQuery", "'x'"),
        ({"edits": [{"do": "skip", "seq": 999}]}, "InvalidChange", "999"),
        ({"undo": "nothing"}, "CompactionNotLive", "none of this id"),
        ({"more": 1}, "WrongQuery", "more"),
    ],
)
async def test_a_change_that_cannot_be_made_says_why(path: str, change: Data, kind: str, said: str) -> None:
    """Each names what is wrong with it."""
    async with looking(path) as (browser, head):
        status, found, words = error(await tried(browser, head, **change))
    assert (kind, True) == (found, said in words)
    assert status in (400, 409)


async def test_what_takes_too_long_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole log of many events is left to the command line; a change near its end is not."""
    monkeypatch.setattr(routes_what_if, "EVENTS_MAX", 20)
    monkeypatch.setattr(routes_what_if, "_LOOK_BACK", 2)
    async with looking(path) as (browser, head):
        status, kind, words = error(await tried(browser, head, policy={"enabled": False}))
        near = await tried(browser, head, edits=[{"do": "skip", "seq": head - 5}])
    assert (409, "TooLong") == (status, kind)
    assert "memory-engine what-if" in words
    assert 200 == near.status


async def test_nothing_is_written_without_leave(path: str) -> None:
    """Acts are refused as any other method is, and the page is told that it only looks."""
    before = digest(path)
    async with looking(path) as (browser, _):
        for name in ("undo", "keep", "store"):
            answer = await browser.act(name, {"thread": "coding", "compaction": ""})
            assert (405, "GET, HEAD") == (answer.status, answer.headers["allow"])
        assert False is cast(Data, (await browser.api("store")).data())["may_write"]
    assert before == digest(path)


async def test_with_leave_a_compaction_is_undone_and_a_what_if_kept(path: str) -> None:
    """Only by a POST with the token in its header; what was written is there for everybody."""
    async with looking(path, write=True) as (browser, head):
        offered = cast(Data, (await browser.api("options", {"thread": "coding"})).data())
        (done,) = cast(list[Data], offered["compactions"])
        asked = {"thread": "coding", "compaction": done["compaction_id"]}
        body = json.dumps(asked).encode()
        assert 403 == (await browser.ask(f"/api/undo?token={browser.token}", {}, "POST", body)).status
        assert 403 == (await browser.ask("/api/undo", {"X-Token": "x"}, "POST", body)).status
        for method, target in (("POST", "/api/state"), ("PUT", "/api/undo"), ("OPTIONS", "/api/undo")):
            assert 405 == (await browser.ask(target, {"X-Token": browser.token}, method, body)).status
        assert 400 == (await browser.act("undo", {"thread": "coding"})).status
        undone = await browser.act("undo", asked)
        assert {"thread": "coding", "seq": head + 1} == {k: cast(Data, undone.data())[k] for k in ("thread", "seq")}
        assert 409 == (await browser.act("undo", asked)).status
        change = {"edits": [{"do": "skip", "seq": 2}]}
        kept = cast(Data, (await browser.act("keep", {"thread": "coding", "change": change, "upto": head})).data())
        state = cast(Data, (await browser.api("state", {"thread": kept["fork"], "seq": kept["head"]})).data())
        assert cast(int, state["total"]) > 0
    async with memory_engine.open(path) as engine:
        assert (await engine.thread("coding").replay.verify()).ok
        assert (await engine.thread(str(kept["fork"])).replay.verify()).ok
