"""The command line as a process: its entry points, exit codes, pipes, terminals and interruptions."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine.cli import main
from tests.interruptible import python

SAMPLE = Path(memory_engine.__file__).parent / "cli" / "sample"
PYTHON = (sys.executable, "-m", "memory_engine")
ROOT = Path(memory_engine.__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def call(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, to the end."""
    return subprocess.run([*PYTHON, *words], capture_output=True, text=True, check=False, env=ENVIRONMENT)


def many(folder: Path, count: int) -> Path:
    """A file of so many messages."""
    path = folder / "many.jsonl"
    line = json.dumps({"role": "user", "content": "word " * 40})
    path.write_text(f"{line}\n" * count, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a log that is longer than what a pipe holds."""
    folder = tmp_path_factory.mktemp("process")
    path = str(folder / "x.db")
    assert 0 == main(["ingest", str(many(folder, 600)), "--db", path])
    return path


def test_the_module_runs_as_a_program(db: str) -> None:
    """`python -m memory_engine` is the command."""
    done = call("threads", "--db", db)
    assert (0, "", "many") == (done.returncode, done.stderr, done.stdout.splitlines()[1].split()[0])


def test_the_entry_point_is_the_same_function() -> None:
    """What pyproject.toml installs as `memory-engine` is `main`, and it returns the exit code."""
    code = "import sys; from memory_engine.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "stats", "--db", "/nowhere/x.db"],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert 2 == done.returncode
    assert done.stderr.startswith("memory-engine: error: /nowhere/x.db: there is no such file")


def test_exit_codes_tell_three_outcomes_apart(db: str, tmp_path: Path) -> None:
    """Done is 0, something wrong found is 1, could not be done is 2."""
    broken = tmp_path / "x.jsonl"
    broken.write_text("{", encoding="utf-8")
    asked: list[Sequence[str]] = [
        ("verify", "--db", db),
        ("ingest", str(broken), "--db", str(tmp_path / "y.db")),
        ("verify", "nobody", "--db", db),
    ]
    assert [0, 1, 2] == [call(*words).returncode for words in asked]


def test_a_reader_who_has_read_enough_is_no_error(db: str) -> None:
    """Closing the pipe early ends the command without a word."""
    with subprocess.Popen(
        [*PYTHON, "log", "many", "--json", "--db", db],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert 1 == json.loads(child.stdout.readline())["seq"]
        child.stdout.close()
        assert (b"", 0) == (child.stderr.read(), child.wait())


def test_an_interrupted_ingest_keeps_what_it_has(tmp_path: Path) -> None:
    """Ctrl-C ends with 130 and one word; the log holds together, and the same command goes on from there."""
    path = str(tmp_path / "x.db")
    command = python("-m", "memory_engine", "ingest", str(many(tmp_path, 400_000)), "--db", path)
    ours, theirs = pty.openpty()  # its progress is for a terminal
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=ENVIRONMENT) as child:
        os.close(theirs)
        told = os.read(ours, 65_536)
        while b"1 thread" not in told:
            told += os.read(ours, 65_536)
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how a terminal ends on Linux
            while piece := os.read(ours, 65_536):
                told += piece
        assert 130 == child.wait()
        assert told.endswith(b"interrupted\r\n")
    os.close(ours)
    found = json.loads(call("verify", "--db", path, "--json").stdout)
    assert found["ok"]
    assert 0 < found["events"] < 400_000


def test_output_on_a_terminal_fits_it(db: str) -> None:
    """On a real terminal of 60 columns no line is longer, and content is cut with an ellipsis."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [*PYTHON, "log", "many", "--limit", "3", "--db", db],
            stdout=theirs,
            env={**ENVIRONMENT, "COLUMNS": "60"},
        ) as child:
            assert 0 == child.wait()
        lines = os.read(ours, 65_536).decode().splitlines()
    finally:
        os.close(ours)
        os.close(theirs)
    assert [60] * 3 == [len(line) for line in lines]
    assert all(line.endswith("…") for line in lines)


def test_output_that_an_encoding_lacks_is_written_out(db: str) -> None:
    """A terminal of another encoding gets escapes, not a traceback."""
    done = subprocess.run(
        [*PYTHON, "log", "many", "--limit", "3", "--db", db],
        capture_output=True,
        check=False,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (0, b"") == (done.returncode, done.stderr)
    assert b"\\u2026" in done.stdout


def test_looking_at_the_help_loads_no_driver() -> None:
    """`--help` answers before anything heavy is imported."""
    code = (
        "import sys; from memory_engine.cli.program import build_parser; build_parser().format_help();"
        "print([name for name in ('aiosqlite', 'litellm', 'numpy', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert "[]\n" == done.stdout
