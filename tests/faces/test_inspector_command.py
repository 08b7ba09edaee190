"""`memory-engine inspect` as a process: its address, its end, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import memory_engine
from memory_engine.cli import main
from tests.inspecting import Headers
from tests.interruptible import python

SAMPLE = Path(memory_engine.__file__).parent / "cli" / "sample"
ROOT = Path(memory_engine.__file__).parent.parent


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a recorded conversation."""
    path = str(tmp_path_factory.mktemp("command") / "agent.db")
    assert 0 == main(["ingest", str(SAMPLE / "coding.jsonl"), "--db", path])
    return path


@contextmanager
def command(path: str, *words: str, environment: Headers | None = None) -> Iterator[subprocess.Popen[str]]:
    """`memory-engine inspect` as a process, killed at the end of the block if it is still there."""
    called = python("-m", "memory_engine", "inspect", "--port", "0", "--db", path, *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    with subprocess.Popen(called, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            yield child
        finally:
            child.kill()


def test_the_command_prints_an_address_that_works(path: str) -> None:
    """One line, and a page behind it; Ctrl-C ends it at once, listeners or not, as it ends every command."""
    with command(path) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        address = child.stdout.readline().strip()
        assert "read-only" in child.stdout.readline()
        token = address.partition("=")[2]
        live = address.replace("/?", "/api/live?thread=coding&")
        with urllib.request.urlopen(address) as page, urllib.request.urlopen(live) as listening:
            assert (200, b"event: head\n") == (page.status, listening.readline())
            child.send_signal(signal.SIGINT)
            assert (130, "interrupted\n") == (child.wait(30), child.stderr.read())
            assert b"event: end" in listening.read()
        assert len(token) >= 32


def test_the_command_tells_programs_where_it_is(path: str) -> None:
    """With `--json` one line: address, port, process; told to end, it ends well."""
    with command(path, "--json") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        said = json.loads(child.stdout.readline())
        assert ({"address", "port", "pid"}, child.pid) == (set(said), said["pid"])
        assert said["address"].startswith(f"http://127.0.0.1:{said['port']}/?token=")
        child.send_signal(signal.SIGTERM)
        assert (0, "", "") == (child.wait(30), child.stdout.read(), child.stderr.read())


def test_the_browser_is_opened_when_asked(path: str, tmp_path: Path) -> None:
    """With `--open`, at the address that is printed; never without it."""
    script, opened = tmp_path / "browser.py", tmp_path / "opened"
    script.write_text(f"import sys, pathlib; pathlib.Path({str(opened)!r}).write_text(sys.argv[1])", encoding="utf-8")
    os.mkfifo(opened)
    with command(path, "--open", environment={"BROWSER": f"{sys.executable} {script} %s"}) as child:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        assert address == opened.read_text(encoding="utf-8")


def test_an_address_leads_to_an_event(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where one wants to look stands behind the #; an event without its thread is no place."""
    with command(path, "--json", "--thread", "t 1", "--seq", "3") as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["address"].endswith("#thread=t+1&seq=3")
    assert 2 == main(["inspect", path, "--seq", "3"])
    assert "--thread" in capsys.readouterr().err


def test_a_link_survives_a_restart(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The token is drawn into a file that only its owner reads, and taken from there; the place may stand alone."""
    file = tmp_path / "token"
    addresses = []
    for words in (("--write",), ()):
        with command("other.db", path, "--json", "--token-file", str(file), *words) as child:
            assert child.stdout is not None
            addresses.append(json.loads(child.stdout.readline())["address"])
    assert 1 == len({address.partition("token=")[2] for address in addresses})
    assert 0o600 == file.stat().st_mode & 0o777
    file.write_text("short", encoding="ascii")
    assert 2 == main(["inspect", path, "--token-file", str(file)])
    assert "16 characters" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--host", "0.0.0.0"), ("--host", "example.com")])
def test_the_command_serves_this_machine_alone(
    path: str, words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Any other address is refused with what is wrong about it."""
    assert 2 == main(["inspect", "--db", path, *words])
    assert f"cannot be served at {words[1]}" in capsys.readouterr().err


def test_the_command_wants_a_database_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And makes none."""
    assert 2 == main(["inspect", "--db", str(tmp_path / "none.db")])
    assert "there is no such file" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())
