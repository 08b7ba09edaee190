"""Searching a thread through the public API: what is found, by what, and what no query can do."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Plugin, Thread
from memory_engine import events as e
from memory_engine.core.records import NewEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidSearch, ModelError, ThreadNotFound
from memory_engine.language import text as analysis
from memory_engine.language.text import stemmer_version
from memory_engine.recall.service import Recall
from memory_engine.store.passages import Extracted, Text, index_version
from memory_engine.testing import HashEmbedder
from tests.recall_samples import TALK

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


async def talk(thread: Thread, said: Iterable[tuple[str, str]] = TALK) -> None:
    """Dispatch a conversation, a turn an hour."""
    for n, (name, text) in enumerate(said):
        await thread.dispatch(NewEvent(e.UserMessage(content=text, name=name), occurred_at=START + timedelta(hours=n)))


async def texts(thread: Thread, query: str, limit: int = 3) -> list[str]:
    """What a search gives."""
    return [hit.text for hit in await thread.search(query, limit=limit)]


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine in memory."""
    async with memory_engine.open(":memory:") as opened:
        yield opened


@pytest.fixture
async def thread(engine: Engine) -> Thread:
    """A thread that holds a short conversation."""
    made = await engine.create_thread("talk")
    await talk(made)
    return made


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the puppy called?", "We settled on Biscuit. My niece insisted."),
        ("How much is the pottery course?", "Ninety euros for six evenings, clay included."),
        ("Where does Bo's brother play the cello?", "My brother Emil plays the cello in Graz now."),
        ("When is the festival at the harbour?", "No, they moved it to September because of the heat."),
    ],
)
async def test_a_question_finds_its_answer(thread: Thread, question: str, answer: str) -> None:
    """The answer is among the first three, also where the question's words stand in the turn before it."""
    assert answer in await texts(thread, question)


async def test_a_hit_says_where_it_comes_from_and_why(thread: Thread) -> None:
    """A hit names event, speaker, time and reason, and is marked as recalled."""
    (hit,) = await thread.search("cello in Graz", limit=1, explain=True)
    event = [event async for event in thread.events()][7]
    assert (event.id, event.seq, "user_message", "talk") == (hit.event_id, hit.seq, hit.event_type, hit.thread_id)
    assert ("Bo", "user", "message", START + timedelta(hours=7)) == (hit.speaker, hit.role, hit.kind, hit.at)
    assert hit.recalled
    assert (event.id,) == hit.sources
    assert hit.why
    assert pytest.approx(hit.score, abs=1e-4) == sum(hit.parts.values())
    assert "[2 March 2026] Bo: My brother Emil plays the cello in Graz now." == hit.rendered()


async def test_an_event_is_found_as_soon_as_it_is_acknowledged(thread: Thread) -> None:
    """A search after a dispatch sees it, first search or not."""
    for n in range(3):
        await thread.dispatch(e.UserMessage(content=f"The safe's code is zebra{n}."))
        assert f"The safe's code is zebra{n}." == (await texts(thread, f"zebra{n}", limit=1))[0]


