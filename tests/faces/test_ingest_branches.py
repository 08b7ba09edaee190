"""Branches of a conversation that were left become forks of its thread, and stay out of its context."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine
from memory_engine import events as e
from memory_engine.core.aside import on_thread
from memory_engine.core.events.base import Event
from memory_engine.ingest import Ingestion, IngestOptions, IngestReport
from tests.faces.test_ingest_tools import block, line, put, use, used

TREE = {
    "sys": ("", "", ""),  # a hidden message
    "q1": ("sys", "user", "Name a river"),
    "q0": ("sys", "user", "Name a lake"),
    "l1": ("q0", "assistant", "Lake Como"),
    "a1": ("q1", "assistant", "The Po"),
    "a2": ("q1", "assistant", "The Elbe"),
    "q2": ("a1", "user", "How long is it?"),
    "b1": ("q2", "assistant", "652 km"),
    "b2": ("q2", "assistant", "About 650 km"),
    "q3": ("a2", "user", "And the Elbe's source?"),
    "a3": ("q3", "assistant", "In the Giant Mountains"),
}
"""Messages by their keys: the one before, who speaks, and what. `a3` is the one last seen."""
MAIN = ["Name a river", "The Elbe", "And the Elbe's source?", "In the Giant Mountains"]
BRANCHES = {
    "branch-q0": ["Name a lake", "Lake Como"],
    "branch-a1": ["Name a river", "The Po", "How long is it?", "About 650 km"],
    "branch-b1": ["Name a river", "The Po", "How long is it?", "652 km"],
}
Tree = Mapping[str, tuple[str, str, str]]


def chatgpt(tree: Tree, last: str) -> object:
    """An export of ChatGPT with this conversation."""
    mapping = {
        key: {
            "id": key,
            "parent": parent,
            "message": {"author": {"role": role or "system"}, "content": {"content_type": "text", "parts": [text]}},
        }
        for key, (parent, role, text) in tree.items()
    }
    return [{"conversation_id": "c", "mapping": mapping, "current_node": last}]


def claude_ai(tree: Tree, last: str) -> object:
    """An export of Claude.ai with it; the hidden message is left out there."""
    messages = [
        {
            "uuid": key,
            "parent_message_uuid": parent if parent != "sys" else "0",
            "sender": "human" if role == "user" else role,
            "text": text,
        }
        for key, (parent, role, text) in tree.items()
        if role
    ]
    return [{"uuid": "c", "chat_messages": messages, "current_leaf_message_uuid": last}]


Export = Callable[[Tree, str], object]
EXPORTS: list[Export] = [chatgpt, claude_ai]


async def ingest(engine: Engine, path: Path, value: object, *, branches: bool = True) -> IngestReport:
    """Ingest an export."""
    await on_thread(lambda: path.write_text(json.dumps(value)))
    ingestion = Ingestion(engine, IngestOptions(branches=branches))
    await ingestion.file(path)
    assert [] == ingestion.report.errors
    return ingestion.report


async def said(engine: Engine, thread_id: str) -> list[str]:
    """What a thread's log says."""
    found = [one.event async for one in engine.thread(thread_id).events()]
    return [str(getattr(event, "content", "")) for event in found if isinstance(event, Event)]


@pytest.mark.parametrize("export", EXPORTS)
async def test_each_branch_is_a_fork_from_where_it_was_left(tmp_path: Path, export: Export) -> None:
    """Branches of branches too, and those of the first message; the conversation's own thread has none of them."""
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, tmp_path / "x.json", export(TREE, "a3"))
        assert {f"x/c/{name}" for name in BRANCHES} == {one.id for one in report.threads if one.branch_of}
        assert MAIN == await said(engine, "x/c")
        for name, words in BRANCHES.items():
            assert words == await said(engine, f"x/c/{name}")
            assert (await engine.thread(f"x/c/{name}").replay.verify()).ok
        info = await engine.thread("x/c/branch-b1").info()
        assert info.forked_from is not None
        assert ("x/c/branch-a1", 3) == (info.forked_from.thread_id, info.forked_from.seq)
        shown = str((await engine.thread("x/c").context()).messages)
        assert not any(words[-1] in shown for words in BRANCHES.values())


@pytest.mark.parametrize("export", EXPORTS)
async def test_a_second_reading_adds_nothing(tmp_path: Path, export: Export) -> None:
    """To the thread and to its forks; a longer branch adds what is new of it."""
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, tmp_path / "x.json", export(TREE, "a3"))
        report = await ingest(engine, tmp_path / "x.json", export(TREE, "a3"))
        assert 0 == sum(one.added for one in report.threads)
        longer = {**TREE, "q4": ("l1", "user", "How deep?")}
        report = await ingest(engine, tmp_path / "x.json", export(longer, "a3"))
        assert {"x/c/branch-q0": 1} == {one.id: one.added for one in report.threads if one.added}
        assert [*BRANCHES["branch-q0"], "How deep?"] == await said(engine, "x/c/branch-q0")


