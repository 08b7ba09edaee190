"""Search in layers: keyword points to the letter, relevance by default, the latest on request; and what it costs."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, Thread
from memory_engine import events as e
from memory_engine.core.clock import to_datetime
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import ManualClock
from memory_engine.views.layers import keywords

HOUR_US = 3_600 * 1_000_000


def naive(entries: Sequence[tuple[str, Mapping[str, object], int]], query: str, now_us: int) -> list[tuple[float, int]]:
    """Scores and places, best first: two points an occurrence, one for any, half a point for this very moment."""
    scored = []
    for place, (content, metadata, moment_us) in enumerate(entries):
        as_json = json.dumps(metadata, ensure_ascii=False, separators=(",", ":"), sort_keys=True) if metadata else ""
        text = f"{content}\n{as_json}".casefold()
        score = 0.0
        for term in query.casefold().split():
            count = text.count(term)
            score += 2 * count + (1 if term in text else 0)
        if score:
            age = max(0, now_us - moment_us)
            score += max(0.0, 0.5 * (1 - age / (24 * HOUR_US)))
            scored.append((score, moment_us, place))
    scored.sort(reverse=True)
    return [(score, place) for score, _, place in scored]


PIECES = st.sampled_from(
    [
        "a",
        "A",
        "b",
        "ab",
        "aa",
        "anomaly",
        "file",
        "12",
        "1",
        "-",
        ".",
        '"',
        ":",
        "_",
        "ß",
        "SS",
        "Σ",
        "ς",
        " ",
        "\n",
        "\t",
        "é",
        "名",
        "\x00",
    ]
)
WORDY = st.lists(PIECES, max_size=12).map("".join)
ENTRIES = st.lists(st.tuples(WORDY, st.dictionaries(WORDY, WORDY, max_size=2), st.integers(0, 40)), max_size=8)


@settings(max_examples=150, deadline=None)
@given(ENTRIES, st.lists(st.lists(PIECES, max_size=4).map("".join), max_size=3).map(" ".join), st.integers(1, 5))
async def test_L2_keyword_mode_scores_as_specified(
    entries: list[tuple[str, dict[str, str], int]], query: str, limit: int
) -> None:
    """Any texts, any query, also while entries come one by one: the points of a plain count over every entry."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        memory = (await engine.create_thread("t")).memory
        said: list[tuple[str, Mapping[str, object], int]] = []
        for content, metadata, hours in entries:
            moment_us = clock.us - hours * HOUR_US
            await memory.append("episodic", content, metadata=metadata, timestamp=to_datetime(moment_us))
            said.append((content, metadata, moment_us))
            hits = await memory.search("episodic", query, limit, mode="keyword")
            assert [(round(score, 9), place + 1) for score, place in naive(said, query, clock.us)[:limit]] == [
                (round(hit.score, 9), hit.entry.seq) for hit in hits
            ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), WORDY | st.none(), st.integers(0, 9)), max_size=30),
    st.lists(st.sampled_from(["a", "aa", "ab", "1", ".", "名", "\x00"]), min_size=1, max_size=3),
    st.integers(1, 5),
)
def test_L2_many_entries_are_counted_as_each_by_itself(
    changes: list[tuple[str, str | None, int]], terms: list[str], limit: int
) -> None:
    """Also where entries fill several long texts, change, go, and terms were looked up before they came."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keywords, "BLOCK_ENTRIES", 3)
        index = keywords.EntryIndex()
        stands: dict[str, tuple[int, int, str]] = {}
        for place, (key, text, time_us) in enumerate(changes):
            if text is None:
                index.drop(key)
                stands.pop(key, None)
            else:
                index.put(key, text, time_us)
                stands[key] = time_us, place, text
            points = {key: sum(2 * said[2].count(t) + (t in said[2]) for t in terms) for key, said in stands.items()}
            order = sorted((key for key in stands if points[key]), key=lambda key: (points[key], stands[key]))[::-1]
            best = index.best(terms, limit)
            assert [(key, points[key]) for key in order[:limit]] == [(index.keys[place], n) for place, n in best]
            assert len(stands) == len(index)


async def test_L2_the_worked_example() -> None:
    """`security vulnerabilities` finds the scan and counts its metadata too."""
    async with memory_engine.open(":memory:", clock=ManualClock()) as engine:
        memory = (await engine.create_thread("t")).memory
        metadata = {"agentId": "agent-001", "task": "security-scan"}
        await memory.append(
            "episodic", "Agent analyzed security vulnerabilities in src/", id="entry-1", metadata=metadata
        )
        await memory.append("episodic", "Agent wrote a report")
        (hit,) = await memory.search("episodic", "Security VULNERABILITIES", mode="keyword")
        assert ("entry-1", 2 * 2 + 1 + 2 + 1 + 0.5) == (hit.entry.id, hit.score)
        assert "security ×2, vulnerabilities ×1" == hit.why


async def test_L2_recency_fades_over_a_day() -> None:
    """Half a point now, a quarter after twelve hours, nothing after a day; it makes no hit by itself."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        memory = (await engine.create_thread("t")).memory
        await memory.append("episodic", "anomaly")
        for hours, bonus in ((0, 0.5), (12, 0.25), (24, 0.0), (1_000, 0.0)):
            clock.us = ManualClock().us + hours * HOUR_US
            (hit,) = await memory.search("episodic", "anomaly", mode="keyword")
            assert pytest.approx(3 + bonus) == hit.score
        await memory.append("episodic", "this very moment")
        assert 1 == len(await memory.search("episodic", "anomaly", mode="keyword"))


