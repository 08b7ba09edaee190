"""Recordings of coding agents: every message, call, result, thought, time and usage of a file comes in."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, UserMessage
from memory_engine.core.events.memory import SessionStarted
from memory_engine.core.events.messages import LlmTextResponse, LlmThinking, LlmToolCall, ToolError, ToolResult
from memory_engine.core.records import RecordedEvent
from memory_engine.formats.native import reported_usages
from memory_engine.ingest import Ingestion, IngestOptions, IngestReport
from tests.recordings import Counts, counted_claude_code, counted_swe_agent, real

AS_RECORDED = EngineConfig(compaction=CompactionPolicy(enabled=False))


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine that compacts nothing."""
    async with memory_engine.open(":memory:", config=AS_RECORDED) as opened:
        yield opened


async def ingest(engine: Engine, path: Path, **options: str) -> IngestReport:
    """Ingest one file."""
    ingestion = Ingestion(engine, IngestOptions(**options))  # type: ignore[arg-type]  # texts all
    await ingestion.file(path)
    return ingestion.report


async def events_of(engine: Engine, thread_id: str) -> list[RecordedEvent]:
    """The events of a thread."""
    return [event async for event in engine.thread(thread_id).events()]


async def came_in(engine: Engine, thread_id: str) -> Counts:
    """What a thread holds."""
    counts = Counts()
    for recorded in await events_of(engine, thread_id):
        event = recorded.event
        counts.times += recorded.occurred_at is not None
        for one in reported_usages(getattr(event, "native", "")):
            counts.responses += 1
            counts.tokens += one.usage.output_tokens
        match event:
            case LlmToolCall():
                counts.calls += len(event.calls)
                counts.texts += bool(event.content)
            case ToolResult() | ToolError():
                counts.results += 1
                counts.failed += isinstance(event, ToolError)
            case LlmThinking():
                counts.thoughts += 1
            case UserMessage():
                counts.said[event.origin] += 1
            case SessionStarted():
                counts.instructions += 1
            case LlmTextResponse():
                counts.texts += 1
    return counts


def put(folder: Path, name: str, *values: object) -> Path:
    """A file of JSON Lines."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def line(kind: str, uuid: str, message: object, second: int = 0, **more: object) -> dict[str, object]:
    """A line of a session of Claude Code."""
    at = f"2026-03-01T08:00:{second:02}.500Z"
    return {"type": kind, "uuid": uuid, "sessionId": "s", "timestamp": at, "message": message, **more}


def block(message_id: str, tokens: int, *blocks: object) -> dict[str, object]:
    """A line's part of a response."""
    usage = {"input_tokens": 100, "output_tokens": tokens}
    around = {"id": message_id, "type": "message", "model": "claude-x", "stop_reason": None, "usage": usage}
    return {"role": "assistant", "content": list(blocks), **around}


def use(call_id: str) -> dict[str, object]:
    """A call."""
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file": "a.py"}}


def used(call_id: str, **more: object) -> dict[str, object]:
    """A result."""
    said = {"type": "tool_result", "tool_use_id": call_id, "content": "def f(): ...", **more}
    return {"role": "user", "content": [said]}


SESSION = (
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    line("user", "u1", {"role": "user", "content": "Mend the parser"}, 0, parentUuid=None),
    line(
        "assistant",
        "a1",
        block("m1", 1, {"type": "thinking", "thinking": "Both.", "signature": "x"}),
        1,
        parentUuid="u1",
    ),
    {"type": "progress", "uuid": "p1", "parentUuid": "a1", "sessionId": "s", "data": {"type": "hook_progress"}},
    line("assistant", "a2", block("m1", 1, use("c1")), 2, parentUuid="p1"),
    line("user", "r1", used("c1"), 3, parentUuid="a2"),
    line("assistant", "a3", block("m1", 40, use("c2")), 4, parentUuid="a2"),
    line("user", "r2", used("c2", is_error=True), 5, parentUuid="a3"),
    line("user", "n1", {"role": "user", "content": "<local-command-stdout>ok</local-command-stdout>"}, 6),
    line("user", "k1", {"role": "user", "content": "So far: …"}, 7, isCompactSummary=True),
    line("assistant", "a4", block("m2", 7, {"type": "text", "text": "Done."}), 8, parentUuid="k1"),
)


