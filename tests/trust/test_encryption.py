"""A store with a key: without it nobody reads a word, and what is refused leaves every byte as it was."""

import asyncio
import gc
import json
import logging
import os
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, KeySource, ToolResult, UserMessage, errors, sync
from memory_engine import events as e
from memory_engine.administration.proof import find_texts
from memory_engine.storage import driver as opening
from memory_engine.storage.memory import MemoryStore
from memory_engine.storage.sqlite.file import checked_file, make
from memory_engine.storage.sqlite.locking import FileLock
from memory_engine.storage.sqlite.store import SQLiteStore
from memory_engine.store.keys import Key
from memory_engine.testing import Faults, FaultyStore, HashEmbedder, disk_full
from tests.scripted_compactors import Scripted
from tests.trust.sealing import (
    KEY,
    OTHER,
    PAGE,
    RAW,
    filled,
    has,
    holding,
    in_clear,
    prints,
    read,
    running,
    said,
    sealed,
)

SECRET = "Osterfeldt-77412"
TEXT = f"my passport is {SECRET}"
WORDS = (SECRET, "passport", "zebrawood", "user_message", "CREATE TABLE")


@pytest.fixture(autouse=True)
def _driver() -> None:
    """Everything here needs SQLCipher's driver."""
    sealed()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing in it but the store."""
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def path(folder: Path) -> Path:
    """Of the store."""
    return folder / "m.db"


async def awaited() -> str:
    """A key that has to be fetched."""
    await asyncio.sleep(0)
    return KEY


@pytest.mark.parametrize(
    ("key", "same"),
    [(KEY, awaited), (RAW, f"x'{RAW.hex().upper()}'"), (lambda: RAW, RAW), ("ключ ✓", "ключ ✓")],
    ids=["passphrase", "bytes", "function", "unicode"],
)
async def test_a_key_opens_what_it_has_encrypted(path: Path, key: KeySource, same: KeySource) -> None:
    """A text, 32 bytes, or a function that gives one; bytes can be written as a text too."""
    await filled(path, key, TEXT)
    assert [TEXT] == await read(path, same)
    assert not holding(path.parent, *WORDS, "SQLite format 3")


async def test_a_store_that_another_process_has_made_meanwhile_is_opened_with_its_salt(path: Path) -> None:
    """Nothing was there when it was looked at, and no engine goes on without a key for that."""
    looked = await checked_file(str(path), Key(RAW))
    await filled(path, RAW, TEXT)
    lock = FileLock(str(path), 1.0)
    make(looked, lock)
    lock.close()
    raw = looked.connect()
    assert 1 == raw.execute("SELECT count(*) FROM events").fetchone()[0]
    raw.close()


async def test_an_empty_file_is_no_store_to_read(path: Path) -> None:
    """It says so, and stays empty."""
    await asyncio.to_thread(path.touch)
    with pytest.raises(errors.StorageError, match="not a store"):
        await memory_engine.open(path, key=RAW, config=EngineConfig(read_only=True))
    assert {"m.db"} == set(prints(path.parent))


async def test_a_passphrase_is_stretched_as_sqlciphers_own_tools_do_it(path: Path) -> None:
    """So that the file can be opened without this package."""
    await filled(path, KEY, TEXT)
    raw = opening.cipher().connect(str(path))
    raw.execute(f"PRAGMA key = '{KEY}'")
    assert 1 == raw.execute("SELECT count(*) FROM events").fetchone()[0]
    raw.close()


@pytest.mark.parametrize(
    ("made", "given", "kind"),
    [
        (RAW, OTHER, errors.WrongKey),
        (RAW, "another passphrase", errors.WrongKey),
        (RAW, None, errors.KeyNeeded),
        (None, RAW, errors.NotEncrypted),
        (None, KEY, errors.NotEncrypted),
    ],
    ids=["wrong", "wrong passphrase", "missing", "needless", "needless passphrase"],
)
@pytest.mark.parametrize("state", ["closed", "bare", "crashed", "open"])
@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
async def test_the_wrong_key_is_refused_and_changes_nothing(  # noqa: PLR0917 - what is combined
    path: Path, made: bytes | None, given: KeySource | None, kind: type[Exception], state: str, read_only: bool
) -> None:
    """A wrong one, none, one for a plain file: whatever lies beside the file, and whoever has it open."""
    await filled(path, made, TEXT)
    if state == "bare":
        path.with_name("m.db.lock").unlink()
    if state == "crashed":
        with running("write", path, made):
            pass
    with running("hold", path, made) if state == "open" else nullcontext():
        before = prints(path.parent)
        with pytest.raises(kind, match="Nothing was changed"):
            async with memory_engine.open(path, key=given, config=EngineConfig(read_only=read_only)):
                pass
        assert before == prints(path.parent)
    assert TEXT in await read(path, made)


@pytest.mark.parametrize("key", ["", b"", b"short", b"x" * 33, 7, "x'abc'", "\ud800", ["k"]], ids=repr)
async def test_what_cannot_be_a_key_is_refused_without_repeating_it(path: Path, key: object) -> None:
    """Before there is a file."""
    with pytest.raises(errors.InvalidKey) as raised:
        await memory_engine.open(path, key=key)  # type: ignore[arg-type]
    assert {} == prints(path.parent)
    assert not isinstance(key, bytes | str) or len(key) < 3 or str(key) not in str(raised.value) + repr(raised.value)


async def test_a_function_that_fails_says_so_itself(path: Path) -> None:
    """Its error reaches the caller, and nothing is made."""

    def away() -> str:
        raise ConnectionError("the key server is away")

    with pytest.raises(ConnectionError, match="key server"):
        await memory_engine.open(path, key=away)
    assert {} == prints(path.parent)


async def test_two_engines_of_a_process_agree_about_the_key(path: Path) -> None:
    """The drivers know nothing of each other's locks: the second engine is refused before it opens the file."""
    await filled(path, RAW, TEXT)
    async with memory_engine.open(path, key=RAW) as engine:
        with pytest.raises(errors.KeyNeeded):
            await memory_engine.open(path)
        with pytest.raises(errors.WrongKey):
            await memory_engine.open(path, key=OTHER)
        async with memory_engine.open(path, key=RAW) as second:
            await second.thread("t").dispatch(UserMessage(content="second"))
        await engine.thread("t").dispatch(UserMessage(content="first"))
    assert [TEXT, "second", "first"] == await read(path, RAW)


