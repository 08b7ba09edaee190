"""An engine that only reads finds what one that writes finds, whatever the index in the file lacks."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Event, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.recall.hits import Found
from memory_engine.recall.service import Recall
from memory_engine.storage.sqlite.passage_overlay import PassageOverlay
from memory_engine.testing import HashEmbedder
from memory_engine.thread import handle_of
from memory_engine.views.items.view import Items
from tests.recall_samples import QUERIES, TALK
from tests.trust.older_files import contents
from tests.views.test_view_laws import CONFIG, EVENTS, each

PLAIN = CompactionPolicy(enabled=False)
WRITES = EngineConfig(compaction=PLAIN)
READS = EngineConfig(read_only=True)
AT_ONCE = EngineConfig(read_only=True, search_index_timeout_s=1e-9)
NAMES = ("b", "a", "c")
ASKED = (*QUERIES[:2], *QUERIES[4:7], QUERIES[8])


async def filled(engine: Engine, events: Sequence[Event], *, of: Sequence[str] = NAMES) -> None:
    """Deal events out to threads, each of its own length."""
    for n, name in enumerate(of):
        await each(engine.thread(name), events[n:])


async def made(engine: Engine) -> None:
    """Make the threads: two of one user, one of nobody."""
    for name in NAMES:
        await engine.create_thread(name, user_id="u" if name != "c" else "")


async def answers(engine: Engine, at: Sequence[int] = (1, 3)) -> list[object]:
    """All that searches say, of one thread and of several, now and in the past."""
    found: list[object] = []
    there = [info.id for info in await engine.threads()]
    for query in ASKED:
        for name in there:
            thread = engine.thread(name)
            found.append(told(await thread.search(query, limit=50)))
            head = (await thread.info()).events
            found += [told(await thread.search(query, at=seq)) for seq in at if seq <= head]
        found.append(told(await engine.search(query, limit=50)))
        found.append(told(await engine.search(query, user_id="u")))
        found.append(told(await engine.search(query, thread_ids=there[::-1], explain=True)))
    return found


def told(found: Found) -> object:
    """Everything of it."""
    return list(found), found.how, found.failure, found.missing, found.waiting, found.unindexed, found.unread


def overlay(engine: Engine) -> PassageOverlay:
    """The index of an engine that only reads."""
    index = kernel_of(engine)[Recall].indexing.passages
    assert isinstance(index, PassageOverlay)
    return index


@asynccontextmanager
async def unchanged(folder: Path) -> AsyncIterator[None]:
    """A block that leaves each file of a folder as it is, and makes no other."""
    before = contents(folder)
    yield
    assert before == contents(folder)


async def same(path: Path, embedder: HashEmbedder | None) -> None:
    """What an engine that only reads answers is what one that writes answers, on a copy."""
    copy = path.parent.parent / "copy"
    copy.mkdir()
    shutil.copy2(path, copy / path.name)
    async with unchanged(path.parent), memory_engine.open(path, config=READS, embedder=embedder) as engine:
        found = await answers(engine)
        assert found == await answers(engine)  # again, as it is now in memory
    async with memory_engine.open(copy / path.name, config=CONFIG, embedder=embedder) as engine:
        assert found == await answers(engine)


class Gone(msgspec.Struct, frozen=True):
    """What goes from the log of each thread at its end, by seq, and a thread that is deleted."""

    seqs: dict[str, set[int]]
    is_erased: bool
    deleted: str


GONE = st.builds(
    Gone,
    st.dictionaries(st.sampled_from(NAMES), st.sets(st.integers(1, 6), min_size=1, max_size=2), max_size=2),
    st.booleans(),
    st.sampled_from(["", "a"]),
)


async def gone_from(engine: Engine, gone: Gone) -> None:
    """Let it go."""
    for name, drawn in gone.seqs.items():
        thread = engine.thread(name)
        if seqs := [seq for seq in sorted(drawn) if seq <= (await thread.info()).events]:
            await (thread.admin.erase if gone.is_erased else thread.forget)(seqs=seqs)
    if gone.deleted:
        await engine.thread(gone.deleted).admin.delete()


@settings(max_examples=20)
@given(EVENTS, st.sets(st.sampled_from(NAMES)), st.integers(0, 14), st.sampled_from([None, HashEmbedder(16)]), GONE)
async def test_what_is_found_is_what_a_writer_finds(
    events: Sequence[Event], searched: set[str], cut: int, embedder: HashEmbedder | None, gone: Gone
) -> None:
    """Of logs without an index, with one that lags behind, and of which something was forgotten, erased or deleted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "there" / "m.db"
        path.parent.mkdir()
        async with memory_engine.open(path, config=CONFIG) as engine:
            await made(engine)
            await filled(engine, events[:cut])
            async with memory_engine.open(path, config=CONFIG, embedder=embedder) as other:
                for name in sorted(searched):  # whose index the first engine has not heard of
                    await other.thread(name).search("anything")
            await filled(engine, events[cut:])
            await gone_from(engine, gone)
        await same(path, embedder)