async def test_what_a_compaction_covers_is_still_found() -> None:
    """Compacted originals are found in their own words."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=4, tokens_min=0, keep_recent=1))
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread()
        await talk(thread)
        await thread.compaction.settle()
        assert any(chunk.type == "compacted" for chunk in (await thread.state()).chunks())
        assert "We settled on Biscuit. My niece insisted." in await texts(thread, "What is the puppy called?")
        found = await thread.search("harbour", kinds=["summary"])
        assert {"summary"} == {hit.kind for hit in found}


async def test_the_kinds_of_what_is_found_can_be_chosen(thread: Thread) -> None:
    """`kinds` leaves out all others, also where they say more about the question."""
    await thread.dispatch(e.ToolResult(call_id="c", name="lookup", content="cello lessons: none"))
    assert ["tool"] == [hit.kind for hit in await thread.search("cello", kinds=("tool",))]
    assert {"tool", "message"} == {hit.kind for hit in await thread.search("cello")}


async def test_a_search_can_be_bounded_in_time(thread: Thread) -> None:
    """`since` and `until` bound when it was said, ends included."""
    at = START + timedelta(hours=8)
    assert [at] == [hit.at for hit in await thread.search("harbour festival", since=at, until=at)]


async def test_views_of_a_user_are_searched_together(engine: Engine) -> None:
    """Preferences, playbooks and memory of a user are found by one search; what was replaced is not."""
    user = engine.user("u1", tenant_id="acme")
    await user.preferences.update("currency", "Swiss francs")
    await user.preferences.update("currency", "euros")
    await user.memory.append("semantic", "Lives in Graz", key="home")
    await user.playbooks.save(flow_dact="report", user_query="monthly revenue by region", outcome="sent as a table")
    assert ["currency: euros"] == [hit.text for hit in await user.search("which currency?", kinds=("preference",))]
    assert {"playbook"} == {hit.kind for hit in await user.search("revenue by region")}
    assert "home" in {hit.key.rpartition(":")[2] for hit in await user.search("lives in Graz")}
    assert "currency: Swiss francs" in [hit.text for hit in await user.search("francs", at=1)]


async def test_a_scope_that_nobody_wrote_to_is_empty(engine: Engine) -> None:
    """Searching it makes no thread and raises nothing."""
    assert 0 == len(await engine.tenant("new").search("anything"))
    assert [] == await engine.threads()


async def test_several_threads_are_searched_as_one(engine: Engine) -> None:
    """Hits of a user's conversations are ranked together, each with its thread."""
    for n, text in enumerate(("The boat is called Marlin.", "The cat is called Pixel.", "Nothing of note.")):
        thread = await engine.create_thread(f"t{n}", user_id="u1", tenant_id="acme")
        await thread.dispatch(e.UserMessage(content=text))
    other = await engine.create_thread("other", user_id="u1", tenant_id="rival")
    await other.dispatch(e.UserMessage(content="The boat is called Marlin."))
    found = await engine.search("what is the boat called?", user_id="u1", tenant_id="acme")
    assert ("The boat is called Marlin.", "t0") == (found[0].text, found[0].thread_id)
    assert "other" not in {hit.thread_id for hit in found}
    assert 0 == len(await engine.search("boat", user_id="u1"))


HOSTILE = (
    "", " ", "the of and", '"', "'", '" OR "', "a* OR b", "NEAR(a b)", "rowid:1", "terms : x", "-biscuit", "^biscuit",
    "(", "biscuit AND NOT", "{terms}: biscuit", "\0", "biscuit\0cello", "👩‍👩‍👧🎻", "\ud800", "%", "_", "*",
    "¶message", "\"¶message\"",
    "'; DROP TABLE passages; --", "x" * 1_000_000, "biscuit " * 100_000, "\u202ebiscuit", "ﬁ ﬂ", "a" * 65,
)  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
async def test_no_query_can_break_a_search(thread: Thread, query: str) -> None:
    """Any text is searched for as text: it neither raises nor finds more than its words."""
    found = await thread.search(query)
    assert len(found) <= 10
    if "biscuit" not in query and "cello" not in query:
        assert 0 == len(found)


@settings(max_examples=60)
@given(st.text(max_size=200))
async def test_no_query_reaches_another_thread(query: str) -> None:
    """Whatever is asked, hits are of the thread that is asked."""
    async with memory_engine.open(":memory:") as engine:
        mine, other = await engine.create_thread("mine"), await engine.create_thread("mine%")
        await other.dispatch(e.UserMessage(content=f"secret {query}"))
        await other.search("secret")
        await mine.dispatch(e.UserMessage(content="public"))
        assert {"mine"} >= {hit.thread_id for hit in await mine.search(f"{query} secret public")}


ODD_IDS = st.text(st.sampled_from("ab%_*/:\"' é\u200b\u0661"), min_size=1, max_size=5).filter(str.strip)


