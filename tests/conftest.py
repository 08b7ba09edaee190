"""What holds for every test: no verdict depends on how busy the machine is, and failures are explained."""

import gc
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import memory_engine
from memory_engine import Engine, Thread
from memory_engine.cli import main
from memory_engine.store.protocol import Store
from tests import costs
from tests.command_line import Run
from tests.depth import DEEP, PROFILE
from tests.places import StayOpen

HERE = Path(__file__).resolve().parent
ALONE = ("browser", "processes")
"""Folders whose tests start several processes each: of each folder, one test runs at a time."""
LITELLM = (
    "engine/test_client_models.py",
    "engine/test_litellm_model.py",
    "engine/test_model_compaction.py",
    "engine/test_record.py",
    "engine/test_recording.py",
    "faces/test_sdk_requests.py",
    "recall/test_embedders.py",
    "recall/test_rerankers.py",
    "views/test_conversation_summary.py",
    "views/test_promotion_models.py",
)
"""Files whose tests import LiteLLM or a provider's SDK, which takes seconds: one process does it for all."""

OWN_SETTINGS = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps a law's settings; it has no public way to multiply their cases."""
THOROUGH, USUAL, SHORT = 4, 0.3, 0.1
"""By what the cases of a law are multiplied in a deep run, in the suite, and in a quick run."""

for name in ("quick", "thorough"):
    settings.register_profile(name, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
async def stay_open() -> AsyncIterator[StayOpen]:
    """Let a store stay open for the next engine, until the test ends."""
    closes: list[Callable[[], Awaitable[None]]] = []

    async def nothing() -> None: ...

    def stay(store: Store) -> None:
        closes.append(store.close)
        store.close = nothing  # type: ignore[method-assign]

    yield stay
    for close in closes:
        await close()


@pytest.fixture
async def thread(engine: Engine) -> Thread:
    """The thread "t" of `engine`."""
    return await engine.create_thread("t")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say which run it is."""
    group = parser.getgroup("memory_engine")
    group.addoption("--quick", action="store_true", help="each test function once: its first case, if that is short")
    group.addoption("--costs", action="store_true", help="write what tests cost into tests/costs.txt")


def pytest_configure(config: pytest.Config) -> None:
    """Measure what each test costs."""
    config.pluginmanager.register(costs.Meter(), "costs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that cost most, as one process runs them: what takes long is not what is waited for.

    Laws are tried longer, or shorter, where that is asked.
    """
    if config.getoption("quick"):
        _keep_quick(config, items)
    seconds: defaultdict[str, float] = defaultdict(float)
    for file, cost_s in costs.cost_of_files().items():
        seconds[process_of(file)] += cost_s
    items.sort(key=lambda item: (-seconds[process_of(_file_of(item))], _file_of(item)))  # alike in every process
    share = SHORT if config.getoption("quick") else THOROUGH if DEEP else USUAL
    for item in items:
        if isinstance(item, pytest.Function) and _is_law(item):
            _try(item, share)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, object]:
    """Let each process begin with another part of the folders: in a fresh clone, one compiles what the others find."""
    report = yield
    if collector.path == HERE and (given := getattr(collector.config, "workerinput", None)) and report.result:
        first = len(report.result) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
        report.result = report.result[first:] + report.result[:first]
    return report


def _file_of(item: pytest.Item) -> str:
    """Such as `unit/test_events.py`."""
    return item.nodeid.partition("::")[0].removeprefix("tests/")


def _keep_quick(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each test function, where it is short and starts no processes."""
    kept: dict[str, pytest.Item] = {}
    for item in items:
        name = costs.function_of(item.nodeid)
        shortened = SHORT / USUAL if isinstance(item, pytest.Function) and _is_law(item) else 1
        if process_of(_file_of(item)) not in ALONE and costs.is_quick(name, shortened=shortened):
            kept.setdefault(name, item)
    quick = set(kept.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in quick])
    items[:] = kept.values()


def process_of(file: str) -> str:
    """What the tests of a file share a process with: those of all that this names alike run one after the other."""
    inner = file.removeprefix("tests/")
    if inner in LITELLM:
        return "litellm"
    folder = inner.partition("/")[0]
    return folder if folder in ALONE else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: tests wait for children, disks and a browser half of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Send a file's tests to one process, for its fixtures' sake, and those of a folder of ALONE, or of LITELLM, too.

    Not by the marks of pytest-xdist: they are told by the names of tests, and pytest 9.2 lets nobody rename a test.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: process_of(file_of(nodeid))
    return scheduler


def pytest_collection_finish() -> None:
    """Leave what collecting made out of every later garbage collection: tests collect often, and it is large."""
    _leave_alone()


@pytest.fixture(autouse=True, scope="module")
def what_tests_import() -> Iterator[None]:
    """Leave what a file's tests imported, which lasts, out of later collections: of LiteLLM, a fifth of a second."""
    yield
    _leave_alone()


def _leave_alone() -> None:
    gc.collect()
    gc.freeze()


def _is_law(item: pytest.Function) -> bool:
    """Whether Hypothesis makes up the cases."""
    return isinstance(getattr(item.cls, "settings", None), settings) or is_hypothesis_test(item.obj)


def _try(item: pytest.Function, share: float) -> None:
    """Multiply the cases of a law; most name their number themselves, which a profile does not reach."""
    if isinstance(machine := getattr(item.cls, "settings", None), settings):
        item.cls.settings = _multiplied(machine, share)
    elif is_hypothesis_test(item.obj):
        law = getattr(item.obj, "__func__", item.obj)
        if not hasattr(law, "share_tried"):  # the cases of one function share it
            law.share_tried = share
            setattr(law, OWN_SETTINGS, _multiplied(getattr(law, OWN_SETTINGS), share))


def _multiplied(own: settings, share: float) -> settings:
    return settings(own, max_examples=max(1, round(own.max_examples * share)))


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[Path, pytest.TestReport]]:
    """The reports of every test's phases, each with the test's file."""
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            yield Path(report.nodeid.partition("::")[0]), report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of several processes in which one file's tests ran in more than one: only the clock would say so."""
    terminalreporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminalreporter is None or session.config.getoption("dist", "no") != "loadfile":
        return
    processes: defaultdict[str, set[str]] = defaultdict(set)
    for file, report in _reports(terminalreporter):
        processes[process_of(file.as_posix())].add(getattr(report, "worker_id", ""))
    if torn := sorted(name for name, ids in processes.items() if len(ids) > 1):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        terminalreporter.write_line(f"\nran in several processes, where one is meant to: {', '.join(torn)}", red=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the tests of each folder cost, and write what each function did where that is asked."""
    seconds: defaultdict[str, float] = defaultdict(float)
    count: Counter[str] = Counter()
    for file, report in _reports(terminalreporter):
        seconds[file.parent.name] += sum(costs.cost_in(report))
        count[file.parent.name] += report.when == "call"
    if len(seconds) > 1:
        terminalreporter.section("seconds of processor time by folder")
        for folder, took in sorted(seconds.items(), key=lambda pair: -pair[1]):
            terminalreporter.write_line(f"{took:7.1f}  {folder} ({count[folder]})")
    if config.getoption("costs"):
        costs.FILE.write_text(costs.written(report for _, report in _reports(terminalreporter)), "utf-8")
