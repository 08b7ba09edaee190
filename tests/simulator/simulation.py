"""One simulation: a program's steps run in processes that share a file, and what must be true is looked at."""

import asyncio
import gc
import random
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from attrs import define, field

from memory_engine import CompactionPolicy, Engine, RecordedEvent, ThreadInfo
from memory_engine.errors import (
    EventDecodeError,
    EventIdTaken,
    HeadMoved,
    IntegrityError,
    MemoryEngineError,
    SchemaError,
    StorageError,
    StorageFailed,
    ThreadHasForks,
    ThreadNotFound,
    UnreadableRow,
)
from memory_engine.storage.sqlite.faults import Point
from memory_engine.testing import disk_error, disk_full
from tests.simulator.acts import Act
from tests.simulator.disk import copied, watched_disk
from tests.simulator.loop import SimulatedLoop, Stuck, Trace, simulated
from tests.simulator.model import Broken, Model, check_log, check_state, logs_of, mark_of
from tests.simulator.process import SimulatedProcess
from tests.simulator.program import Program, Step

REST_S = 2_000.0
"""The virtual seconds in which every task must end."""
POINTS: tuple[Point, ...] = ("lock", "begin", "write", "commit", "checkpoint")
WHENS: tuple[Literal["before", "after"], ...] = ("before", "after")
NEVER = (EventDecodeError, EventIdTaken, HeadMoved, IntegrityError, SchemaError, UnreadableRow)
"""Errors that say that the engine or its file is broken: no caller may ever see them here."""


@define
class Outcome:
    """What became of one seed."""

    seed: int
    steps: int
    findings: list[str] = field(factory=list)
    digest: str = ""
    virtual_s: float = 0.0
    callbacks: int = 0
    crashes: int = 0
    acknowledged: int = 0
    outcomes: dict[str, int] = field(factory=dict)
    lines: list[str] = field(factory=list)


