"""Vectors of views' texts outlive their process, and what is forgotten takes them along."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import memory_engine
from memory_engine.engine import kernel_of
from memory_engine.events import PlaybookCall
from memory_engine.storage.sqlite import SQLiteStore
from memory_engine.store.protocol import Store, ThreadFilter
from memory_engine.store.snapshots import VIEW_VECTORS
from memory_engine.testing import HashEmbedder


class Counting(HashEmbedder):
    """An embedder that remembers what it embedded, and waits where a test says so."""

    def __init__(self, dimension: int = 32, name: str = "counting") -> None:
        super().__init__(dimension)
        self._called = name
        self.texts: list[str] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    @property
    def name(self) -> str:
        """Which model it is."""
        return self._called

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector a text."""
        self.texts += texts
        self.begun.set()
        await self.go_on.wait()
        return [list(vector) for vector in await super().embed(texts)]


QUERY = "short answers please"


async def asked(path: Path, model: Counting) -> list[str]:
    """What a new process embeds to say which preferences apply."""
    async with memory_engine.open(str(path), embedder=model) as engine:
        found = await engine.user("u").preferences.applicable(query=QUERY, threshold=0.0)
        assert "embedding" == found.how
    return [text for text in model.texts if text != QUERY]


async def kept(store: Store) -> Mapping[str, bytes]:
    """The vectors that the store has of the user's views."""
    ((record, _),) = [one for one in await store.threads(ThreadFilter()) if one[0].user_id]
    return (await store.rows(*VIEW_VECTORS, record.id))[1]


async def test_a_later_process_embeds_only_what_changed(tmp_path: Path) -> None:
    """Neither what it finds kept; another model embeds all again."""
    path = tmp_path / "agent.db"
    async with memory_engine.open(str(path)) as engine:
        for key, value in (("verbosity", "concise"), ("currency", "euros"), ("seat", "aisle")):
            await engine.user("u").preferences.update(key, value)
    assert 3 == len(await asked(path, Counting()))
    assert [] == await asked(path, Counting())
    async with memory_engine.open(str(path)) as engine:
        await engine.user("u").preferences.update("currency", "dollars")
        await engine.user("u").preferences.remove("seat")
    assert ["currency. dollars"] == await asked(path, Counting())
    assert 2 == len(await asked(path, Counting(name="another")))
    assert 2 == len(await asked(path, Counting(16, name="another")))


async def test_vectors_go_with_their_rows(tmp_path: Path) -> None:
    """What is there no more has none after the next search, in whichever process that is."""
    path = str(tmp_path / "agent.db")
    for key in ("seat", "meal"):
        async with memory_engine.open(path, embedder=Counting()) as engine:
            preferences = engine.user("u").preferences
            if key == "seat":
                await preferences.update("seat", "aisle")
                await preferences.update("meal", "vegan")
                await preferences.applicable(query=QUERY)
            else:
                await preferences.remove("seat")
                await preferences.applicable(query=QUERY)
                assert ["preferences/meal"] == list(await kept(kernel_of(engine).store))
                await preferences.remove("meal")
                await preferences.applicable(query=QUERY)
                assert {} == await kept(kernel_of(engine).store)


async def test_forgetting_destroys_them_in_its_own_transaction(tmp_path: Path) -> None:
    """Those of every view of the thread, since one may tell of what is forgotten; others are made again."""
    store = await SQLiteStore.open(str(tmp_path / "agent.db"))
    async with memory_engine.open(store, embedder=Counting()) as engine:
        user = engine.user("u")
        said = await user.preferences.update("seat", "aisle, near my doctor")
        await user.preferences.update("meal", "vegan")
        await user.playbooks.save("book", user_query="book a flight", tool_calls=[PlaybookCall("book")])
        await user.preferences.applicable(query=QUERY)
        await user.playbooks.find("book me a flight")
        assert 3 == len(await kept(store))
        await user.forget(event_ids=[said.event_id])
        assert {} == await kept(store)
        await user.preferences.applicable(query=QUERY)
        assert ["preferences/meal"] == list(await kept(store))


async def test_what_is_forgotten_while_it_is_embedded_is_not_kept(tmp_path: Path) -> None:
    """A search that began before the forgetting leaves no vector behind it."""
    store = await SQLiteStore.open(str(tmp_path / "agent.db"))
    model = Counting()
    async with memory_engine.open(store, embedder=model) as engine:
        user = engine.user("u")
        said = await user.preferences.update("seat", "aisle, near my doctor")
        model.go_on.clear()
        searching = asyncio.create_task(user.preferences.applicable(query=QUERY))
        await model.begun.wait()
        await user.forget(event_ids=[said.event_id])
        model.go_on.set()
        await searching
        assert {} == await kept(store)
