"""Compactors of one's own: what they are asked about, what they may declare, and which objects are refused."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    Chunk,
    CompactionContext,
    CompactionPolicy,
    CompactionResult,
    Compactor,
    EngineConfig,
    LlmTextResponse,
    Plugin,
    UserMessage,
)
from memory_engine.compactors import EmbeddedCompactor, Pipeline
from memory_engine.errors import CompactorFailed, InvalidCompactor
from memory_engine.events import EnvironmentChange, SessionEnded
from memory_engine.testing import FakeCompactor
from tests.conversations import LONG, NEVER, SMALL, call, note, of_type, opened, say, texts, turns
from tests.scripted_compactors import Scripted, a_line


class Asked(Scripted):
    """Takes groups that `test` holds for, and keeps what it was asked about."""

    def __init__(self, test: object = None, *, name: str = "asked") -> None:
        super().__init__(name=name)
        self.asked: list[list[str]] = []
        self._test = test

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Whether the test holds."""
        self.asked.append([chunk.id for chunk in chunks])
        return bool(self._test(chunks)) if callable(self._test) else True


def of_types(*types: str, least: int = 1) -> object:
    """A test of a whole group: so many chunks at least, of these types only."""
    return lambda chunks: len(chunks) >= least and all(chunk.type in types for chunk in chunks)


