"""Erasing destroys the bytes of events, and of all that came of them, wherever they are; the chain still verifies."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionResult, Engine, Thread
from memory_engine import events as e
from memory_engine.administration.erasing import finish_acts
from memory_engine.core.chain import commitments
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    ErasureUnfinished,
    EventNotFound,
    IntegrityError,
    InvalidArgument,
    SeqNotInLog,
    StorageRefused,
    ThreadHasForks,
    ThreadNotFound,
)
from memory_engine.storage.sqlite import passages as index_of_files
from memory_engine.storage.sqlite.passages import SQLitePassages
from memory_engine.storage.sqlite.wiping import Watch, emptied
from memory_engine.store.passages import Threads
from memory_engine.store.protocol import CommitUnit
from tests.scripted_compactors import Scripted

SECRET = "Osterfeldt-77412"
SAID = f"My passport is {SECRET}, please keep it"


def bytes_of(path: Path) -> bytes:
    """Everything that the store has on the disk."""
    beside = [file for file in path.parent.rglob("*") if file.is_file() and file.name.startswith(path.name)]
    return b"".join(file.read_bytes() for file in beside)


def held(path: Path, word: str = SECRET) -> bool:
    """Whether a word stands anywhere in the files."""
    return word.encode() in bytes_of(path)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine over a file, with a compactor that repeats what it reads."""
    async with memory_engine.open(str(tmp_path / "m.db"), compactor=Scripted()) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of its file."""
    return tmp_path / "m.db"


async def talked(thread: Thread) -> str:
    """A conversation around the secret, indexed and marked; the id of the event that said it."""
    await thread.dispatch(e.UserMessage(content="Hello"))
    receipt = await thread.dispatch(e.UserMessage(content=SAID))
    await thread.compaction.mark_critical(receipt.chunks[0].id)
    await thread.dispatch(e.LlmTextResponse(content="Noted."))
    await thread.search("passport")
    return receipt.event_id


@pytest.mark.parametrize("tenant_id", ["", "acme"])
async def test_nothing_is_left_in_any_file(engine: Engine, path: Path, tenant_id: str) -> None:
    """Neither in rows nor in free space, the log ahead of the file, or the full-text index; the proof says so."""
    thread = await engine.create_thread("t", user_id="u1", tenant_id=tenant_id)
    event_id = await talked(thread)
    await kernel_of(engine).store.passages.index_words_of(Threads(tenant_id=tenant_id))
    assert SAID == (await engine.search("passport", tenant_id=tenant_id))[0].text
    assert held(path)
    report = await thread.admin.erase([event_id], by="officer", reason="asked for")
    assert ({"t": 1}, (), True) == ({"t": 1}, report.deleted, report.is_done)
    assert report.proof is not None
    assert (True, 0) < (report.proof.ok, report.proof.pieces)
    assert not held(path)
    assert not held(path, "osterfeldt")
    verified = await thread.replay.verify()
    assert (True, 0) == (verified.ok, verified.unattested)
    assert verified.redacted >= 1
    assert SAID not in [chunk.text for chunk in (await thread.state()).chunks()]


async def test_an_act_says_who_why_and_when(engine: Engine) -> None:
    """In the store, and in the log as an event that its chain binds."""
    thread = await engine.create_thread("t")
    report = await thread.admin.erase([await talked(thread)], by="officer", reason="asked for")
    (act,) = await engine.admin.acts()
    assert (report.act, "erase", "officer", "asked for") == (act.id, act.kind, act.by, act.reason)
    assert act.done_at_us >= act.asked_at_us > 0
    last = (await thread.replay.latest(1))[0].event
    assert isinstance(last, e.EventsErased)
    assert (act.id, "officer", "asked for") == (last.act, last.by, last.reason)


async def test_what_came_of_it_goes_too(engine: Engine, path: Path) -> None:
    """Summaries, snippets, the preferences of the user, in forks made before and after."""
    thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
    event_id = await talked(thread)
    await thread.dispatch_all([e.UserMessage(content=f"and {n}: as I said, {n * 7}") for n in range(30)])
    await thread.compact()
    fork = await thread.fork(at=4)
    await fork.dispatch(e.UserMessage(content="I go on"))
    report = await fork.admin.erase([event_id])
    assert {"t", fork.id} == set(report.erased)
    assert not held(path)
    for one in (thread, fork, await thread.fork(at=3)):
        assert (await one.replay.verify()).ok
        assert [] == [hit for hit in (await one.search("passport")).hits if SECRET in hit.text]


async def test_the_thread_goes_on(engine: Engine, path: Path) -> None:
    """It takes events, rebuilds to the same rows, and what is written later brings nothing back."""
    thread = await engine.create_thread("t")
    event_id = await talked(thread)
    await thread.admin.erase([event_id])
    await thread.dispatch_all([e.UserMessage(content=f"later {n} " * 50) for n in range(40)])
    await thread.compaction.settle()
    await engine.flush()
    assert not held(path)
    before = (await thread.info()).head_hash
    await thread.replay.rebuild()
    assert before == (await thread.info()).head_hash
    assert [r for r in await engine.verify() if not r.ok] == []


async def test_an_archived_thread_is_erased_too(engine: Engine, path: Path) -> None:
    """Nobody writes to it, and the act is recorded all the same."""
    thread = await engine.create_thread("t")
    event_id = await talked(thread)
    await thread.admin.archive()
    await thread.admin.erase([event_id])
    assert not held(path)
    assert (await thread.replay.verify()).ok
    assert "archived" == (await thread.info()).status


async def test_a_dry_run_only_counts(engine: Engine, path: Path) -> None:
    """Nothing is written."""
    thread = await engine.create_thread("t")
    event_id = await talked(thread)
    before = (await thread.info()).head_hash
    report = await thread.admin.erase([event_id], dry_run=True)
    assert ({"t": 1}, False) == (report.erased, report.is_done)
    assert (before, ()) == ((await thread.info()).head_hash, tuple(await engine.admin.acts()))
    assert held(path)


async def test_events_are_named_by_id_or_by_seq(engine: Engine, path: Path) -> None:
    """One that is not there is said before anything is done, and so is an act about nothing."""
    thread = await engine.create_thread("t")
    await talked(thread)
    with pytest.raises(InvalidArgument):
        await thread.admin.erase()
    with pytest.raises(SeqNotInLog):
        await thread.admin.erase(seqs=[2, 99])
    with pytest.raises(EventNotFound):
        await thread.admin.erase(["x"])
    assert () == tuple(await engine.admin.acts())
    await thread.admin.erase(seqs=[2])
    assert not held(path)


async def test_what_others_write_meanwhile_is_kept(path: Path) -> None:
    """Another process writes while rows are read to be erased: its events stay, and the act does not begin again."""
    async with memory_engine.open(str(path)) as one, memory_engine.open(str(path)) as other:
        thread = await one.create_thread("t")
        event_id = await talked(thread)
        real = kernel_of(one).store.erase
        wrote: list[int] = []

        async def late(unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
            if len(wrote) < 3:
                wrote.append((await other.thread("t").dispatch(e.UserMessage(content=f"late {len(wrote)}"))).seq)
            await real(unit, rows)

        kernel_of(one).store.erase = late  # type: ignore[method-assign]
        await thread.admin.erase([event_id])
        assert 3 == len(wrote)
        assert {"late 0", "late 1", "late 2"} <= {chunk.text for chunk in (await thread.state()).chunks()}
        assert not held(path)
        assert (await other.thread("t").replay.verify()).ok


async def test_all_of_a_user_goes(engine: Engine, path: Path) -> None:
    """Conversations, forks, the user's own thread; others stay, and the user can come again."""
    user, other = engine.user("u1", tenant_id="acme"), engine.user("u2", tenant_id="acme")
    thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
    await talked(thread)
    await thread.fork(thread_id="fork")
    await user.preferences.update("name", SECRET)
    await other.preferences.update("name", "Mia")
    report = await user.erase_all(by="officer")
    assert {"t", "fork", user.id} == set(report.deleted)
    assert not held(path)
    assert [other.id] == [info.id for info in await engine.threads()]
    assert report.proof is not None
    assert report.proof.ok


