"""Seeds, one after the other, and the shortest program that still fails."""

import importlib
import os
import pickle
import pkgutil
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

from attrs import define, field

import memory_engine
from memory_engine.compactors.embedded import EmbeddedCompactor
from memory_engine.compactors.embedded import _warm as warm_compactor
from tests.simulator.loop import Stuck
from tests.simulator.program import Program, drawn, without
from tests.simulator.simulation import Outcome, Simulation

REAL_S_MAX = 300
"""Real seconds that one seed may take: one that needs more goes round for ever."""
SHRINKS_MAX = 200
SKIPPED = ("integrations", "inspector", "cli", "sync", "postgres", "hnsw", "telemetry", "__main__")


@define
class Report:
    """What became of all seeds."""

    first: int
    seeds: int = 0
    steps: int = 0
    acknowledged: int = 0
    crashes: int = 0
    virtual_hours: float = 0.0
    outcomes: dict[str, int] = field(factory=dict)
    failures: list[str] = field(factory=list)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """One seed more."""
        self.seeds += 1
        self.steps += outcome.steps
        self.acknowledged += outcome.acknowledged
        self.crashes += outcome.crashes
        self.virtual_hours += outcome.virtual_s / 3600
        for name, count in outcome.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + count


def loaded() -> None:
    """Load what engines load when they first need it: it would run on a thread for the first seed alone."""
    for module in pkgutil.walk_packages(memory_engine.__path__, "memory_engine."):
        if not any(part in SKIPPED for part in module.name.split(".")):
            with suppress(ImportError):  # an extra that is not installed
                importlib.import_module(module.name)
    warm_compactor()
    EmbeddedCompactor._is_warm = True


@contextmanager
def _limited() -> Iterator[None]:
    def late(_signal: int, _frame: FrameType | None) -> None:
        raise Stuck(f"more than {REAL_S_MAX} real seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(REAL_S_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def simulate(program: Program, *, keeps: bool = False) -> Outcome:
    """Run a program in a child of its own.

    What ran before must not matter: the order of a set of tasks depends on where they are in memory.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "wb") as said:
            pickle.dump(simulate_here(program, keeps=keeps), said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as heard:
        content = heard.read()
    os.waitpid(child, 0)
    if not content:
        return Outcome(program.seed, len(program.steps), findings=["its process died"])
    outcome: Outcome = pickle.loads(content)
    return outcome


def simulate_here(program: Program, *, keeps: bool = False) -> Outcome:
    """Run a program on a file of its own."""
    with tempfile.TemporaryDirectory(prefix="memory-engine-simulator-") as folder, _limited():
        return Simulation(program, Path(folder), keeps=keeps).run()


def simulate_seed(seed: int) -> Outcome:
    """Run what a seed draws."""
    return simulate(drawn(seed))


def kind_of(finding: str) -> str:
    """What two findings of one kind have in common: the words, without numbers and names of events."""
    head = finding.partition("\n")[0]
    return "".join(character for character in head if not character.isdigit())[:40]


def shrunk(program: Program, kind: str, said: Callable[[str], None]) -> Program:
    """The program without the steps that the finding does not need: pieces first, then single steps."""
    size, runs = max(1, len(program.steps) // 2), 0
    while runs < SHRINKS_MAX:
        at, was_shorter = 0, False
        while at < len(program.steps) and runs < SHRINKS_MAX:
            shorter = without(program, program.steps[at : at + size])
            runs += 1
            if kind in map(kind_of, simulate(shorter).findings):
                program, was_shorter = shorter, True
                said(f"{len(program.steps)} steps still fail")
            else:
                at += size
        if size == 1 and not was_shorter:
            break
        size = max(1, size // 2)
    return program


def run_seeds(first: int, seconds: float, jobs: int, told: Callable[[Report, Outcome], None], most: int = 0) -> Report:
    """Run seeds from `first` on for so long (or `most` of them), `jobs` at a time."""
    report, began = Report(first), time.monotonic()
    seeds = iter(range(first, first + (most or 1 << 62)))

    def goes_on() -> bool:
        return bool(most) or time.monotonic() - began < seconds

    def add(outcome: Outcome) -> None:
        report.add(outcome)
        report.failures += [f"seed {outcome.seed}: {finding}" for finding in outcome.findings]
        report.seconds = time.monotonic() - began
        told(report, outcome)

    if jobs == 1:
        for seed in seeds:
            if not goes_on():
                break
            add(simulate_seed(seed))
        return report
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=loaded) as pool:
        waiting: set[Future[Outcome]] = set()
        while True:
            while len(waiting) < jobs and goes_on() and (drawn_next := next(seeds, None)) is not None:
                waiting.add(pool.submit(simulate_seed, drawn_next))
            if not waiting:
                return report
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                add(future.result())


def fresh_seed() -> int:
    """A seed that nobody has run."""
    return random.SystemRandom().randrange(1 << 48)
