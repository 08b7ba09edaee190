"""Verifying a whole file, its threads shared among processes.

A process is a Python of its own that opens the file only to look. Threads are given to it one at a time on its
standard input; its findings come back on its standard output, a JSON value a line. It ends with its input, so that
it never outlives the process that started it.
"""

import asyncio
import logging
import signal
import sys
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
from attrs import define, field

from memory_engine.core.arguments import PathLike, checked_path
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import StorageFailed, ThreadNotFound, WorkerFailed
from memory_engine.errors.base import is_url
from memory_engine.files.workers import answers_alone, cores, run_together, tell_worker, worker_process
from memory_engine.plugins import Plugin, installed_plugins, plugin_at
from memory_engine.replay.divergence import VerifyReport
from memory_engine.replay.verify import Verifier
from memory_engine.runtime.config import EngineConfig
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.broken import VERSION
from memory_engine.store.keys import KeySource, given_secret, written
from memory_engine.store.protocol import BROKEN_ROWS
from memory_engine.wiring import open as open_engine

_log = logging.getLogger("memory_engine")

FileProgress = Callable[[int, int], None]
"""Called now and then with the number of threads and of events done."""
_BEGIN = (
    "import json, sys\n"
    "asked = sys.stdin.buffer.readline()\n"
    "sys.path[:] = json.loads(asked)['path']\n"
    "from memory_engine.files.verify_file import serve\n"
    "serve(asked)\n"
)


class _WorkerTask(msgspec.Struct):
    """The first line for a process: where it finds modules, the file, and the plug-ins and key to open it with.

    It goes through a pipe, which no one else can read.
    """

    path: list[str]
    file: str
    entry_points: bool
    plugins: Sequence[str]
    key: str | None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.file!r})"


class _WorkerAnswer(msgspec.Struct, omit_defaults=True):
    """How far a process is with its thread, or what it found. `gone`: the thread was deleted.

    `failed` says what it raised, `raised_at` is the traceback.
    """

    events: int = 0
    report: VerifyReport | None = None
    gone: bool = False
    failed: str = ""
    raised_at: str = ""

    @property
    def is_last(self) -> bool:
        return self.report is not None or self.gone or bool(self.failed)


_ANSWERS = msgspec.json.Decoder(_WorkerAnswer)


async def verify_file(  # noqa: PLR0913 - what is asked of it, by keyword
    path: PathLike,
    *,
    jobs: int = 1,
    thread_ids: Collection[str] | None = None,
    entry_points: bool = False,
    plugins: Sequence[str] = (),
    fail_fast: bool = False,
    key: KeySource | None = None,
    progress: FileProgress | None = None,
) -> list[VerifyReport]:
    """Verify the threads of a file, or the given ones, in `jobs` processes, this one included (0: one for each core).

    It writes nothing but which threads are broken, or whole again (see `Replay.verify`).

    `entry_points` takes the plug-ins that installed packages publish, as `open` does, `plugins` those that are named
    `"module:name"`: each process imports its own.
    `key` opens an encrypted file.
    The reports are in the order of the threads; with `fail_fast` no other thread is begun
    after one has diverged. A thread is verified by one process, however long it is.

    Raises `StorageFailed` where there is no such file, `ThreadNotFound`, and `WorkerFailed` naming the thread whose
    process died or could not go on.
    """
    path = checked_path("path", path)
    secret = await given_secret(key)
    asked = _WorkerTask(sys.path, path, entry_points, plugins, None if secret is None else written(secret))
    async with _only_read(asked) as engine:
        sizes = {info.id: info.events for info in await engine.threads()}
        for thread_id in thread_ids or ():
            if thread_id not in sizes:
                raise ThreadNotFound(thread_id)
        wanted = list(sizes if thread_ids is None else dict.fromkeys(thread_ids))
        work = _Work(wanted, sizes, fail_fast, progress, thread_ids is not None)
        several = min(jobs or cores(), len(wanted))
        if several <= 1:
            work.take_in_order()
        # this process is one of them: it begins at once, while the others load their modules
        await run_together([work.here(engine), *(work.elsewhere(asked) for _ in range(several - 1))])
        noted = await kernel_of(engine).store.holders(BROKEN_ROWS, VERSION)
    reports = work.results()
    news = [report for report in reports if report.broken or (report.ok and report.thread_id in noted)]
    if news:
        async with open_engine(path, key=asked.key, plugins=_plugins_of(asked)) as engine:
            for report in news:
                await kernel_of(engine)[OpenThreads].note(report.thread_id, report.broken)
    return reports


