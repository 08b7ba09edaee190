"""Each public coroutine comes back within the deadlines, whatever never answers: a model, a function, disk or loop."""

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    Chunk,
    CompactionContext,
    CompactionPolicy,
    CompactionResult,
    ConversationLimits,
    Engine,
    EngineConfig,
    Thread,
    UserMessage,
)
from memory_engine.administration.compactions import ThreadCompactions
from memory_engine.administration.of_store import StoreAdmin, Transfer
from memory_engine.administration.of_thread import Admin, Replay
from memory_engine.compaction import protocol
from memory_engine.compaction.hooks import UpcomingCompaction
from memory_engine.core import cancellation
from memory_engine.errors import CallTimedOut, MemoryEngineError, StorageBusy, WrongEventLoop
from memory_engine.llm import Completion
from memory_engine.llm.base import Message
from memory_engine.llm.vectors import Vector
from memory_engine.moved import OF_ENGINES, OF_THREADS
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.thread import handle_of
from memory_engine.views.of_thread import Views
from memory_engine.views.promotion.scorers import PromotionContext, Score
from memory_engine.views.scratchpad.view import Snippet
from tests.patience import PATIENCE_S
from tests.trust.every_coroutine import EVERY, OF_ENGINE, OF_THREAD, OF_VIEWS, Given, coroutines_of

SOON_S = 0.03

LIMITS = EngineConfig(
    compaction=CompactionPolicy(enabled=False, keep_recent=0, deadline_s=SOON_S),
    before_compaction_timeout_s=SOON_S,
    busy_timeout_s=SOON_S,
    call_timeout_s=SOON_S,
    conversation=ConversationLimits(model_timeout_s=SOON_S),
    memory_model_timeout_s=SOON_S,
    queue_timeout_s=SOON_S,
    search_index_timeout_s=SOON_S,
    search_model_timeout_s=SOON_S,
)


class Silence:
    """Whoever asks gets no answer before `ended`. If it is `deaf`, it does not end when it is cancelled either."""

    def __init__(self, *, deaf: bool) -> None:
        self.deaf = deaf
        self.ended = asyncio.Event()

    async def wait(self) -> None:
        """Wait."""
        while not self.ended.is_set():
            try:
                await self.ended.wait()
            except asyncio.CancelledError:
                if not self.deaf:
                    raise


class Silent:
    """A model, an embedder, a re-ranker and a scorer, none of which ever answers."""

    name = "silent"
    dimension = 8
    criterion = "silence"
    threshold = 0.5

    def __init__(self, silence: Silence) -> None:
        self._silence = silence

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Give no answer."""
        await self._silence.wait()
        return Completion(text="", model=self.name)

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Give no vectors."""
        await self._silence.wait()
        return [[1.0] * self.dimension for _ in texts]

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Give no scores."""
        await self._silence.wait()
        return [0.0] * len(texts)

    async def score(self, snippet: Snippet, context: PromotionContext) -> Score:
        """Give no score."""
        await self._silence.wait()
        return Score(value=1.0, reason="")

    async def hook(self, _thread: Thread, _upcoming: UpcomingCompaction) -> str:
        """Say nothing before a compaction."""
        await self._silence.wait()
        return ""

    async def tool(self) -> str:
        """Give no result."""
        await self._silence.wait()
        return ""

    async def aclose(self) -> None:
        """Never end."""
        await self._silence.wait()


class SilentCompactor:
    """A compactor that never ends."""

    name = "silent"

    def __init__(self, silence: Silence) -> None:
        self._silence = silence

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Promise to."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Give no summary."""
        await self._silence.wait()
        return CompactionResult(lines=())


async def lived_in(engine: Engine, folder: Path, silence: Silence | None = None) -> Given:
    """A thread with some events, and exports to read."""
    thread = await engine.create_thread("t", user_id="u")
    await thread.dispatch_all([UserMessage(content=f"Crate {n} of {n + 7} goes to hall {n}") for n in range(6)])
    await thread.scratchpad.write("Crates are lost on Fridays")
    await engine.user("u").playbooks.save("count", user_query="Count the crates", outcome="a list")
    return Given(engine=engine, thread=thread, folder=folder, tool=Silent(silence or Silence(deaf=False)).tool)


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ignores a cancellation has a shorter time to think again."""
    monkeypatch.setattr(cancellation, "GRACE_S", SOON_S)
    monkeypatch.setattr(protocol, "GRACE_S", SOON_S)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an exported thread, an exported store, and memories of another system."""
    folder = tmp_path_factory.mktemp("given")

    async def export() -> None:
        async with memory_engine.open(":memory:") as engine:
            thread = await engine.create_thread("other")
            await thread.dispatch(UserMessage(content="From elsewhere"))
            await thread.replay.export(folder / "exported.jsonl")
            (folder / "memories.json").write_text('[{"id": "1", "memory": "Likes tea"}]')
            await engine.transfer.export_all(folder / "exported")

    asyncio.run(export())
    return folder


