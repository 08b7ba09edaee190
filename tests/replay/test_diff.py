"""What changed between two moments: by chunk, by field, by what a model is sent, and by view."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Chunk, CompactionPolicy, EngineConfig, Thread
from memory_engine import events as e
from memory_engine.context.rendering import common_prefix
from memory_engine.core.chunks import Retention
from memory_engine.core.operations import Add, BatchReplace, Reorder, Update
from memory_engine.core.reduction import ReduceContext, Reduction
from memory_engine.core.state import StateView
from memory_engine.events import Event
from memory_engine.plugins import Plugin
from memory_engine.replay.diff import COMPARED_MAX, Diff, diff, rendered, unified
from memory_engine.replay.matching import longest_rising
from memory_engine.testing import ManualClock, SequentialIds
from memory_engine.thread import handle_of
from tests.command_line import Run
from tests.conversations import NEVER, SMALL, call, opened, say, turns
from tests.engine.test_laws import EVENTS
from tests.scripted_compactors import Scripted, a_line_each

PLUGIN = Plugin("moving")


@PLUGIN.event("diff_moved")
class Moved(Event):
    """A chunk goes to the end, or to the front."""

    chunk: str
    first: bool = False


@PLUGIN.event("diff_split")
class Split(Event):
    """A chunk becomes two, whose parents may be anything."""

    chunk: str
    parents: tuple[str, ...] = ()


@PLUGIN.reducer(Moved)
def reduce_moved(view: StateView, event: Moved, _ctx: ReduceContext) -> Reduction:
    """One REORDER, if the chunk is there at the top."""
    if event.chunk not in [chunk.id for chunk in view.chunks()]:
        return Reduction()
    return Reduction(operations=(Reorder(event.chunk, first=event.first),))


@PLUGIN.reducer(Split)
def reduce_split(view: StateView, event: Split, ctx: ReduceContext) -> Reduction:
    """One BATCH_REPLACE of one by two; one new chunk where there is none to replace."""
    chunks = tuple(
        Chunk(id=ctx.new_id(), type="piece", content=f"piece {n}", parent_ids=event.parents) for n in range(2)
    )
    if event.chunk not in [chunk.id for chunk in view.chunks()]:
        return Reduction(operations=(Add(chunks[0].id),), chunks=chunks[:1])
    old = view.get(event.chunk)
    if old is not None and old.retention is Retention.CRITICAL:
        new = msgspec.structs.replace(old, id=chunks[0].id, content="again", parent_ids=event.parents)
        return Reduction(operations=(Update(old.id, new.id),), chunks=(new,))
    return Reduction(operations=(BatchReplace((event.chunk,), tuple(c.id for c in chunks)),), chunks=chunks)


IDS = st.builds("{}.{}".format, st.integers(1, 14), st.integers(0, 1))
PARENTS = st.lists(IDS | st.sampled_from(["", "x", "0.0", "99.9", "1." + "9" * 60, "²."]), max_size=2).map(tuple)
STEPS = st.one_of(
    EVENTS,
    st.builds(Moved, chunk=IDS, first=st.booleans()),
    st.builds(Split, chunk=IDS, parents=PARENTS),
    st.just("fork"),
)


def ids(chunks: Iterable[Chunk]) -> list[str]:
    """The ids of chunks."""
    return [chunk.id for chunk in chunks]


async def state_ids(thread: Thread, seq: int) -> list[str]:
    """The ids of all chunks of a state, in order."""
    return ids((await thread.state(at=seq)).everything())


def seen(found: Diff, *, mirrored: bool = False) -> dict[str, object]:
    """What a difference says, but for the lines of the context; `mirrored`: what it is to say the other way round."""
    sides = [
        (found.a, found.added, found.compacted, [c.before.id for c in found.changed], 0),
        (found.b, found.removed, found.restored, [c.after.id for c in found.changed], 1),
    ]
    first, second = reversed(sides) if mirrored else sides
    views = found.views or {}
    return {
        "points": (first[0], second[0]),
        "added": (first[1], second[1]),
        "covers": (first[2], second[2]),
        "changed": set(zip(first[3], second[3], strict=True)),
        "moved": len(found.moved),
        "tokens": (found.context.tokens[first[4]], found.context.tokens[second[4]]),
        "kept": found.context.kept_bytes,
        "views": {
            name: ((rows.removed, rows.added) if mirrored else (rows.added, rows.removed), rows.changed)
            for name, rows in views.items()
        },
    }


@settings(max_examples=60)
@given(st.lists(STEPS, min_size=1, max_size=16), st.integers(0, 40), st.integers(0, 40), st.booleans())
async def test_laws(steps: list[Event | str], one: int, other: int, compacts: bool) -> None:
    """To itself nothing differs; what is said of ids leads from one state to the other; and back."""
    policy = CompactionPolicy(threshold=3, tokens_min=0, keep_recent=0, summary_tokens_max=1) if compacts else NEVER
    config = EngineConfig(compaction=policy)
    shortest = Scripted(a_line_each)
    async with memory_engine.open(
        ":memory:", compactor=shortest, config=config, plugins=[PLUGIN], clock=ManualClock(), ids=SequentialIds()
    ) as engine:
        thread = fork = await engine.create_thread("t")
        for n, step in enumerate(steps):
            if isinstance(step, str):
                fork = await thread.fork(thread_id=f"f{n}")
            else:
                for target in {thread.id: thread, fork.id: fork}.values():
                    await target.dispatch(step)
                    await target.compaction.settle()
                    if n % 2:
                        break  # the fork goes its own way
        heads = [(await target.info()).events for target in (thread, fork)]
        a, b = await thread.at(min(one, heads[0])), await fork.at(min(other, heads[1]))
        found, back = await diff(handle_of(a), handle_of(b)), await diff(handle_of(b), handle_of(a))
        assert (await diff(handle_of(a), handle_of(a))).is_empty
        before, after = await state_ids(thread, a.seq), await state_ids(fork, b.seq)
        pairs = {change.before.id: change.after.id for change in found.changed}
        left = [pairs.get(one, one) for one in before if one not in ids(found.removed)]
        assert sorted(after) == sorted([*left, *ids(found.added)])
        common = [one for one in after if one in left and one not in found.moved and one not in ids(found.added)]
        kept = [one for one in left if one in common]
        assert _by_container(await fork.state(at=b.seq), common) == _by_container(await fork.state(at=b.seq), kept)
        assert seen(found, mirrored=True) == seen(back)
        assert json.dumps(found.as_data())


def _by_container(state: memory_engine.State, chunk_ids: list[str]) -> dict[str, list[str]]:
    """Ids in their order, apart for each container."""
    found: dict[str, list[str]] = {}
    for chunk_id in chunk_ids:
        placed = state.placed_at(chunk_id)
        assert placed is not None
        found.setdefault(placed.container, []).append(chunk_id)
    return found


async def test_a_summary_stands_for_what_it_covers() -> None:
    """Through any number of compactions; and seen from the other side, what it covered stands there again."""
    async with opened(
        Scripted(), CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, summary_tokens_max=1)
    ) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(21))
        found = await thread.replay.diff(3)
        [compacted] = found.compacted
        assert tuple(made[:3]) == compacted.covers == tuple(ids(found.removed))
        assert compacted.summary in ids(found.added)
        assert [()] == [one.covers for one in found.restored] or not found.restored
        back = await thread.replay.diff((await thread.info()).events, 3)
        assert [(compacted.summary, tuple(made[:3]))] == [(one.summary, one.covers) for one in back.restored]


async def test_versions_are_changes() -> None:
    """By name or by descent, whatever lies between: old and new values of each field that differs."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [e.TodoSet(items=(e.TodoItem("a", "Call"),)), *turns(1)])
        await thread.compaction.mark_critical("2.0")
        await say(thread, [e.TodoUpdated(id="a", text="Write"), e.TodoCompleted(id="a")])
        found = await thread.replay.diff(2)
        assert ([], []) == (ids(found.added), ids(found.removed))
        assert {
            "1.1": ("5.0", {"content": ("Call", "Write"), "status": ("pending", "completed")}),
            "2.0": ("3.0", {"retention": (None, "critical")}),
        } == {change.before.id: (change.after.id, _without(change.fields, "tokens")) for change in found.changed}