@pytest.mark.parametrize("export", EXPORTS)
async def test_branches_may_be_left_out(tmp_path: Path, export: Export) -> None:
    """Then they are counted."""
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, tmp_path / "x.json", export(TREE, "a3"), branches=False)
        assert (["x/c"], 6) == ([one.id for one in report.threads], report.left_out["message of another branch"])


async def test_a_tree_without_a_last_message_is_none_all_the_same(tmp_path: Path) -> None:
    """The newest message ends the conversation; messages that never part are all of it, in their order."""
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, tmp_path / "x.json", claude_ai(TREE, "none"))
        assert MAIN == await said(engine, "x/c")
        row = {key: ("nobody", role, text) for key, (_, role, text) in TREE.items()}
        report = await ingest(engine, tmp_path / "y.json", claude_ai(row, "none"))
        assert ["y/c"] == [one.id for one in report.threads]
        assert 10 == report.messages


async def test_messages_that_follow_each_other_in_a_circle_end(tmp_path: Path) -> None:
    """Nothing leads to them; the rest is read."""
    async with memory_engine.open(":memory:") as engine:
        circle = {**TREE, "o1": ("o2", "user", "round"), "o2": ("o1", "user", "and round")}
        await ingest(engine, tmp_path / "x.json", chatgpt(circle, "a3"))
        assert MAIN == await said(engine, "x/c")


# sessions of Claude Code


def spoken(uuid: str, parent: str, text: str) -> dict[str, object]:
    """A prompt."""
    return line("user", uuid, {"role": "user", "content": text}, parentUuid=parent or None)


def answered(uuid: str, parent: str, text: str) -> dict[str, object]:
    """A response."""
    return line("assistant", uuid, block(uuid, 1, {"type": "text", "text": text}), parentUuid=parent)


WENT_BACK = (
    spoken("u1", "", "Sort the list"),
    answered("a1", "u1", "Sorted."),
    {"type": "system", "uuid": "s1", "parentUuid": "a1", "sessionId": "s"},
    spoken("u2", "s1", "In descending order"),
    answered("a2", "u2", "Reversed."),
    spoken("u3", "a2", "By length"),
    answered("a3", "u3", "By length now."),
    spoken("u4", "a2", "By weight"),
    answered("a4", "u4", "By weight now."),
    spoken("u5", "s1", "And without doubles"),
    answered("a5", "u5", "Doubles are gone."),
)


async def test_a_session_in_which_a_person_went_back_is_what_they_went_on_with(tmp_path: Path) -> None:
    """Each prompt that was taken back begins a fork, also within a branch that was left later."""
    path = put(tmp_path, "s.jsonl", *WENT_BACK)
    async with memory_engine.open(":memory:") as engine:
        ingestion = Ingestion(engine, IngestOptions())
        await ingestion.file(path)
        assert {"s": "", "s/branch-u2": "s", "s/branch-u3": "s/branch-u2"} == {
            one.id: one.branch_of for one in ingestion.report.threads
        }
        begun = ["Sort the list", "Sorted."]
        assert [*begun, "And without doubles", "Doubles are gone."] == await said(engine, "s")
        left = [*begun, "In descending order", "Reversed."]
        assert [*left, "By weight", "By weight now."] == await said(engine, "s/branch-u2")
        assert [*left, "By length", "By length now."] == await said(engine, "s/branch-u3")
        again = Ingestion(engine, IngestOptions())
        await again.file(path)
        assert ([], 0) == (again.report.errors, sum(one.added for one in again.report.threads))


async def test_results_and_notices_of_one_response_are_no_branches(tmp_path: Path) -> None:
    """Calls at the same time, a notice of an interruption and a message of the client's follow the same line."""
    call = [
        line("assistant", f"c{n}", block("m", 1, use(f"c{n}")), parentUuid=f"c{n - 1}" if n else "u1") for n in (0, 1)
    ]
    results = [line("user", f"r{n}", used(f"c{n}"), parentUuid=f"c{n}") for n in (0, 1)]
    lines = (
        spoken("u1", "", "Look at both"),
        *call,
        *results,
        spoken("n1", "r1", "[Request interrupted by user]"),
        {**spoken("n2", "r1", "Caveat: by the client"), "isMeta": True},
        spoken("u2", "r1", "Go on"),
        answered("a2", "u2", "Done."),
    )
    async with memory_engine.open(":memory:") as engine:
        ingestion = Ingestion(engine, IngestOptions())
        await ingestion.file(put(tmp_path, "s.jsonl", *lines))
        assert [("s", 9)] == [(one.id, one.messages) for one in ingestion.report.threads]


# a later file leads to another branch


def part(*keys: str) -> Tree:
    """A part of the tree, as an earlier file had it."""
    return {key: TREE[key] for key in keys}


