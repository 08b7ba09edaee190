"""Run the Python of README.md and docs/*.md as tests, and tell anyio's plugin its one back end.

What a page's reader may copy is what runs here:

- a block fenced ```` ```python ```` runs. One with `asyncio.run(` in it is a program: it knows no name of other blocks,
  as when you paste it into a file. Any other knows the names of the blocks before it
- a block fenced ```` ```py ```` must compile, and does not run: for what needs a server or a key
- in a block fenced ```` ```console ```` each line after `$ ` runs in a shell, as from the repository's root, and must
  print what follows; `...` stands for anything there. A command may end with another code if the next line says so:
  `# exit code 1`
- any other block is text

A comment `<!--- invisible-code-block: python` … `-->` runs like a block and is not shown: it checks what would only
lengthen the page.

The blocks of one page share one empty working directory, in that order down the page; another page starts afresh.
`<!-- skip: next -->` before a block leaves it out.
"""

import ast
import contextlib
import doctest
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sybil import Example, Sybil
from sybil.evaluators.python import pad
from sybil.parsers.markdown import CodeBlockParser, SkipParser

if TYPE_CHECKING:
    from types import CodeType

ROOT = Path(__file__).parent
COMMANDS = re.compile(
    r"^\$ (?P<command>.*(?:\n> .*)*)\n(?:# exit code (?P<code>\d+)\n)?(?P<printed>(?:(?!\$ ).*\n)*)", re.MULTILINE
)
# Where a page's resources wait for its end, among the names its blocks share.
PAGE = "__page__"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run coroutines in tests on asyncio: aiosqlite knows no other loop."""
    return "asyncio"


def open_page(namespace: dict[str, object]) -> None:
    """Give a page its empty working directory."""
    page = contextlib.ExitStack()
    folder = page.enter_context(tempfile.TemporaryDirectory(prefix="memory-engine-page-"))
    Path(folder, "examples").symlink_to(ROOT / "examples")
    page.enter_context(contextlib.chdir(folder))
    namespace[PAGE] = page


def close_page(namespace: dict[str, object]) -> None:
    """Delete what the page wrote."""
    page = namespace[PAGE]
    if not isinstance(page, contextlib.ExitStack):
        raise TypeError(f"a block of the page has taken the name {PAGE}")
    page.close()


def run_block(example: Example) -> None:
    """Execute one block: a program by itself, any other among its page's names."""
    is_program = "asyncio.run(" in example.parsed
    names: dict[str, object] = {"__name__": "__main__"} if is_program else example.namespace
    exec(_compile(example), names)
    example.namespace.update({name: value for name, value in names.items() if not name.startswith("__")})


def compile_block(example: Example) -> None:
    """Check that a block which is not run is at least Python."""
    _compile(example, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def run_console(example: Example) -> str | None:
    """Run the commands of one block in the page's directory; say where one prints something else."""
    environment = console_environment()
    for found in COMMANDS.finditer(example.parsed):
        command = found["command"].replace("\n> ", "\n")
        done = subprocess.run(command, shell=True, capture_output=True, encoding="utf-8", env=environment, check=False)
        if done.returncode != int(found["code"] or 0):
            return f"{command}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        if not doctest.OutputChecker().check_output(found["printed"], done.stdout, flags):
            return f"{command}\nprinted:\n{done.stdout}\nnot:\n{found['printed']}"
    return None


def console_environment() -> dict[str, str]:
    """What commands of a page find: this environment's programs first."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
    }


def _compile(example: Example, flags: int = 0) -> "CodeType":
    source = pad(example.parsed, example.line + example.parsed.line_offset)
    code: CodeType = compile(source, example.path, "exec", flags=flags, dont_inherit=True)
    return code


pytest_collect_file = Sybil(
    parsers=[
        CodeBlockParser(language="python", evaluator=run_block),
        CodeBlockParser(language="py", evaluator=compile_block),
        CodeBlockParser(language="console", evaluator=run_console),
        SkipParser(),
    ],
    path=str(ROOT),
    patterns=["README.md", "docs/**/*.md", "docs/*.md"],
    # A page of an adapter runs with its tests, in the environment of its peer.
    excludes=[] if "MEMORY_ENGINE_PEER" in os.environ else ["docs/integrations/*.md"],
    setup=open_page,
    teardown=close_page,
).pytest()
