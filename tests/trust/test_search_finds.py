"""Search finds what an exhaustive scan finds: what ended, what came later and summaries hide nothing."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, NewEvent, UserMessage
from memory_engine.testing import HashEmbedder

BEGIN = datetime(2023, 1, 1, tzinfo=UTC)
CONFIG = EngineConfig(compaction=CompactionPolicy(enabled=False))
MODELS = pytest.mark.parametrize("embedder", [None, HashEmbedder(16)], ids=["words", "vectors"])


def daily(*days: int) -> list[NewEvent]:
    """A report for each of these days."""
    return [NewEvent(UserMessage(content=f"daily report {n}"), occurred_at=BEGIN + timedelta(days=n)) for n in days]


@settings(max_examples=40)
@given(
    said=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    as_of=st.integers(0, 30),
    until=st.none() | st.integers(0, 30),
    limit=st.sampled_from((1, 7, 1_000)),
)
async def test_a_moment_asked_as_of_finds_what_had_been_said(
    said: list[int], as_of: int, until: int | None, limit: int
) -> None:
    """As many hits as there are reports until then, up to the limit, and none of later."""
    last = as_of if until is None else min(as_of, until)
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(daily(*said))
        found = await thread.search(
            "daily report",
            as_of=BEGIN + timedelta(days=as_of),
            until=None if until is None else BEGIN + timedelta(days=until),
            limit=limit,
        )
    assert min(limit, sum(day <= last for day in said)) == len(found)
    assert all(hit.at <= BEGIN + timedelta(days=last) for hit in found)


@MODELS
async def test_a_thousand_daily_reports_are_found_up_to_a_day(embedder: HashEmbedder | None) -> None:
    """Every one of them, by a bound as by a moment."""
    async with memory_engine.open(":memory:", config=CONFIG, embedder=embedder) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(daily(*range(1_000)))
        day = BEGIN + timedelta(days=890)
        assert 891 == len(await thread.search("daily report", until=day, limit=1_000))
        assert 891 == len(await thread.search("daily report", as_of=day, limit=1_000))
        assert 110 == len(await thread.search("daily report", since=day, limit=1_000))


@MODELS
async def test_a_document_that_is_replaced_often_hides_no_other(embedder: HashEmbedder | None) -> None:
    """Its 149 former versions hold the same words."""
    async with memory_engine.open(":memory:", config=CONFIG, embedder=embedder) as engine:
        documents = engine.tenant("acme").documents
        await documents.add_text("The refund policy allows thirty days", title="Policy", id="kept")
        for n in range(150):
            await documents.add_text(f"The refund policy allows {n} days", title="Draft", id="draft")
        found = {hit.text for hit in await documents.search("refund policy")}
        assert {"The refund policy allows thirty days", "The refund policy allows 149 days"} == found


@MODELS
async def test_a_compaction_takes_no_hit_away(embedder: HashEmbedder | None) -> None:
    """The covered originals are found as before, and their summary only where it is asked for."""
    async with memory_engine.open(":memory:", config=CONFIG, embedder=embedder) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content=f"apple pie number {n} is baked at noon") for n in range(300)])
        before = await thread.search("apple pie", limit=100)
        await thread.compact()
        after = await thread.search("apple pie", limit=100)
        assert (100, 100) == (len(before), len(after))
        assert {"message"} == {hit.kind for hit in after}
        assert {"summary"} == {hit.kind for hit in await thread.search("apple pie", kinds=["summary"])}
