"""Files that something else has damaged: rows changed behind the engine's back."""

import asyncio
import pickle
import resource
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol
from unittest import mock

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Event, Plugin, Reduction, Thread, UserMessage, errors
from memory_engine.errors import ActFailed
from memory_engine.language.lists import data_bytes
from memory_engine.replay.export.redaction import Redaction
from memory_engine.storage.postgres import PostgresStore
from memory_engine.store.acts import Act
from memory_engine.store.protocol import ThreadFilter
from memory_engine.testing import FaultyStore
from memory_engine.views.checkpoints.pieces import to_bytes
from tests.trust.hostile_files import packed_bomb
from tests.trust.sealing import OTHER, RAW, filled, sealed


def tamper(path: str, *statements: str) -> None:
    """Run statements on the file, whose engine is closed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        for statement in statements:
            raw.execute(statement)


def asked(path: str, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(query).fetchall()


async def in_turn(*work: Awaitable[object]) -> None:
    """One after the other; the last is the mistake."""
    for one in work:
        await one


async def locked(path: str) -> None:
    """Dispatch while another process holds the file."""
    async with memory_engine.open(path, config=EngineConfig(busy_timeout_s=0.01)) as engine:
        thread = await engine.create_thread()
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            await thread.dispatch(UserMessage(content="x"))


async def opened_with_another_key(path: str) -> None:
    """Open an encrypted store with a key that is not its own."""
    sealed()
    await filled(Path(path), RAW)
    await memory_engine.open(path, key=OTHER)


async def opened_with_a_needless_key(path: str) -> None:
    """Open a store that is not encrypted with a key."""
    sealed()
    await filled(Path(path), None)
    await memory_engine.open(path, key=RAW)


async def rekeyed_while_open_elsewhere(path: str) -> None:
    """Change the key of a store that another engine has open."""
    sealed()
    async with memory_engine.open(path, key=RAW) as engine, memory_engine.open(path, key=RAW):
        await engine.admin.rekey(OTHER)


async def refused_by_a_row(path: str) -> None:
    """Dispatch where something in the file stands in the way of every event."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        tamper(path, "CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END")
        await thread.dispatch(UserMessage(content="x"))


async def view_of_a_broken_row(path: str) -> None:
    """Read a view of which a row is not JSON."""
    async with memory_engine.open(path) as engine:
        await (await engine.create_thread("t")).conversation.finalize_cycle("q", "a")
    tamper(path, "UPDATE projection_rows SET value = x'7b' WHERE projection = 'conversation'")
    async with memory_engine.open(path) as engine:
        await engine.thread("t").conversation.exchanges()


async def written_to_a_file_that_is_gone(path: str) -> None:
    """An event after somebody has tidied the folder."""
    async with memory_engine.open(path) as engine:
        Path(path).unlink()  # noqa: ASYNC240 - a file of a test
        await engine.create_thread("t")


async def deleted_while_held(thread: Thread) -> None:
    """Somebody has a reason for it to stay."""
    await thread.admin.hold(by="counsel", reason="case 12")
    await thread.admin.delete()


async def deleted_while_read(thread: Thread, store: FaultyStore, patched: pytest.MonkeyPatch) -> None:
    """Somebody reads an older moment of the file, for longer than an act waits."""
    patched.setattr("memory_engine.administration.proof.WAIT_S", 0.0)
    store.is_read = True
    await thread.admin.delete()


async def finished_of_another_tenant(engine: Engine, store: FaultyStore) -> None:
    """A role of one tenant has asked for the deletion of another's thread."""
    [(record, _)] = await store.threads(ThreadFilter(id="t"))
    plan = f'{{"threads": {{"t": {record.created_at_us}}}}}'
    act = Act(id="a", kind="delete", plan=plan, role="agent", tenants=("acme",))
    with mock.patch.object(store, "acts", mock.AsyncMock(return_value=[act])):  # only a server keeps whose role it was
        await engine.admin.finish_acts()


async def asked_for_another_tenant(engine: Engine, store: FaultyStore) -> None:
    """The same: why it failed."""
    with pytest.raises(ActFailed) as raised:
        await finished_of_another_tenant(engine, store)
    assert raised.value.__cause__ is not None
    raise raised.value.__cause__