async def test_L2_ten_hits_unless_told_otherwise() -> None:
    """The newest of those that score alike come first."""
    async with memory_engine.open(":memory:", clock=ManualClock()) as engine:
        memory = (await engine.create_thread("t")).memory
        for n in range(30):
            await memory.append("episodic", f"anomaly {n}")
        assert [f"anomaly {n}" for n in range(29, 19, -1)] == [
            hit.content for hit in await memory.search("episodic", "anomaly", mode="keyword")
        ]
        assert 25 == len(await memory.search("episodic", "anomaly", 25, mode="keyword"))


async def test_L2_changed_and_dropped_entries_are_not_found(engine: Engine) -> None:
    """The index follows: a fact that changed, an entry that went, a layer that was cleared."""
    memory = (await engine.create_thread("t")).memory
    await memory.learn("format", "CSV")
    await memory.append("episodic", "old anomaly", id="x")
    assert (1, 1) == (len(await memory.search("semantic", "csv")), len(await memory.search("episodic", "anomaly")))
    await memory.learn("format", "Parquet")
    await memory.remove("x", "episodic")
    assert ([], 1) == (await memory.search("semantic", "csv"), len(await memory.search("semantic", "parquet")))
    assert [] == await memory.search("episodic", "anomaly", mode="keyword")
    await memory.append("episodic", "new anomaly")
    await memory.clear("episodic")
    await memory.append("episodic", "newest anomaly")
    assert ["newest anomaly"] == [hit.content for hit in await memory.search("episodic", "anomaly")]


async def test_L2_many_changes_do_not_swell_the_index(engine: Engine) -> None:
    """One key learned again and again is one entry, found under its last value alone."""
    memory = (await engine.create_thread("t")).memory
    for n in range(2_200):
        await memory.learn("k", f"value {n}")
        if not n % 100:
            await memory.search("semantic", f"{n}", mode="keyword")
    assert ["value 2199"] == [hit.content for hit in await memory.search("semantic", "value", mode="keyword")]


SAID = (
    "Deployed the billing service to production",
    "Deployment failed: the database migration timed out",
    "Wrote a poem about spring",
    "Found 3 anomalies in sensor data, all at full hours",
    "Ana prefers short answers in French",
)


async def found(thread: Thread, query: str) -> list[str]:
    """What the default mode finds, best first."""
    return [hit.content for hit in await thread.memory.search("episodic", query)]


async def test_L2_hybrid_finds_other_forms_of_a_word(thread: Thread) -> None:
    """`anomaly detection` finds anomalies, `deploy` deployments; rare words weigh more than common ones."""
    for text in SAID:
        await thread.memory.append("episodic", text)
    assert SAID[3] == (await found(thread, "anomaly detection"))[0]
    assert {SAID[0], SAID[1]} == set(await found(thread, "deploy"))
    assert SAID[1] == (await found(thread, "why did the deployment fail?"))[0]
    assert [] == await found(thread, "quantum")
    assert SAID[3] == (await found(thread, "nsor"))[0]


async def test_L2_a_questions_small_words_do_not_outweigh_what_it_asks_for(thread: Thread) -> None:
    """Of a question the telling words count; a query that has none is still looked for."""
    for text in ("When did they do that to her, and when did you?", "Ana's lighthouse opened in May"):
        await thread.memory.append("episodic", text)
    assert ["Ana's lighthouse opened in May"] == await found(thread, "When did you say Ana’s lighthouse opened?")
    assert 1 == len(await found(thread, "when did they"))


@pytest.mark.parametrize(
    ("text", "query"),
    [("東京の会議は金曜日です", "会議"), ("ประชุมวันศุกร์", "วันศุกร์"), ("Straße", "STRASSE"), ("🎉 done", "🎉")],
)
async def test_L2_hybrid_knows_no_language(thread: Thread, text: str, query: str) -> None:
    """Scripts without spaces, other cases, signs: found."""
    await thread.memory.append("episodic", "something else")
    await thread.memory.append("episodic", text)
    assert [text] == await found(thread, query)


async def test_L2_hybrid_shows_near_duplicates_once(engine: Engine) -> None:
    """The newest stands for those that say the same; other numbers are another thing."""
    memory = (await engine.create_thread("t")).memory
    old = await memory.append("episodic", "The nightly backup job of the shop finished without errors")
    await memory.append("episodic", "the nightly backup job of the shop finished without errors!")
    await memory.append("episodic", "Backup 7 took long")
    await memory.append("episodic", "Backup 8 took long")
    hits = await memory.search("episodic", "backup")
    assert 3 == len(hits)
    (twin,) = [hit for hit in hits if hit.alike]
    assert (old.id,) == twin.alike
    assert "1 more say the same" in twin.why


