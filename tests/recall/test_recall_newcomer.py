"""What a newcomer to search easily gives wrongly: errors that say what is right, and nothing is half done."""

import os
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, Thread, errors
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.recall.embedders import CachedEmbedder
from memory_engine.recall.service import Recall
from memory_engine.testing import HashEmbedder
from tests.recall.recalled import KEPT

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def loosely(call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """The call as somebody sees it who checks no types."""
    return call


async def filled(engine: Engine) -> Thread:
    """A conversation of a user in a tenant."""
    thread = await engine.create_thread("talk", user_id="u1", tenant_id="acme")
    for text in ("The pottery course costs ninety euros.", "It begins on Thursday."):
        await thread.dispatch(e.UserMessage(content=text), occurred_at=NOON)
    return thread


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"query": None}, r"query=None: it is a text"),
        ({"query": b"pottery"}, r"query=b'pottery': it is a text"),
        ({"limit": "3"}, r"limit='3': it is a number"),
        ({"limit": None}, r"limit=None: it is a number"),
        ({"kinds": None}, r"kinds=None: .*\(\) is all"),
        ({"kinds": (3,)}, r"kinds=\(3,\): .* names of kinds"),
        ({"since": datetime(2026, 1, 1)}, r"since=.*time zone: datetime\(..., tzinfo=UTC\)"),  # noqa: DTZ001
        ({"until": date(2026, 1, 1)}, r"until=.*time zone"),
        ({"since": "2026-01-01"}, r"since='2026-01-01': .*time zone"),
        ({"since": NOON, "until": NOON - timedelta(1)}, r"before `since`"),
    ],
)
async def test_a_search_says_what_it_takes(words: dict[str, object], why: str) -> None:
    """A wrong value is refused by name, on a thread, a user, and over threads; the error says what is right."""
    asked: dict[str, object] = {"query": "pottery"} | words
    async with memory_engine.open(":memory:") as engine:
        thread = await filled(engine)
        for search in (thread.search, engine.search):
            with pytest.raises(errors.InvalidSearch, match=why):
                await loosely(search)(**asked)


@pytest.mark.parametrize("at", [-1, 3, "1", 1.5])
async def test_a_seq_that_there_is_not_is_named(at: object) -> None:
    """`ValueError`, with the seqs that there are."""
    async with memory_engine.open(":memory:") as engine:
        thread = await filled(engine)
        with pytest.raises(ValueError, match=r"seqs 1 to 2 \(0: before the first\), not"):
            await thread.search("pottery", at=at)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"tenant_id": None}, "empty text"),
        ({"thread_ids": "talk"}, "list of ids"),
        ({"thread_ids": ["talk"], "user_id": "u1"}, "not both"),
    ],
)
async def test_a_search_over_threads_never_reaches_further_than_it_is_told(words: dict[str, object], why: str) -> None:
    """`None` is no tenant, and not any; a filter beside named threads is not dropped silently."""
    async with memory_engine.open(":memory:") as engine:
        await filled(engine)
        search = loosely(engine.search)
        with pytest.raises(errors.InvalidSearch, match=why):
            await search("pottery", **words)


async def test_a_search_over_threads_is_bounded_in_time() -> None:
    """`since` and `until`, as on a thread."""
    async with memory_engine.open(":memory:") as engine:
        await filled(engine)
        assert 2 == len(await engine.search("pottery", thread_ids=["talk"], since=NOON, until=NOON))
        assert 0 == len(await engine.search("pottery", thread_ids=["talk"], since=NOON + timedelta(1)))


async def test_a_context_says_what_it_recalls_from() -> None:
    """A single handle, an id in place of one, and a question that is not a text are refused."""
    async with memory_engine.open(":memory:") as engine:
        thread = await filled(engine)
        context = loosely(thread.context)
        user = engine.user("u1", tenant_id="acme")
        with pytest.raises(errors.InvalidSearch, match="list of handles"):
            await context(query="pottery", recall_from=user)
        with pytest.raises(errors.InvalidSearch, match="not a handle"):
            await context(query="pottery", recall_from=["user:acme/u1"])
        with pytest.raises(errors.InvalidSearch, match="query=3: it is a text"):
            await context(query=3)
        with pytest.raises(TypeError, match="returns a Split"):
            await context(query="pottery", max_tokens=500, policy=lambda _room: 200)


async def test_no_passage_is_recalled_twice() -> None:
    """What a question brought back does not come again among what was said lately, however short it is.

    Short passages were not compared with each other, since "yes" may be said twice; so each that
    was found stood in the block a second time when there was room left to fill.
    """
    async with memory_engine.open(":memory:", config=KEPT) as engine:
        thread = await engine.create_thread()
        for n in range(40):
            await thread.dispatch(e.UserMessage(content=f"Valve {n} leaks." if 20 <= n < 23 else f"Pump {n} runs."))
            await thread.dispatch(e.LlmTextResponse(content=f"Noted, {n}."))
        context = await thread.context(500, query="Which valve leaks?")
    places = [(hit.seq, hit.n) for hit in context.recalled]
    assert len(set(places)) == len(places) > 5
    assert {"said lately"} < {hit.why for hit in context.recalled}


@pytest.mark.parametrize("wrong", [3, object()])
async def test_an_embedder_that_is_none_is_refused_when_the_engine_opens(wrong: object) -> None:
    """Not by the first search, nor at the end."""
    with pytest.raises(TypeError, match=r"is not an embedder: it has no name"):
        async with memory_engine.open(":memory:", embedder=wrong):  # type: ignore[arg-type]
            raise AssertionError("it is open")


async def test_models_are_checked_where_they_are_given() -> None:
    """A name in place of a model, and sizes below 1."""
    with pytest.raises(TypeError, match="is not a re-ranker"):
        async with memory_engine.open(":memory:", reranker="jina"):  # type: ignore[arg-type]
            raise AssertionError("it is open")
    with pytest.raises(TypeError, match="is not an embedder"):
        CachedEmbedder("openai/text-embedding-3-small")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="capacity is how many"):
        CachedEmbedder(HashEmbedder(), capacity=0)
    with pytest.raises(ValueError, match="dimension is how many"):
        HashEmbedder(0)
    async with memory_engine.open(":memory:", embedder=HashEmbedder(64)) as engine:
        thread = await filled(engine)
        with pytest.raises(TypeError, match="is not an embedder"):
            await kernel_of(engine)[Recall].change_embedder("openai/text-embedding-3-small")  # type: ignore[arg-type]
        assert "hybrid" == (await thread.search("pottery")).how


async def test_one_path_is_one_path(tmp_path: Path) -> None:
    """A path that is given alone is not taken letter by letter: `"/"` would be the whole disk."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("Refunds take fourteen days.")
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        assert 1 == (await documents.ingest(str(folder))).added
        assert 1 == (await documents.ingest(folder)).unchanged


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may look anywhere")
async def test_a_link_into_what_may_not_be_looked_at_ends_nothing(tmp_path: Path) -> None:
    """It is named in the report, and the files after it are brought."""
    folder = tmp_path / "notes"
    closed = folder / ".closed"
    (closed / "inner").mkdir(parents=True)
    (folder / "a-link").symlink_to(closed / "inner")
    (folder / "b.md").write_text("Refunds take fourteen days.")
    closed.chmod(0)
    try:
        async with memory_engine.open(":memory:") as engine:
            report = await engine.tenant("acme").documents.ingest(folder)
    finally:
        closed.chmod(0o700)
    assert (1, ["it cannot be read: Permission denied"]) == (report.added, [error.why for error in report.failed])