async def state_of_a_pickled_receipt(thread: Thread) -> None:
    """Another process asks a receipt for its state."""
    receipt = await thread.dispatch(UserMessage(content="a lamp"))
    await pickle.loads(pickle.dumps(receipt)).state.load()


class _Order(Event, frozen=True):
    number: str


class _PricedOrder(_Order, frozen=True):
    price: int


async def read_by_another_class(path: str) -> None:
    """A release gave an event a field that those in the log have not, under the same version."""
    kinds: tuple[type[Event], ...] = (_Order, _PricedOrder)
    for kind in kinds:
        plugin = Plugin("shop")
        plugin.reducer(plugin.event("order", version=1)(kind))(lambda _view, _event, _ctx: Reduction())
        async with memory_engine.open(path, plugins=[plugin]) as engine:
            thread = await engine.open_thread("orders")
            if kind is _Order:
                await thread.dispatch(_Order(number="1"))
            await thread.replay.latest(1)


async def copied_over(target: Engine) -> None:
    """Copy a store to one with a thread that it has not."""
    async with memory_engine.open(":memory:") as source:
        await source.copy_to(target)


async def of_a_server_that_is_away() -> None:
    """Open a store where nobody listens."""
    await PostgresStore.open("postgresql://app@/memory?host=/nowhere", busy_timeout_s=0.01)


async def verified_without_its_plugin(path: str, cls: type[Event]) -> None:
    """A log with an event of a plug-in that the next process does not load: it is intact, and not replayed."""
    async with memory_engine.open(path, plugins=[Plugin("own", events=[cls])]) as engine:
        await (await engine.create_thread("t")).dispatch(cls())
    async with memory_engine.open(path) as engine:
        report = await engine.thread("t").replay.verify()
    assert report.unloaded is not None
    raise report.unloaded


def packed_beyond_all_bounds() -> None:
    """Read a value of a checkpoint that unpacks to more than anybody would hold."""
    to_bytes(packed_bomb(65))


async def opened_with_what_is_no_key(path: str) -> None:
    """Open a store with bytes of another length."""
    await memory_engine.open(path, key=b"short")


async def opened_without_its_key(path: str) -> None:
    """Open a file that looks like an encrypted store."""
    await asyncio.to_thread(Path(path).write_bytes, bytes(range(256)) * 16)
    await memory_engine.open(path)


async def opened_where_keys_are_useless(_path: str) -> None:
    """Open a store in memory with a key."""
    await memory_engine.open(":memory:", key=RAW)


class HasPath(Protocol):
    """Where there is a path for a store."""

    @property
    def path(self) -> str:
        """Nothing is there yet."""
        ...


def at_its_path(act: Callable[[str], Awaitable[None]]) -> Callable[[HasPath], Awaitable[None]]:
    """Do it there."""
    return lambda place: act(place.path)


WITH_KEYS: Sequence[tuple[type[errors.MemoryEngineError], Callable[[HasPath], Awaitable[None]]]] = (
    (errors.InvalidKey, at_its_path(opened_with_what_is_no_key)),
    (errors.KeyNeeded, at_its_path(opened_without_its_key)),
    (errors.KeyUnsupported, at_its_path(opened_where_keys_are_useless)),
    (errors.NotEncrypted, at_its_path(opened_with_a_needless_key)),
    (errors.StoreInUse, at_its_path(rekeyed_while_open_elsewhere)),
    (errors.WrongKey, at_its_path(opened_with_another_key)),
)
"""What goes wrong with keys."""


async def a_users(engine: Engine, path: str) -> None:
    """Import a user's thread where none is allowed."""
    await engine.user("ben").preferences.update("verbosity", "concise")
    await engine.thread("user:ben").replay.export(path)
    await engine.transfer.import_log(path, thread_id="copy")


def without_descriptors(_: object) -> None:
    """Load what is loaded at its first use, where no file can be opened."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, usual[1]))
    try:
        data_bytes("memory_engine.language", "forms.toml")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


async def without_ids_of_chunks(thread: Thread, path: str) -> None:
    """Redact what holds the log together."""
    await thread.forget(chunk_ids=["1.0"])
    await thread.replay.export(path, redaction=Redaction(fields=["chunk_ids"]))
