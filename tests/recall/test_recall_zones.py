"""Days in a user's time zone: how questions resolve them, and how hits and recalled passages show them."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import ContextPolicy, EngineConfig, UserMessage
from memory_engine.core.clock import DAY_US, local_day, local_time, midnight_us, to_us, zone_of
from memory_engine.errors import InvalidArgument
from memory_engine.recall import Hit
from memory_engine.recall.question import read_question
from memory_engine.thread import Thread

ALONE = ContextPolicy(blocks=())
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "America/Havana")


async def say(thread: Thread, zone: str, *times: tuple[int, int, int]) -> None:
    """A message at each (day of May, hour, minute) on the clocks of a zone."""
    for day, hour, minute in times:
        at = datetime(2024, 5, day, hour, minute, tzinfo=ZoneInfo(zone))
        await thread.dispatch(UserMessage(content=f"The boiler log says pressure {day}-{hour}."), occurred_at=at)


def days(hits: Sequence[Hit]) -> list[str]:
    """The day that each hit shows."""
    return [hit.rendered().partition("]")[0][1:] for hit in hits]


@pytest.mark.parametrize(
    ("zone", "hour"), [("Europe/Berlin", 1), ("America/Los_Angeles", 20), ("Asia/Tokyo", 3), ("UTC", 23)]
)
@pytest.mark.parametrize("by", ["engine", "thread"])
async def test_a_day_is_the_day_of_the_users_clock(zone: str, hour: int, by: str) -> None:
    """In a rendered hit, in a recalled block and in the question, whichever day it was in UTC."""
    config = EngineConfig(timezone=zone if by == "engine" else "UTC")
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread(metadata={"timezone": zone} if by == "thread" else {})
        await say(thread, zone, *((day, hour, 30) for day in range(1, 12)))
        best = (await thread.search("What did the boiler log say on 4 May 2024?", limit=3))[0]
        assert ("4 May 2024", f"The boiler log says pressure 4-{hour}.") == (best.day, best.text)
        assert best.at.hour == hour
        await thread.dispatch_all([UserMessage(content=f"word{n} " * 60) for n in range(12)])
        context = await thread.context(900, query="What did the boiler log say on 4 May 2024?", policy=ALONE)
        again = await thread.context(900, query="What did the boiler log say on 4 May 2024?", policy=ALONE)
    assert f"[4 May 2024]\n- user: The boiler log says pressure 4-{hour}." in context.recalled_text
    assert context.recalled_text == again.recalled_text


async def test_the_metadata_of_a_thread_overrides_the_engines_zone() -> None:
    """It can change; a search over several threads uses the engine's; what is no zone is logged and left alone."""
    async with memory_engine.open(":memory:", config=EngineConfig(timezone="Europe/Berlin")) as engine:
        thread = await engine.create_thread(metadata={"timezone": "Asia/Tokyo"})
        other = await engine.create_thread()
        for one in (thread, other):
            await say(one, "UTC", (4, 22, 30))
        assert ["5 May 2024"] == days(await thread.search("boiler"))
        await thread.admin.update(metadata={"timezone": "America/Lima"})
        assert ["4 May 2024"] == days(await thread.search("boiler"))
        assert ["5 May 2024"] * 2 == days(await engine.search("boiler", thread_ids=[thread.id, other.id]))
        await thread.admin.update(metadata={"timezone": "my kitchen"})
        assert ["5 May 2024"] == days(await thread.search("boiler"))


