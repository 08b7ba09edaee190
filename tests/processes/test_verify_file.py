"""A file's threads are verified in several processes, which end with whoever asked."""

import asyncio
import gc
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage
from memory_engine.cli import main
from memory_engine.errors import StorageFailed, ThreadNotFound, WorkerFailed
from memory_engine.files import verify_file as verify_file_module
from memory_engine.files.verify_file import verify_file
from tests.cancelling import Cancelled, by_scope, by_task, moments
from tests.conversations import NEVER
from tests.interruptible import python
from tests.replay.test_verify import POSITION, ROOT, filled, tamper


@pytest.fixture
async def many(tmp_path: Path) -> str:
    """A file with five threads, of which `t3` is broken."""
    path = str(tmp_path / "many.db")
    async with memory_engine.open(path, config=EngineConfig(compaction=NEVER)) as engine:
        for n in range(5):
            thread = await engine.create_thread(f"t{n}")
            await thread.dispatch_all([UserMessage(content=f"message {n}.{m}") for m in range(20 * n + 1)])
    tamper(
        path,
        f"UPDATE events SET payload = CAST(replace(payload, '3.5', '3.9') AS BLOB) WHERE {POSITION} = 6 "
        "AND tid = (SELECT tid FROM threads WHERE id = 't3')",
    )
    return path


@pytest.mark.parametrize("jobs", [1, 2, 3])
async def test_any_number_of_processes_finds_the_same(many: str, jobs: int) -> None:
    """Reports come in the order of the threads, and progress adds up to all events."""
    seen: list[tuple[int, int]] = []
    reports = await verify_file(many, jobs=jobs, progress=lambda threads, events: seen.append((threads, events)))
    assert [f"t{n}" for n in range(5)] == [report.thread_id for report in reports]
    assert [3] == [n for n, report in enumerate(reports) if not report.ok]
    found = reports[3].divergence
    assert found is not None
    assert ("hash", 6) == (found.kind, found.seq)
    assert (5, 1 + 21 + 41 + 5 + 81) == seen[-1]
    assert sorted(seen) == seen


async def test_named_threads_alone_are_verified(many: str) -> None:
    """In the order in which they are named; one that is not there is an error."""
    reports = await verify_file(many, jobs=2, thread_ids=["t4", "t0", "t4"])
    assert ["t4", "t0"] == [report.thread_id for report in reports]
    with pytest.raises(ThreadNotFound):
        await verify_file(many, thread_ids=["t0", "nobody"])


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Verifying makes no file."""
    with pytest.raises(StorageFailed, match="no such file"):
        anyio.run(verify_file, str(tmp_path / "none.db"))
    assert [] == list(tmp_path.iterdir())


async def test_after_a_divergence_no_other_thread_is_begun(many: str) -> None:
    """With `fail_fast`; what was verified before is reported."""
    reports = await verify_file(many, fail_fast=True)
    assert ["t0", "t1", "t2", "t3"] == [report.thread_id for report in reports]


async def test_a_process_that_dies_names_its_thread(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the middle of a thread: an error that names it, and the others are ended."""
    dying = verify_file_module._BEGIN.replace(
        "serve(asked)",
        "import memory_engine.replay.verify as v, os, signal\n"
        "v.Verifier.verify = lambda *args: os.kill(os.getpid(), signal.SIGKILL)\n"
        "serve(asked)",
    )
    monkeypatch.setattr(verify_file_module, "_BEGIN", dying)
    with pytest.raises(WorkerFailed, match=r"thread 't[34]' could not be verified: its process ended with code -9"):
        await verify_file(many, jobs=2)


ANSWERS_AT_ONCE = """
import sys
next(sys.stdin)
for line in sys.stdin:
    print('{"gone": true}', flush=True)
"""


STAYS = """
import asyncio, os
import memory_engine.replay.verify as v
told = open({told!r}, "w")
async def stay(*_args):
    print(os.getpid(), file=told, flush=True)
    await asyncio.Event().wait()
v.Verifier.verify = stay
serve(asked)
"""


@pytest.mark.parametrize("cancelled", [by_task, by_scope])
async def test_no_process_outlives_the_call(many: str, monkeypatch: pytest.MonkeyPatch, cancelled: Cancelled) -> None:
    """Wherever the call is cancelled, once or again and again, its processes have ended and their pipes are closed."""
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def noted(program: str, *words: str, **options: object) -> asyncio.subprocess.Process:
        # without what is installed, which it does not need, a Python starts in a third of the time
        started.append(await start(program, "-I", "-S", *words, **options))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    monkeypatch.setattr(verify_file_module, "_BEGIN", ANSWERS_AT_ONCE)
    for moment in moments():
        await cancelled(partial(verify_file, many, jobs=2), moment)
        assert None not in [process.returncode for process in started]
    assert started
    started.clear()
    gc.collect()  # a process that nobody waited for, or an open pipe, would complain here, and a warning is an error