def _without(fields: dict[str, tuple[object, object]], name: str) -> dict[str, tuple[object, object]]:
    return {key: value for key, value in fields.items() if key != name}


async def test_few_are_moved() -> None:
    """Of many that changed places with one, the one is named; a longest rising row of places stays."""
    async with memory_engine.open(":memory:", plugins=[PLUGIN], config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(6))
        await thread.dispatch(Moved(chunk=made[1]))
        await thread.dispatch(Moved(chunk=made[4], first=True))
        found = await thread.replay.diff(6)
        assert {made[1], made[4]} == set(found.moved)
        assert ([], [], ()) == (ids(found.added), ids(found.removed), found.changed)


@given(st.lists(st.integers(0, 30), unique=True, max_size=9))
def test_the_row_that_stays_is_rising_and_longest(values: list[int]) -> None:
    """Compared with every row there is."""
    kept = sorted(longest_rising(values))
    row = [values[n] for n in kept]
    best = max((len(some) for some in _rising(values)), default=0)
    assert (sorted(row), best) == (row, len(row))


def _rising(values: list[int]) -> list[list[int]]:
    rows: list[list[int]] = [[]]
    for value in values:
        rows += [[*row, value] for row in rows if not row or row[-1] < value]
    return rows


async def test_a_fork_and_its_origin() -> None:
    """What they share is common; equal ids of what they do not share are two chunks, and names are matched."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread("t")
        await say(thread, [e.TaskStarted(goal="Sell"), *turns(2)])
        fork = await thread.fork(thread_id="f")
        await say(thread, [e.UserMessage(content="mine"), e.TaskStarted(goal="Buy")])
        await say(fork, [e.UserMessage(content="its own"), e.TaskStarted(goal="Rent")])
        found = await diff(handle_of(await thread.at(5)), handle_of(await fork.at(5)))
        assert (["4.0"], ["4.0"]) == (ids(found.removed), ids(found.added))
        assert ("mine", "its own") == (found.removed[0].text, found.added[0].text)
        [change] = found.changed
        assert {"content": ("Buy", "Rent")} == _without(change.fields, "tokens")
        earlier = await diff(handle_of(await fork.at(5)), handle_of(await thread.at(2)))
        assert (["3.0", "4.0"], []) == (ids(earlier.removed), ids(earlier.added))


async def test_the_same_events_in_two_logs_are_told_by_their_ids() -> None:
    """Where a log goes another way and brings the same events, their chunks are compared, not told apart."""
    async with opened(Scripted(), NEVER) as engine:
        one, other = await engine.create_thread("a"), await engine.create_thread("b")
        await one.dispatch(e.UserMessage(content="Hello"), event_id="e1")
        await other.dispatch(e.LlmTextResponse(content="first"), event_id="e0")
        await other.dispatch(e.UserMessage(content="Hello"), event_id="e1")
        found = await diff(handle_of(await one.at(1)), handle_of(await other.at(2)))
        assert (["1.0"], []) == (ids(found.added), ids(found.removed))
        assert [("1.0", "2.0", {})] == [(c.before.id, c.after.id, c.fields) for c in found.changed]


async def test_contexts_are_compared_by_byte_and_line() -> None:
    """An append keeps every byte; a compaction keeps those before what it covers."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [e.SessionStarted(content="You help."), *turns(4), *call("c1")])
        appended = (await thread.replay.diff(3, 5)).context
        assert appended.bytes[0] == appended.kept_bytes < appended.bytes[1]
        assert appended.tokens[0] < appended.tokens[1]
        assert all(line[0] in "@ +" for line in appended.lines)
        await thread.compact()
        compacted = (await thread.replay.diff(5)).context
        system = rendered([{"role": "system", "content": "You help."}])
        assert len(system) <= compacted.kept_bytes < len(system) + 20
        assert " system: You help." in compacted.lines


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_kept_bytes_are_the_common_beginning(before: bytes, after: bytes) -> None:
    """The longest that both begin with."""
    kept = common_prefix(before, after)
    assert before[:kept] == after[:kept]
    assert kept == min(len(before), len(after)) or before[kept] != after[kept]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_lines_lead_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    """Applied to the one, the hunks give the other."""
    lines = unified(before, after)
    assert (before == after) is (not lines)
    assert after == _patched(before, lines)


