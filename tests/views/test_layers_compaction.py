"""Compaction of layers: a summary in the place of older entries, originals at hand, nothing lost, nothing back."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Thread
from memory_engine import events as e
from memory_engine.errors import ModelError, UnknownMemory
from memory_engine.errors.effects import Usage
from memory_engine.llm.base import Completion, Message
from memory_engine.views.layers.entries import CompactReport


async def remembered(thread: Thread, count: int, layer: e.Layer = "episodic") -> None:
    """Entries in a layer."""
    for n in range(count):
        await thread.memory.append(layer, f"Agent analyzed file{n}.csv", metadata={"task": "analysis"}, condition="c")


async def contents(thread: Thread, layer: e.Layer = "episodic") -> list[str]:
    """What a layer's entries say."""
    return [entry.content for entry in await thread.memory.entries(layer)]


class Scripted:
    """A model that gives one answer, after doing something while it is asked."""

    name = "scripted"

    def __init__(self, answer: str | Exception, meanwhile: Callable[[], object] | None = None) -> None:
        self.asked: list[Sequence[Message]] = []
        self._answer = answer
        self._meanwhile = meanwhile

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Answer."""
        assert (0.3, 2_000, 60.0) == (temperature, max_tokens, timeout_s)
        self.asked.append(messages)
        if self._meanwhile is not None and len(self.asked) == 1:
            waiting = self._meanwhile()
            assert asyncio.iscoroutine(waiting)
            await waiting
        if isinstance(self._answer, Exception):
            raise self._answer
        return Completion(text=self._answer, model="scripted-1", usage=Usage(input_tokens=50, output_tokens=5))

    async def aclose(self) -> None:
        """Nothing is open."""


ANSWER = "- Ten files were analyzed [1-10]\n- file3.csv was one of them [4]\n"


@pytest.mark.parametrize("layer", ["working", "episodic"])
async def test_L3_a_local_summary_stands_for_older_entries(thread: Thread, layer: e.Layer) -> None:
    """One line an entry with its metadata, before the ten that stay."""
    await remembered(thread, 25, layer)
    report = await thread.memory.compact(layer)
    lines = [f"- Agent analyzed file{n}.csv [task=analysis]" for n in range(15)]
    expected = "\n".join(["[Summary of 15 entries]", *lines])
    assert [expected, *(f"Agent analyzed file{n}.csv" for n in range(15, 25))] == await contents(thread, layer)
    assert (15, 10, "local", expected) == (
        report.covered, report.kept, report.method, report.summary.content if report.summary else ""
    )  # fmt: skip


async def test_L3_the_originals_can_be_opened(tmp_path: Path) -> None:
    """By the summary or its id, each of them by its own; after two compactions and a restart."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await remembered(thread, 12)
        first = (await thread.memory.entries("episodic"))[0]
        await thread.memory.compact("episodic", keep_last=4)
        await remembered(thread, 3)
        await thread.memory.compact("episodic", keep_last=2)
    async with memory_engine.open(path) as engine:
        memory = engine.thread("t").memory
        summary = (await memory.entries("episodic"))[0]
        originals = await memory.originals(summary)
        expected = [f"Agent analyzed file{n}.csv" for n in (*range(12), 0)]
        assert expected == [entry.content for entry in originals]
        assert (originals, [first], 13) == (await memory.open(summary.id), await memory.open(first.id), summary.count)


async def test_L3_a_summary_of_summaries_is_made_of_originals(thread: Thread) -> None:
    """The second compaction quotes entries, not the first summary, and counts them all."""
    model = Scripted("- Files were analyzed [1-8]")
    await remembered(thread, 10)
    await thread.memory.compact("episodic", keep_last=2, model=model)
    await remembered(thread, 4)
    report = await thread.memory.compact("episodic", keep_last=0)
    assert report.summary is not None
    assert "Files were analyzed" not in report.summary.content
    assert report.summary.content.startswith("[Summary of 14 entries]\n- Agent analyzed file4.csv")


