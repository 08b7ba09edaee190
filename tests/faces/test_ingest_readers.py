"""The recordings of many tools: each comes in whole, with its times, calls, results, thoughts and usage."""

import json
import zipfile
from pathlib import Path

import pytest

from memory_engine import Engine
from memory_engine.core.moments import moment
from tests.faces.test_ingest_tools import came_in, engine, events_of, ingest

__all__ = ["engine"]
AT = "2026-02-03T04:05:06Z"


def lines(*values: object) -> str:
    """JSON Lines."""
    return "".join(json.dumps(value) + "\n" for value in values)


def item(kind: str, **fields: object) -> dict[str, object]:
    """A line of a rollout with an item."""
    return {"timestamp": AT, "type": "response_item", "payload": {"type": kind, **fields}}


def counted(total: int, last: int) -> dict[str, object]:
    """A line of a rollout with a count of tokens."""
    info = {
        "total_token_usage": {"output_tokens": total},
        "last_token_usage": {"input_tokens": 9, "output_tokens": last},
    }
    return {"timestamp": AT, "type": "event_msg", "payload": {"type": "token_count", "info": info}}


CODEX = lines(
    {"timestamp": AT, "type": "session_meta", "payload": {"id": "x", "base_instructions": {"text": "You code."}}},
    item(
        "message", role="user", content=[{"type": "input_text", "text": "<environment_context>x</environment_context>"}]
    ),
    item("message", role="user", content=[{"type": "input_text", "text": "Fix it"}]),
    item("reasoning", summary=[{"type": "summary_text", "text": "Look."}], encrypted_content="e"),
    item("function_call", name="shell", arguments="{}", call_id="c1"),
    item("function_call", name="shell", arguments="{}", call_id="c2"),
    item("function_call_output", call_id="c1", output={"content": "a.py", "success": True}),
    counted(20, 20),
    counted(20, 20),
    item("function_call_output", call_id="c2", output="b.py"),
    item("message", role="assistant", content=[{"type": "output_text", "text": "Done"}]),
    counted(25, 5),
    {"timestamp": AT, "type": "turn_context", "payload": {}},
    {"timestamp": AT, "type": "compacted", "payload": {"message": "So far: done"}},
)
GEMINI_CLI = {
    "sessionId": "s",
    "projectHash": "h",
    "startTime": AT,
    "messages": [
        {"id": "1", "timestamp": AT, "type": "user", "content": "Fix it"},
        {
            "id": "2",
            "timestamp": AT,
            "type": "gemini",
            "content": "",
            "model": "gemini-x",
            "thoughts": [{"subject": "Looking", "description": "At the file."}],
            "tokens": {"input": 50, "output": 7, "cached": 10},
            "toolCalls": [
                {
                    "id": "t",
                    "name": "ls",
                    "args": {"p": "."},
                    "status": "error",
                    "result": [{"functionResponse": {"id": "t", "name": "ls", "response": {"error": "no"}}}],
                }
            ],
        },
        {"id": "3", "timestamp": AT, "type": "info", "content": "Request cancelled."},
    ],
}
GEMINI = [
    {"role": "user", "parts": [{"text": "List them"}]},
    {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"functionCall": {"name": "ls", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"output": "a.py"}}}]},
    {"role": "model", "parts": [{"text": "a.py"}]},
]


def node(key: str, parent: str, role: str, text: object, **message: object) -> dict[str, object]:
    """A node of a tree of messages."""
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    said = {
        "id": key,
        "author": {"role": role, "name": message.pop("name", None)},
        "create_time": 1.7e9,
        "content": content,
    }
    return {"id": key, "message": {**said, "recipient": "all", **message}, "parent": parent, "children": []}


