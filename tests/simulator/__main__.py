"""Engines in a simulated loop, time and disk, by seeds: see docs/guarantees/reliability.md. Exit code 1: a finding."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence

import attrs

from tests.simulator.program import drawn
from tests.simulator.runner import Report, fresh_seed, kind_of, loaded, run_seeds, shrunk, simulate
from tests.simulator.simulation import Outcome

HASH_SEED = "0"


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed; with --seconds or --seeds, begin with it")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="S", help="run seed after seed for so long")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="run so many seeds")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="so many at a time; default: 1")
    parser.add_argument("--shrink", action="store_true", help="look for the fewest steps of --seed that still fail")
    parser.add_argument("--trace", action="store_true", help="print what happened in --seed, in order")
    parser.add_argument("--json", action="store_true", help="the summary as one line of JSON")
    asked = parser.parse_args(words)
    if asked.seed is None and not (asked.seconds or asked.seeds):
        parser.error("say what to run: --seed, --seconds or --seeds")
    return asked


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _command(seed: int) -> str:
    return f"python -m tests.simulator --seed {seed} --shrink --trace"


def _one(asked: argparse.Namespace) -> int:
    """One seed: its trace if wanted, its findings, and what they need."""
    program = drawn(asked.seed)
    outcome = simulate(program, keeps=asked.trace)
    if outcome.findings and asked.shrink:
        program = shrunk(program, kind_of(outcome.findings[0]), _say)
        outcome = simulate(program, keeps=asked.trace)
        print("\n".join(str(step) for step in program.steps))
    for line in outcome.lines:
        print(line)
    summary = {"seed": outcome.seed, "steps": outcome.steps, "digest": outcome.digest, "findings": outcome.findings}
    print(json.dumps(summary) if asked.json else "\n".join(f"{name}: {value}" for name, value in summary.items()))
    return bool(outcome.findings)


def _many(asked: argparse.Namespace) -> int:
    first = fresh_seed() if asked.seed is None else asked.seed
    _say(f"seeds from {first}")

    def told(report: Report, outcome: Outcome) -> None:
        for finding in outcome.findings:
            _say(f"seed {outcome.seed}: {finding}\n  repeat it: {_command(outcome.seed)}")
        if report.seeds % 50 == 0:
            _say(f"{report.seeds} seeds, {report.steps} steps, {report.seconds:.0f} s, {len(report.failures)} findings")

    report = run_seeds(first, asked.seconds, asked.jobs, told, asked.seeds)
    data = attrs.asdict(report)
    print(json.dumps(data) if asked.json else "\n".join(f"{name}: {value}" for name, value in data.items()))
    return bool(report.failures)


def main(words: Sequence[str]) -> int:
    """Do what is asked for; the exit code."""
    asked = _arguments(words)
    logging.disable()  # an engine says what failed: here that is its work
    loaded()
    return _many(asked) if asked.seconds or asked.seeds else _one(asked)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:  # the order of sets of texts is part of what a seed decides
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulator", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": HASH_SEED},
        )
    sys.exit(main(sys.argv[1:]))