class Simulation:
    """The processes, the model, and the findings."""

    def __init__(self, program: Program, folder: Path, *, keeps: bool = False) -> None:
        self.program = program
        self.folder = folder
        self.trace = Trace(keeps)
        self.dice = random.Random(f"simulation {program.seed}")
        self.loop = SimulatedLoop(random.Random(f"loop {program.seed}"), self.trace)
        self.model = Model()
        self.outcome = Outcome(program.seed, len(program.steps))
        self.path = folder / "0" / "m.db"
        self.path.parent.mkdir()
        self.slots: list[SimulatedProcess | None] = [None] * program.processes
        self.lives = 0
        self.tasks: dict[asyncio.Task[object], tuple[Step, SimulatedProcess]] = {}
        self.kept: list[object] = []
        self.outside = copy_context()
        """What belongs to no process runs in it."""
        self.policy = _policy(random.Random(program.policy))

    def run(self) -> Outcome:
        """Run it."""
        heard: list[warnings.WarningMessage] = []
        gc.disable()
        try:
            with simulated(self.loop), watched_disk(), warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                asyncio.set_event_loop(None)
                try:
                    self.loop.run_until_complete(self._main())
                except Stuck as error:
                    self.broken(f"stuck: {error}; {self._waiting()}")
                for warning in heard:
                    if "never awaited" in str(warning.message):
                        self.broken(f"warning: {warning.message}")
                for unheard in self.loop.errors:
                    self.broken(f"unheard: {unheard}")
                self._note()
                warnings.simplefilter("ignore")
                self._tear_down()
        finally:
            gc.enable()
        return self.outcome

    def _note(self) -> None:
        outcome = self.outcome
        outcome.virtual_s = self.loop.now_s - 1000.0
        outcome.callbacks = self.loop.callbacks
        outcome.acknowledged = len(self.model.recorded)
        outcome.digest = self.trace.digest
        outcome.lines = self.trace.lines

    def _tear_down(self) -> None:
        """Let go of everything that dead processes left in the middle."""
        for process in [one for one in self.kept if isinstance(one, SimulatedProcess)]:
            process.is_dead = True
            process.let_go()
        for task in asyncio.all_tasks(self.loop):
            self.kept.append(task)
        for task in [one for one in self.kept if isinstance(one, asyncio.Task)]:
            setattr(task, "_log_destroy_pending", False)  # noqa: B010 - asyncio keeps it to itself
        with patch.object(sys, "unraisablehook", lambda _: None):
            for task in [one for one in self.kept if isinstance(one, asyncio.Task)]:
                with suppress(BaseException):  # blocks of the dead that want to go on
                    closing = getattr(task.get_coro(), "close", None)
                    if closing is not None:
                        closing()
            self.kept.clear()
            self.tasks.clear()
            self.slots.clear()
            gc.collect()
        self.loop.close()

    def _waiting(self) -> str:
        return "; ".join(
            f"{step} in {_where(task)}" for task, (step, process) in self.tasks.items() if _hangs(task, process)
        )

    def _all(self) -> str:
        return "; ".join(_where(task) for task in asyncio.all_tasks(self.loop))

    def broken(self, what: str) -> None:
        """A promise was broken."""
        self.trace.add(f"BROKEN {what}")
        self.outcome.findings.append(what)

    async def _main(self) -> None:
        try:
            for step in self.program.steps:
                await self._begin(step)
                for _ in range(step.wait):
                    await asyncio.sleep(0)
                if self.outcome.findings:
                    break
            await self._rest()
            await self._end()
        except Broken as error:
            self.broken(str(error))

    # steps

    async def _begin(self, step: Step) -> None:
        self.trace.add(f"{self.loop.now_s:.6f} {self.loop.callbacks} {step}")
        dice = random.Random(step.dice)
        special = SPECIAL.get(step.kind)
        if special is not None:
            await special(self, step, dice)
            return
        process = self._process(step.process)
        task = process.spawn(lambda: self._act(step, process, dice))
        self.tasks[task] = (step, process)
        task.add_done_callback(lambda done: self._ended(step, process, done))
        if step.cancel is not None:
            self.kept.append(self.loop.create_task(self._cancel(task, step.cancel)))

    async def _act(self, step: Step, process: SimulatedProcess, dice: random.Random) -> object:
        engine = await process.opened()
        return await Act(step, engine, self.model, dice).run()

    async def _cancel(self, task: "asyncio.Task[object]", rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()

    def _ended(self, step: Step, process: SimulatedProcess, task: "asyncio.Task[object]") -> None:
        self.tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if process.is_dead:
            return
        if task.cancelled():
            said = "cancelled"
            if step.cancel is None:
                self.broken(f"step {step} was cancelled by nobody")
        elif error is None:
            said = f"{task.result()}"
        else:
            said = type(error).__name__
            self._judge(step, process, error)
        name = said if error is not None or task.cancelled() else "done"
        self.outcome.outcomes[name] = self.outcome.outcomes.get(name, 0) + 1
        self.trace.add(f"{self.loop.now_s:.6f} {self.loop.callbacks} step {step.number}: {said}")

    def _judge(self, step: Step, process: SimulatedProcess, error: BaseException) -> None:
        """Whether a caller may be told this."""
        if isinstance(error, Broken):
            self.broken(f"step {step}: {error}")
        elif not isinstance(error, MemoryEngineError) or isinstance(error, NEVER):
            where = "".join(traceback.format_exception(error)[-6:])
            self.broken(f"step {step}: {type(error).__name__}: {error}\n{where}")
        elif isinstance(error, StorageError) and not process.is_hurt:
            where = "".join(traceback.format_exception(error)[-6:])
            self.broken(f"step {step}: {type(error).__name__} without a fault: {error}\n{where}")
        elif isinstance(error, StorageFailed) and not process.is_closing:
            self._reopen(step.process)

    # processes

    def _process(self, slot: int) -> SimulatedProcess:
        process = self.slots[slot]
        if process is None or process.is_dead or process.has_failed_to_open:
            return self._start(slot, None)
        return process

    def _start(self, slot: int, before: SimulatedProcess | None) -> SimulatedProcess:
        self.lives += 1
        dice = random.Random(f"{self.program.seed} life {self.lives}")
        name = f"{slot}/{self.lives}"
        process = SimulatedProcess(self.loop, name, self.path, dice, model=self.model, broken=self.broken)
        self.kept.append(process)
        self.slots[slot] = process
        process.open(self.policy, before)
        return process

    def _reopen(self, slot: int) -> None:
        before = self.slots[slot]
        is_there = before is not None and not before.is_dead and not before.has_failed_to_open
        self._start(slot, before if is_there else None)

    def die(self, process: SimulatedProcess | None) -> None:
        """A process is killed, and the other one too where that has the file not whole open either."""
        if process is None or process.is_dead:
            return
        self.outcome.crashes += 1
        self.kept += [*asyncio.all_tasks(self.loop), *self.loop.generators]
        alive = [one for one in self.kept if isinstance(one, SimulatedProcess) and not one.is_dead]
        stays = any(one.engine is not None and not one.is_closing for one in alive if one is not process)
        dead = [process] if stays else alive
        self.trace.add(f"dead: {[one.name for one in dead]}, file {'stays' if stays else 'is copied'}")
        if not stays:
            number = int(self.path.parent.name) + 1
            self.path = copied(self.path, self.folder / str(number))
        for one in dead:
            one.is_dead = True
            self.loop.call_soon(one.is_gone.set, context=self.outside)
        self.slots = [None if process in dead else process for process in self.slots]
        if stays:
            self.loop.afterwards(process.let_go)

    # at rest

    async def _rest(self) -> None:
        """Wait until every task of every living process has ended."""
        for process in self.slots:
            if process is not None:
                process.disk.plans_end()
        until = self.loop.now_s + REST_S
        while waiting := [task for task, (_, process) in self.tasks.items() if _hangs(task, process)]:
            if self.loop.now_s > until:
                raise Broken(f"these never end: {self._waiting()}")
            await self._resume()
            await asyncio.wait(waiting, timeout=20.0)

    async def _resume(self) -> None:
        """End every pause: what waits for that is not to hang."""
        for process in self.slots:
            if process is None or process.is_dead or process.engine is None or process.is_closing:
                continue
            for info in await self._infos(process):
                if info.status == "paused":
                    resumed = process.spawn(process.engine.thread(info.id).admin.resume)
                    await asyncio.wait([resumed], timeout=20.0)
                    if resumed.done() and not resumed.cancelled():
                        resumed.exception()

    async def _infos(self, process: SimulatedProcess) -> Sequence[ThreadInfo]:
        assert process.engine is not None
        listed = process.spawn(process.engine.threads)
        await asyncio.wait([listed], timeout=20.0)
        return listed.result() if listed.done() and not (listed.cancelled() or listed.exception()) else ()

    async def _check(self, *, is_last: bool = False) -> None:
        """Look at every log by one process."""
        process = self._process(self.dice.randrange(len(self.slots)))
        checked = process.spawn(lambda: self._checked(process, is_last=is_last))
        if not (await asyncio.wait([checked], timeout=REST_S))[0] and not process.is_dead:
            raise Broken("a check never ends")
        if process.is_dead:
            return
        error = checked.exception()
        if isinstance(error, Broken):
            raise error
        if error is not None and not (process.is_hurt and isinstance(error, StorageError)):
            raise Broken("a check: " + "".join(traceback.format_exception(error)[-8:]))

    async def _checked(self, process: SimulatedProcess, *, is_last: bool) -> None:
        engine = await process.opened()
        await asyncio.sleep(2.0)  # what other processes committed is seen
        if is_last:
            with suppress(ThreadHasForks):  # a fork that came since the act was asked for: it waits
                await engine.admin.finish_acts()
            left = [act for act in await engine.admin.acts() if not act.done_at_us]
            if any(act.kind != "delete" for act in left) or (left and not await self._has_forks(engine)):
                raise Broken(f"acts that nobody finishes: {left}")
        logs = await logs_of(engine)
        for name, thread in self.model.threads.items():
            if thread.is_made and name not in logs:
                raise Broken(f"thread {name} is lost")
            for event_id, seq in thread.acked.items() if name not in logs else ():
                raise Broken(f"{event_id} of {name} at {seq} is lost")
        for name, events in logs.items():
            check_log(self.model, name, events)
            with suppress(ThreadNotFound):
                await check_state(engine.thread(name), events)
        for report in await engine.verify():
            if not report.ok:
                raise Broken(f"verify of {report.thread_id}: {report.divergence}")
        if is_last:
            for name in logs:
                await _rebuild(engine, name)
        self.trace.add("checked " + str({name: len(events) for name, events in logs.items()}))

    async def _has_forks(self, engine: Engine) -> bool:
        return any(info.forked_from is not None for info in await engine.threads())

    async def _end(self) -> None:
        """Close or kill all, open the file once more, and look at everything."""
        await self._check()
        for process in self.slots:
            if self.dice.random() < 0.3:
                self.die(process)
        await self._close_all()
        self.slots = [None]
        await self._check(is_last=True)
        standing = await self._standing()
        await self._close_all()
        self._search_files(standing)

    async def _standing(self) -> set[str]:
        process = self._process(0)
        logs = process.spawn(lambda: self._logs(process))
        await asyncio.wait([logs])
        rows = [event for events in logs.result().values() for event in events]
        return {event.id for event in rows if mark_of(event.id) in str(getattr(event.event, "content", ""))}

    async def _logs(self, process: SimulatedProcess) -> Mapping[str, list[RecordedEvent]]:
        return await logs_of(await process.opened())

    async def _close_all(self) -> None:
        closing = [one.spawn(one.closed) for one in self.kept if isinstance(one, SimulatedProcess) and not one.is_dead]
        if not closing:
            return
        done, pending = await asyncio.wait(closing, timeout=REST_S)
        if pending:
            raise Broken(f"an engine never closes: {self._all()}")
        for task in done:
            error = task.exception()
            if error is not None and not isinstance(error, StorageError):
                raise Broken("closing: " + "".join(traceback.format_exception(error)[-6:]))

    def _search_files(self, standing: set[str]) -> None:
        """What was destroyed is in no file of the store."""
        content = b"".join(file.read_bytes() for file in sorted(self.path.parent.iterdir()))
        for event_id in sorted(self.model.destroying & self.model.recorded - standing):
            if mark_of(event_id).encode() in content:
                self.broken(f"{event_id} was destroyed, and {mark_of(event_id)} is in {self.path.parent}")


def _where(task: "asyncio.Task[object]") -> str:
    """The places in which a task waits, the innermost last."""
    places: list[str] = []
    at: object = task.get_coro()
    while at is not None:
        frame = getattr(at, "cr_frame", None) or getattr(at, "ag_frame", None) or getattr(at, "gi_frame", None)
        if frame is not None:
            places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        at = getattr(at, "cr_await", None) or getattr(at, "ag_await", None) or getattr(at, "gi_yieldfrom", None)
    return " > ".join(places)


def _hangs(task: "asyncio.Task[object]", process: SimulatedProcess) -> bool:
    return not task.done() and not process.is_dead


async def _rebuild(engine: Engine, name: str) -> None:
    """Derive everything again: the same head, the same state."""
    thread = engine.thread(name)
    before = [event.hash async for event in thread.events()]
    held = list((await thread.state(at=len(before))).placed())
    await thread.replay.rebuild()
    after = [event.hash async for event in thread.events()]
    rebuilt = list((await thread.state(at=len(before))).placed())
    if after[: len(before)] != before:
        raise Broken(f"rebuilding {name} changes its log")
    unlike = [
        (one and one.chunk, other and other.chunk)
        for one, other in zip_longest(held, rebuilt)
        if one is None or other is None or (one.chunk, one.key) != (other.chunk, other.key)
    ]
    if unlike:
        raise Broken(f"rebuilding {name} changes {unlike[:2]}")


def _policy(dice: random.Random) -> CompactionPolicy:
    return CompactionPolicy(
        threshold=dice.choice((4, 6, 12)),
        tokens_min=0,
        keep_recent=dice.choice((1, 3)),
        summary_tokens_max=dice.choice((60, 4000)),
        deadline_s=dice.choice((0.5, 20.0)),
        blocking=dice.choice(("whole", "commit", "auto")),
    )


# steps that are nothing that an engine does


async def _reopen_step(simulation: Simulation, step: Step, dice: random.Random) -> None:
    simulation._reopen(step.process)


async def _crash(simulation: Simulation, step: Step, dice: random.Random) -> None:
    simulation.die(simulation.slots[step.process])


async def _crash_at(simulation: Simulation, step: Step, dice: random.Random) -> None:
    process = simulation._process(step.process)
    when = dice.choice(WHENS)
    process.disk.die(
        dice.choice(POINTS), lambda: simulation.die(process), nth=dice.choice((1, 1, 2, 3, 5, 8, 20)), when=when
    )


def _busy() -> sqlite3.Error:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


async def _fail(simulation: Simulation, step: Step, dice: random.Random) -> None:
    process = simulation._process(step.process)
    process.is_hurt = True
    error = dice.choice((disk_full, disk_error, _busy))()
    nth, when = dice.choice((1, 1, 2, 3, 5, 8)), dice.choice(WHENS)
    process.disk.fail(dice.choice(POINTS), error, nth=nth, when=when)


async def _misread(simulation: Simulation, step: Step, dice: random.Random) -> None:
    process = simulation._process(step.process)
    process.is_hurt = True
    process.disk.failing_reads(dice.choice((disk_error, _busy))(), dice.choice((1, 2, 5)))


async def _delay(simulation: Simulation, step: Step, dice: random.Random) -> None:
    process = simulation._process(step.process)
    process.disk.delay(dice.choice(POINTS), dice.choice((0.01, 0.2, 1.5)), nth=dice.choice((1, 3, 8)))


async def _advance(simulation: Simulation, step: Step, dice: random.Random) -> None:
    await asyncio.sleep(dice.choice((0.001, 0.05, 0.3, 1.2, 6.0, 40.0)))


async def _jump(simulation: Simulation, step: Step, dice: random.Random) -> None:
    by = timedelta(hours=dice.choice((-30, -1, 1, 30)))
    simulation._process(step.process).clock.ahead_us += by // timedelta(microseconds=1)


async def _check(simulation: Simulation, step: Step, dice: random.Random) -> None:
    await simulation._rest()
    await simulation._check()


SPECIAL: dict[str, Callable[[Simulation, Step, random.Random], Awaitable[None]]] = {
    "reopen": _reopen_step,
    "crash": _crash,
    "crash_at": _crash_at,
    "fail": _fail,
    "misread": _misread,
    "delay": _delay,
    "advance": _advance,
    "jump": _jump,
    "check": _check,
}