NODES: list[dict[str, object]] = [
    {"id": "root", "message": None, "parent": ""},
    node("u", "root", "user", "Plot it"),
    node("b", "u", "assistant", "An earlier answer"),
    node("t", "u", "assistant", {"content_type": "thoughts", "thoughts": [{"summary": "Plot", "content": "x"}]}),
    node("c", "t", "assistant", {"content_type": "code", "text": "plot()"}, recipient="python"),
    node("o", "c", "tool", {"content_type": "execution_output", "text": "ok"}, name="python"),
    node("a", "o", "assistant", "Here it is", metadata={"model_slug": "m"}),
]
CHATGPT = [
    {"conversation_id": "x1", "title": "T", "mapping": {str(one["id"]): one for one in NODES}, "current_node": "a"}
]
CLAUDE_AI = [
    {
        "uuid": "x1",
        "current_leaf_message_uuid": "m2",
        "chat_messages": [
            {"uuid": "m1", "sender": "human", "text": "Plot it", "created_at": AT, "parent_message_uuid": "0"},
            {"uuid": "mx", "sender": "assistant", "text": "Another", "created_at": AT, "parent_message_uuid": "m1"},
            {
                "uuid": "m2",
                "sender": "assistant",
                "created_at": AT,
                "parent_message_uuid": "m1",
                "content": [
                    {"type": "thinking", "thinking": "Hm."},
                    {"type": "tool_use", "name": "plot", "input": {}},
                    {"type": "tool_result", "name": "plot", "content": [{"type": "text", "text": "ok"}]},
                    {"type": "text", "text": "Here it is"},
                ],
            },
        ],
    }
]
USAGE = {"input_tokens": 8, "output_tokens": 3, "total_tokens": 11}
LANGCHAIN = [
    {"type": "system", "data": {"content": "Be kind", "type": "system"}},
    {"type": "human", "data": {"content": [{"type": "text", "text": "List them"}], "type": "human"}},
    {
        "type": "ai",
        "data": {
            "content": "",
            "id": "run-1",
            "tool_calls": [{"name": "ls", "args": {}, "id": "c1", "type": "tool_call"}],
            "usage_metadata": USAGE,
        },
    },
    {"type": "tool", "data": {"content": "no", "tool_call_id": "c1", "status": "error", "type": "tool"}},
]


def constructed(name: str, **fields: object) -> dict[str, object]:
    """A message as `dumpd` writes it."""
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": fields}


SAMPLE = {
    "id": "a",
    "epoch": 2,
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "hi"},
        {
            "id": "m1",
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "I look"}],
            "tool_calls": [{"id": "c1", "function": "ls", "arguments": {}}],
        },
        {"role": "tool", "tool_call_id": "c1", "function": "ls", "content": "", "error": {"message": "no"}},
    ],
    "events": [
        {
            "event": "model",
            "timestamp": AT,
            "output": {"model": "m", "choices": [{"message": {"id": "m1"}}], "usage": USAGE},
        },
        {"event": "tool", "id": "c1", "timestamp": AT},
    ],
    "scores": {"accuracy": 1},
}
INSPECT = {"version": 2, "status": "success", "eval": {"task": "t"}, "samples": [SAMPLE]}
SHAREGPT = [
    {
        "id": "q1",
        "system": "s",
        "conversations": [
            {"from": "human", "value": "hi"},
            {"from": "function_call", "value": '{"name": "ls", "arguments": {}}'},
            {"from": "observation", "value": "a.py"},
            {"from": "gpt", "value": "Thought: more. Action: ls"},
            {"from": "function", "value": "b.py"},
        ],
    }
]
TAU2 = {
    "timestamp": AT,
    "tasks": [],
    "simulations": [
        {
            "task_id": "7",
            "trial": 1,
            "messages": [
                {"role": "user", "content": "hi", "timestamp": AT},
                {
                    "role": "assistant",
                    "content": None,
                    "timestamp": AT,
                    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
                    "tool_calls": [
                        {"id": "c", "name": "ls", "arguments": {}},
                        {"id": "d", "name": "ls", "arguments": {}},
                    ],
                },
                {
                    "role": "tool",
                    "timestamp": AT,
                    "tool_messages": [
                        {"id": "c", "role": "tool", "content": "x", "requestor": "assistant", "error": False},
                        {"id": "d", "role": "tool", "content": "y", "requestor": "assistant", "error": True},
                    ],
                },
            ],
        }
    ],
}
LANGSMITH = lines(
    {
        "id": "r2",
        "trace_id": "t1",
        "run_type": "llm",
        "start_time": "2026-01-01T10:00:02",
        "end_time": "2026-01-01T10:00:03",
        "inputs": {
            "messages": [
                [
                    constructed("HumanMessage", content="hi"),
                    constructed("AIMessage", content="hello"),
                    constructed("HumanMessage", content="more"),
                ]
            ]
        },
        "outputs": {"generations": [[{"text": "", "message": constructed("AIMessage", content="Yes")}]]},
    },
    {
        "id": "r1",
        "trace_id": "t1",
        "run_type": "llm",
        "start_time": "2026-01-01T10:00:00",
        "end_time": "2026-01-01T10:00:01",
        "inputs": {"messages": [[constructed("HumanMessage", content="hi")]]},
        "outputs": {
            "generations": [[{"message": constructed("AIMessage", content="hello")}]],
            "usage_metadata": USAGE,
        },
    },
    {
        "id": "r0",
        "trace_id": "t1",
        "run_type": "chain",
        "start_time": "2026-01-01T09:00:00",
        "inputs": {},
        "outputs": {},
    },
)
LANGFUSE = [
    {
        "id": "o",
        "traceId": "t1",
        "type": "GENERATION",
        "startTime": AT,
        "endTime": AT,
        "model": "m",
        "usageDetails": {"input": 8, "output": 3},
        "input": {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]},
        "output": {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}],
        },
    }
]
SPAN_ATTRIBUTES = {
    "llm.model_name": "m",
    "llm.token_count.prompt": 8,
    "llm.token_count.completion": 3,
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "hi",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "ls",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
}
PHOENIX = [
    {
        "name": "llm",
        "context": {"trace_id": "t1", "span_id": "s"},
        "start_time": "2026-01-01T10:00:00+00:00",
        "end_time": "2026-01-01T10:00:01+00:00",
        "attributes": SPAN_ATTRIBUTES,
    }
]