async def test_L3_a_long_summary_says_what_it_leaves_out(thread: Thread) -> None:
    """At most forty lines, each cut; how many entries are in none of them is said."""
    for n in range(100):
        await thread.memory.append("episodic", f"{n} " + "very long " * 100)
    report = await thread.memory.compact("episodic", keep_last=10)
    lines = report.summary.content.splitlines() if report.summary else []
    assert (42, "[Summary of 90 entries]", "- … 50 more, left out here") == (len(lines), lines[0], lines[-1])
    assert all(len(line) <= 122 for line in lines)


async def test_L3_recalled_entries_are_not_quoted(thread: Thread) -> None:
    """What came out of memory is not told a second time; it counts as covered."""
    await thread.memory.append("episodic", "an echo", recalled=True)
    await thread.memory.append("episodic", "a fact")
    report = await thread.memory.compact("episodic", keep_last=0)
    assert "[Summary of 2 entries]\n- a fact" == (report.summary.content if report.summary else "")


async def test_L3_without_a_summary_older_entries_just_go(thread: Thread) -> None:
    """`summarize_older=False` keeps the last and nothing else."""
    await remembered(thread, 12)
    report = await thread.memory.compact("episodic", keep_last=2, summarize_older=False)
    assert (10, None) == (report.covered, report.summary)
    assert ["Agent analyzed file10.csv", "Agent analyzed file11.csv"] == await contents(thread)


async def test_L3_rules_are_kept_without_a_summary_and_facts_all_stay(thread: Thread) -> None:
    """Procedural memory keeps the last rules; semantic memory needs no compaction, and the report says so."""
    await remembered(thread, 12, "procedural")
    await thread.memory.learn("k", "v")
    await thread.memory.compact("procedural")
    assert 10 == len(await thread.memory.rules())
    report = await thread.memory.compact("semantic", keep_last=0)
    assert (0, 1, True) == (report.covered, report.kept, bool(report.note))
    assert ["v"] == await contents(thread, "semantic")


async def test_L3_nothing_older_is_nothing_to_do(thread: Thread) -> None:
    """No event is written."""
    await remembered(thread, 10)
    report = await thread.memory.compact("episodic")
    assert (0, "there are no more than 10 entries") == (report.covered, report.note)
    assert 10 == (await thread.info()).events


async def test_L6_a_model_makes_the_summary() -> None:
    """Its lines cite entries; model and usage are recorded; the engine's memory_model is asked by default."""
    model = Scripted(ANSWER)
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread("t")
        await remembered(thread, 12)
        report = await thread.memory.compact("episodic", keep_last=2)
        assert ("model", "scripted-1", Usage(input_tokens=50, output_tokens=5)) == (
            report.method, report.model, report.usage
        )  # fmt: skip
        assert "[Summary of 10 entries]\n- Ten files were analyzed\n- file3.csv was one of them" == (
            report.summary.content if report.summary else ""
        )
        (event,) = [r.event for r in await thread.replay.latest(1)]
        assert isinstance(event, e.MemoryCompacted)
        assert [tuple(range(1, 11)), (4,)] == [line.seqs for line in event.lines]
        assert (await thread.replay.verify()).ok
        assert 1 == len(model.asked)


BAD: list[str | Exception] = [
    "I cannot do that.",
    "",
    "- x" * 2 + "\n- " + "longer than all of the entries together " * 60,
    ModelError("scripted", "timeout", "it took too long"),
]


@pytest.mark.parametrize("answer", BAD, ids=["refusal", "empty", "long", "timeout"])
async def test_L6_what_a_model_gets_wrong_is_done_locally(thread: Thread, answer: str | Exception) -> None:
    """The summary is there all the same, and the report says why it is the local one."""
    await remembered(thread, 12)
    report = await thread.memory.compact("episodic", keep_last=2, model=Scripted(answer))
    assert ("local", True) == (report.method, bool(report.failure))
    assert (await contents(thread))[0].startswith("[Summary of 10 entries]\n- Agent analyzed file0.csv")


