"""Claude's memory tool: what the SDK's tool runner makes of it, what the log keeps, and mistakes."""

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.lib.tools import ToolError

from memory_engine import Engine
from memory_engine.errors import SchemaError
from memory_engine.integrations.anthropic import AsyncMemoryTool, MemoryTool
from tests.command_line import Run
from tests.integrations.examples import printed


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[MemoryTool]:
    """A tool on a new store."""
    with MemoryTool(str(tmp_path / "m.db")) as tool:
        yield tool


def call(tool: MemoryTool, command: str, **fields: object) -> str:
    """One call, as Claude makes it."""
    return str(tool.call({"command": command, **fields}))


def refused(tool: MemoryTool, command: str, **fields: object) -> str:
    """What Claude is told of a call that cannot be done."""
    with pytest.raises(ToolError) as error:
        call(tool, command, **fields)
    return str(error.value)


def test_a_folder_is_listed_two_levels_deep(tool: MemoryTool) -> None:
    """By name, without hidden items, with the sizes of texts."""
    for path in ("b.md", "a/1.md", "a/c/2.md", "a/c/d/3.md", ".hidden", "a/.git/x"):
        call(tool, "create", path=f"/memories/{path}", file_text="x" * 1536)
    head = "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:"
    lines = [
        "9K\t/memories",
        "6K\t/memories/a/",
        "1.5K\t/memories/a/1.md",
        "3K\t/memories/a/c/",
        "1.5K\t/memories/b.md",
    ]
    assert [head, *lines] == call(tool, "view", path="/memories").splitlines()
    assert "1.5K\t/memories/a/c/d/3.md" == call(tool, "view", path="/memories/a/c").splitlines()[-1]


def test_an_empty_memory_can_be_looked_at(tool: MemoryTool) -> None:
    """Claude looks before it writes anything."""
    assert ["0B\t/memories"] == call(tool, "view", path="/memories").splitlines()[1:]
    assert "All memory cleared" == tool.clear_all_memory()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/memoriesx/a", "must start with"),
        ("memories/a", "must start with"),
        ("/memories/../a", "would escape"),
        ("/memories/a/../../b", "would escape"),
        ("/memories/\0", "no path may have"),
        ("/memories/\ud800", "no path may have"),
    ],
)
def test_a_path_stays_in_the_memory(tool: MemoryTool, path: str, why: str) -> None:
    """Claude is told, and nothing is written."""
    assert why in refused(tool, "create", path=path, file_text="")
    assert why in refused(tool, "view", path=path)


def test_one_file_has_one_path(tool: MemoryTool) -> None:
    """However it is written."""
    call(tool, "create", path="/memories//a/./x/../b.md", file_text="b")
    assert call(tool, "view", path="/memories/a/b.md").endswith("\tb")
    assert "/memories/a already exists" in refused(tool, "create", path="/memories/a", file_text="")
    assert "/memories/a/b.md already exists" in refused(tool, "create", path="/memories/a/b.md/c", file_text="")
    assert "is not a file" in refused(tool, "str_replace", path="/memories/a", old_str="a", new_str="b")
    assert "is not a file" in refused(tool, "insert", path="/memories", insert_line=0, insert_text="b")
    assert "is inside" in refused(tool, "rename", old_path="/memories/a", new_path="/memories/a/c")
    assert "directory itself" in refused(tool, "delete", path="/memories/")
    assert "directory itself" in refused(tool, "rename", old_path="/memories", new_path="/memories/b")
    assert "already exists" in refused(tool, "rename", old_path="/memories/a", new_path="/memories")


def test_text_that_is_not_unicode_is_refused(tool: MemoryTool) -> None:
    """A lone surrogate has no UTF-8; nothing is written."""
    assert "not valid Unicode" in refused(tool, "create", path="/memories/a", file_text="\ud800")
    assert "does not exist" in refused(tool, "view", path="/memories/a")


def test_closing_ends_its_thread_and_another_tool_goes_on(tmp_path: Path) -> None:
    """The store is shared by whoever opens it; a tool that nobody closed ends with its last name."""
    before = threading.active_count()
    path = str(tmp_path / "m.db")
    with MemoryTool(path) as first:
        call(first, "create", path="/memories/a", file_text="1")
    first.close()
    second = MemoryTool(path, tenant_id="acme")
    assert "0B" in call(second, "view", path="/memories")
    second.close()
    third = MemoryTool(path, user_id="u1")
    call(third, "create", path="/memories/a", file_text="of the user")
    del third
    gc.collect()
    assert before >= threading.active_count()
    with MemoryTool(path) as last:
        assert call(last, "view", path="/memories/a").endswith("\t1")


def test_a_store_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    """The error is that of opening."""
    before = threading.active_count()
    with pytest.raises(SchemaError):
        MemoryTool("mysql://host/database")
    assert before >= threading.active_count()


async def test_two_agents_at_once_keep_each_edit(engine: Engine) -> None:
    """As many edits as were asked for, on what the others left."""
    tool = AsyncMemoryTool(engine.agent("claude"))
    await tool.call({"command": "create", "path": "/memories/a", "file_text": ""})
    edits = (
        tool.call({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": str(n)})
        for n in range(5)
    )
    await asyncio.gather(*edits)
    assert list("01234") == sorted((await engine.agent("claude").memory_files.read("a")).split())


def test_the_command_line_shows_what_claude_edited(tmp_path: Path, run: Run) -> None:
    """With the words of the tool's commands, since the events are built in."""
    path = str(tmp_path / "m.db")
    with MemoryTool(path) as tool:
        call(tool, "create", path="/memories/a.md", file_text="one")
        call(tool, "str_replace", path="/memories/a.md", old_str="one", new_str="two")
    code, out, _err = run("memory-files", "--db", path, "agent:claude", "a.md", "--history", "--json")
    assert (0, ["create", "str_replace"]) == (code, [version["what"] for version in json.loads(out)])


def answer(*content: dict[str, object]) -> httpx2.Response:
    """A message of Claude's."""
    stop = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
    return httpx2.Response(200, json={**whole, "stop_reason": stop, "stop_sequence": None})


async def test_the_sdks_runner_calls_it(engine: Engine) -> None:
    """The whole round: Claude's call, the file in the log, the result in the next request, a mistake told as one."""
    asked: list[dict[str, Any]] = []
    inputs = [
        {"command": "create", "path": "/memories/a", "file_text": "Tea."},
        {"command": "create", "path": "/memories/a", "file_text": "Coffee."},
    ]

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        if len(asked) > len(inputs):
            return answer({"type": "text", "text": "Done."})
        return answer({"type": "tool_use", "id": f"t{len(asked)}", "name": "memory", "input": inputs[len(asked) - 1]})

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
    async with anthropic.AsyncAnthropic(api_key="k", http_client=http) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=9, tools=[AsyncMemoryTool(engine.agent("claude"))],
            messages=[{"role": "user", "content": "I like tea."}],
        )  # fmt: skip
        await runner.until_done()
    assert {"type": "memory_20250818", "name": "memory"} == asked[0]["tools"][0]
    results = [block for request in (asked[-1], asked[1]) for block in request["messages"][-1]["content"]]
    assert "already exists" in str(results[0]["content"])
    assert results[0]["is_error"]
    assert "File created successfully" in str(results[1]["content"])
    assert "Tea." == await engine.agent("claude").memory_files.read("a")


def test_the_example_runs(tmp_path: Path) -> None:
    """Without a key it plays Claude."""
    assert "     1\tAnn likes coffee." in printed("anthropic", tmp_path)