def otlp(attributes: dict[str, object]) -> dict[str, object]:
    """An export of one span."""
    listed = [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in attributes.items()
    ]
    span = {"traceId": "t1", "spanId": "b", "startTimeUnixNano": str(17 * 10**17), "attributes": listed}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "endTimeUnixNano": str(17 * 10**17 + 10**9)}]}]}]}


TRACELOOP = {
    "gen_ai.usage.input_tokens": 8,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "hi",
    "gen_ai.completion.0.content": "hello",
}
ASSISTANTS = {
    "object": "list",
    "data": [
        {
            "id": "m2",
            "object": "thread.message",
            "created_at": 1_700_000_002,
            "role": "assistant",
            "content": [{"type": "text", "text": {"value": "hello"}}, {"type": "image_file", "image_file": {}}],
        },
        {
            "id": "m1",
            "object": "thread.message",
            "created_at": 1_700_000_001,
            "role": "user",
            "content": [{"type": "text", "text": {"value": "hi"}}],
        },
    ],
}
HI = {"role": "user", "content": "hi"}
CHOSEN = {"prompt": [HI], "chosen": [HI, {"role": "assistant", "content": "hello"}], "rejected": "no"}
VTT = "WEBVTT\n\n1\n00:00:01.000 --> 00:00:02.000\n<v Ann>We ship</v>\n\n"
VTT += "00:00:02.000 --> 00:00:03.000\n<v Ann>on Friday.</v>\n\n00:00:03.000 --> 00:00:04.000\nBen: Fine.\n"
MBOX = (
    "From a@b Thu Jan  1 10:00:00 2026\nFrom: Ann <a@b>\nDate: Thu, 01 Jan 2026 10:00:00 +0100\nSubject: s\n\nhi\n\n"
    "From c@d Thu Jan  1 11:00:00 2026\nFrom: c@d\nDate: Thu, 01 Jan 2026 11:00:00 +0000\nMessage-ID: <x>\n\nhello\n"
)
AIDER = "# aider chat started at 2026-01-01 10:00:00\n\n> Repo-map\n\n#### fix it\n#### all\n\nI fixed it.\n\nReally.\n"

