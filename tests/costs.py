"""What tests cost: seconds of processor time, as last measured. They order a run and choose the quick one.

`tests/costs.txt` has a line for each test function that is LONG_S or more: of all its cases, of its first case, its
name. `python3 tasks.py test --costs` writes it again. A test that it does not name costs next to nothing: whoever adds
one need not measure. Processor time, of the process and the children that it waited for, says the same on a busy
machine as on an idle one.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
FILE = HERE / "costs.txt"
LONG_S = 0.2
"""A test from this cost on is in the file, and not in a quick run."""
PROPERTY = "cpu_s"
"""The name under which a report carries what its test cost."""
_BEGUN = pytest.StashKey[float]()


class Cost(NamedTuple):
    """Seconds of processor time of all cases of a test function, and of the first."""

    all_s: float
    first_s: float


def processor_s() -> float:
    """Processor time of this process and of its children that have ended, so far."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def function_of(nodeid: str) -> str:
    """The name of a test function, without what pytest adds for a case: `unit/test_x.py::test_y`."""
    return nodeid.partition("[")[0].removeprefix("tests/")


@cache
def known() -> dict[str, Cost]:
    """What is known of each long test function."""
    lines = (line.split() for line in FILE.read_text("utf-8").splitlines())
    return {name: Cost(float(all_s), float(first_s)) for all_s, first_s, name in lines}


@cache
def cost_of_files() -> dict[str, float]:
    """Seconds that each file's long tests take."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, cost in known().items():
        seconds[name.partition("::")[0]] += cost.all_s
    return seconds


def is_quick(name: str, *, shortened: float = 1) -> bool:
    """Whether the first case of a test function takes less than LONG_S; a law by a share of its cases."""
    return name not in known() or known()[name].first_s * shortened < LONG_S


def cost_in(report: pytest.TestReport) -> list[float]:
    """What a test cost, if this is its last report."""
    return [float(str(value)) for name, value in report.user_properties if name == PROPERTY]


def written(reports: Iterable[pytest.TestReport]) -> str:
    """The text of the file for what a run has measured."""
    measured: defaultdict[str, list[float]] = defaultdict(list)
    for report in reports:
        measured[function_of(report.nodeid)] += cost_in(report)
    rows = [(sum(costs), costs[0], name) for name, costs in measured.items() if sum(costs) >= LONG_S]
    return "".join(f"{all_s:7.2f} {first_s:6.2f} {name}\n" for all_s, first_s, name in sorted(rows, reverse=True))


class Meter:
    """The plug-in that measures each test from the begin of its setup to the end of its teardown."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note where the count begins."""
        item.stash[_BEGUN] = processor_s()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Put it into the last report, which other processes send to the first."""
        try:
            return (yield)
        finally:
            item.user_properties.append((PROPERTY, f"{processor_s() - item.stash[_BEGUN]:.3f}"))