async def test_lines_of_one_response_are_one_response(engine: Engine, tmp_path: Path) -> None:
    """Its usage counts once, at its last line, though the result of its first call comes between them."""
    report = await ingest(engine, put(tmp_path, "s.jsonl", *SESSION))
    assert [] == report.errors
    assert {"file-history-snapshot": 1, "progress/hook_progress": 1} == report.left_out
    events = await events_of(engine, "s")
    assert ["m1", "m1", "m1", "m2"] == [named for one in events if (named := getattr(one.event, "response_id", ""))]
    assert [(6, 40), (10, 7)] == [
        (event.seq + 1, one.usage.output_tokens)
        for event in events
        for one in reported_usages(getattr(event.event, "native", ""))
    ]


async def test_who_speaks_is_what_the_client_says(engine: Engine, tmp_path: Path) -> None:
    """A notice and another tool's summary are told apart from what a person said."""
    await ingest(engine, put(tmp_path, "s.jsonl", *SESSION))
    assert {"": 1, "client": 1, "summary": 1} == (await came_in(engine, "s")).said
    assert 1 == (await came_in(engine, "s")).failed


async def test_times_and_parents_are_the_files(engine: Engine, tmp_path: Path) -> None:
    """A line whose parent was left out follows the message before that."""
    await ingest(engine, put(tmp_path, "s.jsonl", *SESSION))
    user, thought, call, *_, last = await events_of(engine, "s")
    assert user.id == thought.causation_id
    assert thought.id == call.causation_id
    assert datetime.fromisoformat("2026-03-01T08:00:00.500Z") == user.occurred_at
    assert datetime.fromisoformat("2026-03-01T08:00:08.500Z") == last.occurred_at


async def test_a_session_that_goes_on_adds_what_is_new(engine: Engine, tmp_path: Path) -> None:
    """Also if it was read while a response was being written: its usage was then another."""
    for upto in range(1, len(SESSION) + 1):
        report = await ingest(engine, put(tmp_path, "s.jsonl", *SESSION[:upto]))
        assert [] == report.errors
    assert 9 == len(await events_of(engine, "s"))
    assert 9 == sum(thread.known for thread in (await ingest(engine, tmp_path / "s.jsonl")).threads)


async def test_sub_agents_are_threads_below_the_session(engine: Engine, tmp_path: Path) -> None:
    """In files beside it, of its own folder or of its session; or between the session's own lines."""
    inside = line("user", "x1", {"role": "user", "content": "Find it"}, isSidechain=True, agentId="in")
    path = put(tmp_path, "s.jsonl", *SESSION, inside)
    for name, session in (("s/subagents/agent-a", "s"), ("subagents/agent-b", "s"), ("subagents/agent-c", "other")):
        said = {"role": "user", "content": f"Look ({name})"}
        put(
            tmp_path,
            f"{name}.jsonl",
            line("user", name, said, isSidechain=True, agentId=name[-1]) | {"sessionId": session},
        )
    report = await ingest(engine, path)
    assert ["s", "s/agent-in", "s/agent-a", "s/agent-b"] == [thread.id for thread in report.threads]
    assert {"s"} == {(await engine.thread(thread.id).info()).parent_id for thread in report.threads[1:]}
    assert "b" == (await engine.thread("s/agent-b").info()).agent_id


async def test_a_result_whose_call_is_missing_is_an_observation(engine: Engine, tmp_path: Path) -> None:
    """A recording may begin in the middle."""
    report = await ingest(engine, put(tmp_path, "s.jsonl", *SESSION[5:]))
    assert [] == report.errors
    assert 1 == (await came_in(engine, "s")).said["tool"]


@pytest.mark.parametrize("name", ["long/session.jsonl", "representative_messages.jsonl", "todowrite_examples.jsonl"])
async def test_everything_of_a_real_session_comes_in(engine: Engine, name: str) -> None:
    """Counted in the file by itself."""
    path = real(f"claude_code/{name}")
    report = await ingest(engine, path)
    assert [] == report.errors
    assert counted_claude_code(path) == await came_in(engine, path.stem)


async def test_everything_of_real_runs_comes_in(engine: Engine) -> None:
    """Of SWE-agent: those with calls, and those in which an observation is a message of the user role."""
    for path in sorted(real("swe_agent").glob("*.traj")):
        report = await ingest(engine, path)
        assert [] == report.errors
        assert counted_swe_agent(path) == await came_in(engine, path.stem)


RUN = {
    "history": [
        {"role": "system", "content": "You are a programmer", "message_type": "system_prompt"},
        {"role": "user", "content": "A demonstration", "is_demo": True},
        {"role": "user", "content": "The issue", "message_type": "observation"},
        {"role": "assistant", "content": "I look\n```\nls\n```", "thought": "I look", "action": "ls"},
        {"role": "user", "content": "a.py", "message_type": "observation"},
        {"role": "assistant", "content": "Done", "thought": "Done", "action": "submit"},
    ],
    "trajectory": [{"action": "ls", "observation": "a.py", "response": "I look\n```\nls\n```"}],
    "info": {"exit_status": "submitted"},
}