async def test_L2_of_equal_hits_the_newest_comes_first() -> None:
    """Relevance that ties is ordered by time."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        thread = await engine.create_thread("t")
        for n in range(5):
            clock.advance(1)
            await thread.memory.append("episodic", f"anomaly {n}")
        assert [f"anomaly {n}" for n in range(4, -1, -1)] == await found(thread, "anomaly")


async def test_L2_several_layers_are_searched_together(engine: Engine) -> None:
    """One list over some or all layers; each hit names its layer, its sources, and is marked as recalled."""
    memory = (await engine.create_thread("t")).memory
    entries = [
        await memory.append(layer, "anomaly", key="k", condition="c") for layer in ("working", "episodic", "semantic")
    ]
    everything = await memory.search(None, "anomaly")
    assert {"working", "episodic", "semantic"} == {hit.layer for hit in everything}
    assert {"working", "semantic"} == {hit.layer for hit in await memory.search(("working", "semantic"), "anomaly")}
    assert {entry.event_id for entry in entries} == {hit.sources[0] for hit in everything}
    assert all(hit.recalled for hit in everything)


async def test_L2_the_latest_in_order(engine: Engine) -> None:
    """`last=5` gives five, the newest last, from any layer; facts in the order in which they were learned."""
    memory = (await engine.create_thread("t")).memory
    for n in range(9):
        await memory.append("episodic", str(n))
        await memory.learn(f"k{9 - n}", str(n))
    assert ["4", "5", "6", "7", "8"] == [hit.content for hit in await memory.search("episodic", last=5)]
    assert ["7", "8"] == [hit.content for hit in await memory.search("semantic", last=2)]
    both = await memory.search(("episodic", "semantic"), last=3)
    assert [("7", "semantic"), ("8", "episodic"), ("8", "semantic")] == [(hit.content, hit.layer) for hit in both]


async def test_L2_search_in_the_past(engine: Engine) -> None:
    """With `at` the layers are searched as they were."""
    memory = (await engine.create_thread("t")).memory
    await memory.learn("format", "CSV")
    await memory.learn("format", "Parquet")
    for mode in ("keyword", "hybrid"):
        (hit,) = await memory.search("semantic", "format", at=1, mode=mode)
        assert "CSV" == hit.content
    assert ["CSV"] == [hit.content for hit in await memory.search("semantic", last=5, at=1)]


class Watched(MemoryStore):
    """A store that remembers which projections' rows were read, and that outlives its engine."""

    def __init__(self) -> None:
        super().__init__()
        self.read_rows: list[str] = []

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """Note it, read."""
        self.read_rows.append(projection)
        return await super().rows(projection, version, thread_id)

    async def close(self) -> None:
        """Stay open."""


async def test_L4_entries_are_not_loaded_until_they_are_searched() -> None:
    """Opening, appending and asking for the latest read no episodic rows; a search does."""
    store = Watched()
    async with memory_engine.open(store) as engine:
        memory = (await engine.create_thread("t")).memory
        for n in range(50):
            await memory.append("episodic", f"did {n}")
    store.read_rows.clear()
    async with memory_engine.open(store) as engine:
        memory = engine.thread("t").memory
        await memory.append("episodic", "did more")
        assert ["did 49", "did more"] == [hit.content for hit in await memory.search("episodic", last=2)]
        assert 51 == (await memory.get_stats()).episodic_entry_count
        assert 41 == (await memory.compact("episodic")).covered
        assert "episodic" not in store.read_rows
        assert 1 == len(await memory.search("episodic", "more", mode="keyword"))
        assert "episodic" in store.read_rows


async def test_L2_time_given_by_callers_orders_the_hits() -> None:
    """Entries that tell of earlier times come after, whatever the order in which they were appended."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        memory = (await engine.create_thread("t")).memory
        now = to_datetime(clock.us)
        for hours in (5, 1, 9, 3):
            # relevance weighs what was said before an entry too: only where that is alike do entries tie
            await memory.append("episodic", "all quiet", timestamp=now)
            await memory.append("episodic", f"anomaly {hours}", timestamp=now - timedelta(hours=hours))
        for mode in ("keyword", "hybrid"):
            hits = await memory.search("episodic", "anomaly", 3, mode=mode)
            assert ["anomaly 1", "anomaly 3", "anomaly 5"] == [hit.content for hit in hits]


async def test_L2_a_fork_searches_its_own_memory(thread: Thread) -> None:
    """What came after the cut is found in neither of the other."""
    await thread.memory.append("episodic", "shared anomaly")
    fork = await thread.fork(thread_id="f")
    await thread.memory.append("episodic", "anomaly of the thread")
    await fork.memory.append("episodic", "anomaly of the fork")
    assert {"shared anomaly", "anomaly of the fork"} == set(await found(fork, "anomaly"))
    assert {"shared anomaly", "anomaly of the thread"} == set(await found(thread, "anomaly"))
    assert isinstance((await thread.replay.latest(1))[0].event, e.MemoryAppended)
