"""A lab run: logs are written out thread by thread, measured by parallel processes, compared and judged."""

import asyncio
import re
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from attrs import define, field, frozen

from memory_engine.core.arguments import PathLike
from memory_engine.core.bounded import read_file
from memory_engine.core.version import installed_version
from memory_engine.errors import InvalidLabChange, MemoryEngineError, ModelNotAllowed, NoSuchTest, WorkerFailed
from memory_engine.files.comparison import SUFFIXES, KeyOf, conversations_of, files_of, log_label, opened_log
from memory_engine.files.workers import answers_alone, cores, run_together, tell_worker, worker_process
from memory_engine.lab.change import RECORDED, LabChange, LabThresholds, RecallQuestion, read_change, read_questions
from memory_engine.lab.measuring import FIXED, LabJob, Measured, measure
from memory_engine.lab.report import LabReport, ThreadPair, UnmeasuredLog, compared, judged, measured_in
from memory_engine.plugins import Plugin, installed_plugins, plugin_at
from memory_engine.wiring import open as open_engine

MOMENTS = 8
TESTS_MAX = 20
QUESTIONS = "questions.jsonl"
FILES = (*SUFFIXES, ".traj", ".eval")
"""Files of a folder that are read."""
LabProgress = Callable[[int, int], None]
"""Called after each thread, with the number of threads done and found so far."""
_BEGIN = """
import json, os, sys
asked = json.loads(sys.stdin.buffer.readline())
sys.path[:] = asked["path"] or [*filter(None, sys.path), os.getcwd()]
try:
    from memory_engine.lab.running import serve
except ImportError as error:
    print(json.dumps({"failed": f"{sys.executable} has no regression lab: {error}", "usage": True}), flush=True)
    raise SystemExit(1)
serve()
"""


class _WorkerResult(msgspec.Struct, omit_defaults=True):
    """What a process measured, or why it could not. The first answer is only its `version`."""

    measured: Measured | None = None
    failed: str = ""
    version: str = ""
    usage: bool = False


_ANSWERS = msgspec.json.Decoder(_WorkerResult)


@frozen
class _LabLog:
    """A thread's log, written out: the path of the file, the name it goes by, its thread, and its questions."""

    export: str
    label: str
    thread: str
    questions: tuple[RecallQuestion, ...]


async def run(  # noqa: PLR0913 - what is compared, by keyword
    logs: Sequence[PathLike],
    under: LabChange | PathLike,
    *,
    against: LabChange | PathLike = RECORDED,
    threads: Collection[str] = (),
    window: int | None = None,
    moments: int = MOMENTS,
    plugins: Sequence[str] = (),
    entry_points: bool = False,
    call_models: bool = False,
    python: PathLike | None = None,
    keep: PathLike | None = None,
    tests: PathLike | None = None,
    processes: int | None = None,
    key_of: KeyOf | None = None,
    progress: LabProgress | None = None,
    stop: asyncio.Event | None = None,
) -> LabReport:
    """Run logs again under a change and against a baseline, and report what got worse. The logs do not change.

    `logs` are files and folders: databases (their conversations, without forks), exported logs, and recordings as
    `memory-engine ingest` takes them. `under` and `against` are changes: TOML files, `"recorded"`, or `"defaults"`;
    `against` may be the JSON of an earlier report, whose `under` is the baseline. `threads` are the ids of those to
    run (default: all). `window` is the tokens that your model takes, where a change does not say. At most `moments`
    contexts of each thread are built and compared. `plugins` ("module:name"), and with `entry_points` those that
    installed packages publish, declare events of the logs.

    `processes` work in parallel (default: one a core; 0: this one alone). `python` measures the baseline with another
    interpreter, and the `memory_engine` that is installed there. `keep` is a new folder for the databases with both
    reruns, `tests` one for pytest files of the events where something got worse. Set `stop` to end early with what is
    finished. While it runs, a private temporary folder holds the logs, unencrypted.

    Raises `InvalidLabChange`, `ModelNotAllowed` for a change that names a model without `call_models`,
    `FileExistsError` for a folder that is not empty, `OSError`. A log that cannot be read is in `unmeasured`.
    """
    change = _given_change(under)
    if not isinstance(against, LabChange) and str(against).endswith(".json"):
        baseline, version, known = _earlier_results(Path(against))
    else:
        baseline, version, known = _given_change(against), installed_version(), None
    for one in (change,) if known is not None else (change, baseline):
        if one.calls_model and not call_models:
            raise ModelNotAllowed(f"the change {one.name!r}")
    for folder in (keep, tests):
        if folder is not None:
            _make_empty(Path(folder))
    with TemporaryDirectory(prefix="memory-engine-lab-") as scratch:
        lab = _Lab(change, baseline, Path(scratch), None if keep is None else Path(keep), progress, stop)
        lab.version, lab.known = version, {(one.log, one.thread): one for one in known or ()}
        lab.is_compared, lab.python = known is not None, None if python is None else str(python)
        lab.window, lab.moments, lab.call_models = window, moments, call_models
        lab.plugins, lab.entry_points = tuple(plugins), entry_points
        found = _written(logs, lab, frozenset(threads), key_of)
        await lab.measure_all(found, cores() if processes is None else processes)
        report = lab.report()
        if tests is not None:
            await _write_tests(report, lab, Path(tests))
        return report


