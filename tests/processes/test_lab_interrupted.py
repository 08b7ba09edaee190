"""Ctrl-C in the middle of a lab run: what is finished is reported, and no process stays."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

SLOW = """
import asyncio
from pathlib import Path
from memory_engine.compactors import EmbeddedCompactor

class Slow(EmbeddedCompactor):
    name = "slow"
    async def compact(self, chunks, context):
        Path("begun").write_text("")
        await asyncio.sleep(3600)

slow = Slow()
"""


def test_ctrl_c_leaves_what_is_finished(tmp_path: Path) -> None:
    """Exit code 130, with the report of the threads that were done."""
    talk = [{"role": ("user", "assistant")[n % 2], "content": f"{n} " + "And so on. " * 60} for n in range(40)]
    (tmp_path / "a.json").write_text(json.dumps(talk[:2]))
    (tmp_path / "b.json").write_text(json.dumps(talk))
    os.mkfifo(tmp_path / "begun")
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "c.toml").write_text('compaction = {compactor = "slow:slow", policy = {threshold = 6}}')
    words = ("lab", "run", "a.json", "b.json", "--under", "c.toml", "--jobs", "1", "--json")
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "memory_engine", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        (tmp_path / "begun").read_bytes()  # waits until the compactor opens it
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    found = json.loads(out)
    assert (130, True) == (process.returncode, found["interrupted"])
    assert ["a"] == [one["thread"] for one in found["threads"]]
