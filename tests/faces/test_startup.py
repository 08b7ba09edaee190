"""What a start loads, and what it leaves alone. Counted in modules: milliseconds would be the machine's."""

import asyncio
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pytest

import memory_engine
from memory_engine.cli.commands import Command
from memory_engine.cli.program import COMMANDS, command_at
from memory_engine.core import lazy
from tests.modules import every_module

OPEN = "from memory_engine import open, UserMessage"
CALL = "from memory_engine.cli import main\ntry:\n    main({words!r})\nexcept SystemExit:\n    pass"
TELL = "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"

NEVER = {
    "anthropic",
    "email",
    "http",
    "litellm",
    "numpy",
    "openai",
    "starlette",
    "tiktoken",
    "urllib.request",
    "uvicorn",
    "xml.sax",
}
"""Neither opening a memory nor a command of the terminal needs these unless an option asks for them."""
ON_DEMAND = {"anyio", "csv", "importlib.metadata", "tempfile", "tomllib", "zipfile"} | NEVER
OPENING_MAX = 110
"""Modules of our own that an open engine and an event class load; each takes a quarter of a millisecond or more."""
CONTEXT_MAX = 150
"""Modules after the first dispatch and the first context."""
THREADS_MAX = 120
FACES = {"memory_engine.cli", "memory_engine.inspector", "memory_engine.testing", "memory_engine.ingest"}


def loaded(code: str) -> set[str]:
    """The modules that a new interpreter has after running some code; those that it begins with are left out."""
    return _there(code) - _there("pass")


@cache
def _there(code: str) -> set[str]:
    told = subprocess.run([sys.executable, "-c", code + TELL], capture_output=True, text=True, check=True).stderr
    return set(json.loads(told.splitlines()[-1]))


def ours(modules: Collection[str]) -> set[str]:
    """Those of this package."""
    return {name for name in modules if name.partition(".")[0] == "memory_engine"}


def test_opening_loads_what_every_engine_needs() -> None:
    """No model, no database driver, no face of the engine, and no view."""
    found = loaded(OPEN)
    assert set() == found & (ON_DEMAND | FACES | {"argparse", "aiosqlite", "sqlite3"})
    assert set() == {name for name in found if name.startswith("memory_engine.llm")}
    assert {"memory_engine.views", "memory_engine.views.builtin"} == {
        name for name in found if name.startswith("memory_engine.views")
    }


FIRST_USES = """
import asyncio, memory_engine, sys
from memory_engine import UserMessage
def count():
    return [name for name in sys.modules if name.partition(".")[0] == "memory_engine"]
async def main():
    async with memory_engine.open({path!r}) as engine:
        thread = engine.thread("t")
        opened = count()
        await thread.dispatch(UserMessage(content="Where is the key?"))
        dispatched = count()
        await thread.context(max_tokens=8_000)
    print([len(opened), len(dispatched), len(count())])
    print([name for name in dispatched if name not in opened])
    print([name for name in ("json", "random", "tomllib") if name in sys.modules])
asyncio.run(main())
"""


def test_no_import_waits_for_the_first_dispatch(tmp_path: Path) -> None:
    """An engine that is open can record what people and models say: a count is not won by moving it."""
    path = str(tmp_path / "log.db")

    async def make() -> None:
        async with memory_engine.open(path) as engine:
            await engine.create_thread("t", user_id="u1")

    asyncio.run(make())
    code = FIRST_USES.format(path=path)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    counts, at_dispatch, of_python = map(json.loads, found.replace("'", '"').splitlines())
    assert [] == at_dispatch
    assert [] == of_python, "what a first dispatch and context do without: each takes one to three milliseconds"
    assert counts[0] <= OPENING_MAX
    assert counts[-1] <= CONTEXT_MAX


RENDER = """
import asyncio, memory_engine
async def main():
    async with memory_engine.open(":memory:") as engine:
        context = await (await engine.create_thread()).context()
        for form in ("openai.chat", "openai.responses", "anthropic"):
            context.render(form)
asyncio.run(main())
"""


def test_a_request_is_made_without_its_sdk() -> None:
    """An SDK takes seconds to import, and need not be there; a form is loaded when it is asked for."""
    forms = "memory_engine.formats"
    assert set() == loaded(RENDER) & {"anthropic", "openai"}
    assert set() == {name for name in loaded(OPEN) if name.startswith(forms)}


def test_importing_the_package_loads_nothing_of_it() -> None:
    """Names come when they are asked for."""
    assert {"memory_engine"} == ours(loaded("import memory_engine"))


@pytest.mark.parametrize(
    ("package", "name"),
    [("memory_engine", "Engine"), ("memory_engine", "UserMessage"), ("memory_engine.recall", "Hit")],
)
def test_a_package_lists_its_names_before_they_are_asked_for(package: str, name: str) -> None:
    """As completion in a shell needs it; each listed name is there."""
    subprocess.run([sys.executable, "-c", f"import {package} as p; assert {name!r} in dir(p)"], check=True)
    module = importlib.import_module(package)
    assert [] == [listed for listed in dir(module) if not hasattr(module, listed)]


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_command_line_answers_before_it_loads_the_engine(word: str) -> None:
    """Neither commands nor the libraries that the engine is made of."""
    found = loaded(CALL.format(words=[word]))
    program = {"memory_engine", "memory_engine.cli", "memory_engine.cli.options", "memory_engine.cli.program"}
    assert program == ours(found) - {"memory_engine.core", "memory_engine.core.version"}
    assert set() == found & {"asyncio", "attr", "msgspec", "sqlite3"}


def test_a_command_loads_itself_and_no_other(tmp_path: Path) -> None:
    """`threads` opens the engine and knows nothing of the other commands."""
    path = str(tmp_path / "log.db")

    async def make() -> None:
        async with memory_engine.open(path) as engine:
            await engine.create_thread()

    asyncio.run(make())
    found = loaded(CALL.format(words=["--db", path, "threads"]))
    assert set() == found & ON_DEMAND
    others = {f"memory_engine.cli.{entry.home.partition(':')[0]}" for entry in COMMANDS.values()}
    assert {"memory_engine.cli.look"} == found & others
    assert len(ours(found)) <= THREADS_MAX


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    """It is imported by a name in a text, which no type checker follows."""
    assert isinstance(command_at(COMMANDS[name].home), Command)


def test_every_pattern_compiles() -> None:
    """A mistake in one would be found by its first use only."""
    values = [value for module in every_module() for value in vars(module).values()]
    patterns = [value for value in values if isinstance(value, lazy.Uncompiled)]
    assert patterns
    for pattern in patterns:
        re.compile(*pattern.source)