# name, text, thread; then what comes in: calls, results, failed, thoughts, responses with usage, their output tokens
CASES = {
    "codex": ("x.jsonl", CODEX, "x", (2, 2, 0, 1, 2, 25)),
    "gemini cli": ("x.json", GEMINI_CLI, "x", (1, 1, 1, 1, 1, 7)),
    "gemini": ("x.json", GEMINI, "x", (1, 1, 0, 1, 0, 0)),
    "gemini request": (
        "x.json",
        {"contents": GEMINI, "systemInstruction": {"parts": [{"text": "s"}]}},
        "x",
        (1, 1, 0, 1, 0, 0),
    ),
    "chatgpt": ("x.json", CHATGPT, "x/x1", (1, 1, 0, 1, 0, 0)),
    "claude.ai": ("x.json", CLAUDE_AI, "x/x1", (1, 1, 0, 1, 0, 0)),
    "langchain": ("x.json", LANGCHAIN, "x", (1, 1, 1, 0, 1, 3)),
    "langchain lines": ("x.jsonl", lines(*LANGCHAIN), "x", (1, 1, 1, 0, 1, 3)),
    "inspect": ("x.json", INSPECT, "x/a-2", (1, 1, 1, 1, 1, 3)),
    "sharegpt": ("x.json", SHAREGPT, "x/q1", (1, 1, 0, 0, 0, 0)),
    "tau2": ("x.json", TAU2, "x/7-1", (2, 2, 1, 0, 1, 2)),
    "langsmith": ("x.jsonl", LANGSMITH, "x/t1", (0, 0, 0, 0, 1, 3)),
    "langfuse": ("x.json", LANGFUSE, "x/t1", (1, 0, 0, 0, 1, 3)),
    "phoenix": ("x.json", PHOENIX, "x/t1", (1, 0, 0, 0, 1, 3)),
    "openinference": ("x.json", otlp(SPAN_ATTRIBUTES), "x/t1", (1, 0, 0, 0, 1, 3)),
    "traceloop": ("x.jsonl", lines(otlp(TRACELOOP)), "x/t1", (0, 0, 0, 0, 1, 3)),
    "assistants": ("x.json", ASSISTANTS, "x", (0, 0, 0, 0, 0, 0)),
    "preferences": ("x.jsonl", lines(CHOSEN), "x/1", (0, 0, 0, 0, 0, 0)),
    "bfcl": ("x.jsonl", lines({"id": "q", "question": [[HI], [HI]]}), "x/q", (0, 0, 0, 0, 0, 0)),
    "slack": ("x.json", [{"type": "message", "user": "U1", "text": "hi", "ts": "1700000000.0"}], "x", (0,) * 6),
    "vtt": ("x.vtt", VTT, "x", (0,) * 6),
    "mail": ("x.mbox", MBOX, "x", (0,) * 6),
    "aider": ("x.md", AIDER, "x", (0,) * 6),
}
# who says how much (persons, tools, the client, summaries), instructions, texts of the model, events without a time
SAID = {
    "codex": ((1, 0, 1, 1), 1, 1, 0),
    "gemini cli": ((1, 0, 1, 0), 0, 0, 0),
    "gemini": ((1, 0, 0, 0), 0, 1, 5),
    "gemini request": ((1, 0, 0, 0), 1, 1, 6),
    "chatgpt": ((1, 0, 0, 0), 0, 1, 0),
    "claude.ai": ((1, 0, 0, 0), 0, 1, 0),
    "langchain": ((1, 0, 0, 0), 1, 0, 4),
    "langchain lines": ((1, 0, 0, 0), 1, 0, 4),
    "inspect": ((1, 0, 0, 0), 1, 1, 2),
    "sharegpt": ((1, 1, 0, 0), 1, 1, 6),
    "tau2": ((1, 0, 0, 0), 0, 0, 0),
    "langsmith": ((2, 0, 0, 0), 0, 2, 0),
    "langfuse": ((1, 0, 0, 0), 1, 0, 0),
    "phoenix": ((1, 0, 0, 0), 0, 0, 0),
    "openinference": ((1, 0, 0, 0), 0, 0, 0),
    "traceloop": ((1, 0, 0, 0), 0, 1, 0),
    "assistants": ((1, 0, 0, 0), 0, 1, 0),
    "preferences": ((1, 0, 0, 0), 0, 1, 2),
    "bfcl": ((2, 0, 0, 0), 0, 0, 2),
    "slack": ((1, 0, 0, 0), 0, 0, 0),
    "vtt": ((2, 0, 0, 0), 0, 0, 2),
    "mail": ((2, 0, 0, 0), 0, 0, 0),
    "aider": ((1, 0, 1, 0), 0, 1, 0),
}


