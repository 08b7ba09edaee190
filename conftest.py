"""Run the Python of README.md and docs/*.md as tests, and tell anyio's plugin its one back end.

What a page's reader may copy is what runs here:

- a block fenced ```` ```python ```` runs; `await` may stand at its top level, as in `python -m asyncio`
- a block fenced ```` ```py ```` must compile, and does not run: for what needs a server or a key
- any other block is text

The blocks of one page share their names, one event loop and one empty working directory, in that order down
the page; another page starts afresh. `<!-- skip: next -->` before a block leaves it out.
"""

import ast
import asyncio
import contextlib
import inspect
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sybil import Example, Sybil
from sybil.evaluators.python import pad
from sybil.parsers.markdown import CodeBlockParser, SkipParser

if TYPE_CHECKING:
    from types import CodeType

# Where a page's resources wait for its end, among the names its blocks share.
PAGE = "__page__"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run coroutines in tests on asyncio: aiosqlite knows no other loop."""
    return "asyncio"


def open_page(namespace: dict[str, object]) -> None:
    """Give a page its loop and its empty working directory."""
    page = contextlib.ExitStack()
    folder = page.enter_context(tempfile.TemporaryDirectory(prefix="memory-engine-page-"))
    page.enter_context(contextlib.chdir(folder))
    namespace[PAGE] = page, page.enter_context(asyncio.Runner())


def close_page(namespace: dict[str, object]) -> None:
    """Stop what the page left running and delete what it wrote."""
    page, _runner = _resources(namespace)
    page.close()


def run_block(example: Example) -> None:
    """Execute one block among its page's names."""
    code = _compile(example)
    _page, runner = _resources(example.namespace)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, example.namespace))
    else:
        exec(code, example.namespace)


def compile_block(example: Example) -> None:
    """Check that a block which is not run is at least Python."""
    _compile(example)


def _compile(example: Example) -> "CodeType":
    source = pad(example.parsed, example.line + example.parsed.line_offset)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(source, example.path, "exec", flags=flags, dont_inherit=True)
    return code


def _resources(namespace: dict[str, object]) -> tuple[contextlib.ExitStack, asyncio.Runner]:
    match namespace[PAGE]:
        case (contextlib.ExitStack() as page, asyncio.Runner() as runner):
            return page, runner
    raise TypeError(f"a block of the page has taken the name {PAGE}")


pytest_collect_file = Sybil(
    parsers=[
        CodeBlockParser(language="python", evaluator=run_block),
        CodeBlockParser(language="py", evaluator=compile_block),
        SkipParser(),
    ],
    path=str(Path(__file__).parent),
    patterns=["README.md", "docs/**/*.md", "docs/*.md"],
    setup=open_page,
    teardown=close_page,
).pytest()