@pytest.fixture
def folder(tmp_path: Path, exported: Path) -> Path:
    """A fresh folder that shows them."""
    for name in ("exported.jsonl", "exported", "memories.json"):
        (tmp_path / name).symlink_to(exported / name)
    return tmp_path


@pytest.fixture(params=[False, True], ids=["silent", "deaf"])
async def silence(request: pytest.FixtureRequest) -> AsyncIterator[Silence]:
    """Ended after the test, so that its loop can end."""
    made = Silence(deaf=request.param)
    yield made
    made.ended.set()
    await asyncio.sleep(0)


def test_every_coroutine_is_called() -> None:
    """A public coroutine that is not in the table could wait for ever unseen."""
    of_store = {"admin": StoreAdmin, "transfer": Transfer}
    of_thread = {
        "admin": Admin,
        "compaction": ThreadCompactions,
        "replay": Replay,
        "views": Views,
        "_handle": ThreadHandle,
    }
    for table, kind, moved, groups in (
        (OF_ENGINE, Engine, OF_ENGINES, of_store),
        (OF_THREAD, Thread, OF_THREADS, of_thread),
    ):
        paths = {f"{group}.{name}" for group, one in groups.items() for name in coroutines_of(one)}
        assert set(table) == coroutines_of(kind) | {old for old, path in moved.items() if path in paths}
        assert set() == {path for path in paths if not path.startswith("_")} - set(moved.values())


async def in_time(name: str, given: Given) -> BaseException | None:
    """Make the call: the error that it raised."""
    try:
        await asyncio.wait_for({**EVERY, **OF_VIEWS}[name](given), PATIENCE_S)
    except TimeoutError as error:
        if not isinstance(error, CallTimedOut):
            raise
        return error
    except MemoryEngineError as error:
        return error
    return None


@pytest.mark.parametrize("name", [*EVERY, *OF_VIEWS])
async def test_models_and_functions_that_never_answer(folder: Path, silence: Silence, name: str) -> None:
    """Each call comes back, and the engine closes: by an error of its own, or without what did not answer."""
    silent = Silent(silence)
    opening = memory_engine.open(
        folder / "a.db",
        config=LIMITS,
        compactor=SilentCompactor(silence),
        compact_model=silent,
        memory_model=silent,
        embedder=silent,
        reranker=silent,
        scorers=[silent],
        before_compaction=[silent.hook],
    )
    async with asyncio.timeout(4 * PATIENCE_S), opening as engine:
        given = await lived_in(engine, folder, silence)
        raised = await in_time(name, given)
        if name.endswith(".search"):
            assert raised is None
        if name == "tool_cache":
            assert isinstance(raised, CallTimedOut)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes to the file, and holds the lock beside it too."""
    with Path(f"{path}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.close()


@pytest.mark.parametrize("name", EVERY)
async def test_a_disk_that_another_program_holds(folder: Path, name: str) -> None:
    """Reads read, writes raise `StorageBusy` after `busy_timeout_s`, and the engine closes."""
    path = folder / "a.db"
    async with memory_engine.open(path, config=LIMITS) as engine:
        given = await lived_in(engine, folder)
        await engine.settle()
        with locked(path):
            raised = await in_time(name, given)
            if name in ("thread.dispatch", "thread.pin", "thread.delete", "thread.erase", "engine.flush"):
                assert isinstance(raised, StorageBusy)
            await asyncio.wait_for(engine.close(), PATIENCE_S)


async def test_a_file_that_is_held_is_not_waited_for(tmp_path: Path) -> None:
    """Nor does an opening wait longer than `busy_timeout_s`."""
    path = tmp_path / "a.db"
    async with memory_engine.open(path):
        pass
    with locked(path), pytest.raises(StorageBusy):
        async with asyncio.timeout(PATIENCE_S), memory_engine.open(path, config=LIMITS):
            pass


ANYWHERE = {"engine.check_anchors", "thread.exists", "thread.upto", "thread.to_pytest", "engine.import_all"}
"""Those that may come back from any loop, since they wait for nothing of the engine's."""


@pytest.mark.parametrize("name", EVERY)
async def test_a_loop_that_never_answers(folder: Path, name: str) -> None:
    """A call from another one is told so at once, though the engine's own loop stands still."""
    async with memory_engine.open(":memory:", config=LIMITS) as engine:
        given = await lived_in(engine, folder)
        outcome: list[BaseException | None] = []

        def call() -> None:
            outcome.append(asyncio.run(in_time(name, given)))

        calling = threading.Thread(target=call)
        calling.start()
        calling.join(PATIENCE_S)  # and with it this loop
        assert not calling.is_alive()
        assert isinstance(outcome[0], WrongEventLoop) or name in ANYWHERE
        assert 6 == (await handle_of(given.thread).last_seq()) - 1