def put(folder: Path, name: str, value: object) -> Path:
    """A file with a text, or with JSON."""
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


@pytest.mark.parametrize("case", CASES)
async def test_a_recording_comes_in_whole(engine: Engine, tmp_path: Path, case: str) -> None:
    """And once: a second time it adds nothing."""
    name, value, thread, wanted = CASES[case]
    path = put(tmp_path, name, value)
    report = await ingest(engine, path)
    assert [] == report.errors
    assert [thread] == [one.id for one in report.threads if not one.branch_of]
    counts = await came_in(engine, thread)
    assert wanted == (counts.calls, counts.results, counts.failed, counts.thoughts, counts.responses, counts.tokens)
    said = tuple(counts.said[origin] for origin in ("", "tool", "client", "summary"))
    untimed = len(await events_of(engine, thread)) - counts.times
    assert SAID[case] == (said, counts.instructions, counts.texts, untimed)
    assert 0 == sum(one.added for one in (await ingest(engine, path)).threads)


@pytest.mark.parametrize(
    ("case", "left_out"),
    [
        ("codex", {"turn_context": 1}),
        ("inspect", {"scores of a sample": 1}),
        ("langsmith", {"chain without messages": 1}),
        ("assistants", {"file of a message": 1}),
        ("preferences", {"rejected answer": 1}),
    ],
)
async def test_what_is_not_taken_is_counted(
    engine: Engine, tmp_path: Path, case: str, left_out: dict[str, int]
) -> None:
    """By its kind."""
    name, value, *_ = CASES[case]
    assert left_out == (await ingest(engine, put(tmp_path, name, value))).left_out


async def test_usage_that_is_told_later_is_no_other_content(engine: Engine, tmp_path: Path) -> None:
    """Spans that were ingested without their usage, or before it was read, are known."""
    spoken = {key: value for key, value in TRACELOOP.items() if ".usage." not in key}
    await ingest(engine, put(tmp_path, "x.jsonl", lines(otlp(spoken))))
    report = await ingest(engine, put(tmp_path, "x.jsonl", lines(otlp(TRACELOOP))))
    assert ([], [(0, 2)]) == (report.errors, [(one.added, one.known) for one in report.threads])


async def test_an_archive_of_samples_is_read(engine: Engine, tmp_path: Path) -> None:
    """As Inspect writes it: a file for each sample."""
    path = tmp_path / "x.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps({"version": 2}))
        archive.writestr("samples/a_epoch_2.json", json.dumps(SAMPLE))
        archive.writestr("samples/b_epoch_1.json", "{oops")
    report = await ingest(engine, path, skip_invalid=True)  # type: ignore[arg-type]
    assert ["x/a-2"] == [one.id for one in report.threads]
    assert ["samples/b_epoch_1.json is not JSON: Expecting property name enclosed in double quotes at column 2"] == [
        one.why for one in report.errors
    ]


async def test_a_request_has_its_instructions_and_its_response(engine: Engine, tmp_path: Path) -> None:
    """A log of a model's call: what is beside the messages counts."""
    response = {
        "id": "r",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}}],
    }
    value = {"system": "Count.", "messages": [{"role": "user", "content": "2+2?"}], "response": response, "tools": [{}]}
    report = await ingest(engine, put(tmp_path, "x.json", value))
    kinds = [event.type for event in await events_of(engine, "x")]
    assert ["session_started", "user_message", "llm_text_response"] == kinds
    assert {"tools (beside messages)": 1} == report.left_out


async def test_a_message_says_its_time(engine: Engine, tmp_path: Path) -> None:
    """Under whichever usual name, as a text or as a number."""
    rows = [{**HI, "ts": 1_700_000_000_123}, {**HI, "created_at": AT}, HI]
    await ingest(engine, put(tmp_path, "x.jsonl", lines(*rows)))
    times = [event.occurred_at for event in await events_of(engine, "x")]
    assert [moment("2023-11-14T22:13:20.123Z"), moment(AT), None] == times
