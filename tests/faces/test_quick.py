"""The quick run covers what it says: every file of tests has its part in it, and every public method is used there."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache

import pytest

from memory_engine import Engine, Thread
from tests import costs
from tests.conftest import ALONE, SHORT, USUAL, process_of

LEFT_TO_THE_SUITE = {
    "faces/test_examples.py": "starts a program for each example",
    "integrations/test_peers.py": "starts the tests of each peer",
    "postgres/test_read_only_search.py": "builds an index on a server",
    "trust/test_simulator.py": "simulates for seconds",
    "views/test_brief_bounds.py": "measures memory over long talks",
}
"""Files that may have no test in a quick run, with the reason."""
PLUMBING = {"check_present", "followed", "upto"}
"""Names of `Thread` for the package's own rooms, which no page of the docs shows."""


@cache
def functions() -> dict[str, str]:
    """The text of every test function by its name, as `costs.txt` names them."""
    return {
        f"{path.relative_to(costs.HERE).as_posix()}::{name}": text
        for path in sorted(costs.HERE.rglob("test_*.py"))
        for name, text in _tests_in(path.read_text("utf-8"))
    }


def _tests_in(source: str) -> Iterator[tuple[str, str]]:
    lines = source.splitlines()
    for node in ast.parse(source).body:
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for member in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name.startswith("test_"):
                first = min([member.lineno, *(one.lineno for one in member.decorator_list)])
                yield prefix + member.name, "\n".join(lines[first - 1 : member.end_lineno])


def _quick() -> dict[str, str]:
    """Those of a quick run: short ones, outside the environments of peers, that start no browser."""
    return {name: text for name, text in functions().items() if not _of_a_peer(name) and _is_quick(name, text)}


def _is_quick(name: str, text: str) -> bool:
    shortened = SHORT / USUAL if text.startswith("@given") or "\n@given" in text else 1
    return costs.is_quick(name, shortened=shortened) and process_of(name.partition("::")[0]) not in ALONE


def _of_a_peer(name: str) -> bool:
    return name.startswith("integrations/") and name.count("/") > 1


def test_every_file_has_its_part_in_a_quick_run() -> None:
    """But for folders whose tests start processes or browsers, and files that are named here."""
    files = {name.partition("::")[0] for name in functions() if not _of_a_peer(name)}
    alone = {file for file in files if process_of(file) in ALONE}
    quick = {name.partition("::")[0] for name in _quick()}
    assert set() == files - alone - quick - set(LEFT_TO_THE_SUITE)
    assert set() == set(LEFT_TO_THE_SUITE) - files


@pytest.mark.parametrize("of", [Engine, Thread])
def test_every_public_method_is_used_in_a_quick_run(of: type) -> None:
    """By its name."""
    used = "\n".join(_quick().values())
    public = [name for name, _ in inspect.getmembers(of) if not name.startswith("_") and name not in PLUMBING]
    assert [] == [name for name in public if not re.search(rf"\.{name}\b", used)]


def test_what_is_known_to_be_long_exists() -> None:
    """A test that has another name now is measured again: `python3 tasks.py test --costs`.

    Of a class, which inherits most of its tests, the file must be there.
    """
    inherited = {name for name in costs.known() if name.count("::") == 2}
    assert set() == {name for name in set(costs.known()) - inherited if name not in functions()}
    assert set() == {name for name in inherited if not (costs.HERE / name.partition("::")[0]).exists()}