async def compacted(thread: Thread, meanwhile: Callable[[], object]) -> CompactReport:
    """A compaction by a model during whose call something happens."""
    return await thread.memory.compact("episodic", keep_last=2, model=Scripted(ANSWER, meanwhile))


async def test_H_an_entry_that_comes_during_the_models_call_stays(thread: Thread) -> None:
    """It is neither covered nor lost."""
    await remembered(thread, 12)
    await compacted(thread, lambda: thread.memory.append("episodic", "meanwhile"))
    assert ["Agent analyzed file10.csv", "Agent analyzed file11.csv", "meanwhile"] == (await contents(thread))[1:]


async def test_H_a_clear_during_the_models_call_is_not_undone(thread: Thread) -> None:
    """Nothing that was cleared comes back as a summary."""
    await remembered(thread, 12)
    report = await compacted(thread, lambda: thread.memory.clear("episodic"))
    assert ([], None) == (await contents(thread), report.summary)
    assert (await thread.replay.verify()).ok


async def test_H_what_is_forgotten_during_the_models_call_stays_forgotten(thread: Thread) -> None:
    """The summary is made again, without it."""
    await thread.memory.append("episodic", "the dog is called hunter2")
    await remembered(thread, 12)
    first = (await thread.memory.entries("episodic"))[0].event_id
    model = Scripted(ANSWER, lambda: thread.forget(event_ids=[first]))
    report = await thread.memory.compact("episodic", keep_last=2, model=model)
    assert [True, False] == ["hunter2" in str(messages) for messages in model.asked]
    assert "hunter2" not in "\n".join(await contents(thread))
    assert report.summary is not None
    assert report.summary.content.startswith("[Summary of 10 entries]\n- ")
    assert (await thread.replay.verify()).ok


@pytest.mark.parametrize("by_model", [False, True], ids=["local", "model"])
async def test_H_forgetting_reaches_summaries(*, by_model: bool) -> None:
    """Lines that rest on a forgotten entry go; the others stay; the original cannot be opened."""
    model = Scripted("- The password is hunter2 [1]\n- Files were analyzed [2-9]") if by_model else None
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        secret = await thread.memory.append("episodic", "the password is hunter2")
        await remembered(thread, 12)
        await thread.memory.compact("episodic", keep_last=2, model=model)
        assert "hunter2" in (await contents(thread))[0]
        await thread.forget(event_ids=[secret.event_id])
        assert "hunter2" not in (await contents(thread))[0]
        assert "analyzed" in (await contents(thread))[0]
        assert [] == await thread.memory.search("episodic", "hunter2", mode="keyword")
        with pytest.raises(UnknownMemory):
            await thread.memory.open(secret.id)


async def test_H_an_entry_can_be_removed_out_of_a_summary(thread: Thread) -> None:
    """By its id, though it is covered."""
    wrong = await thread.memory.append("episodic", "a mistake")
    await remembered(thread, 3)
    await thread.memory.compact("episodic", keep_last=1)
    await thread.memory.remove(wrong.id, "episodic")
    summary = (await thread.memory.entries("episodic"))[0]
    assert "mistake" not in summary.content
    assert 2 == len(await thread.memory.originals(summary))


async def test_H_two_compactions_at_once_lose_nothing(thread: Thread) -> None:
    """Whichever comes last, every entry is kept or covered."""
    await remembered(thread, 20)
    await asyncio.gather(*(thread.memory.compact("episodic", keep_last=keep) for keep in (3, 8, 5)))
    entries = await thread.memory.entries("episodic")
    assert (17, 3) == (entries[0].count, len(entries) - 1)
    assert 17 == len(await thread.memory.originals(entries[0]))
    assert (await thread.replay.verify()).ok