def _given_change(given: LabChange | PathLike) -> LabChange:
    return given if isinstance(given, LabChange) else read_change(given)


def _earlier_results(path: Path) -> tuple[LabChange, str, list[Measured]]:
    try:
        return measured_in(read_file(path))
    except (ValueError, KeyError) as error:
        raise InvalidLabChange(str(path), "", f"{error}; give the output of `lab run --json`") from None


def _make_empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(17, "the folder is not empty: name a new one", str(folder))


async def _written(
    logs: Sequence[PathLike], lab: "_Lab", wanted: frozenset[str], key_of: KeyOf | None
) -> AsyncIterator[_LabLog]:
    """The threads of the logs, each written to a file of its own. What cannot be read is noted."""
    declared, number = lab.declared(), 0
    for path in files_of(logs, FILES):
        if path.name.endswith(QUESTIONS):
            continue
        beside = {path.with_name(f"{path.name.partition('.')[0]}.{QUESTIONS}"), path.with_name(QUESTIONS)}
        questions = tuple(one for file in sorted(beside) if file.is_file() for one in read_questions(file))
        try:
            async with opened_log(path, declared, key_of, FIXED) as engine:
                for thread_id in await conversations_of(engine):
                    if wanted and thread_id not in wanted:
                        continue
                    number += 1
                    export = lab.scratch / f"{number:05}.jsonl"
                    await engine.thread(thread_id).replay.export(export)
                    yield _LabLog(str(export), log_label(path, thread_id), thread_id, questions)
        except MemoryEngineError as error:
            lab.note(str(path), str(error))
        except OSError as error:
            lab.note(str(path), error.strerror or str(error))


