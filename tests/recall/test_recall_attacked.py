"""What search withstands: plug-ins, embedders and re-rankers that misbehave, and calls that cross each other."""

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Plugin, Thread
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import ModelError, ReducerError
from memory_engine.llm.vectors import Vector
from memory_engine.recall.service import Recall
from memory_engine.store.passages import Extracted, Text
from memory_engine.testing import HashEmbedder
from tests.recall.recalled import KEPT

FOREIGN = 1 << 28
"""The first seq whose place would lie among those of the next thread of a file."""


@e.event("attacked_odd")
class Odd(e.Event):
    """An event whose passages a test decides on."""

    n: int = 0


def plugin_of(extracted: Callable[[], Extracted]) -> Plugin:
    """A plug-in that brings these passages with each `Odd`."""
    plugin = Plugin("odd")
    plugin.event("attacked_odd")(Odd)

    @plugin.passages(Odd)
    def passages(_event: Odd, _seq: int) -> Extracted:
        return extracted()

    return plugin


def user(text: str) -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


async def texts(thread: Thread, query: str) -> list[str]:
    """What a search finds."""
    return [hit.text for hit in await thread.search(query)]


@pytest.mark.parametrize(
    "odd",
    [
        Text("parcel", "k", at_us=1.5),  # type: ignore[arg-type]
        Text("parcel", "k", at_us=10**18),
        Text("parcel", "k", at_us=10**30),
        Text("parcel", None),  # type: ignore[arg-type]
        Text(None, "k"),  # type: ignore[arg-type]
        Text("parcel", "k\ud800"),
        Text("parcel", "k", key="\ud800"),
        Text("parcel", "k", origins=("1",)),  # type: ignore[arg-type]
    ],
)
async def test_a_passage_that_cannot_be_stored_fails_its_event_alone(tmp_path: Path, odd: Text) -> None:
    """The sender is told whose extractor it was; the store stays writable, and others' events go through."""
    async with memory_engine.open(str(tmp_path / "m.db"), plugins=[plugin_of(lambda: Extracted((odd,)))]) as engine:
        thread, other = await engine.create_thread(), await engine.create_thread()
        await thread.dispatch(user("the first parcel"))
        await thread.search("parcel")
        refused, _ = await asyncio.gather(
            thread.dispatch(Odd()), other.dispatch(user("innocent")), return_exceptions=True
        )
        assert isinstance(refused, ReducerError)
        await thread.dispatch(user("the second parcel"))
        assert {"the first parcel", "the second parcel"} == set(await texts(thread, "parcel"))
        assert ["innocent"] == await texts(other, "innocent")


@pytest.mark.parametrize(
    ("prefix", "ended"),
    [
        ("", {"a", "b", "c", "d"}),
        ("\U0010ffff", {"c"}),
        ("x\U0010ffff", {"d"}),
        ("x\ud7ff", set[str]()),
        ("x", {"b", "d"}),
    ],
)
async def test_any_prefix_ends_the_keys_that_begin_with_it(prefix: str, ended: set[str]) -> None:
    """Also the empty one, and those after whose last character there is no other, or only surrogates."""
    keyed = {"a": "a", "b": "xb", "c": "\U0010ffffc", "d": "x\U0010ffffd"}
    brought = Extracted(tuple(Text(f"parcel {name}", "k", key=key) for name, key in keyed.items()))
    bring = [brought]
    async with memory_engine.open(":memory:", plugins=[plugin_of(lambda: bring[0])]) as engine:
        thread = await engine.create_thread()
        await thread.search("parcel")
        await thread.dispatch(Odd(n=1))
        bring[0] = Extracted(prefixes=(prefix,))
        await thread.dispatch(Odd(n=2))
        bring[0] = brought  # as a hit is shown
        assert {f"parcel {name}" for name in set(keyed) - ended} == set(await texts(thread, "parcel"))


