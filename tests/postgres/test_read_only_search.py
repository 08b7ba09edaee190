"""An engine that only reads, as a role that may only read, finds on a server what one that writes finds."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Event, UserMessage
from memory_engine.storage.postgres.address import parse
from memory_engine.testing import HashEmbedder
from tests.postgres.test_failures import with_login
from tests.postgres.test_schema import ask
from tests.postgres_server import new_url
from tests.recall.test_read_only_search import (
    NAMES,
    READS,
    WRITES,
    Gone,
    answers,
    filled,
    gone_from,
    made,
    overlay,
)
from tests.views.test_view_laws import CONFIG, EVENTS

FORGET = st.dictionaries(st.sampled_from(NAMES), st.sets(st.integers(1, 6), min_size=1, max_size=2), max_size=2)
INDEXED = "SELECT tid, seq, passages FROM @.passage_indexes ORDER BY tid"


async def reading(url: str) -> str:
    """The address of a role that may read the store's tables, and nothing else."""
    role, schema = f"r_{parse(url).schema}", parse(url).schema
    await ask(url, f"CREATE ROLE {role} LOGIN")
    await ask(url, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    await ask(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    await ask(url, f"ALTER ROLE {role} SET default_transaction_read_only = on")
    return with_login(url, role)


@settings(max_examples=6)
@given(EVENTS, st.sets(st.sampled_from(NAMES)), st.integers(0, 14), st.sampled_from([None, HashEmbedder(16)]), FORGET)
async def test_what_is_found_is_what_a_writer_finds(
    events: Sequence[Event], searched: set[str], cut: int, embedder: HashEmbedder | None, forgotten: dict[str, set[int]]
) -> None:
    """Of logs without an index, with one that lags behind, and of which something was forgotten."""
    url = new_url()
    async with memory_engine.open(url, config=CONFIG) as engine:
        await made(engine)
        await filled(engine, events[:cut])
        async with memory_engine.open(url, config=CONFIG, embedder=embedder) as other:
            for name in sorted(searched):
                await other.thread(name).search("anything")
        await filled(engine, events[cut:])
        await gone_from(engine, Gone(forgotten, is_erased=False, deleted=""))
    before = await ask(url, INDEXED)
    async with memory_engine.open(await reading(url), config=READS, embedder=embedder) as engine:
        found = await answers(engine)
    assert before == await ask(url, INDEXED)
    async with memory_engine.open(url, config=CONFIG, embedder=embedder) as engine:
        assert found == await answers(engine)


async def test_what_others_write_is_found(url: str) -> None:
    """Event by event; a thread that is made since is found by its place among the others."""
    async with memory_engine.open(url, config=WRITES) as writer:
        thread = await writer.create_thread("t", user_id="u")
        async with memory_engine.open(await reading(url), config=READS, embedder=HashEmbedder(16)) as reader:
            for n in range(1, 8):
                await thread.dispatch(UserMessage(content=f"Crate {n} is by the harbour."))
                assert n == (await reader.thread("t").search(f"crate {n}"))[0].seq
                several = await reader.search(f"crate {n}", user_id="u")
                assert (n, 0, "hybrid") == (several[0].seq, several.waiting, several.how)
            await (await writer.create_thread("new", user_id="u")).dispatch(UserMessage(content="crate 99"))
            assert "new" == (await reader.search("crate 99", user_id="u"))[0].thread_id
            await thread.search("harbour")
            assert 7 == (await reader.thread("t").search("crate 7"))[0].seq
            assert ["new"] == list(await overlay(reader).threads())
