"""How much of a log the commands `log` and `stats --chart` read."""

import json
import sqlite3
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, LlmTextResponse, UserMessage, sync
from memory_engine.administration.days import events_by_day
from memory_engine.core.clock import to_us
from memory_engine.engine import kernel_of
from memory_engine.testing import ManualClock
from tests.command_line import Run
from tests.reading_steps import counting_steps

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
LENGTHS = (500, 5_000)


def _many(path: str) -> None:
    """A database with a thread of 300 events, whose first is gone."""
    with sync.open(path) as engine:
        thread = engine.create_thread("many")
        thread.dispatch_all([UserMessage(content="first"), *(UserMessage(content=f"m{n}") for n in range(299))])
        thread.dispatch(LlmTextResponse(content="last"))
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM events WHERE pos = (SELECT min(pos) FROM events)")
    raw.close()


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (("--limit", "3"), [299, 300, 301]),
        (("--limit", "100"), list(range(202, 302))),
        (("--limit", "1", "--type", "user_message"), [300]),
        (("--limit", "2", "--after", "298"), [299, 300]),
    ],
)
def test_a_limit_reads_what_it_shows(run: Run, tmp_path: Path, options: tuple[str, ...], seqs: list[int]) -> None:
    """Of a long thread only its end is read: that its beginning is broken is not noticed there."""
    path = str(tmp_path / "many.db")
    _many(path)
    code, out, _ = run("log", "many", *options, "--json", "--db", path)
    assert (0, seqs) == (code, [json.loads(line)["seq"] for line in out.splitlines()])
    assert 0 != run("log", "many", "--limit", "301", "--db", path)[0]


def test_a_limit_finds_the_few_that_match_however_far_back(run: Run, tmp_path: Path) -> None:
    """Fewer match than are asked for: all of them come, in order."""
    path = str(tmp_path / "few.db")
    with sync.open(path) as engine:
        thread = engine.create_thread("t")
        marked = [thread.dispatch(UserMessage(content="a"), correlation_id="run").seq]
        thread.dispatch_all([UserMessage(content=f"m{n}") for n in range(500)])
        marked.append(thread.dispatch(UserMessage(content="b"), correlation_id="run").seq)
    out = run("log", "t", "--correlation", "run", "--limit", "9", "--json", "--db", path)[1]
    assert marked == [json.loads(line)["seq"] for line in out.splitlines()]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Databases with a short thread and a long one, over sixty days; two events of each bear a correlation id."""
    paths = {}
    for length in LENGTHS:
        paths[length] = path = str(tmp_path_factory.mktemp("grown") / "m.db")
        clock = ManualClock(to_us(datetime.now(UTC) - timedelta(days=60)))
        with sync.open(path, config=NEVER, clock=clock) as engine:
            thread = engine.create_thread("t")
            for n in range(60):
                thread.dispatch_all([UserMessage(content=f"m{n}") for _ in range(length // 60)])
                if n in (3, 40):
                    thread.dispatch(UserMessage(content="marked"), correlation_id="run")
                clock.advance(86_000)
    return paths


@pytest.mark.parametrize(
    "words",
    [
        ("log", "t", "--limit", "5"),
        ("log", "t", "--limit", "5", "--json"),
        ("log", "t", "--after", "20", "--limit", "5"),
        ("log", "t", "--type", "user_message", "--limit", "5"),
        ("log", "t", "--correlation", "run"),
        ("log", "t", "--correlation", "run", "--limit", "1"),
        ("threads", "--limit", "5"),
    ],
    ids=" ".join,
)
def test_a_look_at_a_few_events_reads_no_more_of_a_long_log(
    run: Run, grown: dict[int, str], words: tuple[str, ...]
) -> None:
    """By the rows that SQLite looks at, not by the clock."""
    taken = []
    for path in grown.values():
        with counting_steps() as steps:
            assert 0 == run(*words, "--db", path)[0]
        taken.append(steps.taken)
    assert 0 < taken[0]
    assert taken[1] <= taken[0] * 1.2


def test_a_chart_reads_few_events_of_a_long_log(run: Run, grown: dict[int, str]) -> None:
    """Those next to its midnights: ten times the events take one more look at each."""
    taken = []
    for path in grown.values():
        with counting_steps() as steps:
            run("stats", "--json", "--db", path)
        without = steps.taken
        with counting_steps() as steps:
            code, out, _ = run("stats", "--chart", "40", "--json", "--db", path)
        assert (0, 40) == (code, len(json.loads(out)["days"]))
        taken.append(steps.taken - without)
    assert taken[1] <= taken[0] * 3


@pytest.mark.parametrize("seed", range(6))
async def test_a_chart_counts_as_one_who_reads_all(seed: int) -> None:
    """Threads of a day and of many, with days between that have none, forks, and moments next to midnight."""
    chance, clock = Random(seed), ManualClock(to_us(datetime(2026, 3, 1, tzinfo=UTC)))
    async with memory_engine.open(":memory:", config=NEVER, clock=clock) as engine:
        expected: Counter[date] = Counter()
        threads = [await engine.create_thread() for _ in range(3)]
        for n in range(chance.randint(40, 150)):
            clock.us += chance.choice((0, 1, 1_000_000, 3_600_000_000, 86_400_000_000, 400_000_000_000))
            if not chance.randrange(9):
                clock.us += -clock.us % 86_400_000_000 - chance.randrange(2)
            if not chance.randrange(30):
                threads.append(await chance.choice(threads).fork())
                clock.us += 1
            await chance.choice(threads).dispatch(UserMessage(content=str(n)))
            expected[datetime.fromtimestamp(clock.us / 1e6, UTC).date()] += 1
        infos = await engine.threads()
        for days in (1, 5, 3_000):
            found = await events_by_day(kernel_of(engine), infos, days)
            first = max(found) - timedelta(days=days - 1)
            assert {day: count for day, count in expected.items() if day >= first} == {
                day: count for day, count in found.items() if count
            }
