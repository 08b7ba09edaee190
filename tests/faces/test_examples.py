"""The examples run, and the docs show what they print: `python -m tests.faces.test_examples` writes it there anew."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "examples" / "agents.md"
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
SHOWN = re.compile(r"<!-- output of examples/(\w+\.py) -->\n```text\n(.*?)```\n", re.DOTALL)


def printed(name: str) -> str:
    """What an example prints, run as its reader runs it."""
    command = [sys.executable, str(ROOT / "examples" / name)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT, env=environment, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_docs_show(name: str) -> None:
    """Each example ends well, says nothing on stderr, and its output stands in the docs word for word."""
    shown = dict(SHOWN.findall(PAGE.read_text(encoding="utf-8")))
    assert shown.get(name) == printed(name)


def write() -> None:
    """Put the output of every example into the page."""

    def block(shown: re.Match[str]) -> str:
        return f"<!-- output of examples/{shown[1]} -->\n```text\n{printed(shown[1])}```\n"

    PAGE.write_text(SHOWN.sub(block, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
