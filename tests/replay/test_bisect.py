"""Finding the event after which something holds."""

import hashlib
import json
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import EngineConfig, errors
from memory_engine import events as e
from memory_engine.replay.bisect import bisect
from memory_engine.testing import ManualClock
from memory_engine.thread import Past, handle_of
from tests.command_line import Run
from tests.conversations import NEVER, SMALL, opened, say, turns
from tests.scripted_compactors import Scripted, a_line_each


@settings(max_examples=30)
@given(st.integers(1, 40), st.data())
async def test_it_finds_the_event(count: int, data: st.DataObject) -> None:
    """Between any two moments, in as many questions as the events between them can be halved, and two."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(turns(count))
        after = data.draw(st.integers(0, count - 1))
        upto = data.draw(st.integers(after + 1, count))
        first = data.draw(st.integers(after + 1, upto))
        found = await thread.replay.bisect(lambda past: past.seq >= first, after=after, upto=upto)
        assert (first, first) == (found.seq, found.event.seq)
        assert all(held == (seq >= first) for seq, held in found.asked)
        assert [after, upto] == [seq for seq, _ in found.asked[:2]]
        assert len(found.asked) <= 2 + (upto - after - 1).bit_length()
        assert (first - 1, first) == (found.change.a.seq, found.change.b.seq)
        assert [f"{first}.0"] == [chunk.id for chunk in found.change.added]
        assert json.dumps(found.as_data())


async def test_the_predicate_may_be_either_colour_and_read_anything() -> None:
    """A function, a coroutine function; of the state, the context, a view."""
    async with opened(Scripted(a_line_each), SMALL) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(9))

        async def is_compacted(past: Past) -> bool:
            return any(chunk.type == "compacted" for chunk in (await past.state()).chunks())

        async def says_word7(past: Past) -> bool:
            return "word7" in str((await past.context()).messages)

        assert "compaction_completed" == (await thread.replay.bisect(is_compacted)).event.type
        assert "word7" in str((await thread.replay.bisect(says_word7)).event.event)
        user = engine.user("u1")
        for n in range(5):
            await user.preferences.update("a", n)

        async def is_over_2(past: Past) -> bool:
            rows = await past.views.read("preferences")
            return any(getattr(row, "value", 0) > 2 for row in rows.values())

        found = await user.replay.bisect(is_over_2)
        assert 4 == found.seq
        assert {"preferences"} == set(found.change.views or {})


@pytest.mark.parametrize(
    ("after", "upto", "why"),
    [
        (0, 3, "does not hold at 3"),
        (8, 9, "holds at 8 already"),
        (5, 5, "no event between"),
        (6, 2, "no event between"),
    ],
)
async def test_where_nothing_turns(after: int, upto: int, why: str) -> None:
    """It must not hold at the beginning, and hold at the end; else an error says which of the two."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(9))
        with pytest.raises(errors.NothingToBisect, match=why):
            await thread.replay.bisect(lambda past: past.seq >= 5, after=after, upto=upto)
        with pytest.raises(errors.SeqNotInLog):
            await thread.replay.bisect(lambda _past: True, upto=10)
        other = await engine.create_thread()
        with pytest.raises(errors.NothingToBisect, match="the first is of thread"):
            await bisect(handle_of(await other.at(0)), handle_of(await thread.at(9)), lambda _past: True)


async def test_an_error_of_the_predicate_names_the_seq() -> None:
    """What it raises is the cause of a typed error; so is an attempt to write."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(9))
        with pytest.raises(errors.PredicateFailed, match=r"after event 4, .* ZeroDivisionError") as caught:
            await thread.replay.bisect(lambda past: past.seq == 9 or (bool(1 / (past.seq - 4)) and False))
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

        async def writes(past: Past) -> bool:
            await past.dispatch(e.UserMessage(content="x"))
            return True

        with pytest.raises(errors.PredicateFailed, match="PastIsReadOnly"):
            await thread.replay.bisect(writes)


async def test_moments_may_be_named_in_any_way(tmp_path: Path) -> None:
    """By seq, by an event's id, by a time; also of an archived thread, and of a fork. Progress counts the questions."""
    clock = ManualClock()
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path), config=EngineConfig(compaction=NEVER), clock=clock) as engine:
        thread = await engine.create_thread("t")
        for n in range(9):
            clock.advance(1)
            await thread.dispatch(e.UserMessage(content=f"n{n}"), event_id=f"e{n}")
        times = [event.recorded_at async for event in thread.events()]
        fork = await thread.fork(7, thread_id="f")
        assert 6 == (await fork.replay.bisect(lambda past: past.seq > 5)).seq
        await thread.admin.archive()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    async with memory_engine.open(str(path), config=EngineConfig(read_only=True)) as engine:
        counts: list[int] = []
        found = await engine.thread("t").replay.bisect(
            lambda past: past.seq >= 5, after="e1", upto=times[6], progress=counts.append
        )
        assert ("e4", [2, 7]) == (found.event.id, [seq for seq, _ in found.asked[:2]])
        assert list(range(1, len(found.asked) + 1)) == counts
    assert before == hashlib.sha256(path.read_bytes()).hexdigest()