@settings(max_examples=60)
@given(st.sets(st.tuples(st.just("") | ODD_IDS, ODD_IDS), min_size=2, max_size=5))
async def test_no_search_reaches_another_user_or_tenant(owners: set[tuple[str, str]]) -> None:
    """Whatever the ids of tenants and users look like, each finds its own texts and nobody else's."""
    async with memory_engine.open(":memory:") as engine:
        mine = {owner: f"secret{n}" for n, owner in enumerate(sorted(owners))}
        for (tenant, user), word in mine.items():
            thread = await engine.create_thread(user_id=user, tenant_id=tenant)
            await thread.dispatch(e.UserMessage(content=f"{word} said to the agent"))
            await engine.user(user, tenant_id=tenant).preferences.update("code", f"{word} preferred")
            if tenant:
                await engine.tenant(tenant).documents.add_text(f"{word} written", title="a note")
        everything = " ".join(mine.values())
        for (tenant, user), word in mine.items():
            of_user = await engine.search(everything, user_id=user, tenant_id=tenant, limit=100)
            own = await engine.user(user, tenant_id=tenant).search(everything, limit=100)
            assert {f"{word} said to the agent", f"code: {word} preferred"} == {hit.text for hit in of_user}
            assert {f"code: {word} preferred"} == {hit.text for hit in own}
            if tenant:
                of_tenant = {word for (other, _), word in mine.items() if other == tenant}
                found = await engine.tenant(tenant).documents.search(everything, limit=100)
                assert {f"{word} written" for word in of_tenant} == {hit.text for hit in found}


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("我们在柏林的会议推迟到星期五了", "会议推迟到什么时候"),
        ("来週の火曜日に京都へ出張します", "京都への出張はいつですか"),
        ("اجتماعنا القادم في القاهرة يوم الأحد", "أين الاجتماع في القاهرة؟"),
        ("Die Überweisung an die Stadtwerke ging am Dienstag raus.", "Wann ging die Überweisung an die Stadtwerke?"),
        ("Встреча перенесена на четверг в Казани", "когда встреча в Казани"),
        ("회의는 다음 주 월요일 서울에서 열립니다", "서울 회의는 언제"),
    ],
)
async def test_texts_of_any_script_are_found(engine: Engine, said: str, asked: str) -> None:
    """A text is found among others of its language, by its own words and by a question's."""
    thread = await engine.create_thread()
    for text in (
        "今天天气很好",
        "今日はいい天気です",
        "الطقس جميل اليوم",
        "Das Wetter ist schön.",
        "Погода хорошая",
        "오늘 날씨",
    ):
        await thread.dispatch(e.UserMessage(content=text))
    await thread.dispatch(e.UserMessage(content=said))
    assert said == (await texts(thread, said, limit=1))[0]
    assert said == (await texts(thread, asked, limit=1))[0]


@pytest.mark.parametrize("limit", [0, -1, 1_001])
async def test_a_limit_out_of_range_is_refused(thread: Thread, limit: int) -> None:
    """The error names the value and what is allowed."""
    with pytest.raises(InvalidSearch, match=f"limit={limit}: .* 1 to 1000"):
        await thread.search("x", limit=limit)


async def test_a_thread_that_is_not_there_is_named(engine: Engine) -> None:
    """Searching it raises, as every call on it does; a seq beyond the head too."""
    with pytest.raises(ThreadNotFound):
        await engine.thread("nobody").search("x")
    thread = await engine.create_thread()
    with pytest.raises(ValueError, match="has no event yet, only seq 0, not 1"):
        await thread.search("x", at=1)


async def test_a_deleted_thread_leaves_no_word_in_the_file(tmp_path: Path) -> None:
    """After `delete` the words are in no page of the file, the full-text index included."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        thread, other = await engine.create_thread(), await engine.create_thread()
        for n in range(100):
            await thread.dispatch(e.UserMessage(content=f"Unforgettable quokka{n}"))
            await other.dispatch(e.UserMessage(content=f"plain number {n}"))
        assert 1 == len(await thread.search("quokka7", limit=1))
        await other.search("plain")
        await thread.admin.delete()
        assert 10 == len(await other.search("plain"))
    assert -1 == path.read_bytes().find(b"quokka")


async def test_a_plugin_says_what_of_its_events_is_found() -> None:
    """An extractor of one's own decides texts and kind; without one, an event's content is a note."""
    shop = Plugin("shop")

    @shop.event("order_placed")
    class OrderPlaced(e.Event):
        item: str
        city: str

    @shop.event("remark")
    class Remark(e.Event):
        content: str

    @shop.passages(OrderPlaced)
    def order(event: OrderPlaced, _seq: int) -> Extracted:
        return Extracted((Text(f"Order of {event.item} to {event.city}", "order"),))

    async with memory_engine.open(":memory:", plugins=[shop]) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([OrderPlaced(item="lamp", city="Porto"), Remark(content="fragile lamp")])
        assert {("order", "Order of lamp to Porto"), ("note", "fragile lamp")} == {
            (hit.kind, hit.text) for hit in await thread.search("lamp")
        }


class Down:
    """An embedder that can be unplugged."""

    name = "down"
    dimension = 256

    def __init__(self) -> None:
        self.inner = HashEmbedder(256)
        self.is_down = True
        self.asked = 0

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Vectors, or `ModelError`."""
        self.asked += len(texts)
        if self.is_down:
            raise ModelError(self.name, "unavailable", "unplugged")
        return await self.inner.embed(texts)

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_with_an_embedder_down_words_find_and_the_result_says_so() -> None:
    """The search answers lexically with the reason; once it is up, the queue catches up and vectors take part."""
    embedder = Down()
    async with memory_engine.open(":memory:", embedder=embedder) as engine:
        thread = await engine.create_thread()
        await talk(thread)
        found = await thread.search("What is the puppy called?")
        assert ("lexical", True) == (found.how, "unplugged" in found.failure)
        assert "We settled on Biscuit. My niece insisted." in [hit.text for hit in found]
        embedder.is_down = False
        await thread.admin.prepare_search()
        found = await thread.search("What is the puppy called?")
        assert ("hybrid", "", 0) == (found.how, found.failure, found.waiting)


