"""What narrows a search: everything that is let through can be found, however much there is of what is not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Event, NewEvent, Plugin, Thread, UserMessage
from memory_engine.recall import Extracted, Text
from memory_engine.testing import HashEmbedder

CONFIG = EngineConfig(compaction=CompactionPolicy(enabled=False))
BEGIN = datetime(2023, 1, 1, tzinfo=UTC)
KINDS = ("note", "order", "summary")
FILLERS = " ".join(f"filler{n}" for n in range(31))
"""With these a question has the most terms that are looked for, and of each term the shortest list is read."""


class Said(Event):
    """A passage of a kind, under a key that it ends first."""

    text: str
    kind: str = "note"
    key: str = ""


def _passages(event: Said, _seq: int) -> Extracted:
    keys = (event.key,) if event.key else ()
    return Extracted((Text(event.text, event.kind, key=event.key),), keys=keys)


SHOP = Plugin("shop")
SHOP.event("said")(Said)
SHOP.passages(Said)(_passages)


class Turn(msgspec.Struct, frozen=True):
    """One event of a log: the day it happened on, the kind of its passage, and its key's number (0: none)."""

    day: int
    kind: str
    key: int


class Narrow(msgspec.Struct, frozen=True):
    """What narrows a search."""

    kinds: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    at: int | None = None
    limit: int = 10


def fits(turn: Turn, narrow: Narrow) -> bool:
    """Whether a search may find a turn, by its kind and its day."""
    return (
        (turn.kind in narrow.kinds if narrow.kinds else turn.kind != "summary")
        and (narrow.since is None or turn.day >= narrow.since)
        and (narrow.until is None or turn.day <= narrow.until)
    )


def scanned(turns: Sequence[Turn], narrow: Narrow) -> set[int]:
    """The seqs that an exhaustive scan finds."""
    seen = turns[: narrow.at]
    last = {turn.key: seq for seq, turn in enumerate(seen, 1)}
    return {seq for seq, turn in enumerate(seen, 1) if fits(turn, narrow) and (not turn.key or last[turn.key] == seq)}


def days(number: int | None) -> datetime | None:
    """The moment that many days after the beginning."""
    return None if number is None else BEGIN + timedelta(days=number)


async def searched(thread: Thread, narrow: Narrow, query: str) -> list[int]:
    """The seqs of the hits."""
    found = await thread.search(
        query, kinds=narrow.kinds, since=days(narrow.since), until=days(narrow.until), at=narrow.at, limit=narrow.limit
    )
    return [hit.seq for hit in found]


async def told(thread: Thread, turns: Sequence[Turn], text: str = "needle") -> None:
    """Dispatch the turns."""
    await thread.dispatch_all(
        [
            NewEvent(
                Said(text=f"{text} {seq}", kind=turn.kind, key=f"k{turn.key}" if turn.key else ""),
                occurred_at=BEGIN + timedelta(days=turn.day),
            )
            for seq, turn in enumerate(turns, 1)
        ]
    )


TURNS = st.lists(
    st.builds(Turn, day=st.integers(0, 30), kind=st.sampled_from(KINDS), key=st.integers(0, 6)), min_size=1, max_size=60
)
BOUNDS = st.none() | st.integers(0, 30)


@st.composite
def narrowed(draw: st.DrawFn) -> tuple[list[Turn], Narrow]:
    """A log, and a search of it."""
    turns = draw(TURNS)
    since, until = draw(BOUNDS), draw(BOUNDS)
    if since is not None and until is not None and until < since:
        since, until = until, since
    return turns, Narrow(
        kinds=tuple(draw(st.sets(st.sampled_from(KINDS)))),
        since=since,
        until=until,
        at=draw(st.none() | st.integers(1, len(turns))),
        limit=draw(st.sampled_from((1, 5, 100))),
    )


@pytest.mark.parametrize("embedder", [None, HashEmbedder(16)], ids=["words", "vectors"])
@settings(max_examples=40)
@given(drawn=narrowed(), copies=st.sampled_from((1, 4)))
async def test_every_filter_finds_what_a_scan_finds(
    embedder: HashEmbedder | None, drawn: tuple[list[Turn], Narrow], copies: int
) -> None:
    """As many hits as there are passages that fit, up to the limit, and none that does not."""
    turns, narrow = drawn[0] * copies, drawn[1]
    async with memory_engine.open(":memory:", config=CONFIG, plugins=[SHOP], embedder=embedder) as engine:
        thread = await engine.create_thread("t")
        await told(thread, turns)
        found, expected = await searched(thread, narrow, "needle"), scanned(turns, narrow)
    assert min(narrow.limit, len(expected)) == len(found)
    assert set(found) <= expected


DAILY = [Turn(day, "note", 0) for day in range(1_000)]


@pytest.mark.parametrize(
    ("turns", "narrow"),
    [
        (DAILY, Narrow(until=110)),
        (DAILY, Narrow(since=110, until=119)),
        (DAILY[::-1], Narrow(since=890)),
        ([*DAILY[:200], *(Turn(n, "summary", 0) for n in range(800))], Narrow(limit=100)),
        ([*(Turn(n, "order", 0) for n in range(20)), *DAILY], Narrow(kinds=("order",))),
        ([Turn(0, "note", 1 + n % 2 * n) for n in range(2_000)], Narrow(limit=1_000)),
        ([*DAILY[:20], *(Turn(n, "note", 1) for n in range(2_100))], Narrow(limit=30)),
    ],
    ids=["until", "a-few-days", "since", "summaries", "kinds", "ended", "many-ended"],
)
@pytest.mark.parametrize("embedder", [None, HashEmbedder(16)], ids=["words", "vectors"])
async def test_what_does_not_fit_takes_no_place(
    embedder: HashEmbedder | None, turns: Sequence[Turn], narrow: Narrow
) -> None:
    """A few passages behind many others that hold the same words, all of them in lists that are read in part."""
    async with memory_engine.open(":memory:", config=CONFIG, plugins=[SHOP], embedder=embedder) as engine:
        thread = await engine.create_thread("t")
        await told(thread, turns, f"{FILLERS} needle")
        await thread.admin.prepare_search()
        found, expected = await searched(thread, narrow, f"needle {FILLERS}"), scanned(turns, narrow)
    assert min(narrow.limit, len(expected)) == len(found)
    assert set(found) <= expected


async def test_a_year_of_daily_messages_is_searched_up_to_a_day() -> None:
    """A bound in time is part of what is looked for; before, only the latest hundred were looked at."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(
            [
                NewEvent(UserMessage(content=f"daily report {n}"), occurred_at=BEGIN + timedelta(days=n))
                for n in range(1_000)
            ]
        )
        found = await thread.search("daily report", until=days(890))
        assert 10 == len(found)
        assert all(hit.at <= BEGIN + timedelta(days=890) for hit in found)