async def held(engine: Engine) -> dict[str, list[str]]:
    """What each thread says."""
    return {info.id: await said(engine, info.id) for info in await engine.threads()}


async def twice(engine: Engine, path: Path, value: object) -> dict[str, int]:
    """Ingest an export, and return what it added to which threads; a second time it adds nothing."""
    report = await ingest(engine, path, value)
    again = await ingest(engine, path, value)
    assert 0 == sum(one.added for one in again.threads)
    for info in await engine.threads():
        assert (await engine.thread(info.id).verify()).ok
    return {one.id: one.added for one in report.threads if one.added}


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("last", ["b1", "b2", "l1"])
async def test_another_current_branch_changes_nothing_that_is_there(tmp_path: Path, export: Export, last: str) -> None:
    """It was a fork, and is; the thread goes on with the branch that it began with."""
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, tmp_path / "x.json", export(TREE, "a3"))
        before = await held(engine)
        assert {} == await twice(engine, tmp_path / "x.json", export(TREE, last))
        assert before == await held(engine)


@pytest.mark.parametrize("export", EXPORTS)
async def test_a_new_current_branch_is_a_fork(tmp_path: Path, export: Export) -> None:
    """From the last message that it has in common with what is there; so is one that leaves it in turn, later."""
    path = tmp_path / "x.json"
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, path, export(part("sys", "q1", "a2", "q3", "a3"), "a3"))
        later = part("sys", "q1", "a1", "a2", "q2", "b1", "q3", "a3")
        assert {"x/c/branch-a1": 3} == await twice(engine, path, export(later, "b1"))
        assert MAIN == await said(engine, "x/c")
        assert BRANCHES["branch-b1"] == await said(engine, "x/c/branch-a1")
        assert {"x/c/branch-b2": 1} == await twice(engine, path, export({**later, **part("b2")}, "b2"))
        assert BRANCHES["branch-a1"] == await said(engine, "x/c/branch-b2")
        info = await engine.thread("x/c/branch-b2").info()
        assert info.forked_from is not None
        assert ("x/c/branch-a1", 3) == (info.forked_from.thread_id, info.forked_from.seq)
        grown = {**later, **part("b2"), "q9": ("a3", "user", "And its mouth?"), "q8": ("b2", "user", "In miles?")}
        assert {"x/c": 1, "x/c/branch-b2": 1} == await twice(engine, path, export(grown, "q8"))
        assert [*MAIN, "And its mouth?"] == await said(engine, "x/c")
        assert [*BRANCHES["branch-a1"], "In miles?"] == await said(engine, "x/c/branch-b2")


@pytest.mark.parametrize("export", EXPORTS)
async def test_a_first_message_that_was_edited_begins_a_fork(tmp_path: Path, export: Export) -> None:
    """Nothing is in common, and nothing is mixed."""
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, tmp_path / "x.json", export(part("sys", "q1", "a2"), "a2"))
        later = part("sys", "q1", "a2", "q0", "l1")
        assert {"x/c/branch-q0": 2} == await twice(engine, tmp_path / "x.json", export(later, "l1"))
        assert {"x/c": MAIN[:2], "x/c/branch-q0": BRANCHES["branch-q0"]} == await held(engine)


@pytest.mark.parametrize("upto", range(1, len(WENT_BACK)))
async def test_a_session_that_was_read_before_a_person_went_back_stays(tmp_path: Path, upto: int) -> None:
    """What they went on with instead is a fork, whenever the file was read; each branch is there once."""
    added = -1
    async with memory_engine.open(":memory:") as engine:
        for lines in (WENT_BACK[:upto], WENT_BACK, WENT_BACK):
            ingestion = Ingestion(engine, IngestOptions())
            await ingestion.file(put(tmp_path, "s.jsonl", *lines))
            assert [] == ingestion.report.errors
            added = sum(one.added for one in ingestion.report.threads)
        assert 0 == added
        begun = ["Sort the list", "Sorted."]
        left = [*begun, "In descending order", "Reversed."]
        lines_of_talk = (
            [*begun, "And without doubles", "Doubles are gone."],
            [*left, "By weight", "By weight now."],
            [*left, "By length", "By length now."],
        )
        assert sorted(lines_of_talk) == sorted((await held(engine)).values())


async def test_what_was_said_in_the_thread_itself_is_no_other_branch(tmp_path: Path) -> None:
    """A thread that a loop went on with takes what a later file adds to its own branch."""
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, tmp_path / "x.json", chatgpt(part("sys", "q1", "a1", "a2"), "a2"))
        await engine.thread("x/c").dispatch(e.UserMessage(content="Here I go on."))
        assert 2 == (await twice(engine, tmp_path / "x.json", chatgpt(TREE, "a3")))["x/c"]
        assert [*MAIN[:2], "Here I go on.", *MAIN[2:]] == await said(engine, "x/c")