@define
class _Work:
    """The threads that are still to be verified, the longest first, and the reports so far."""

    wanted: Sequence[str]
    sizes: dict[str, int]
    fail_fast: bool
    progress: FileProgress | None
    are_named: bool
    _waiting: deque[str] = field(init=False)
    _reports: dict[str, VerifyReport] = field(factory=dict)
    _under_way: dict[str, int] = field(factory=dict)
    _events: int = 0

    def __attrs_post_init__(self) -> None:
        self._waiting = deque(sorted(self.wanted, key=lambda thread_id: -self.sizes[thread_id]))

    def results(self) -> list[VerifyReport]:
        """The reports, in the order of the threads."""
        return [self._reports[thread_id] for thread_id in self.wanted if thread_id in self._reports]

    def take_in_order(self) -> None:
        """Begin threads in their order, and not the longest first."""
        self._waiting = deque(self.wanted)

    async def here(self, engine: "Engine") -> None:
        """Verify one waiting thread after the other with this engine, until none is left."""
        while self._waiting:
            thread_id = self._waiting.popleft()
            try:
                self._found(await Verifier.of(kernel_of(engine)).verify(thread_id, partial(self._at, thread_id)))
            except ThreadNotFound:
                self._gone(thread_id)

    async def elsewhere(self, asked: _WorkerTask) -> None:
        """Have a process verify one waiting thread after the other, until none is left."""
        async with worker_process(_BEGIN) as process:
            await tell_worker(process, asked)
            while self._waiting:
                thread_id = self._waiting.popleft()
                await tell_worker(process, thread_id)
                self._take(thread_id, await self._followed(process, thread_id))

    async def _followed(self, process: asyncio.subprocess.Process, thread_id: str) -> _WorkerAnswer:
        """The last answer about a thread. Raises `WorkerFailed` where the process ends before."""
        answer = _WorkerAnswer()
        while not answer.is_last:
            line = await process.stdout.readline() if process.stdout is not None else b""
            if not line.endswith(b"\n"):
                raise WorkerFailed(thread_id, f"its process ended with code {await process.wait()}")
            answer = _ANSWERS.decode(line)
            self._at(thread_id, answer.events)
        return answer

    def _take(self, thread_id: str, answer: _WorkerAnswer) -> None:
        if answer.failed:
            _log.info("a process that verifies has failed\n%s", answer.raised_at)
            raise WorkerFailed(thread_id, answer.failed)
        if answer.report is None:
            self._gone(thread_id)
        else:
            self._found(answer.report)

    def _found(self, report: VerifyReport) -> None:
        self._under_way.pop(report.thread_id, None)
        self._events += report.events
        self._reports[report.thread_id] = report
        if self.fail_fast and not report.ok:
            self._waiting.clear()
        self._show()

    def _gone(self, thread_id: str) -> None:
        """A thread was deleted since it was listed: its report is left out, unless the thread was asked for by name."""
        self._under_way.pop(thread_id, None)
        if self.are_named:
            raise ThreadNotFound(thread_id)

    def _at(self, thread_id: str, events: int) -> None:
        self._under_way[thread_id] = max(events, self._under_way.get(thread_id, 0))
        self._show()

    def _show(self) -> None:
        if self.progress is not None:
            self.progress(len(self._reports), self._events + sum(self._under_way.values()))


def _plugins_of(asked: _WorkerTask) -> list[Plugin]:
    return [*(installed_plugins() if asked.entry_points else ()), *map(plugin_at, asked.plugins)]


@asynccontextmanager
async def _only_read(asked: _WorkerTask) -> AsyncIterator[Engine]:
    _check_is_there(asked.file)
    config = EngineConfig(read_only=True)
    async with open_engine(asked.file, key=asked.key, config=config, plugins=_plugins_of(asked)) as engine:
        yield engine


def _check_is_there(path: str) -> None:
    """Opening a file that is not there would make it."""
    if not is_url(path) and not Path(path).is_file():
        raise StorageFailed(path, "there is no such file")


# the work of a process


def serve(asked: bytes) -> None:
    """Verify the threads that standard input names, until it ends. Ctrl-C is for the process that asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with answers_alone() as answers:
        asyncio.run(_serve(msgspec.json.decode(asked, type=_WorkerTask), answers))


async def _serve(asked: _WorkerTask, answers: BinaryIO) -> None:
    def answer(value: _WorkerAnswer) -> None:
        answers.write(msgspec.json.encode(value) + b"\n")
        answers.flush()

    thread_id = await _next_thread()
    try:
        async with _only_read(asked) as engine:
            while thread_id is not None:
                try:
                    report = await Verifier.of(kernel_of(engine)).verify(
                        thread_id, lambda events: answer(_WorkerAnswer(events))
                    )
                    answer(_WorkerAnswer(report=report))
                except ThreadNotFound:
                    answer(_WorkerAnswer(gone=True))
                thread_id = await _next_thread()
    except Exception as error:  # the end of this process: any error goes to the process that asked
        answer(_WorkerAnswer(failed=f"{type(error).__name__}: {error}", raised_at=traceback.format_exc()))


async def _next_thread() -> str | None:
    line = await asyncio.to_thread(sys.stdin.buffer.readline)
    return msgspec.json.decode(line, type=str) if line else None
