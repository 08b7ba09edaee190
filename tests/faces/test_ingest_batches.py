"""Small messages of a file come in few commits; what is kept and said of each is as if they came one by one."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig
from memory_engine.core.aside import on_thread
from memory_engine.core.events.base import Event
from memory_engine.ingest import Ingestion, IngestOptions, IngestReport
from memory_engine.ingest.ingestion import RECORDS_AT_ONCE

COUNT = 5 * RECORDS_AT_ONCE + 3


def talk(count: int = COUNT) -> list[dict[str, object]]:
    """A conversation of so many messages, in which every fourth pair is a call and its result."""
    said: list[dict[str, object]] = []
    for n in range(count // 2 + 1):
        if n % 4 == 3:
            asked = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            said.append({"role": "assistant", "content": None, "tool_calls": [asked]})
            said.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"seen {n}"})
        else:
            said += [{"role": "user", "content": f"Question {n}"}, {"role": "assistant", "content": f"Answer {n}"}]
    return said[:count]


async def ingest(engine: Engine, path: Path, lines: list[str], *, skip_invalid: bool = False) -> IngestReport:
    """Write lines into a file, and ingest it."""
    await on_thread(lambda: path.write_text("\n".join(lines) + "\n"))
    ingestion = Ingestion(engine, IngestOptions(skip_invalid=skip_invalid))
    await ingestion.file(path)
    return ingestion.report


async def events(engine: Engine) -> list[Event]:
    """The events of the thread."""
    return [one.event async for one in engine.thread("t").events() if isinstance(one.event, Event)]


def as_lines(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """A line for each message."""
    return [json.dumps(message) for message in messages]


async def test_small_messages_come_in_few_commits(tmp_path: Path) -> None:
    """A commit for each message would be most of what a short one costs."""
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, tmp_path / "t.jsonl", as_lines(talk()))
        commits = {one.recorded_at async for one in engine.thread("t").events()}
        assert (COUNT, COUNT) == (report.messages, report.threads[0].added)
        assert RECORDS_AT_ONCE + COUNT / RECORDS_AT_ONCE + 2 >= len(commits)


async def test_a_file_grows_by_any_number_of_messages(tmp_path: Path) -> None:
    """Batches of which a part is known add the rest; the log is the one of a file that is read whole."""
    lines = as_lines(talk())
    async with memory_engine.open(":memory:") as engine, memory_engine.open(":memory:") as other:
        for count in (1, 20, 21, 50, COUNT):
            report = await ingest(engine, tmp_path / "t.jsonl", lines[:count])
            assert ([], count) == (report.errors, report.messages)
        again = await ingest(engine, tmp_path / "t.jsonl", lines)
        assert (0, COUNT) == (again.threads[0].added, again.threads[0].known)
        await ingest(other, tmp_path / "t.jsonl", lines)
        assert await events(other) == await events(engine)


BROKEN = (
    '{"role": "user"',
    '{"role": "nobody", "content": "x"}',
    '{"role": "tool", "tool_call_id": "no", "content": "x"}',
)


@pytest.mark.parametrize("at", [2, RECORDS_AT_ONCE + 5, COUNT - 1])
@pytest.mark.parametrize("broken", BROKEN)
async def test_an_unusable_message_costs_what_it_did(tmp_path: Path, at: int, broken: str) -> None:
    """All before it is kept; it is named by its line, and skipped where that is asked for."""
    lines = as_lines(talk())
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, tmp_path / "t.jsonl", [*lines[:at], broken, *lines[at:]])
        assert ([at + 1], at) == ([error.line for error in report.errors], report.messages)
        assert at == len(await events(engine))
        report = await ingest(engine, tmp_path / "t.jsonl", [*lines[:at], broken, *lines[at:]], skip_invalid=True)
        assert ([at + 1], COUNT) == ([error.line for error in report.errors], report.messages)
        assert COUNT == len(await events(engine))


async def test_a_changed_message_is_named_within_its_batch(tmp_path: Path) -> None:
    """The conflict is that of the one line, not of those that would have come with it."""
    lines = as_lines(talk())
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, tmp_path / "t.jsonl", lines[:60])
        lines[41] = json.dumps({"role": "user", "content": "changed"})
        report = await ingest(engine, tmp_path / "t.jsonl", lines)
        assert [42] == [error.line for error in report.errors]
        assert (41, 60) == (report.messages, len(await events(engine)))


async def test_compactions_stand_where_they_would_have_one_by_one(tmp_path: Path) -> None:
    """A batch is taken only where none could begin within it: the log is that of a file that is followed."""
    lines = as_lines(
        [{**one, "content": f"{one['content']} {'word ' * 60}"} if one["content"] else one for one in talk()]
    )
    policy = CompactionPolicy(threshold=8, tokens_min=2_000)
    config = EngineConfig(compaction=policy)
    async with (
        memory_engine.open(":memory:", config=config) as engine,
        memory_engine.open(":memory:", config=config) as other,
    ):
        await ingest(engine, tmp_path / "t.jsonl", lines)
        for count in range(1, COUNT + 1):
            await ingest(other, tmp_path / "t.jsonl", lines[:count])
        kinds = [type(one).__name__ for one in await events(engine)]
        assert "CompactionCompleted" in kinds
        assert [type(one).__name__ for one in await events(other)] == kinds


def response(*, named: str = "m1", ends: bool = False) -> list[dict[str, object]]:
    """The lines of one response that calls three times, the result of its first call between; too long to batch."""
    around = {"id": named, "type": "message", "model": "x", "role": "assistant", "stop_reason": None}
    calls = [{"type": "tool_use", "id": f"{named}{n}", "name": "Read", "input": {"n": n}} for n in range(3)]
    text = {"type": "text", "text": "I read on. " * 9_000}
    parts: list[dict[str, object]] = [{**around, "content": [one]} for one in (text, *calls)]
    parts[-1]["stop_reason"] = "end_turn" if ends else "tool_use"
    results: list[dict[str, object]] = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one["id"], "content": "a page " * 9_000}]}
        for one in calls
    ]
    return [*parts[:2], results[0], *parts[2:], *results[1:]]


def session_lines(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    """The same as the lines of a session of Claude Code."""
    return [
        {"type": said["role"], "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, **rest}
        for n, said in enumerate(messages)
        for rest in [{"sessionId": "s", "message": said}]
    ]


PERSON: dict[str, object] = {"role": "user", "content": "Read the three pages"}


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("is_session", [False, True])
@pytest.mark.parametrize("before", [[], [PERSON]])
async def test_the_lines_of_a_response_are_one_commit(
    tmp_path: Path, before: list[dict[str, object]], *, is_session: bool, ends: bool
) -> None:
    """However long they are, with the results between; what comes after has its own commits."""
    lines = [*before, *response(ends=ends), *response(named="m2")]
    never = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=never) as engine:
        report = await ingest(engine, tmp_path / "t.jsonl", as_lines(session_lines(lines) if is_session else lines))
        assert ([], len(lines)) == (report.errors, report.messages)
        at = [one.recorded_at async for one in engine.thread("t").events()][len(before) :]
        sizes = [len(list(found)) for _, found in itertools.groupby(at)]
        assert [5, 1, 1, 5, 1, 1] == sizes
        again = await ingest(engine, tmp_path / "t.jsonl", as_lines(session_lines(lines) if is_session else lines))
        assert (0, len(lines)) == (again.threads[0].added, again.threads[0].known)


@pytest.mark.parametrize("known", range(1, 8))
async def test_a_response_of_which_a_part_is_known_adds_the_rest(tmp_path: Path, known: int) -> None:
    """The file was read while the client wrote it."""
    lines = as_lines(session_lines([PERSON, *response()]))
    async with memory_engine.open(":memory:") as engine, memory_engine.open(":memory:") as other:
        await ingest(engine, tmp_path / "t.jsonl", lines[:known])
        report = await ingest(engine, tmp_path / "t.jsonl", lines)
        assert ([], 8 - known) == (report.errors, report.threads[0].added)
        await ingest(other, tmp_path / "t.jsonl", lines)
        assert await events(other) == await events(engine)


async def test_an_unusable_line_of_a_response_costs_only_itself(tmp_path: Path) -> None:
    """The lines of its response before and after it are kept, where invalid ones are skipped."""
    lines = as_lines([PERSON, *response()])
    lines.insert(3, '{"role": "assistant", "id": "m1", "content": 5}')
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, tmp_path / "t.jsonl", lines, skip_invalid=True)
        assert ([4], 8) == ([error.line for error in report.errors], report.messages)


async def test_one_id_for_all_responses_joins_no_more_than_up_to_the_next_word_of_a_person(tmp_path: Path) -> None:
    """An id that a client made up says little; the messages come in all the same."""
    said: list[dict[str, object]] = [
        {"role": "assistant", "id": "x", "content": "word " * 20_000},
        {"role": "user", "content": "On"},
    ]
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, tmp_path / "t.jsonl", as_lines(said * 6))
        assert ([], 12) == (report.errors, report.messages)