async def test_a_deleted_thread_takes_its_bytes_along(engine: Engine, path: Path) -> None:
    """Its forks go first."""
    thread = await engine.create_thread("t", tenant_id="acme")
    await talked(thread)
    await kernel_of(engine).store.passages.index_words_of(Threads(tenant_id="acme"))
    fork = await thread.fork(thread_id="fork")
    with pytest.raises(ThreadHasForks):
        await thread.admin.delete()
    await fork.admin.delete()
    await thread.admin.delete()
    assert not held(path)
    assert not held(path, "osterfeldt")
    assert [] == list(await engine.search("passport", tenant_id="acme"))
    with pytest.raises(ThreadNotFound):
        await thread.info()


async def test_a_large_index_is_destroyed_step_by_step(
    engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended between two steps, the log is whole, a search reads it again, and the act is gone on with."""

    def ended(_pages: int, _raw: sqlite3.Connection) -> bool:
        raise RuntimeError("ended here")

    thread = await engine.create_thread("t", tenant_id="acme")
    await talked(thread)
    await kernel_of(engine).store.passages.index_words_of(Threads(tenant_id="acme"))
    monkeypatch.setattr(index_of_files, "SHRUNK", 1)
    with monkeypatch.context() as patched:
        patched.setattr(index_of_files, "_merge", ended)
        with pytest.raises(RuntimeError):
            await thread.admin.delete()
    assert (await thread.replay.verify()).ok
    assert [SAID] == [hit.text for hit in await thread.search("passport", limit=1)]
    await engine.admin.finish_acts()
    assert not held(path)
    assert not held(path, "osterfeldt")


# an act that is not finished


async def test_a_reader_of_old_pages_is_waited_for_and_then_named(
    engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The act never says that it is done; it goes on when it is called again."""
    monkeypatch.setattr("memory_engine.administration.proof.WAIT_S", 0.2)
    thread = await engine.create_thread("t")
    event_id = await talked(thread)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(ErasureUnfinished) as raised:
            await thread.admin.erase([event_id])
        assert [raised.value.act] == [act.id for act in await kernel_of(engine).store.acts(pending=True)]
        reader.execute("COMMIT")
    (report,) = await engine.admin.finish_acts()
    assert (raised.value.act, True) == (report.act, report.is_done)
    assert not held(path)
    assert () == tuple(await kernel_of(engine).store.acts(pending=True))


CHILD = """
import asyncio, os, sys
import memory_engine
from memory_engine.storage.sqlite.store import SQLiteStore

path, method, when, doing = sys.argv[1:]
count = 0

def dying(name):
    real = getattr(SQLiteStore, name)
    async def die(self, *given, **named):
        global count
        count += 1
        if name == method and when == "before":
            os._exit(9)
        result = await real(self, *given, **named)
        if name == method and when == "after":
            os._exit(9)
        return result
    setattr(SQLiteStore, name, die)

dying(method)

async def main():
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        if doing == "delete":
            await thread.delete()
        else:
            async for one in thread.events():
                if "passport" in getattr(one.event, "content", ""):
                    await thread.erase([one.id])
                    break

asyncio.run(main())
"""


@pytest.mark.parametrize("doing", ["erase", "delete"])
@pytest.mark.parametrize(
    ("method", "when"),
    [
        ("put_act", "after"),
        ("erase", "before"),
        ("erase", "after"),
        ("delete", "before"),
        ("delete", "after"),
        ("wipe", "before"),
        ("wipe", "after"),
    ],
)
async def test_the_next_process_finishes_what_a_dead_one_began(path: Path, doing: str, method: str, when: str) -> None:
    """Wherever it dies: after that the bytes are gone, and the log verifies."""
    async with memory_engine.open(str(path)) as engine:
        await talked(await engine.create_thread("t"))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, str(path), method, when, doing)
    code = await child.wait()
    assert code == (0 if (method in ("erase", "delete") and method != doing) else 9)
    async with memory_engine.open(str(path)) as engine:
        await engine.admin.finish_acts()
        assert not held(path)
        assert [] == [report for report in await engine.verify() if not report.ok]
        assert ([] if doing == "delete" else ["t"]) == [info.id for info in await engine.threads()]
    assert not held(path)


