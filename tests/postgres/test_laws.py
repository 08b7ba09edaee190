"""The laws of views and of search, and the examples, over a server: the same code, opened there."""

import runpy
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Event
from memory_engine.testing import HashEmbedder
from tests.faces import test_examples as examples
from tests.postgres_server import new_url, on_server
from tests.recall import test_recall_filters as filters
from tests.recall import test_recall_laws as recall
from tests.recall_samples import QUERIES, contents
from tests.views import test_view_laws as views
from tests.views.test_view_laws import CONFIG, EVENTS

HASH = HashEmbedder(16)


class Law(msgspec.Struct, frozen=True):
    """A law as it stands in its file: what it says of the values that are drawn."""

    name: str
    says: Callable[..., Awaitable[None]]
    values: Mapping[str, st.SearchStrategy[object]]


def law_of(test: object, **given: object) -> Law:
    """The law of a test that Hypothesis runs; `given` are the arguments that pytest gives it."""
    handle = test.hypothesis  # type: ignore[attr-defined]
    drawn = {**handle._given_kwargs, **{name: st.just(value) for name, value in given.items()}}
    name = "-".join([test.__name__, *(f"{key}={type(value).__name__}" for key, value in given.items())])  # type: ignore[attr-defined]
    return Law(name, handle.inner_test, drawn)


LAWS = [
    law_of(views.test_every_view_equals_its_past_and_its_rebuild),
    law_of(views.test_every_view_of_a_fork_is_that_of_its_past),
    law_of(views.test_every_view_outlives_its_process),
    law_of(recall.test_an_index_kept_by_its_events_equals_one_made_of_the_log),
    law_of(recall.test_a_search_as_of_a_seq_finds_what_was_found_then),
    law_of(recall.test_what_is_forgotten_is_in_no_index),
    law_of(recall.test_an_index_outlives_its_process),
    law_of(recall.test_a_fork_is_searched_as_its_own),
    law_of(filters.test_every_filter_finds_what_a_scan_finds, embedder=None),
    law_of(filters.test_every_filter_finds_what_a_scan_finds, embedder=HASH),
]
"""Taken before one of them is run: from then on pytest's plugin has put another function in its place."""


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@settings(max_examples=4)
@given(data=st.data())
async def test_a_law_holds_over_a_server(law: Law, data: st.DataObject) -> None:
    """What is tried with many cases in memory is tried with a few there."""
    with on_server():
        await law.says(**{name: data.draw(values, name) for name, values in law.values.items()})


@settings(max_examples=12)
@given(events=EVENTS, copies=st.sampled_from((1, 8)), embedded=st.booleans(), data=st.data())
async def test_the_same_log_gives_the_same_hits_as_in_memory(
    events: Sequence[Event], copies: int, embedded: bool, data: st.DataObject
) -> None:
    """The hits of every query, with their scores and in their order, now and at a seq; and every row of the index.

    With copies of the log, as many that words are indexed, and that very many passages are equally good.
    """
    embedder = HASH if embedded else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        async with (
            memory_engine.open(":memory:", config=CONFIG, embedder=embedder) as here,
            memory_engine.open(new_url(), config=CONFIG, embedder=embedder) as there,
        ):
            thread = await here.create_thread("t")
            for _ in range(copies):
                await views.each(thread, events)
            await thread.replay.export(path)
            await there.transfer.import_log(path, scopes="as exported")
            other = there.thread("t")
            for one in (thread, other):
                await one.admin.prepare_search()
            at = data.draw(st.integers(0, (await thread.info()).events))
            assert await contents(thread) == await contents(other)
            for query in QUERIES:
                assert await thread.search(query, limit=50) == await other.search(query, limit=50)
                assert await thread.search(query, limit=5, at=at) == await other.search(query, limit=5, at=at)


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_an_example_prints_the_same_over_a_server(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the docs show, to the letter, also where its second day opens what its first one wrote."""
    shown = dict(examples.SHOWN.findall(examples.PAGE.read_text(encoding="utf-8")))
    with on_server():
        runpy.run_path(str(examples.ROOT / "examples" / name), run_name="__main__")
    assert shown[name] == capsys.readouterr().out
