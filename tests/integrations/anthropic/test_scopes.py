"""Memory files of another user or tenant are neither read nor changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types import beta

from memory_engine import Engine
from memory_engine.integrations.anthropic import AsyncMemoryTool, MemoryTool
from tests.integrations.scoped import SECRET, Apart, Asked, Contract, Table, public

FILE = "/memories/keys.md"
VIEW = beta.BetaMemoryTool20250818ViewCommand(command="view", path=FILE)
COMMANDS: dict[str, Any] = {
    "view": VIEW,
    "create": beta.BetaMemoryTool20250818CreateCommand(command="create", path="/memories/mine.md", file_text="Mine."),
    "str_replace": beta.BetaMemoryTool20250818StrReplaceCommand(
        command="str_replace", path=FILE, old_str="locker 17", new_str="locker 18"
    ),
    "insert": beta.BetaMemoryTool20250818InsertCommand(command="insert", path=FILE, insert_line=0, insert_text="Mine."),
    "rename": beta.BetaMemoryTool20250818RenameCommand(command="rename", old_path=FILE, new_path="/memories/gone.md"),
    "delete": beta.BetaMemoryTool20250818DeleteCommand(command="delete", path=FILE),
}


def asked(call: Callable[[Any], Any], *, shows: bool = False) -> Asked[Any]:
    """A call of the tool, whether it blocks or is awaited."""

    async def called(tool: object) -> object:
        found = call(tool)
        return await found if hasattr(found, "__await__") else found

    return Asked(called, "hidden", shows, errors=(ToolError,))


def command_of(name: str) -> Asked[Any]:
    """One of the commands."""
    return asked(lambda tool: getattr(tool, name)(COMMANDS[name]), shows=name == "view")


TABLE: Table[Any] = {
    **{name: [command_of(name)] for name in COMMANDS},
    "execute": [asked(lambda tool: tool.execute(VIEW), shows=True)],
    "call": [asked(lambda tool: tool.call({"command": "view", "path": FILE}), shows=True)],
    "clear_all_memory": [asked(lambda tool: tool.clear_all_memory())],
    "to_dict": Apart("the tool's definition"),
}


async def seed(tool: Any) -> None:
    """A file."""
    command = beta.BetaMemoryTool20250818CreateCommand(command="create", path=FILE, file_text=SECRET)
    made = tool.create(command)
    if hasattr(made, "__await__"):
        await made


async def test_every_method_of_the_tool_stays_with_its_user(tmp_path: Path) -> None:
    """And in its tenant; without a user, it is the agent's."""
    places: list[str] = []
    tools: list[MemoryTool] = []

    def place() -> str:
        places.append(str(tmp_path / f"{len(places)}.db"))
        return places[-1]

    def make(_engine: object, user: str, tenant: str) -> MemoryTool:
        tools.append(MemoryTool(places[-1], user_id=user, tenant_id=tenant))
        return tools[-1]

    try:
        await Contract(
            methods=public(MemoryTool), make=make, seed=seed, table=TABLE | {"close": Apart("it ends")}, place=place
        ).check()
    finally:
        for tool in tools:
            tool.close()
    assert public(BetaAbstractMemoryTool) <= TABLE.keys()


async def test_every_method_of_the_async_tool_stays_with_its_thread() -> None:
    """The program gives it one."""

    def make(engine: Engine, user: str, tenant: str) -> AsyncMemoryTool:
        return AsyncMemoryTool(
            engine.user(user, tenant_id=tenant) if user else engine.agent("claude", tenant_id=tenant)
        )

    await Contract(methods=public(AsyncMemoryTool), make=make, seed=seed, table=TABLE).check()
    assert public(BetaAsyncAbstractMemoryTool) <= TABLE.keys()