@define
class _Lab:
    """The logs that wait, and what came of those that are done, each by its number."""

    under: LabChange
    against: LabChange
    scratch: Path
    keep: Path | None
    progress: LabProgress | None
    stop: asyncio.Event | None
    window: int | None = None
    moments: int = MOMENTS
    plugins: tuple[str, ...] = ()
    entry_points: bool = False
    call_models: bool = False
    python: str | None = None
    version: str = ""
    known: dict[tuple[str, str], Measured] = field(factory=dict)
    is_compared: bool = False
    logs: list[_LabLog] = field(factory=list)
    _waiting: deque[int] = field(factory=deque)
    _pairs: dict[int, ThreadPair] = field(factory=dict)
    _unmeasured: list[UnmeasuredLog] = field(factory=list)
    _failed: dict[int, UnmeasuredLog] = field(factory=dict)
    _seconds: dict[str, float] = field(factory=dict)
    _is_read: bool = False

    def declared(self) -> list[Plugin]:
        """The plug-ins that declare what is in the logs."""
        return [*(installed_plugins() if self.entry_points else ()), *map(plugin_at, self.plugins)]

    def note(self, log: str, why: str) -> None:
        """A file could not be read."""
        self._unmeasured.append(UnmeasuredLog(log=log, why=why))

    @property
    def is_stopped(self) -> bool:
        """Whether someone has asked to end."""
        return self.stop is not None and self.stop.is_set()

    async def measure_all(self, found: AsyncIterator[_LabLog], processes: int) -> None:
        """Write the logs out, then measure their threads, until all is done or someone asks to end."""
        everything = asyncio.ensure_future(self._all(found, processes))
        ending = asyncio.ensure_future((self.stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({everything, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            everything.cancel()
            ending.cancel()
            await asyncio.wait({everything, ending})
        if not everything.cancelled():
            everything.result()

    async def _all(self, found: AsyncIterator[_LabLog], processes: int) -> None:
        async for one in found:
            self._waiting.append(len(self.logs))
            self.logs.append(one)
            self._show()
        self._is_read = True
        several = min(processes, len(self.logs))
        await run_together([self._elsewhere() for _ in range(several)] or [self._here()])

    def _show(self) -> None:
        if self.progress is not None:
            self.progress(len(self._pairs) + len(self._failed), len(self.logs))

    def jobs(self, n: int) -> list[LabJob]:
        """What is measured of a log: the baseline, unless it is known, and the change."""
        one = self.logs[n]
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", one.thread)[:60].strip("-.")
        place = (self.keep or self.scratch) / f"{n + 1:03}-{slug}.db"
        own = place if self.python is None else self.scratch / f"{n + 1:03}-against.db"
        both = {} if self.is_compared else {"against": (self.against, own)}
        return [
            LabJob(
                export=one.export,
                log=one.label,
                change=msgspec.structs.replace(change, thresholds=LabThresholds()),  # JSON has no infinity
                side=side,
                moments=max(1, self.moments),
                window=self.window,
                call_models=self.call_models,
                place=str(path),
                plugins=self.plugins,
                entry_points=self.entry_points,
                questions=(*self.under.questions, *one.questions),
            )
            for side, (change, path) in {**both, "under": (self.under, place)}.items()
        ]

    async def _here(self) -> None:
        """Measure one waiting thread after the other in this process."""
        while self._waiting:
            n, begun = self._waiting.popleft(), time.perf_counter()
            answers = [await _result(job) for job in self.jobs(n)]
            self._take(n, answers, time.perf_counter() - begun)

    async def _elsewhere(self) -> None:
        """Have processes measure one waiting thread after the other; where one dies, new ones take over."""
        while self._waiting:
            async with AsyncExitStack() as processes:
                workers = await self._workers(processes)
                is_alive = True
                while is_alive and self._waiting:
                    n, begun = self._waiting.popleft(), time.perf_counter()
                    answers: list[_WorkerResult] = []
                    try:
                        for job in self.jobs(n):
                            await tell_worker(workers[job.side], job)
                            answers.append(await _followed(workers[job.side], self.logs[n].thread))
                    except WorkerFailed as error:
                        answers.append(_WorkerResult(failed=error.why))
                        is_alive = False
                    self._take(n, answers, time.perf_counter() - begun)

    async def _workers(self, processes: AsyncExitStack) -> dict[str, asyncio.subprocess.Process]:
        """The processes that measure the sides: one for both, unless the baseline has its own interpreter."""
        own = await processes.enter_async_context(worker_process(_BEGIN))
        await tell_worker(own, {"path": sys.path})
        await _followed(own, "")
        if self.python is None:
            return {"against": own, "under": own}
        other = await processes.enter_async_context(worker_process(_BEGIN, self.python))
        await tell_worker(other, {"path": None})
        self.version = (await _followed(other, "")).version
        return {"against": other, "under": own}

    def _take(self, n: int, answers: Sequence[_WorkerResult], seconds: float) -> None:
        one = self.logs[n]
        self._seconds[f"{one.label} {one.thread}"] = seconds
        failed = next((answer.failed for answer in answers if answer.failed), "")
        measured = [answer.measured for answer in answers if answer.measured is not None]
        before = self.known.get((one.label, one.thread)) if self.is_compared else next(iter(measured), None)
        if failed or before is None:
            why = failed or "the results to compare with have no such thread"
            self._failed[n] = UnmeasuredLog(log=one.label, why=why)
        else:
            kept = "" if self.keep is None else self.jobs(n)[-1].place
            prices = self.under.prices or self.against.prices
            self._pairs[n] = compared(before.priced(prices), measured[-1].priced(prices), kept)
        self._show()

    def report(self) -> LabReport:
        """The report on all that is done, in the order of the logs."""
        pairs = tuple(self._pairs[n] for n in sorted(self._pairs))
        metrics, findings = judged(pairs, self.under.thresholds)
        done = len(self._pairs) + len(self._failed)
        return LabReport(
            under=self.under,
            against=self.against,
            versions=(installed_version(), self.version),
            metrics=metrics,
            findings=findings,
            threads=pairs,
            unmeasured=(*self._unmeasured, *(self._failed[n] for n in sorted(self._failed))),
            interrupted=self.is_stopped and (done < len(self.logs) or not self._is_read),
            seconds={key: self._seconds[key] for key in sorted(self._seconds)},
        )


async def _write_tests(report: LabReport, lab: _Lab, folder: Path) -> None:
    """A pytest file for each event of a recorded log where something got worse, by `Replay.to_pytest`."""
    broken = {one.metric for one in report.broken}
    places = dict.fromkeys((one.log, one.thread, one.seq) for one in report.findings if one.metric in broken)
    exports = {(one.label, one.thread): one.export for one in lab.logs}
    for n, (label, thread_id, seq) in enumerate([*places][:TESTS_MAX], 1):
        async with open_engine(":memory:", plugins=lab.declared(), parts=FIXED) as engine:
            await engine.transfer.import_log(exports[label, thread_id], scopes="as exported")
            try:
                source = await engine.thread(thread_id).replay.to_pytest(max(1, seq), max(1, seq))
            except NoSuchTest as error:
                source = f'"""No test: {" ".join(str(error).split())}"""\n'
            (folder / f"test_lab_{n:02}.py").write_text(source, encoding="utf-8")


# the work of a process


async def _followed(process: asyncio.subprocess.Process, thread_id: str) -> _WorkerResult:
    """A process's next answer. Raises `WorkerFailed` where it ends before, `InvalidLabChange` where it cannot begin."""
    try:
        line = await process.stdout.readline() if process.stdout is not None else b""
    except ValueError:  # longer than a line may be
        raise WorkerFailed(thread_id, "its measures take too much memory") from None
    if not line.endswith(b"\n"):
        raise WorkerFailed(thread_id, f"its process ended with code {await process.wait()}")
    answer = _ANSWERS.decode(line)
    if answer.usage:
        raise InvalidLabChange("--python", "", answer.failed)
    return answer


def serve() -> None:
    """Measure what standard input asks for, until it ends. Ctrl-C is for the process that asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with answers_alone() as answers:
        answers.write(msgspec.json.encode(_WorkerResult(version=installed_version())) + b"\n")
        answers.flush()
        for line in sys.stdin.buffer:
            answer = asyncio.run(_result(line))
            answers.write(msgspec.json.encode(answer) + b"\n")
            answers.flush()


async def _result(asked: LabJob | bytes) -> _WorkerResult:
    try:
        job = msgspec.json.decode(asked, type=LabJob) if isinstance(asked, bytes) else asked
        return _WorkerResult(measured=await measure(job))
    except Exception as error:  # one bad log does not stop the rest: any error is reported with it
        kind = "" if isinstance(error, MemoryEngineError) else f"{type(error).__name__}: "
        return _WorkerResult(failed=f"{kind}{error}")
