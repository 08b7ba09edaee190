"""What a simulation does: steps that a seed draws, all of them before the first one runs."""

import random
from collections.abc import Sequence

from attrs import frozen

PROCESSES_MAX = 2
THREADS = ("a", "b", "c", "d")
KINDS: dict[str, int] = {
    "dispatch": 60, "dispatch_all": 25, "retry": 15, "context": 18, "search": 8, "compact": 10, "pin": 5,
    "mark": 3, "forget": 5, "erase": 6, "delete": 3, "undo": 6, "redo": 3, "clear": 1, "pause": 2, "view": 4,
    "user": 4, "fork": 2, "flush": 3, "settle": 4, "verify": 2, "finish": 3, "reopen": 5, "crash": 3, "crash_at": 6,
    "fail": 5, "misread": 2, "delay": 3, "advance": 6, "jump": 2, "check": 3,
}  # fmt: skip
"""How often each kind of step comes."""


@frozen
class Step:
    """One step: what, in which process, on which thread; `dice` draws all else that it needs.

    The next one begins `wait` rounds of the loop after it; it is cancelled after `cancel` rounds, if at all.
    """

    number: int
    kind: str
    process: int
    thread: str
    dice: int
    wait: int
    cancel: int | None = None

    def __str__(self) -> str:
        cancelled = "" if self.cancel is None else f", cancelled after {self.cancel}"
        return f"{self.number}: {self.kind} {self.thread} in process {self.process}{cancelled}, then {self.wait} rounds"


@frozen
class Program:
    """The steps, how many processes share the file, and how they are set up."""

    seed: int
    processes: int
    policy: int
    steps: tuple[Step, ...]


def drawn(seed: int) -> Program:
    """The program of a seed."""
    dice = random.Random(f"program {seed}")
    processes = dice.randint(1, PROCESSES_MAX)
    threads = THREADS[: dice.randint(1, len(THREADS))]
    waits = dice.choice(((0, 0, 1, 2), (0, 1, 3, 10, 40), (5, 20, 80, 200)))
    kinds = {kind: weight for kind, weight in KINDS.items() if weight > 20 or dice.random() < 0.7}
    rate = dice.choice((0.0, 0.05, 0.2))
    chosen = dice.choices(list(kinds), list(kinds.values()), k=dice.choice((20, 40, 80, 160)))
    steps = [
        Step(
            number,
            kind,
            dice.randrange(processes),
            dice.choice(threads),
            dice.randrange(1 << 32),
            dice.choice(waits),
            dice.choice((0, 1, 2, 3, 5, 8, 13, 30)) if dice.random() < rate else None,
        )
        for number, kind in enumerate(chosen)
    ]
    return Program(seed, processes, dice.randrange(1 << 32), tuple(steps))


def without(program: Program, steps: Sequence[Step]) -> Program:
    """The same without some of its steps."""
    left = set(steps)
    return Program(
        program.seed, program.processes, program.policy, tuple(step for step in program.steps if step not in left)
    )
