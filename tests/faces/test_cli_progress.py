"""Long work in a real terminal: a line that moves each second, and is gone at the end. In a pipe there is none."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine.events import UserMessage
from memory_engine.plugins import plugin_at

SLOW = """
import os, time
from memory_engine import Add, Chunk, Plugin, Reduction
from memory_engine.compactors import EmbeddedCompactor
from memory_engine.events import Event
from memory_engine.store.passages import Extracted, Text

plugin = Plugin("slow")

def wait():
    time.sleep(float(os.environ.get("SLOW_S", "0")))

@plugin.event("slow_order")
class SlowOrder(Event):
    order: str

@plugin.reducer(SlowOrder)
def reduce_slow_order(view, event, ctx):
    wait()
    chunk = Chunk(id=ctx.new_id(), type="order", content=event.order)
    return Reduction((Add(chunk.id),), (chunk,))

@plugin.passages(SlowOrder)
def passages_of(event, seq):
    wait()
    return Extracted((Text(event.order, "note"),))

class Slow:
    name = "slow"

    def can_compact(self, chunks):
        return True

    async def compact(self, chunks, context):
        wait()
        return await EmbeddedCompactor().compact(chunks, context)

plugin.compactor(Slow())
"""
EVENT = '{"type": "slow_order", "version": 1, "payload": {"order": "one"}}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a database, an exported log, events, and a plug-in that blocks the event loop while it reduces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "slow_shop.py").write_text(SLOW)
    (tmp_path / "events.jsonl").write_text(EVENT)
    plugin = plugin_at("slow_shop:plugin")

    async def fill() -> None:
        async with memory_engine.open("m.db", plugins=[plugin]) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch(plugin.events[0](order="one"))
            await thread.search("one")  # makes the index that a rebuild makes again
            talk = await engine.create_thread("talk")
            await talk.dispatch_all([UserMessage(content=f"Where is order {n}? " * 20) for n in range(12)])

    anyio.run(fill)
    sys.modules.pop("slow_shop")
    return tmp_path


def words_of(*words: str) -> list[str]:
    """The call of a command with the slow plug-in."""
    return [sys.executable, "-m", "memory_engine", *words, "--plugins", "slow_shop:plugin"]


def in_terminal(*words: str) -> tuple[int, str]:
    """Exit code and what a terminal got, where each event takes three seconds."""
    master, screen = pty.openpty()
    surroundings = {**os.environ, "SLOW_S": "3.2", "TERM": "xterm"}
    child = subprocess.Popen(words_of(*words), stdin=screen, stdout=screen, stderr=screen, env=surroundings)
    os.close(screen)
    got = b""
    while True:
        try:
            piece = os.read(master, 65_536)
        except OSError:  # Linux ends a terminal that nobody writes to any more in this way
            break
        if not piece:
            break
        got += piece
    os.close(master)
    return child.wait(), got.decode()


COMMANDS = [
    ("verifying", ("verify", "--db", "m.db")),
    ("reducing again", ("rereduce", "t", "--dry-run", "--db", "m.db")),
    ("ingesting", ("ingest", "events.jsonl", "--db", "other.db")),
    ("copying", ("copy", "m.db", "other.db")),
    ("rebuilding", ("rebuild", "t", "--search", "--db", "m.db")),
    ("comparing", ("compare-compactors", "talk", "--compactor", "slow", "--threshold", "6", "--db", "m.db")),
]


@pytest.mark.parametrize(("what", "words"), COMMANDS)
def test_progress_moves_each_second(folder: Path, what: str, words: tuple[str, ...]) -> None:
    """Even while a reducer keeps the event loop busy: each second is shown, and the last line is cleared."""
    code, got = in_terminal(*words)
    assert code in (0, 2), got  # 2: nothing to reduce again
    lines = [line for line in got.split("\r\x1b[K") if re.match(r"[a-z ]+: .*\d+ s$", line)]
    seconds = {int(found[1]) for line in lines if (found := re.search(r"(\d+) s$", line))}
    assert {1, 2, 3} <= seconds, got
    assert any(line.startswith(what) for line in lines) or what == "copying"
    assert not got.split("\r\x1b[K")[-1].startswith(what)


@pytest.mark.parametrize(("what", "words"), COMMANDS)
def test_a_pipe_gets_no_progress(folder: Path, what: str, words: tuple[str, ...]) -> None:
    """However long it takes."""
    surroundings = {**os.environ, "SLOW_S": "1.5"}
    ran = subprocess.run(words_of(*words), check=False, capture_output=True, text=True, env=surroundings)
    assert ran.returncode in (0, 2), ran.stderr
    assert what + ":" not in ran.stderr + ran.stdout
    assert "\r" not in ran.stderr + ran.stdout