async def test_no_process_goes_on_showing_it(path: Path) -> None:
    """What another process holds in memory is read again before it is shown."""
    async with memory_engine.open(str(path)) as one, memory_engine.open(str(path)) as other:
        thread = await one.create_thread("t")
        gone = await one.create_thread("gone")
        event_id = await talked(thread)
        await gone.dispatch(e.UserMessage(content="soon gone"))
        seen = other.thread("t")
        assert SAID in [chunk.text for chunk in (await seen.state()).chunks()]
        assert 1 == len(list((await other.thread("gone").state()).chunks()))
        await thread.admin.erase([event_id])
        await gone.admin.delete()
        assert SAID not in [chunk.text for chunk in (await seen.state()).chunks()]
        with pytest.raises(ThreadNotFound):
            await other.thread("gone").state()


# evidence


def tampered(path: Path, statement: str, *values: object) -> None:
    """Change a row behind the engine's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        raw.execute(statement, values)


async def test_a_redaction_that_nobody_recorded_is_a_forgery(path: Path) -> None:
    """Commitments in place of the salt make any payload fit the hash: it is neither verified nor shown."""
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.UserMessage(content="Hello"), e.UserMessage(content=SAID)])
        stored = (await kernel_of(engine).store.read_at("t", [2]))[0]
    forged = stored.payload.replace(SECRET.encode(), b"somebody-else-99")
    salt = b"".join(commitments(stored))
    tampered(path, "UPDATE events SET payload = ?, salt = ? WHERE pos & 4294967295 = 2", forged, salt)
    async with memory_engine.open(str(path)) as engine:
        thread = engine.thread("t")
        with pytest.raises(IntegrityError):
            await thread.context()
        found = (await thread.replay.verify()).divergence
        assert found is not None
        assert (2, "redaction") == (found.seq, found.kind)


async def test_a_flipped_byte_is_never_shown(path: Path) -> None:
    """Whoever reads the event gets the error that names it, before anybody has verified."""
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.UserMessage(content="Hello"), e.UserMessage(content=SAID)])
    tampered(
        path, "UPDATE events SET payload = CAST(replace(payload, 'keep', 'lose') AS BLOB) WHERE pos & 4294967295 = 2"
    )
    async with memory_engine.open(str(path)) as engine:
        thread = engine.thread("t")
        for read in (thread.context, thread.state, lambda: thread.replay.chunk("2.0"), lambda: thread.state(at=2)):
            with pytest.raises(IntegrityError) as raised:
                await read()
            assert 2 == raised.value.seq


async def test_a_line_that_cites_another_chunk_for_it_goes_too(path: Path) -> None:
    """A model's line may repeat what it does not cite: it is forgotten and erased with what it repeats."""
    lines = (
        e.SummaryLine("key_information", f"The passport of the user is {SECRET}.", ("1.0",)),
        e.SummaryLine("key_information", "The user said hello.", ("1.0",)),
        e.SummaryLine("key_information", "It was noted.", ("2.0",)),
    )
    compactor = Scripted(lambda _chunks, _context: CompactionResult(lines=lines))
    async with memory_engine.open(str(path), compactor=compactor) as engine:
        thread = await engine.create_thread("t")
        said = ["Hello " * 60, f"{SAID} " * 3, "Please go on " * 40, "And so on " * 40]
        receipts = await thread.dispatch_all([e.UserMessage(content=text) for text in said])
        await thread.compact(["1.0", "2.0", "3.0"])
        assert any(SECRET in chunk.text for chunk in (await thread.state()).chunks())
        await thread.forget(event_ids=[receipts[1].event_id])
        shown = "\n".join(chunk.text for chunk in (await thread.state()).chunks())
        assert (False, True) == (SECRET in shown, "The user said hello." in shown)
        await thread.admin.erase([receipts[1].event_id])
        assert not held(path)
        assert (await thread.replay.verify()).ok