async def test_a_compactor_is_asked_about_all_that_it_would_get() -> None:
    """One that needs three chunks gets them: it is asked about the group, not about one after the other."""
    compactor = Asked(lambda chunks: len(chunks) >= 3)
    async with opened(compactor, NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        assert "asked" == (await thread.compact()).compactor
        assert [made] == compactor.asked


async def test_a_compactor_of_some_chunks_gets_each_run_of_them() -> None:
    """What it cannot take stays out, and the group that it is asked about is as long as can be."""
    notes = Asked(of_types("external", least=3), name="notes")
    async with opened(Scripted(name="words"), NEVER) as engine:
        engine.register_compactor(notes)
        thread = await engine.create_thread()
        said = [*turns(2), *(note(f"a{n}", "batch_compressible") for n in range(3)), *turns(1, start=3)]
        said += [note("b", "batch_compressible"), *turns(1, start=4)]
        made = await say(thread, said)
        report = await thread.compact()
        assert [made[2:5]] == [[chunk.id for chunk in given] for given in notes.given]
        assert (set(made), "notes+words") == (set(report.covered), "+".join(sorted(report.compactor.split("+"))))


async def test_runs_of_one_compactor_get_one_summary_if_it_can_take_them_together() -> None:
    """Scattered chunks of its kind are one group to a compactor that takes them so."""
    notes = Asked(of_types("external"), name="notes")
    async with opened(Scripted(name="words"), NEVER) as engine:
        engine.register_compactor(notes)
        thread = await engine.create_thread()
        said = [note("a", "batch_compressible"), *turns(2), note("b", "batch_compressible"), *turns(2, start=3)]
        made = await say(thread, said)
        await thread.compact()
        assert [[made[0], made[3]]] == [[chunk.id for chunk in given] for given in notes.given]


async def test_what_belongs_together_is_asked_about_together() -> None:
    """A call goes with its result, also to a compactor that would take either alone."""
    calls = Asked(of_types("agent_action"), name="calls")
    pairs = Asked(of_types("agent_action", "action_result"), name="pairs")
    async with opened(Scripted(name="words"), NEVER) as engine:
        engine.register_compactor(pairs)
        engine.register_compactor(calls)
        thread = await engine.create_thread()
        made = await say(thread, [*turns(2), *call("a"), *turns(1, start=3)])
        await thread.compact()
        assert ([], [made[2:4]]) == (calls.given, [[chunk.id for chunk in given] for given in pairs.given])


async def test_asking_is_linear_in_the_number_of_chunks() -> None:
    """A compactor that takes nothing is asked a bounded number of times for each chunk."""
    never = Asked(lambda _chunks: False, name="never")
    async with opened(Scripted(), NEVER) as engine:
        engine.register_compactor(never)
        thread = await engine.create_thread()
        await thread.dispatch_all(turns(400))
        await thread.compact()
        assert len(never.asked) <= 400 * 33


class Surroundings:
    """The compactor of the design's example: for all ENVIRONMENT chunks."""

    name = "surroundings"
    categories = ("environment",)

    def __init__(self) -> None:
        self.given: list[list[str]] = []

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Chunks of the environment only."""
        return all(chunk.type == "environment" for chunk in chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """A line for all."""
        self.given.append([chunk.text.partition(" ")[0] for chunk in chunks])
        return a_line(chunks, context)


def around(*keys: str) -> list[memory_engine.Event]:
    """Changes of the environment."""
    return [EnvironmentChange(key=key, content=f"{key}{LONG}") for key in keys]


@pytest.mark.parametrize("policy", [SMALL, NEVER])
async def test_a_compactor_that_declares_the_environment_gets_it(policy: CompactionPolicy) -> None:
    """All chunks of the environment together, when the thread is compacted; the others go to the embedded one."""
    compactor = Surroundings()
    async with memory_engine.open(":memory:", compactor=compactor, config=EngineConfig(compaction=policy)) as engine:
        engine.register_compactor(FakeCompactor("they talked", name="words"))
        thread = await engine.create_thread()
        await say(thread, [*around("door", "light"), *turns(4)])
        if policy is NEVER:
            await thread.compact()
        assert [["door", "light"]] == compactor.given
        assert ["2", "they"] == await texts(thread)
        assert (await thread.replay.verify()).ok


async def test_the_environment_goes_with_the_session_also_as_a_summary() -> None:
    """What stands for EPHEMERAL chunks is EPHEMERAL; a change after the compaction is a chunk of its own."""
    async with opened(Surroundings(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [*turns(2), *around("door", "light")])
        await thread.compact()
        await thread.dispatch(EnvironmentChange(key="door", content="open"))
        assert ["2", "open"] == (await texts(thread))[1:]
        await thread.dispatch(SessionEnded())
        assert 1 == len(await texts(thread))
        assert (await thread.replay.verify()).ok


async def test_an_environment_that_gets_no_shorter_spoils_nothing() -> None:
    """The rest is compacted, and the compactor is not asked again about the same chunks."""
    compactor = Surroundings()
    async with opened(compactor, NEVER) as engine:
        engine.register_compactor(FakeCompactor("they talked", name="words"))
        thread = await engine.create_thread()
        await say(thread, [EnvironmentChange(key="door", content="a"), *turns(4)])
        await thread.compact()
        assert ["a", "they"] == await texts(thread)
        await say(thread, turns(2))
        await thread.compact()
        assert [["a"]] == compactor.given


async def test_a_compactor_that_declares_the_working_flow_is_not_asked_about_the_environment() -> None:
    """Whatever its `can_compact` says."""
    compactor = Asked()
    compactor.categories = ("working_flow",)  # type: ignore[attr-defined]
    async with opened(compactor, NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [*around("door"), *turns(2)])
        await thread.compact()
        assert ["door", "2"] == await texts(thread)
        assert 1 == len(await of_type(thread, "compaction_completed"))


class OfTheEnvironment(Scripted):
    """Declares no categories; its `can_compact` says all that it takes."""

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Chunks of the environment only."""
        return all(chunk.type == "environment" for chunk in chunks)


async def test_a_compactor_that_declares_nothing_gets_what_it_says_that_it_takes() -> None:
    """The environment, apart from the working flow; the embedded one takes the rest."""
    compactor = OfTheEnvironment()
    async with opened(compactor, NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [*around("door", "light"), *turns(4)])
        await thread.compact()
        assert [{"environment"}] == [{chunk.type for chunk in given} for given in compactor.given]
        assert "door" not in " ".join(await texts(thread))
        assert (await thread.replay.verify()).ok


async def test_the_built_in_compactors_leave_the_environment_alone() -> None:
    """It is what is so now, and no summary of it would be asked for."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await say(thread, [*around("door"), *turns(4)])
        await thread.compact()
        assert "door" in await texts(thread)


class Nameless:
    """Can everything, but has no name."""

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Anything."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """A line."""
        return a_line(chunks, context)


class Unnamed(Nameless):
    """Its name is empty."""

    name = " "


class Numbered(Nameless):
    """Its name is a number."""

    name = 7


class Greedy(Nameless):
    """Would compact the instructions."""

    name = "greedy"
    categories = ("system",)


class Deaf:
    """Cannot say what it can."""

    name = "deaf"

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """A line."""
        return a_line(chunks, context)


class Model:
    """A model is not a compactor."""

    name = "model"

    async def complete(self) -> None:
        """Nothing."""


REFUSED: dict[str, tuple[object, str]] = {
    "a model's name": ("gpt-4o", "compact_model='gpt-4o'"),
    "a model": (Model(), "compact_model"),
    "a class": (Scripted, "give an instance"),
    "nameless": (Nameless(), "`name`"),
    "an empty name": (Unnamed(), "`name`"),
    "a number for a name": (Numbered(), "`name`"),
    "without can_compact": (Deaf(), "`can_compact`"),
    "for what it may not have": (Greedy(), "`categories` hold 'system'"),
    "nothing at all": (7, "`can_compact`"),
}


@pytest.mark.parametrize(("given", "why"), REFUSED.values(), ids=REFUSED)
async def test_what_cannot_compact_is_refused_when_it_is_given(tmp_path: Path, given: object, why: str) -> None:
    """By `open`, before any file is made, as its compactor or a plug-in's, and by what takes one later."""
    path = tmp_path / "memory.db"
    for options in (
        {"compactor": given},
        {"plugins": [Plugin("mine", compactors=[(given, 5)])]},  # type: ignore[list-item]
    ):
        with pytest.raises(InvalidCompactor, match=why):
            async with memory_engine.open(str(path), **options):
                pass
    assert not path.exists()
    async with opened(Scripted(), NEVER) as engine:
        with pytest.raises(InvalidCompactor, match=why):
            engine.register_compactor(given)  # type: ignore[arg-type]
        thread = await engine.create_thread()
        await say(thread, turns(2))
        await thread.compact()
        with pytest.raises(InvalidCompactor, match=why):
            await thread.compaction.redo(compactor=given)  # type: ignore[arg-type]
        assert ["2"] == await texts(thread)
    with pytest.raises(InvalidCompactor, match=why):
        Pipeline(EmbeddedCompactor(), given)  # type: ignore[arg-type]


async def test_a_redo_asks_about_the_whole() -> None:
    """`redo_compaction(compactor=…)` with one that needs three chunks works; one that cannot take them is named."""
    able: Compactor = Asked(lambda chunks: len(chunks) >= 3)
    unable = Asked(lambda chunks: len(chunks) > 9, name="unable")
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(4))
        await thread.compact()
        with pytest.raises(CompactorFailed, match=r"1\.0 \(user_message\) and 3 more"):
            await thread.compaction.redo(compactor=unable)
        assert "asked" == (await thread.compaction.redo(compactor=able)).compactor