def _patched(text: list[str], lines: list[str]) -> list[str]:
    result: list[str] = []
    at = 0
    for line in lines:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            result += text[at:first]
            at = first
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert text[at] == line[1:]
            at += 1
            result += [line[1:]] if line[0] == " " else []
    return result + text[at:]


def test_very_long_texts_are_replaced_whole() -> None:
    """Comparing them line by line would take minutes."""
    before, after = [f"a{n}" for n in range(COMPARED_MAX + 9)], ["same"]
    lines = unified(["same", *before, "end"], ["same", *after, "end"])
    assert f"@@ -2,{len(before)} +2,1 @@" == lines[0]
    assert len(before) + 2 == len(lines)


async def test_views_are_compared_by_row() -> None:
    """Rows that came, went and changed, of those views alone whose events occurred."""
    async with memory_engine.open(":memory:") as engine:
        user = engine.user("u1")
        for key, value in (("a", 1), ("b", 1), ("c", 1)):
            await user.preferences.update(key, value)
        await user.preferences.remove("a")
        await user.preferences.update("b", 2)
        await user.preferences.update("d", 1)
        found = await user.replay.diff(3)
        assert found.views is not None
        assert {"preferences"} == set(found.views)
        rows = found.views["preferences"]
        assert (("d",), ("a",), ("b",)) == (rows.added, rows.removed, rows.changed)
        assert (await diff(handle_of(await user.at(3)), handle_of(await user.at(6)), views=False)).views is None