@pytest.mark.parametrize(
    "event",
    [
        e.MemoryForget(seqs=(2**62,)),
        e.MemoryForget(chunk_ids=("999999999999999999.0",)),
        e.MemoryForget(summaries=("999999999999999999.0",)),
        e.MemoryForget(seqs=tuple(range(FOREIGN, FOREIGN + 10))),
        e.AgentMdRemoved(lines=("999999999999999999",)),
        e.ScratchpadRemoved(chunk_ids=("999999999999999999.0",)),
    ],
)
async def test_a_seq_that_no_event_has_does_no_harm(event: e.Event) -> None:
    """Neither to the thread, which counts its passages as before, nor to the one whose places lie where it points."""
    async with memory_engine.open(":memory:") as engine:
        thread, other = await engine.create_thread(), await engine.create_thread()
        for n in range(9):
            await other.dispatch(user(f"parcel {n}"))
        await thread.dispatch(user("a parcel"))
        for one in (thread, other):
            await one.search("parcel")
        await thread.dispatch(event)
        assert ["a parcel"] == await texts(thread, "parcel")
        assert 9 == len(await other.search("parcel"))
        await thread.dispatch(user("more"))
        assert ["more"] == (await texts(thread, "more"))[:1]


class Embeds:
    """An embedder that answers as a test wants."""

    name = "embeds"
    dimension = 4

    def __init__(self, answer: Callable[[Sequence[str]], object]) -> None:
        self._answer = answer

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Whatever it is."""
        return self._answer(texts)  # type: ignore[return-value]

    async def aclose(self) -> None:
        """Nothing is open."""


def _raises(texts: Sequence[str]) -> object:
    if len(texts) > 1 or "number" in texts[0]:
        raise RuntimeError("out of memory")
    return [[1.0] * 4]


def _bad_for_one(bad: object) -> Callable[[Sequence[str]], object]:
    return lambda texts: [bad if "number 1" in text else [1.0, 2.0, 3.0, 4.0] for text in texts]


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: None,
        lambda texts: [["a"] * 4 for _ in texts],
        lambda texts: [[1e300] * 4 for _ in texts],
        _bad_for_one([math.nan] * 4),
        _bad_for_one([1.0] * 5),
        _raises,
    ],
)
async def test_whatever_an_embedder_does_words_find(
    answer: Callable[[Sequence[str]], object], caplog: pytest.LogCaptureFixture
) -> None:
    """One passage that a model cannot take, or a model that breaks its promise, leaves a search by words."""
    async with memory_engine.open(":memory:", embedder=Embeds(answer)) as engine:
        thread = await engine.create_thread()
        for n in range(3):
            await thread.dispatch(user(f"parcel number {n}"))
        for _ in range(2):
            found = await thread.search("parcel")
            assert 3 == len(found)
            assert found.failure or found.waiting
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_a_generator_gives_is_as_good() -> None:
    """Vectors may come as any iterable of iterables."""
    async with memory_engine.open(":memory:", embedder=Embeds(lambda all_: (iter([1.0] * 4) for _ in all_))) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(user("parcel"))
        found = await thread.search("parcel")
        assert ("hybrid", 0) == (found.how, found.waiting)


class Reranks:
    """A re-ranker that answers as a test wants."""

    name = "reranks"

    def __init__(self, answer: Callable[[Sequence[str]], object]) -> None:
        self._answer = answer

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Whatever it is."""
        return self._answer(texts)  # type: ignore[return-value]

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    "answer",
    [
        lambda texts: [1.0],
        lambda texts: [1.0] * 99,
        lambda texts: [math.nan] * len(texts),
        lambda texts: ["a"] * len(texts),
        lambda texts: None,
        lambda texts: 1 // 0,
    ],
)
async def test_whatever_a_reranker_does_the_order_stays(answer: Callable[[Sequence[str]], object]) -> None:
    """The hits are those of a search without one, and the result says why."""
    async with (
        memory_engine.open(":memory:", reranker=Reranks(answer)) as engine,
        memory_engine.open(":memory:") as plain,
    ):
        found = []
        for one in (engine, plain):
            thread = await one.create_thread()
            await thread.dispatch_all([user(f"parcel number {n}") for n in range(4)])
            found.append(await thread.search("parcel"))
        assert [hit.text for hit in found[1]] == [hit.text for hit in found[0]]
        assert "reranks" in found[0].failure