async def test_a_compactor_that_raises_when_it_is_asked_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """And the log of the program says which one."""
    broken = Asked(lambda _chunks: 1 / 0, name="broken")
    with caplog.at_level(logging.ERROR, "memory_engine"):
        async with opened(Scripted(), NEVER) as engine:
            engine.register_compactor(broken)
            thread = await engine.create_thread()
            await say(thread, turns(2))
            assert "scripted" == (await thread.compact()).compactor
    assert "broken" in caplog.text


async def test_a_part_that_gets_no_shorter_is_left_out() -> None:
    """It stays as it is, and what another compactor made of the other chunks stands."""
    surroundings = Scripted(name="around", takes=lambda chunk: chunk.type == "environment")
    surroundings.categories = ("environment",)  # type: ignore[attr-defined]
    async with opened(surroundings, NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([UserMessage(content="Hello"), LlmTextResponse(content="ok")])
        for n in range(3):
            await thread.dispatch(EnvironmentChange(key=f"k{n}", content=f"Thing {n}{LONG}"))
        report = await thread.compact()
        assert (("3.0", "4.0", "5.0"), ("1.0", "2.0"), "embedded") == (
            report.covered, report.left_out, report.left_out_by
        )  # fmt: skip
        assert ["Hello", "ok", "3"] == sorted(await texts(thread), key=len, reverse=True)
        assert (await thread.replay.verify()).ok