async def test_a_run_knows_its_observations(engine: Engine, tmp_path: Path) -> None:
    """The task is a person's, a demonstration the client's, the rest the tool's."""
    (tmp_path / "x.traj").write_text(json.dumps(RUN, indent=1))
    report = await ingest(engine, tmp_path / "x.traj")
    assert Counter({"info of the run": 1}) == report.left_out
    counts = await came_in(engine, "x")
    assert ({"": 1, "client": 1, "tool": 1}, 2) == (counts.said, counts.texts)


ACTION = {
    "id": "e2",
    "timestamp": "2026-02-01T10:00:02",
    "source": "agent",
    "kind": "ActionEvent",
    "thought": [{"type": "text", "text": "I look"}],
    "reasoning_content": "Hm.",
    "action": {"command": "ls", "kind": "TerminalAction"},
    "tool_name": "terminal",
    "tool_call_id": "c1",
    "tool_call": {"id": "c1", "name": "terminal", "arguments": '{"command": "ls"}'},
    "llm_response_id": "r1",
}


def stats(fed: int, made: int) -> dict[str, object]:
    """An event of OpenHands with sums of tokens."""
    sums = {"prompt_tokens": fed, "completion_tokens": made}
    value = {"usage_to_metrics": {"default": {"model_name": "m", "accumulated_token_usage": sums}}}
    return {"kind": "ConversationStateUpdateEvent", "source": "environment", "id": "x", "key": "stats", "value": value}


def observed(event_id: str, call_id: str, **more: object) -> dict[str, object]:
    """An observation of OpenHands."""
    seen = {"content": [{"type": "text", "text": "a.py"}], **more}
    event = {"kind": "ObservationEvent", "source": "environment", "tool_name": "terminal", "tool_call_id": call_id}
    return {**event, "id": event_id, "timestamp": "2026-02-01T10:00:03", "observation": seen}


async def test_events_of_openhands_are_calls_and_results(engine: Engine, tmp_path: Path) -> None:
    """Usage is told as sums, and counts for the response after it."""
    user = {"kind": "MessageEvent", "id": "e1", "source": "user", "timestamp": "2026-02-01T10:00:00"}
    second = {**ACTION, "id": "e4", "tool_call_id": "c2", "tool_call": None, "llm_response_id": "r2"}
    rows = (
        {**user, "llm_message": {"role": "user", "content": [{"type": "text", "text": "Fix"}]}},
        stats(10, 3),
        ACTION,
        observed("e3", "c1"),
        stats(30, 8),
        second,
        observed("e5", "c2", is_error=True),
    )
    report = await ingest(engine, put(tmp_path, "e.jsonl", *rows))
    counts = await came_in(engine, "e")
    assert [] == report.errors
    assert (2, 2, 1, 2, 8) == (counts.calls, counts.results, counts.failed, counts.thoughts, counts.tokens)
    assert counts.times == len(await events_of(engine, "e"))


async def test_the_applications_events_are_read(engine: Engine, tmp_path: Path) -> None:
    """An action is a call, also if its event says nothing about the model's message."""
    rows = [
        {
            "id": 0,
            "timestamp": "2026-01-01T10:00:00",
            "source": "user",
            "action": "message",
            "args": {"content": "Fix"},
        },
        {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "I look"}},
        {"id": 2, "cause": 1, "source": "agent", "observation": "run", "content": "a.py", "extras": {}},
        {"id": 3, "source": "environment", "action": "change_agent_state", "args": {}},
        {"id": 4, "source": "agent", "action": "message", "args": {"content": "Done"}},
    ]
    (tmp_path / "e.json").write_text(json.dumps(rows))
    report = await ingest(engine, tmp_path / "e.json")
    assert {"change_agent_state": 1} == report.left_out
    counts = await came_in(engine, "e")
    assert (1, 1, 2) == (counts.calls, counts.results, counts.texts)


async def test_a_real_stream_of_events_comes_in(engine: Engine) -> None:
    """Of OpenHands' SDK; one of its results belongs to a call before the stream."""
    path = real("openhands/events.jsonl")
    rows = [json.loads(one) for one in path.read_text().splitlines()]
    report = await ingest(engine, path)
    assert [] == report.errors
    counts = await came_in(engine, "events")
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["ActionEvent"] == counts.calls
    assert kinds["ObservationEvent"] == counts.results + counts.said["tool"]
    assert sum(bool(row.get("reasoning_content")) for row in rows) == counts.thoughts
