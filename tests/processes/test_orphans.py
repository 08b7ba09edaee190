"""A process that destroys bytes may outlive the one that started it, and nobody writes to the file meanwhile."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig
from memory_engine.errors import StorageBusy
from tests.processes.test_crash import ROOT

CHILD = """
import asyncio, sys
from pathlib import Path
import memory_engine
from memory_engine.storage.sqlite import wiping

path, pages = sys.argv[1:]
wiping.PAGES = Path(pages)

async def main():
    async with memory_engine.open(path) as engine:
        await (await engine.create_thread("gone")).delete()

asyncio.run(main())
"""
SLOW_PAGES = """
import os, sys
if sys.argv[1] == "dirty":
    print("[1]")
    sys.exit()
sys.stdin.readline()
print(os.getpid(), file=open({told!r}, "w"), flush=True)
open({waits!r}).read()
"""


async def test_nobody_writes_while_an_orphan_zeroes_pages(tmp_path: Path) -> None:
    """The lock is the orphan's too: other processes wait for its end, or are told that the store is busy."""
    path, pages = str(tmp_path / "m.db"), tmp_path / "pages.py"
    told, waits = str(tmp_path / "told"), str(tmp_path / "waits")
    for pipe in (told, waits):
        os.mkfifo(pipe)
    pages.write_text(SLOW_PAGES.format(told=told, waits=waits))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, path, str(pages), cwd=ROOT, stderr=PIPE)
    await asyncio.to_thread(Path(told).read_text)
    child.kill()
    await child.communicate()
    with pytest.raises(StorageBusy):
        async with memory_engine.open(path, config=EngineConfig(busy_timeout_s=0.01)):
            pass
    await asyncio.to_thread(Path(waits).write_text, "")
    async with memory_engine.open(path) as engine:
        await engine.admin.finish_acts()
        assert [] == await engine.threads()
