"""Search in layers by relevance: over what the layers hold now, summaries among it, and nothing that left them."""

from collections.abc import Sequence

import memory_engine
from memory_engine import Engine, EngineConfig, Thread
from memory_engine import events as e
from memory_engine.views.layers.entries import MemoryEntry, MemoryHit


class TwoMeanings:
    """An embedder for a test: machines lie in one direction, everything else in another."""

    name = "two-meanings"
    dimension = 2

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector a text."""
        return [[1.0, 0.1] if "car" in text or "vehicle" in text else [0.0, 1.0] for text in texts]

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_L2_meaning_counts_where_there_is_an_embedder() -> None:
    """An entry without a word of the query is found by its vector, and the hit says so."""
    async with memory_engine.open(":memory:", embedder=TwoMeanings()) as engine:
        thread = await engine.create_thread("t")
        await thread.memory.append("episodic", "bought a car")
        await thread.memory.append("episodic", "wrote a poem")
        (hit,) = await thread.memory.search("episodic", "vehicle")
        assert ("bought a car", True) == (hit.content, hit.why.startswith("meaning: 1.0"))
        both: list[MemoryHit] = await thread.memory.search("episodic", "poem about a vehicle")
        assert {"bought a car", "wrote a poem"} == {hit.content for hit in both}


async def summaries(thread: Thread) -> list[str]:
    """What a search of the thread finds among lines of summaries, without what only follows on a find."""
    found = await thread.search("sensor anomaly report", kinds=("summary",))
    return sorted(hit.text for hit in found if any(word in hit.text for word in ("sensor", "anomaly", "report")))


async def test_L2_a_summary_is_found_by_any_of_its_lines(thread: Thread) -> None:
    """It stands in its layer for what it covers: the covered entries are found in the log, not in the layer."""
    for text in ("sensor anomaly in hall 4", "report was sent to Ana", "unrelated", "the latest entry"):
        await thread.memory.append("episodic", text)
    await thread.memory.compact("episodic", keep_last=1)
    for query in ("sensor anomaly", "report"):
        (hit,) = await thread.memory.search("episodic", query)
        assert (3, True, "episodic") == (hit.entry.count, hit.entry.is_summary, hit.layer)
    assert "report was sent to Ana" == (await thread.search("report", kinds=("memory",)))[0].text
    await thread.memory.append("episodic", "one more")
    await thread.memory.compact("episodic", keep_last=0)
    (hit,) = await thread.memory.search("episodic", "sensor anomaly")
    assert 5 == hit.entry.count
    assert 2 == len(await summaries(thread))
    await thread.memory.clear("episodic")
    assert ([], []) == (await thread.memory.search("episodic", "anomaly"), await summaries(thread))


async def test_L2_a_summary_loses_what_is_removed_or_forgotten(thread: Thread) -> None:
    """An entry that goes takes its line with it, also by way of what it was drawn from; the other lines stay."""
    said = await thread.dispatch(e.UserMessage(content="the sensor of hall 4 is ours"))
    await thread.dispatch(e.MemoryAppended(layer="working", content="sensor of hall 4: ours", drawn_from=(said.seq,)))
    entries = [await thread.memory.append("working", f"anomaly {name}") for name in ("apple", "pear", "plum")]
    await thread.memory.compact("working", keep_last=0)
    assert 4 == len(await summaries(thread))
    await thread.memory.remove(entries[0].id, "working")
    assert ["anomaly pear", "anomaly plum", "sensor of hall 4: ours"] == await summaries(thread)
    await thread.forget(event_ids=[entries[1].event_id])
    assert ["anomaly plum", "sensor of hall 4: ours"] == await summaries(thread)
    await thread.forget(event_ids=[said.event_id])
    assert ["anomaly plum"] == await summaries(thread)
    assert [] == await thread.memory.search("working", "sensor hall")
    assert ["anomaly plum"] == [one.content for one in await thread.memory.originals(await the_summary(thread))]
    assert "pear" not in str(await thread.memory.search(None, "anomaly"))


async def the_summary(thread: Thread) -> MemoryEntry:
    """The summary of working memory."""
    (hit,) = await thread.memory.search("working", "anomaly")
    return hit.entry


async def test_L2_what_left_working_memory_is_not_found_in_it() -> None:
    """The rolling window is what is searched, and nothing once the session has ended."""
    async with memory_engine.open(":memory:", config=EngineConfig(working_entries_max=5)) as engine:
        thread = await engine.create_thread("t")
        for n in range(9):
            await thread.memory.append("working", f"anomaly number {n}")
        hits = await thread.memory.search("working", "anomaly")
        assert {f"anomaly number {n}" for n in range(4, 9)} == {hit.content for hit in hits}
        await thread.dispatch(e.SessionEnded())
        assert [] == await thread.memory.search(None, "anomaly")


async def test_L2_few_facts_are_found_beside_very_many_entries(thread: Thread) -> None:
    """A layer is searched as if it were alone, whatever else the thread holds of the same words."""
    await thread.memory.learn("dock", "the anomaly desk is at dock 7")
    await thread.dispatch_all([e.MemoryAppended(layer="episodic", content=f"anomaly desk {n}") for n in range(900)])
    assert ["dock"] == [hit.entry.key for hit in await thread.memory.search("semantic", "anomaly desk")]
    await thread.memory.compact("episodic", keep_last=2)
    hits = await thread.memory.search("episodic", "anomaly desk", 50)
    assert ["anomaly desk 898", "anomaly desk 899"] == sorted(hit.content for hit in hits if not hit.entry.count)
    assert 3 == len(hits)


async def test_L2_a_long_entry_is_one_hit(engine: Engine) -> None:
    """It is found by any of its parts, and leaves room for others."""
    memory = (await engine.create_thread("t")).memory
    long = await memory.append("episodic", "\n\n".join(f"Anomaly {n} in hall {n}. " * 60 for n in range(5)))
    short = await memory.append("episodic", "No anomaly in hall 9")
    assert {long.id, short.id} == {hit.entry.id for hit in await memory.search("episodic", "anomaly hall", 2)}


async def test_L2_meaning_is_looked_for_among_the_entries_of_the_layer() -> None:
    """However many other texts are nearer to the query."""
    async with memory_engine.open(":memory:", embedder=TwoMeanings()) as engine:
        thread = await engine.create_thread("t")
        await thread.memory.learn("transport", "bought a car")
        await thread.dispatch_all([e.UserMessage(content=f"another vehicle {n}") for n in range(300)])
        await thread.admin.prepare_search()
        assert ["transport"] == [hit.entry.key for hit in await thread.memory.search("semantic", "vehicle")]


async def test_L2_entries_under_one_id_are_one_fact(engine: Engine) -> None:
    """Where a fact has no key its id is the key: the later one takes its place."""
    memory = (await engine.create_thread("t")).memory
    for value in ("anomaly CSV", "anomaly Parquet"):
        await memory.append("semantic", value, id="format")
    await memory.append("semantic", "anomaly without a key")
    hits = await memory.search("semantic", "anomaly")
    assert {"anomaly Parquet", "anomaly without a key"} == {hit.content for hit in hits}