async def test_an_undone_compaction_gives_its_originals_back() -> None:
    """New versions of what a summary covered are named with it, and are no change seen from before it."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        await thread.compact()
        compacted = (await thread.info()).events
        await thread.compaction.undo()
        found = await thread.replay.diff(compacted)
        [restored] = found.restored
        assert (f"{compacted}.0", tuple(ids(found.added))) == (restored.summary, restored.covers)
        changed = (await thread.replay.diff(3)).changed
        assert [(old, {}) for old in made] == [(change.before.id, change.fields) for change in changed]
        undone = (await thread.info()).events
        await thread.compaction.redo()
        [again] = (await thread.replay.diff(undone)).compacted
        assert tuple(ids(found.added)) == again.covers


async def test_nothing_is_written(tmp_path: Path) -> None:
    """Of an archived thread in an engine that only reads, the file stays as it was, byte by byte."""
    path = tmp_path / "m.db"
    async with opened(Scripted(), SMALL, str(path)) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(9))
        await thread.admin.archive()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    async with memory_engine.open(str(path), config=EngineConfig(read_only=True)) as engine:
        found = await engine.thread("t").replay.diff(2)
        assert found.compacted
    assert before == hashlib.sha256(path.read_bytes()).hexdigest()


# the command line


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A conversation whose beginning was compacted, and a fork of it that went another way."""
    path = str(tmp_path / "m.db")

    async def fill() -> None:
        async with opened(Scripted(a_line_each), SMALL, path) as engine:
            thread = await engine.create_thread("t")
            await say(thread, turns(3))
            fork = await thread.fork(thread_id="f")
            await say(thread, [*turns(1, start=4), *turns(1, start=5)])
            await say(fork, [e.TaskStarted(goal="\x1b[31mSell")])

    anyio.run(fill)
    return path


def test_a_difference_for_people(database: str, run: Run) -> None:
    """What went, what came and what it stands for, and what a model is sent now."""
    code, out, _ = run("diff", "t", "2", "--db", database)
    lines = out.splitlines()
    assert (0, True) == (code, lines[0].startswith("t, event 2 → event 7: 2 → 2 chunks, "))
    assert ["- 1.0", "- 2.0", "+ 6.0", "+ 7.0"] == [line[:5] for line in lines[1:5]]
    assert "stands for 2 chunks: 1.0 2.0" in lines[3]
    assert lines[5].startswith("context: ")
    assert any(line.startswith("  -assistant: word1") for line in lines)
    assert ["nothing differs"] == run("diff", "t", "2", "2", "--db", database)[1].splitlines()[1:]


def test_a_difference_of_a_fork(database: str, run: Run) -> None:
    """B may be of another thread; hostile words are made harmless."""
    code, out, _ = run("diff", "t", "3", "--with", "f", "--db", database)
    assert 0 == code
    assert "\x1b" not in out
    assert "event 3 → event 4 of f" in out
    assert "+ 4.0 task, 3 tokens" in out


def test_a_difference_for_programs(database: str, run: Run) -> None:
    """One JSON value, in either direction."""
    there = json.loads(run("diff", "t", "2", "7", "--db", database, "--json")[1])
    back = json.loads(run("diff", "t", "7", "2", "--db", database, "--json")[1])
    assert [{"summary": "6.0", "covers": ["1.0", "2.0"]}] == there["compacted"] == back["restored"]
    assert there["added"] == back["removed"]
    assert {"a", "b", "added", "removed", "changed", "moved", "compacted", "restored", "tokens", "chunks", "context",
            "views"} == set(there)  # fmt: skip


@pytest.mark.parametrize(
    "words", [("t", "99"), ("t", "2", "no-event"), ("nobody", "0"), ("t", "2", "--with", "nobody")]
)
def test_moments_that_are_not_there(database: str, run: Run, words: tuple[str, ...]) -> None:
    """One line that names it, and exit code 2."""
    code, out, err = run("diff", *words, "--db", database)
    assert (2, "", 1) == (code, out, len(err.splitlines()))