async def talked(path: Path, *, times: int = 30, name: str = "t") -> None:
    """A conversation that nobody has searched."""
    async with memory_engine.open(path, config=WRITES) as engine:
        thread = await engine.create_thread(name, user_id="u")
        said = [UserMessage(content=f"{text} Round {n}.", name=who) for n in range(times) for who, text in TALK]
        await thread.dispatch_all(said)


@pytest.mark.parametrize("embedder", [None, HashEmbedder(16)], ids=["words", "vectors"])
async def test_several_hundred_events_are_searched_alike(tmp_path: Path, embedder: HashEmbedder | None) -> None:
    """Where more wait for their words, and for their vectors, than one search takes with it."""
    (tmp_path / "copy").mkdir()
    await talked(tmp_path / "m.db")
    shutil.copy2(tmp_path / "m.db", tmp_path / "copy" / "m.db")
    found = []
    for path, config in ((tmp_path / "m.db", READS), (tmp_path / "copy" / "m.db", WRITES)):
        async with memory_engine.open(path, config=config, embedder=embedder) as engine:
            first = await engine.thread("t").search("harbour")
            assert (300 if embedder else 0, 0) == (first.waiting, first.unindexed)
            await engine.settle()
            found.append([told(await engine.thread("t").search(text, at=at)) for _, text in TALK for at in (None, 77)])
            found[-1] += [told(await engine.search(text, user_id="u")) for _, text in TALK]
    assert found[0] == found[1]


async def test_what_others_write_is_found(tmp_path: Path) -> None:
    """Event by event, in one thread and in several, while the one that writes knows of no index."""
    path = tmp_path / "m.db"
    async with memory_engine.open(path, config=WRITES) as writer:
        thread = await writer.create_thread("t", user_id="u")
        async with memory_engine.open(path, config=READS, embedder=HashEmbedder(16)) as reader:
            for n in range(1, 80):
                await thread.dispatch(UserMessage(content=f"Crate {n} is by the harbour."))
                found = await reader.thread("t").search(f"crate {n}")
                assert (n, 0, 0) == (found[0].seq, found.unindexed, found.waiting)
                assert n == (await reader.search(f"crate {n}", user_id="u"))[0].seq
            await (await writer.create_thread("new", user_id="u")).dispatch(UserMessage(content="crate 99"))
            assert "new" == (await reader.search("crate 99", user_id="u"))[0].thread_id
            await thread.search("harbour")
            assert n == (await reader.thread("t").search(f"crate {n}"))[0].seq
            assert not overlay(reader).own.has("t")  # a stored index that is whole needs none in memory


