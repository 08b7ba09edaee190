"""What holds for every test: no verdict depends on how busy the machine is, and failures are explained."""

import gc
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import memory_engine
from memory_engine import Engine, Thread
from memory_engine.cli import main
from tests.command_line import Run

HERE = Path(__file__).resolve().parent
ALONE = ("browser", "processes")
"""Folders whose tests start several processes each: one test of them runs at a time, whatever runs beside it."""
LAST = ("recall", "replay", "unit")
"""Folders of many short tests, which fill up what the long ones leave of several processes' time."""

OWN_SETTINGS = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps a law's settings; it has no public way to multiply their cases."""
THOROUGH = 4
"""So many times its cases a law is tried with under the profile `thorough`."""

for name in ("quick", "thorough"):
    settings.register_profile(name, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PROFILE = os.environ.get("MEMORY_ENGINE_LAWS", "quick")
settings.load_profile(PROFILE)

# The storage contract lives in the package, where pytest would leave assertions as they are.
pytest.register_assert_rewrite("memory_engine.testing")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine in memory with no option set, closed after the test."""
    async with memory_engine.open(":memory:") as engine:
        yield engine


@pytest.fixture
async def thread(engine: Engine) -> Thread:
    """The thread "t" of `engine`."""
    return await engine.create_thread("t")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send a file's tests to one process, for its fixtures' sake, and those of ALONE, which begin, all to one."""
    folders = {item: item.path.relative_to(HERE).parts[0] for item in items if item.path.is_relative_to(HERE)}
    items.sort(key=lambda item: (folders.get(item) not in ALONE, folders.get(item) in LAST))
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            group = "alone" if folders.get(item) in ALONE else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))
        if PROFILE == "thorough" and isinstance(item, pytest.Function):
            _try_longer(item)


def pytest_collection_finish() -> None:
    """Leave what collecting made out of every later garbage collection: tests collect often, and it is large."""
    gc.collect()
    gc.freeze()


def _try_longer(item: pytest.Function) -> None:
    """Multiply the cases of a law; most name their number themselves, which a profile does not reach."""
    if isinstance(machine := getattr(item.cls, "settings", None), settings):
        item.cls.settings = settings(machine, max_examples=machine.max_examples * THOROUGH)
    elif is_hypothesis_test(item.obj):
        law = getattr(item.obj, "__func__", item.obj)
        own = getattr(law, OWN_SETTINGS)
        if not hasattr(law, "tried_longer"):  # the cases of one function share it
            law.tried_longer = True
            setattr(law, OWN_SETTINGS, settings(own, max_examples=own.max_examples * THOROUGH))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long the tests of each folder took."""
    seconds: defaultdict[str, float] = defaultdict(float)
    count: Counter[str] = Counter()
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            folder = Path(report.nodeid.partition("::")[0]).parent.name
            seconds[folder] += report.duration
            count[folder] += report.when == "call"
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        for folder, took in sorted(seconds.items(), key=lambda pair: -pair[1]):
            terminalreporter.write_line(f"{took:7.1f}  {folder} ({count[folder]})")