# the command line


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A conversation of nine messages whose beginning was compacted, and a user with preferences."""
    path = str(tmp_path / "m.db")

    async def fill() -> None:
        async with opened(Scripted(a_line_each), SMALL, path) as engine:
            thread = await engine.create_thread("t")
            await say(thread, [*turns(4), *turns(1, start=5)])
            for n in range(3):
                await engine.user("u").preferences.update("n", n)

    anyio.run(fill)
    return path


@pytest.mark.parametrize(
    ("thread", "expression", "seq"),
    [
        ("t", "any(chunk.type == 'compacted' for chunk in chunks)", 6),
        ("t", "[c.id for c in chunks if 'word3' in c.text] != []", 3),
        ("t", "'word2' in text", 2),
        ("t", "'word5' in context", 7),
        ("t", "tokens > 0", 1),
        ("t", " state.seq > 3\n", 4),
        ("t", "seq >= 2", 2),
        ("t", "event is not None and event.seq > 4", 5),
        ("t", "(lambda n: seq > n)(2)", 3),
        ("user:u", "view('preferences').get('n', {}).get('value') == 2", 3),
    ],
)
def test_expressions(database: str, run: Run, thread: str, expression: str, seq: int) -> None:
    """Every name that an expression may use."""
    code, out, err = run("bisect", thread, "--expr", expression, "--db", database, "--json")
    assert (0, "") == (code, err)
    found = json.loads(out)
    assert (seq, seq) == (found["seq"], found["event"]["seq"])
    assert [0, False] == found["asked"][0]
    assert seq == found["change"]["b"]["seq"]


def test_what_people_see(database: str, run: Run) -> None:
    """The event, what was asked, and what the event changed."""
    code, out, _ = run("bisect", "t", "--expr", "'compacted' in [c.type for c in chunks]", "--db", database)
    lines = out.splitlines()
    assert (0, True) == (code, lines[0].startswith("it holds from event 6 on: compaction_completed, "))
    assert [["STEP", "AFTER", "EVENT", "HOLDS"], ["1", "0", "no"], ["2", "7", "yes"]] == [
        line.split() for line in lines[2:5]
    ]
    assert lines[8].startswith("t, event 5 → event 6: ")
    assert any("stands for 4 chunks" in line for line in lines)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "not a Python expression"),
        ("seq >", "not a Python expression"),
        ("x = 1", "not a Python expression"),
        ("await seq", "not a Python expression"),
        ("seq\0", "not a Python expression"),
        ("(" * 500 + ")" * 500, "not a Python expression"),
        ("nothing > 1", "NameError"),
        ("1 / seq", "after event 0 it raised ZeroDivisionError"),
        ("view('nothing')", "nothing"),
        ("view(name)", "in quotes"),
        ("view('a', 'b')", "in quotes"),
        ("True", "holds at 0 already"),
        ("False", "does not hold at 7"),
        ("exit()", "SystemExit"),
    ],
)
def test_expressions_that_cannot_be(database: str, run: Run, expression: str, why: str) -> None:
    """One line that says why, and exit code 2."""
    code, out, err = run("bisect", "t", "--expr", expression, "--db", database)
    assert (2, "") == (code, out)
    assert why in err
    assert 1 == len(err.splitlines())


def test_between_moments(database: str, run: Run) -> None:
    """Only the events after one and up to another are looked at."""
    words = ("bisect", "t", "--expr", "seq > 3", "--db", database, "--json")
    assert [[2, False], [5, True]] == json.loads(run(*words, "--after", "2", "--upto", "5")[1])["asked"][:2]
    assert "NothingToBisect" == json.loads(run(*words, "--after", "5")[1])["error"]["type"]
