"""Files that something else has damaged: rows changed behind the engine's back."""

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Event, Plugin, Thread, UserMessage
from memory_engine.language.lists import data_bytes
from memory_engine.replay.export.redaction import Redaction
from memory_engine.storage.postgres import PostgresStore
from memory_engine.testing import FaultyStore
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
        await engine.rekey(OTHER)


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
    await thread.hold(by="counsel", reason="case 12")
    await thread.delete()


async def deleted_while_read(thread: Thread, store: FaultyStore, patched: pytest.MonkeyPatch) -> None:
    """Somebody reads an older moment of the file, for longer than an act waits."""
    patched.setattr("memory_engine.administration.erasing.WAIT_S", 0.0)
    store.is_read = True
    await thread.delete()


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
        report = await engine.thread("t").verify()
    assert report.unloaded is not None
    raise report.unloaded


async def a_users(engine: Engine, path: str) -> None:
    """Import a user's thread where none is allowed."""
    await engine.user("ben").preferences.update("verbosity", "concise")
    await engine.thread("user:ben").export(path)
    await engine.import_log(path, thread_id="copy")


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
    await thread.export(path, redaction=Redaction(fields=["chunk_ids"]))