async def test_yesterday_is_the_users() -> None:
    """Shortly after the user's midnight, what was said an hour ago was said yesterday."""
    asked = datetime(2024, 5, 5, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    async with memory_engine.open(":memory:", config=EngineConfig(timezone="Europe/Berlin")) as engine:
        thread = await engine.create_thread()
        await say(thread, "Europe/Berlin", (3, 23, 30), (4, 0, 30), (4, 23, 30), (2, 12, 0))
        found = await thread.search("What did the boiler log say yesterday?", as_of=asked)
    assert {"4 May 2024"} == set(days(found[:2]))
    assert datetime(2024, 5, 4, 23, 30, tzinfo=ZoneInfo("Europe/Berlin")) in [hit.at for hit in found[:2]]


async def test_recalled_days_are_in_order_in_the_hour_that_clocks_repeat() -> None:
    """A passage said before the clocks go back comes before one said after, whatever their faces show."""
    async with memory_engine.open(":memory:", config=EngineConfig(timezone="Europe/Berlin")) as engine:
        thread = await engine.create_thread()
        begin = datetime(2024, 10, 27, 0, 40, tzinfo=UTC)
        for n in range(4):
            said = UserMessage(content=f"Reading {n} of the meter in the cellar: it shows {n}{n} units.")
            await thread.dispatch(said, occurred_at=begin + timedelta(minutes=15 * n))
        await thread.dispatch_all([UserMessage(content=f"word{n} " * 60) for n in range(12)])
        context = await thread.context(900, query="What does the meter in the cellar show?", policy=ALONE)
        found = await thread.search("meter in the cellar", limit=4)
    assert [0, 1, 2, 3] == sorted(range(4), key=lambda n: context.recalled_text.index(f"Reading {n}"))
    assert {begin + timedelta(minutes=15 * n) for n in range(4)} == {hit.at for hit in found}


async def test_a_zone_changes_nothing_that_is_stored(tmp_path: Path) -> None:
    """A log that was written under one zone verifies, and shows its days, under another; its events stay in UTC."""
    at = datetime(2024, 5, 4, 23, 30, tzinfo=UTC)
    seen = []
    for zone in ("UTC", "Asia/Tokyo", "UTC"):
        async with memory_engine.open(tmp_path / "log.db", config=EngineConfig(timezone=zone)) as engine:
            thread = await engine.open_thread("t")
            await thread.dispatch(UserMessage(content="The boiler hums."), event_id="e", occurred_at=at)
            shown = days(await thread.search("What did the boiler do on 5 May?"))
            report = await thread.replay.verify()
            events = [(event.id, event.occurred_at) async for event in thread.events()]
            seen.append((shown, bool(report.ok), events, (await thread.info()).head_hash))
    assert [["4 May 2024"], ["5 May 2024"], ["4 May 2024"]] == [shown for shown, *_ in seen]
    assert seen[0][1:] == seen[1][1:] == seen[2][1:]
    assert [("e", at)] == seen[0][2]


@pytest.mark.parametrize("name", ["Berlin", "", "Europe", "../etc/passwd", "Europe/Berlin\0", "UTC+1", "a" * 5_000])
def test_a_name_that_is_no_zone_is_refused(name: str) -> None:
    """When the engine is configured, not at the first search."""
    with pytest.raises(InvalidArgument, match="IANA name"):
        EngineConfig(timezone=name)


def test_a_zone_is_a_name() -> None:
    """Not an object, which another process could not read from a configuration."""
    with pytest.raises(InvalidArgument, match="IANA name"):
        EngineConfig(timezone=UTC)  # type: ignore[arg-type]


@given(st.sampled_from(ZONES), st.integers(-(2**62), 2**62))
def test_every_time_is_in_its_local_day(name: str, at_us: int) -> None:
    """From its midnight until the next one; and all times of the day fit a question alike."""
    zone = zone_of(name)
    day = local_day(at_us, zone)
    if 3 < day.toordinal() < date.max.toordinal() - 3:
        start, end = midnight_us(day.toordinal(), zone), midnight_us(day.toordinal() + 1, zone)
        assert start <= at_us < end
        assert at_us == to_us(local_time(at_us, zone))
        question = read_question("on 4 May, last week and 3 days ago", now_us=at_us + 5 * DAY_US, zone=zone)
        assert question.nearness(start) == question.nearness(at_us) == question.nearness(end - 1)