class Slow(HashEmbedder):
    """Takes its time."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """After some rounds of the loop."""
        for _ in range(30):
            await asyncio.sleep(0)
        return await super().embed(texts)


async def test_settling_waits_for_what_is_being_embedded() -> None:
    """Not only for what stands in the queue: the thread that is being embedded has left it."""
    async with memory_engine.open(":memory:", embedder=Slow(16)) as engine:
        thread = await engine.create_thread()
        await thread.search("parcel")
        for rounds in range(20):
            await thread.dispatch(user(f"parcel {rounds}"))
            for _ in range(rounds):
                await asyncio.sleep(0)
            await engine.settle()
            assert 0 == await kernel_of(engine)[Recall].embedding.waiting(thread.id)


async def test_a_rebuild_while_passages_are_embedded_leaves_none_without_a_vector() -> None:
    """What was embedded before the index was made again does not stand for what is in it now."""
    async with memory_engine.open(":memory:", embedder=Slow(16), config=KEPT) as engine:
        for rounds in range(0, 60, 4):
            thread = await engine.create_thread()
            await thread.search("parcel")
            await thread.dispatch_all([user(f"parcel {n}") for n in range(150)])
            for _ in range(rounds):
                await asyncio.sleep(0)
            await thread.replay.rebuild()
            await engine.settle()
            model = HashEmbedder(16).name
            embedded = sum(
                len(rows.places) for rows in await kernel_of(engine).store.passages.vectors(thread.id, model, 0)
            )
            assert 150 == embedded


async def test_a_thread_that_is_deleted_during_a_search_over_many_does_not_end_it(tmp_path: Path) -> None:
    """Nobody named it: what is there is searched."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        for n in range(12):
            thread = await engine.create_thread(f"t{n}", user_id="u")
            await thread.dispatch(user(f"parcel {n}"))

        async def delete() -> None:
            for n in range(6):
                await engine.thread(f"t{n}").admin.delete()

        deleting = asyncio.create_task(delete())
        while not deleting.done():
            assert 6 <= len(await engine.search("parcel", user_id="u", limit=50)) <= 12
        await deleting
        assert 6 == len(await engine.search("parcel", user_id="u", limit=50))


class Named(HashEmbedder):
    """Another model, which refuses once it has been asked so often."""

    def __init__(self, name: str, refuses_at: int = 0) -> None:
        super().__init__(16)
        self._own = name
        self._left = refuses_at
        self.is_closed = False

    @property
    def name(self) -> str:
        """Its name."""
        return self._own

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Vectors, or once `ModelError`."""
        self._left -= 1
        if not self._left:
            raise ModelError(self._own, "unavailable", "unplugged")
        return await super().embed(texts)

    async def aclose(self) -> None:
        """Note it."""
        self.is_closed = True


@pytest.mark.parametrize("refuses_at", range(1, 8))
async def test_a_change_of_models_happens_or_does_not(refuses_at: int) -> None:
    """The old one is closed where the new one has taken over, and only there; a deleted thread is passed over."""
    old, new = Named("old"), Named("new", refuses_at)
    async with memory_engine.open(":memory:", embedder=old) as engine:
        for n in range(4):
            thread = await engine.create_thread(f"t{n}")
            await thread.dispatch(user("a parcel"))
            await thread.search("parcel")

        async def disturb() -> None:
            await engine.thread("t3").admin.delete()
            for n in range(20):
                await engine.thread("t0").dispatch(user(f"parcel {n}"))

        disturbing = asyncio.create_task(disturb())
        try:
            await kernel_of(engine)[Recall].change_embedder(new)
        except ModelError:
            assert (old, False) == (kernel_of(engine)[Recall].embedder, old.is_closed)
        else:
            assert (new, True) == (kernel_of(engine)[Recall].embedder, old.is_closed)
        await disturbing