async def test_what_was_erased_or_deleted_is_found_no_more(tmp_path: Path) -> None:
    """Also by a reader that had found it; a thread that bears the id of a deleted one is searched as its own."""
    path = tmp_path / "m.db"
    async with memory_engine.open(path, config=WRITES) as writer:
        for name in ("t", "u"):
            texts = ("The password is swordfish.", "It rains.")
            await (await writer.create_thread(name)).dispatch_all([UserMessage(content=text) for text in texts])
        async with memory_engine.open(path, config=READS) as reader:
            assert {"t", "u"} == {hit.thread_id for hit in await reader.search("swordfish")}
            await writer.thread("t").admin.erase(seqs=[1])
            assert [] == [hit.text for hit in await reader.thread("t").search("swordfish")]
            assert {"u"} == {hit.thread_id for hit in await reader.search("swordfish")}
            assert 1 == (await reader.thread("u").search("swordfish"))[0].seq
            await writer.thread("u").admin.delete()
            assert [] == list(await reader.search("swordfish"))
            await (await writer.create_thread("u")).dispatch(UserMessage(content="Swordfish again."))
            assert [("u", 1)] == [(hit.thread_id, hit.seq) for hit in await reader.search("swordfish")]


async def test_a_long_log_is_answered_from_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In time, with what it lacks; the rest is read meanwhile, and a stored index that lacks less answers so long."""
    monkeypatch.setattr("memory_engine.recall.index.BROUGHT_MAX", 100)
    path = tmp_path / "m.db"
    await talked(path, times=110)
    async with unchanged(tmp_path), memory_engine.open(path, config=AT_ONCE) as reader:
        thread = reader.thread("t")
        first = await thread.search("pottery round 109")
        several = await reader.search("pottery round 109", user_id="u")
        assert (True, True) == (0 < first.unindexed <= 1_100, 0 < several.unindexed <= 1_100)
        while (found := await thread.search("pottery round 109")).unindexed:
            pass
        assert "Round 109" in found[0].text
        assert 0 == (await reader.search("pottery round 109", user_id="u")).unindexed
    async with memory_engine.open(path, config=WRITES) as writer:
        await writer.thread("t").dispatch(UserMessage(content="Good night."))
        async with memory_engine.open(path, config=WRITES) as other:
            await other.thread("t").admin.prepare_search()
        await writer.thread("t").dispatch(UserMessage(content="Pottery at round 109 too."))
        async with memory_engine.open(path, config=AT_ONCE) as reader:
            for found in (await reader.thread("t").search("pottery"), await reader.search("pottery", user_id="u")):
                assert found.unindexed <= 1  # or 0, where the rest was read by then
                assert "pottery" in found[0].text.casefold()
            while (found := await reader.thread("t").search("pottery round 109")).unindexed:
                pass
            assert 1_102 in {hit.seq for hit in found}


async def test_memory_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past it, threads that were searched longest ago go, and are searched again; those of one search stay together."""
    monkeypatch.setattr("memory_engine.storage.sqlite.passage_overlay.OWN_BYTES_MAX", 1)
    path = tmp_path / "m.db"
    for name in NAMES:
        await talked(path, times=3, name=name)
    async with memory_engine.open(path, config=READS, embedder=HashEmbedder(16)) as reader:
        for name in (*NAMES, *NAMES):
            assert 3 == len([hit for hit in await reader.thread(name).search("Biscuit") if "Biscuit" in hit.text])
            assert [name] == await overlay(reader).threads()
        found = await reader.search("Biscuit", limit=50, user_id="u")
        assert (set(NAMES), 0) == ({hit.thread_id for hit in found}, found.unindexed)
        assert set(NAMES) == set(await overlay(reader).threads())
        await reader.thread("a").search("Biscuit")
        assert set(NAMES) == set(await overlay(reader).threads())  # nothing new was needed