def test_what_others_write_during_the_last_look_is_known(tmp_path: Path) -> None:
    """Every page that changes is named, whatever checkpoints are tried meanwhile: remains may be carried there."""
    path = str(tmp_path / "a.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as ours:
        ours.execute("PRAGMA journal_mode = WAL")
        ours.execute("CREATE TABLE talk (id INTEGER PRIMARY KEY, said TEXT)")
        ours.executemany("INSERT INTO talk (said) VALUES (?)", [("x" * 900,) for _ in range(500)])
        assert emptied(ours)
        before = Path(path).read_bytes()
        watch = Watch(path)
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as others:  # no checkpoint can be had
            for n in range(40):
                others.execute("UPDATE talk SET said = ? WHERE id % 7 = ?", ("y" * (500 + 20 * n), n % 7))
                others.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        written = watch.written()
        assert emptied(ours)
        after = Path(path).read_bytes()
        (size,) = ours.execute("PRAGMA page_size").fetchone()
    pages = {at // size + 1 for at in range(0, len(after), size) if before[at : at + size] != after[at : at + size]}
    assert pages
    assert pages <= written


async def test_a_fork_that_comes_amid_a_deletion_keeps_its_past(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The act waits until the fork is deleted, as `ThreadHasForks` says."""
    thread = await engine.create_thread("t")
    await talked(thread)
    drop = SQLitePassages.drop

    async def dropped(self: SQLitePassages, thread_id: str) -> None:
        await drop(self, thread_id)
        if not forks:
            forks.append(await thread.fork())

    forks: list[Thread] = []
    monkeypatch.setattr(SQLitePassages, "drop", dropped)
    with pytest.raises(ThreadHasForks):
        await thread.admin.delete()
    [fork] = forks
    assert (await fork.replay.verify()).ok
    with pytest.raises(ThreadHasForks):
        await finish_acts(kernel_of(engine))
    await fork.admin.delete()
    assert [True] == [report.is_done for report in await finish_acts(kernel_of(engine))]
    assert SECRET not in str(await engine.threads())


async def test_words_that_a_damaged_index_holds_are_told(engine: Engine, path: Path) -> None:
    """A deletion whose words cannot be merged away is not done."""
    threads = [await engine.create_thread(name) for name in ("t", "other")]
    for n in range(300):
        await threads[n % 2].dispatch(e.UserMessage(content=f"{SECRET if n % 2 == 0 else 'plain'} words {n}"))
    for thread in threads:
        await thread.search("words")
        await kernel_of(engine).store.passages.index_words(thread.id)
    await engine.close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(
            "UPDATE passage_terms_data SET block = substr(block, 1, 4) || zeroblob(length(block) - 4) WHERE id > 10"
        )
        raw.commit()
    async with memory_engine.open(str(path)) as opened:
        with pytest.raises(StorageRefused):
            await opened.thread("t").admin.delete()