@pytest.mark.parametrize("place", [":memory:", "postgresql://ann:pw@localhost/memory"])
async def test_other_places_take_no_key(place: str) -> None:
    """A server encrypts its own disk, and the error says so; it shows no password either."""
    with pytest.raises(errors.KeyUnsupported, match=r"disk") as raised:
        await memory_engine.open(place, key=KEY)
    assert not has(str(raised.value).encode(), KEY, "pw@")


async def test_a_store_of_ones_own_takes_no_key() -> None:
    """Nor can one that is no file be given one later."""
    with pytest.raises(errors.KeyUnsupported):
        await memory_engine.open(FaultyStore(MemoryStore()), key=KEY)
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(errors.KeyUnsupported):
            await engine.admin.rekey(KEY)


async def test_the_key_stands_nowhere(
    path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """In no `repr`, error, log record, traceback or output, of what opens and of what is refused."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    derived = ""
    async with memory_engine.open(path, key=KEY) as engine:
        await (await engine.open_thread("t")).dispatch(UserMessage(content=TEXT))
        store = engine.store
        shown += [repr(x) for x in (engine, engine.config, engine.kernel, store, vars(store), vars(engine))]
        file = vars(store)["_file"]
        derived = file.literal[2:66]
        shown += [repr(file), repr(vars(file)["_key"]), str(vars(file)["_key"])]
        with pytest.raises(TypeError, match="not pickled"):
            vars(file)["_key"].__reduce__()
    for key in (f"{KEY} no", None):
        try:
            await memory_engine.open(path, key=key)
        except errors.StorageError as error:
            shown += [repr(error), str(error), repr(vars(error)), "".join(traceback.format_exception(error))]
    shown += [record.getMessage() for record in caplog.records] + [*capfd.readouterr()]
    assert len(derived) == 64
    assert not [text for text in shown if has(text.encode(), KEY, derived)]
    gc.collect()


async def test_a_day_of_use_leaves_no_word_in_clear(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events, large results, compaction, search by words and vectors, documents, views, erasing, backup, a crash."""
    scratch = folder.parent / "tmp"
    scratch.mkdir()
    for name in ("TMPDIR", "SQLITE_TMPDIR"):
        monkeypatch.setenv(name, str(scratch))
    texts = [f"zebrawood {number}: {TEXT}" for number in range(300)]
    policy = CompactionPolicy(threshold=400, keep_recent=4)
    opened = {
        "key": RAW,
        "compactor": Scripted(),
        "embedder": HashEmbedder(),
        "config": EngineConfig(compaction=policy),
    }
    async with memory_engine.open(path, **opened) as engine:  # type: ignore[arg-type]
        thread = await engine.open_thread("day", user_id="ann", tenant_id="acme", metadata={"note": SECRET})
        for text in texts:
            await thread.dispatch(UserMessage(content=text))
        await thread.dispatch(e.LlmToolCall(calls=(e.ToolCall(id="c", name="fetch", arguments=json.dumps([SECRET])),)))
        await thread.dispatch(ToolResult(call_id="c", content=TEXT * 10_000))
        await thread.scratchpad.write(f"remember {SECRET}")
        await engine.user("ann", tenant_id="acme").preferences.update("verbosity", "concise")
        await engine.tenant("acme").documents.add_text(TEXT * 50, title=SECRET, id="d")
        await thread.compact()
        assert await thread.search("passport zebrawood")
        assert await engine.tenant("acme").documents.search("passport")
        assert (await thread.context(max_tokens=4_000)).messages
        await engine.store.flush()
        fork = await thread.fork(thread_id="f")
        await fork.dispatch(UserMessage(content=TEXT))
        report = await thread.admin.erase(seqs=[2])
        assert report.proof is not None
        assert report.proof.ok
        assert "through its key" in report.proof.how
        await engine.admin.backup(folder / "backup.db")
        assert [] == holding(folder, *WORDS)
    await filled(path, RAW, TEXT)
    with running("write", path, RAW):
        pass
    names = {name.partition("m.db")[2] for name in prints(folder) if name.startswith("m.db")}
    assert names <= {"", ".lock", "-wal", "-shm"}
    assert ([], []) == (holding(folder, *WORDS), holding(scratch, *WORDS))
    assert TEXT in await read(folder / "m.db", RAW)


def test_sqlcipher_keeps_what_does_not_fit_in_memory(path: Path) -> None:
    """Sorts and the tables of a `VACUUM` would go to files that nothing encrypts."""
    raw = opening.StoreFile(str(path), Key(RAW), b"s" * 16).connect()
    assert 2 == raw.execute("PRAGMA temp_store").fetchone()[0]
    raw.close()


@pytest.mark.parametrize("target", ["same", "other", "plain"])
@pytest.mark.parametrize("source", [RAW, None], ids=["encrypted", "plain"])
async def test_a_backup_has_the_key_of_its_store_unless_another_is_asked_for(
    folder: Path, path: Path, source: bytes | None, target: str
) -> None:
    """And so has what is restored from it. Nothing in clear stays beside a backup that has a key."""
    await filled(path, source, TEXT)
    kinds: dict[str, dict[str, object]] = {"same": {}, "other": {"key": OTHER}, "plain": {"plain": True}}
    asked = kinds[target]
    key = {"same": source, "other": OTHER, "plain": None}[target]
    async with memory_engine.open(path, key=source) as engine:
        report = await engine.admin.backup(folder / "b.db", **asked)  # type: ignore[arg-type]
        assert (1, 1, ()) == (report.threads, report.events, report.broken)
    again = {"new_key" if name == "key" else name: value for name, value in asked.items()}
    await memory_engine.restore(folder / "b.db", folder / "r.db", key=key)
    await memory_engine.restore(path, folder / "direct.db", key=source, **again)  # type: ignore[arg-type]
    for name in ("b.db", "r.db", "direct.db"):
        assert [TEXT] == await read(folder / name, key)
        assert bool(key) is not has((folder / name).read_bytes(), SECRET)
    assert {"b.db", "r.db", "direct.db"} == {name for name in prints(folder) if not name.startswith(("m.db", "."))} - {
        name for name in prints(folder) if name.endswith((".lock", "-wal", "-shm"))
    }


async def test_a_backup_is_not_restored_with_the_wrong_key(folder: Path, path: Path) -> None:
    """Nothing is made."""
    await filled(path, RAW, TEXT)
    before = prints(folder)
    for key, kind in ((OTHER, errors.WrongKey), (None, errors.KeyNeeded)):
        with pytest.raises(kind):
            await memory_engine.restore(path, folder / "r.db", key=key)
    assert before == prints(folder)


async def test_a_copy_keeps_its_hashes_between_keys(folder: Path, path: Path) -> None:
    """From an encrypted store to a plain one, and on to one with another key."""
    await filled(path, RAW, TEXT, "second")
    heads = []
    for source, key, target, to in ((path, RAW, "b.db", None), (folder / "b.db", None, "c.db", OTHER)):
        async with memory_engine.open(source, key=key) as here, memory_engine.open(folder / target, key=to) as there:
            assert (await here.copy_to(there)).ok
            heads += [(await engine.thread("t").info()).head_hash for engine in (here, there)]
    assert 1 == len(set(heads))


async def test_erased_bytes_are_in_no_page_under_the_cipher(path: Path) -> None:
    """Also where rows were moved and freed before: the pages are decrypted one by one, gaps and free pages included."""
    async with memory_engine.open(path, key=RAW) as engine:
        thread = await engine.open_thread("t")
        for number in range(400):
            await thread.dispatch(UserMessage(content=f"{number} " + "filling " * (number % 60)))
            if not number % 100:
                await thread.dispatch(UserMessage(content=TEXT))
        rows = [row async for row in thread.events()]
        seqs = [row.seq for row in rows if isinstance(row.event, UserMessage) and row.event.content == TEXT]
        await engine.store.flush()
        assert has(in_clear(path, _page_key(path)), SECRET)
        report = await thread.admin.erase(seqs=seqs)
        assert report.proof is not None
        assert (True, True) == (report.proof.ok, report.proof.pieces > 4)
        assert not has(in_clear(path, _page_key(path)), SECRET)
        assert has(in_clear(path, _page_key(path)), "filling")
        assert (await thread.replay.verify()).ok


def _page_key(path: Path) -> bytes:
    """Bytes as a key are those that encrypt the pages."""
    assert path.exists()
    return RAW


async def test_a_proof_finds_what_is_left(path: Path) -> None:
    """It reads every row through the key: a text that somebody else said is found, in the tables that hold it."""
    await filled(path, RAW, TEXT)
    async with memory_engine.open(path, key=RAW) as engine:
        found = await find_texts(engine.kernel, [SECRET, "not there at all"])
    assert not found.ok
    assert any("events" in place for place in found.left)
    assert not any(place.endswith("text 2") for place in found.left)


async def test_several_processes_write_to_one_store(path: Path) -> None:
    """As to a plain one: every event of each is there once."""
    await filled(path, RAW, TEXT)
    with running("write", path, RAW), running("write", path, RAW):
        async with memory_engine.open(path, key=RAW) as engine:
            for number in range(50):
                await engine.thread("t").dispatch(UserMessage(content=f"ours {number}"))
            found = await said(engine.thread("t"))
    assert [f"ours {n}" for n in range(50)] == [text for text in found if text.startswith("ours")]
    assert set(found) <= set(await read(path, RAW))


async def test_a_process_makes_one_store_with_one_salt(path: Path) -> None:
    """Engines that open a new file at once, each with the key in its own words."""
    keys: list[str | bytes] = [RAW, f"x'{RAW.hex()}'"] * 3
    engines = await asyncio.gather(*(memory_engine.open(path, key=key) for key in keys))
    for number, engine in enumerate(engines):
        await (await engine.open_thread("t")).dispatch(UserMessage(content=str(number)))
    for engine in engines:
        await engine.close()
    assert [str(number) for number in range(6)] == await read(path, RAW)


def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    """Killed at any moment; the next process finds each acknowledged event, and the log verifies."""
    acknowledged = -1
    for _ in range(4):
        with running("write", path, RAW) as child:
            assert child.stdout is not None
            for line in child.stdout:
                acknowledged = int(line)
                if acknowledged % 40 == 39:
                    break
            child.kill()
            acknowledged = max([acknowledged, *map(int, child.stdout)])
        found = asyncio.run(read(path, RAW))
        assert [f"message {number}" for number in range(len(found))] == found
        assert len(found) > acknowledged
    assert not holding(path.parent, "message", "user_message")


def damage(path: Path) -> None:
    """Change one bit of each page from the ninth on."""
    data = bytearray(path.read_bytes())
    for at in range(PAGE * 8, len(data), PAGE):
        data[at + 100] ^= 1
    path.write_bytes(data)


async def test_a_damaged_page_is_an_error(path: Path) -> None:
    """Each page has a code that proves it whole: one changed bit is not read as something else."""
    await filled(path, RAW, *(TEXT * 20 for _ in range(100)))
    damage(path)
    with pytest.raises(errors.StorageError):
        await read(path, RAW)


async def test_it_says_which_extra_is_missing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is a file."""

    def missing(name: str) -> object:
        raise ModuleNotFoundError(name=name.partition(".")[0])

    monkeypatch.setattr(opening, "import_module", missing)
    with pytest.raises(errors.MissingExtra, match="encrypted"):
        await memory_engine.open(path, key=RAW)
    assert {} == prints(path.parent)


async def test_an_encrypted_file_verifies_in_several_processes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key goes to them through a pipe: it is neither an argument nor in the environment."""
    from memory_engine.files import verify_file as module

    async with memory_engine.open(path, key=RAW) as engine:
        for name in "abc":
            await (await engine.create_thread(name)).dispatch(UserMessage(content=TEXT))
    seen: list[object] = []
    start: Callable[..., object] = asyncio.create_subprocess_exec

    def noted(*words: object, **how: object) -> object:
        seen.append((words, how.get("env"), dict(os.environ)))
        return start(*words, **how)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    reports = await module.verify_file(path, jobs=3, key=RAW)
    assert [True] * 3 == [report.ok for report in reports]
    assert seen
    assert RAW.hex() not in json.dumps(seen, default=str)


async def test_a_full_disk_is_an_error_of_the_store_with_a_key_too(path: Path) -> None:
    """The faults that tests plan reach SQLCipher's connections as well; what was acknowledged is there afterwards."""
    faults = Faults()
    async with memory_engine.open(await SQLiteStore.open(str(path), key=Key(RAW), faults=faults)) as engine:
        thread = await engine.open_thread("t")
        await thread.dispatch(UserMessage(content=TEXT))
        faults.fail("commit", disk_full())
        with pytest.raises(errors.StorageFailed, match="full"):
            await thread.dispatch(UserMessage(content="lost"))
    assert [TEXT] == await read(path, RAW)


async def test_a_retry_after_another_process_gets_its_receipt(path: Path) -> None:
    """The index of ids refuses the second row, which this driver tells by its message alone."""
    await filled(path, RAW, TEXT)
    event = memory_engine.NewEvent(UserMessage(content="once"), id="same")
    async with memory_engine.open(path, key=RAW) as one, memory_engine.open(path, key=RAW) as two:
        assert await said(one.thread("t")) == await said(two.thread("t"))
        first, second = await asyncio.gather(one.thread("t").dispatch(event), two.thread("t").dispatch(event))
        assert (first.seq, first.event_id) == (second.seq, second.event_id)
    assert [TEXT, "once"] == await read(path, RAW)


def test_without_await_it_is_the_same(path: Path) -> None:
    """`memory_engine.sync` takes a key, and a function for one, and changes it."""
    with sync.open(path, key=lambda: RAW) as engine:
        engine.open_thread("t").dispatch(UserMessage(content=TEXT))
        assert 1 == engine.admin.rekey(OTHER).events
        assert [1] == [found.seq for found in engine.thread("t").search("passport")]
    assert [TEXT] == asyncio.run(read(path, OTHER))