async def test_a_whole_index_in_the_file_is_the_one_that_is_asked(tmp_path: Path) -> None:
    """Nothing is held in memory. What it has no vectors for is left to who writes, and counted."""
    path = tmp_path / "m.db"
    await talked(path)
    async with memory_engine.open(path, config=WRITES) as writer:
        await writer.thread("t").admin.prepare_search()
    async with unchanged(tmp_path), memory_engine.open(path, config=READS, embedder=HashEmbedder(16)) as reader:
        assert 300 == (await reader.thread("t").search("harbour")).waiting
        await reader.search("harbour", user_id="u")
        await reader.thread("t").search("harbour", at=5)
        await reader.settle()
        assert 300 == (await reader.thread("t").search("harbour")).waiting
        assert [] == list(await overlay(reader).threads())


async def test_stored_vectors_are_not_made_again(tmp_path: Path) -> None:
    """Of an index that lags behind, only what it lacks is embedded."""

    class Counting(HashEmbedder):
        texts = 0

        async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            self.texts += len(texts)
            return await super().embed(texts)

    path = tmp_path / "m.db"
    async with memory_engine.open(path, config=WRITES) as writer:
        thread = await writer.create_thread("t", user_id="u")
        await thread.dispatch_all([UserMessage(content=f"Crate {n}.") for n in range(200)])
        async with memory_engine.open(path, config=WRITES, embedder=HashEmbedder(16)) as other:
            await other.thread("t").admin.prepare_search()
        await thread.dispatch_all([UserMessage(content=f"Crate {n}.") for n in range(200, 205)])
        for several in (False, True):
            embedder = Counting(16)
            async with memory_engine.open(path, config=READS, embedder=embedder) as reader:
                search = partial(reader.search, user_id="u") if several else reader.thread("t").search
                found = await search("Crate 203.")
                assert (204, "hybrid", 0) == (found[0].seq, found.how, found.waiting)
                await reader.settle()
            assert 6 == embedder.texts  # five passages and the question


async def test_loops_of_several_threads_search_at_once(tmp_path: Path) -> None:
    """As the inspector does: each in a loop of its own, that ends with its search."""
    path = tmp_path / "m.db"
    await talked(path, times=60)
    async with memory_engine.open(path, config=READS) as reader:
        found: list[list[tuple[int, float]]] = []

        def search() -> None:
            hits = asyncio.run(reader.thread("t").search("pottery round 59"))
            found.append([(hit.seq, hit.score) for hit in hits])

        workers = [threading.Thread(target=search) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            await asyncio.to_thread(worker.join)
        assert [found[0]] * 6 == found
        assert "Round 59" in (await reader.thread("t").search("pottery round 59"))[0].text


async def test_contexts_and_views_are_searched_too(tmp_path: Path) -> None:
    """Contexts with a question, now and then; documents, items and layers: as an engine that writes finds them."""
    path = tmp_path / "m.db"
    async with memory_engine.open(path, config=WRITES) as writer:
        thread = await writer.create_thread("t", user_id="u")
        await thread.dispatch_all([UserMessage(content=f"{text} Round {n}.") for n in range(20) for _, text in TALK])
        await writer.tenant("acme").documents.add_text("The lighthouse keeper repairs the lamp.", title="Lamp")
        await thread.memory.append("semantic", "The keeper's name is Olaf.")
        await Items(handle_of(thread)).put(("lamps",), "first", {"text": "a lamp of brass"})
    (tmp_path / "copy").mkdir()
    shutil.copy2(path, tmp_path / "copy" / "m.db")

    async def asked(engine: Engine) -> list[object]:
        thread = engine.thread("t")
        past = await thread.at(150)
        return [
            (await thread.context(400, query="pottery")).messages,
            (await past.context(400, query="pottery")).messages,
            (await past.search("pottery")).hits,
            (await engine.tenant("acme").documents.search("lamp")).hits,
            await Items(handle_of(thread)).search("brass", ("lamps",)),
            await thread.memory.search(None, "keeper"),
        ]

    async with unchanged(tmp_path), memory_engine.open(path, config=READS) as reader:
        found = await asked(reader)
    async with memory_engine.open(tmp_path / "copy" / "m.db", config=WRITES) as writer:
        assert found == await asked(writer)
    assert all(found)