async def test_processes_that_fail_together_are_all_waited_for(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure of one cancels the others, which may be ending themselves."""
    monkeypatch.setattr(verify_file_module, "_BEGIN", "")
    for _ in range(10):
        with pytest.raises(WorkerFailed):
            await verify_file(many, jobs=3)
    gc.collect()


async def test_what_a_process_raises_names_its_thread(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is, the one who asked is told in a line."""
    failing = verify_file_module._BEGIN.replace(
        "import json, sys", "import json, sys, memory_engine.wiring as w\nw.open = 1 / 1"
    )
    monkeypatch.setattr(verify_file_module, "_BEGIN", failing)
    with pytest.raises(WorkerFailed, match=r"thread 't[34]' could not be verified: TypeError"):
        await verify_file(many, jobs=2)


def test_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    """The command ends with code 130, and nothing of it is left."""
    path, told = str(tmp_path / "m.db"), tmp_path / "told"
    for thread_id in "abc":  # one is for the command's own process
        anyio.run(partial(filled, path, *[UserMessage(content="x")] * 9, thread_id=thread_id))
    os.mkfifo(told)
    staying = verify_file_module._BEGIN.replace("serve(asked)", STAYS.format(told=str(told)))
    command = (
        "import sys\n"
        "from memory_engine.cli import main\n"
        "from memory_engine.files import verify_file as verify_file_module\n"
        f"verify_file_module._BEGIN = {staying!r}\n"
        "sys.exit(main())\n"
    )
    words = python("-c", command, "verify", "--jobs", "3", "--db", path)
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True) as process:
        with told.open(encoding="utf-8") as pids:
            children = [int(pids.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(30)
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


async def test_a_thread_that_goes_while_it_is_verified_is_left_out(many: str) -> None:
    """Among all, nobody misses it; asked for by name, it is an error."""
    async with memory_engine.open(many) as engine:
        deleting = asyncio.Event()

        def delete(_threads: int, _events: int) -> None:
            deleting.set()

        async def remove() -> None:
            await deleting.wait()
            await engine.thread("t4").admin.delete()

        task = asyncio.ensure_future(remove())
        reports = await verify_file(many, progress=delete)
        await task
    assert {"t0", "t1", "t2", "t3"} <= {report.thread_id for report in reports}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package on the path, as pip installs them, that publishes an event with its reducer, and prints."""
    info = tmp_path / "site" / "shop-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[memory_engine.plugins]\nshop = shop_plugin:plugin\n")
    (info.parent / "shop_plugin.py").write_text(
        "from memory_engine import Add, Chunk, Event, Plugin, Reduction\n"
        "print('{\"events\": 99}')\n"
        "plugin = Plugin('shop')\n"
        "@plugin.event('shop_order')\n"
        "class ShopOrder(Event):\n"
        "    order: str\n"
        "@plugin.reducer(ShopOrder)\n"
        "def reduce_shop_order(view, event, ctx):\n"
        "    chunk = Chunk(id=ctx.new_id(), type='order', content=event.order)\n"
        "    return Reduction((Add(chunk.id),), (chunk,))\n"
    )
    monkeypatch.syspath_prepend(str(info.parent))
    yield
    sys.modules.pop("shop_plugin", None)


@pytest.mark.usefixtures("installed")
def test_installed_plug_ins_are_known_unless_they_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In each process, whatever they print; without them their events are not known, and the verdict says so."""
    path = str(tmp_path / "m.db")

    async def fill() -> None:
        async with memory_engine.open(path, entry_points=True) as engine:
            shop = importlib.import_module("shop_plugin")
            for thread_id in "ab":
                await (await engine.create_thread(thread_id)).dispatch(shop.ShopOrder(order="FW-1"))

    anyio.run(fill)
    for jobs in ("1", "2"):
        assert 0 == main(["verify", "--jobs", jobs, "--db", path])
        assert 2 == main(["verify", "--no-plugins", "--jobs", jobs, "--db", path])
    told = capsys.readouterr()
    assert 2 == told.err.count("no plug-in that is loaded declares the event type 'shop_order'; name the one")
    assert "diverge" not in told.out
    assert 0 == main(["rebuild", "--db", path])
    assert 0 == main(["to-pytest", "a", "--seqs", "1", "--db", path])
    assert 2 == main(["to-pytest", "a", "--seqs", "1", "--no-plugins", "--db", path])
    assert "shop_order is not known here" in capsys.readouterr().err