async def test_vectors_are_made_once_and_outlive_the_process(tmp_path: Path) -> None:
    """After reopening only the question is embedded."""
    path = str(tmp_path / "m.db")
    for expected in (len(TALK) + 1, 1):
        embedder = Down()
        embedder.is_down = False
        async with memory_engine.open(path, embedder=embedder) as engine:
            thread = engine.thread("t")
            if expected > 1:
                thread = await engine.create_thread("t")
                await talk(thread)
            await thread.admin.prepare_search()
            assert "hybrid" == (await thread.search("Biscuit")).how
        assert expected == embedder.asked


async def test_another_model_takes_over_when_its_vectors_are_made() -> None:
    """Its vectors are made beside the old ones; afterwards those are gone and the new model answers."""
    old, new = Down(), HashEmbedder(128)
    old.is_down = False
    async with memory_engine.open(":memory:", embedder=old) as engine:
        thread = await engine.create_thread()
        await talk(thread)
        await thread.admin.prepare_search()
        steps: list[tuple[int, int]] = []
        await kernel_of(engine)[Recall].change_embedder(new, lambda done, total: steps.append((done, total)))
        assert [(len(TALK), len(TALK))] == steps
        assert [new.name] == list(await kernel_of(engine).store.passages.models(thread.id))
        assert "hybrid" == (await thread.search("Biscuit")).how


async def test_forgetting_reaches_words_and_vectors() -> None:
    """What was forgotten is found neither by its words nor by its meaning, and its vector is gone."""
    async with memory_engine.open(":memory:", embedder=HashEmbedder(64)) as engine:
        thread = await engine.create_thread()
        await talk(thread)
        await thread.admin.prepare_search()
        (hit,) = await thread.search("cello in Graz", limit=1)
        await thread.forget(event_ids=[hit.event_id])
        assert hit.event_id not in {one.event_id for one in await thread.search("cello in Graz", limit=50)}
        kept = await kernel_of(engine).store.passages.vectors(thread.id, HashEmbedder(64).name, 0)
        assert len(TALK) - 1 == sum(len(rows.places) for rows in kept)


async def test_searches_and_dispatches_at_once_agree() -> None:
    """Searches while others dispatch find whole events, and in the end all of them."""
    async with memory_engine.open(":memory:", embedder=HashEmbedder(64)) as engine:
        thread = await engine.create_thread()

        async def say() -> None:
            for n in range(150):
                await thread.dispatch(e.UserMessage(content=f"item number{n} of the list"))

        async def look() -> None:
            for _ in range(20):
                found = await thread.search("item of the list", limit=100)
                assert {hit.text for hit in found} <= {f"item number{n} of the list" for n in range(150)}
                await asyncio.sleep(0)

        await asyncio.gather(say(), look(), look())
        await engine.settle()
        for n in (0, 77, 149):
            assert f"item number{n} of the list" == (await texts(thread, f"number{n}", limit=1))[0]


async def test_an_index_of_another_version_is_made_again(tmp_path: Path) -> None:
    """A file that an older release indexed is searched as if it never had been."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await talk(thread)
        expected = await texts(thread, "puppy")
    with sqlite3.connect(path) as file:
        file.execute("UPDATE passage_indexes SET version = 0")
        file.execute("UPDATE passages SET speaker = 'nobody'")
    file.close()
    async with memory_engine.open(path) as engine:
        assert expected == await texts(engine.thread("t"), "puppy")
        await engine.thread("t").dispatch(e.UserMessage(content="A second puppy came."))
        assert "A second puppy came." in await texts(engine.thread("t"), "second puppy")


async def test_an_index_of_another_release_of_the_stemmer_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stems are others than those of the query: `knightly` would not be found by `knights`."""
    path = str(tmp_path / "m.db")
    with monkeypatch.context() as before:
        before.setattr("memory_engine.language.text.stem", lambda word: word)
        before.setattr("memory_engine.language.text._REMEMBERED", type(analysis._REMEMBERED)())
        before.setattr("memory_engine.store.passages.stemmer_version", lambda: stemmer_version() ^ 1)
        index_version.cache_clear()
        async with memory_engine.open(path) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch(e.UserMessage(content="The knightly days of Moscow"))
            assert [] == await texts(thread, "knights")
    index_version.cache_clear()
    async with memory_engine.open(path) as engine:
        assert ["The knightly days of Moscow"] == await texts(engine.thread("t"), "knights")
