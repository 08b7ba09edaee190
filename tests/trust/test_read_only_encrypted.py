"""`read_only=True` on an encrypted file: read with its key, and nothing is written, nor anything in clear elsewhere."""

from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage, errors
from memory_engine.storage.places import schema_of
from memory_engine.store.keys import Key
from tests.trust.older_files import NEWEST, closed, contents, left_behind, names, of_version, temporary, written
from tests.trust.sealing import OTHER, RAW, filled, holding, read, running, said, sealed

__all__ = ["temporary"]  # a fixture

ONLY_READS = EngineConfig(read_only=True)
BESIDE = ["nothing", "a dead process's log", "a log without its shared memory"]


@pytest.fixture(autouse=True)
def _driver() -> None:
    """Everything here needs SQLCipher's driver."""
    sealed()


async def left(folder: Path, number: int, beside: str, monkeypatch: pytest.MonkeyPatch, key: bytes | None) -> Path:
    """A folder with a file of a schema, and with what was beside it."""
    (folder / "made").mkdir()
    await written(folder / "newest.db")
    raw = of_version(folder / "newest.db", folder / "made" / "m.db", number, monkeypatch, key)
    if beside == "nothing":
        closed(raw)
    left_behind(folder / "made", folder / "left", shared_memory=beside != "a log without its shared memory")
    raw.close()
    assert (beside == "nothing") != ("m.db-wal" in names(folder / "left"))
    return folder / "left"


@pytest.mark.parametrize("number", [1, NEWEST - 1, NEWEST])
@pytest.mark.parametrize("beside", BESIDE)
async def test_it_is_read_and_nothing_is_written(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, number: int, beside: str
) -> None:
    """Of any schema, whatever is beside it; a copy for that is encrypted too."""
    folder = await left(tmp_path, number, beside, monkeypatch, RAW)
    before = contents(folder)
    async with memory_engine.open(folder / "m.db", key=RAW, config=ONLY_READS) as engine:
        assert "Two chairs, please." == (await engine.search("chairs"))[0].text  # by an index that is in memory alone
        assert [] == holding(temporary, "chairs", "user_message")
        assert ["Two chairs, please."] == await said(engine.thread("t"))
        assert 3 == len(await engine.threads())
        with pytest.raises(errors.ReadOnly):
            await engine.thread("t").dispatch(UserMessage(content="more"))
    assert number == (await schema_of(str(folder / "m.db"), Key(RAW)).versions()).stored
    for key in (OTHER, None):
        with pytest.raises((errors.WrongKey, errors.KeyNeeded)):
            await memory_engine.open(folder / "m.db", key=key, config=ONLY_READS)
    assert before == contents(folder)
    assert [] == names(temporary)


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("keys", [(RAW, None), (None, RAW), (RAW, OTHER)])
async def test_a_backup_with_another_key_writes_only_its_target(
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    beside: str,
    keys: tuple[bytes | None, bytes | None],
) -> None:
    """Of an engine that only reads, and of a restore: from a key to none, from none to a key, to another one."""
    old, new = keys
    folder = await left(tmp_path, NEWEST, beside, monkeypatch, old)
    before = contents(folder)
    async with memory_engine.open(folder / "m.db", key=old, config=ONLY_READS) as engine:
        backup = await engine.admin.backup(tmp_path / "backup.db", key=new, plain=new is None)
    restored = await memory_engine.restore(
        folder / "m.db", tmp_path / "restored.db", key=old, new_key=new, plain=new is None
    )
    assert (3, 3, ()) == (backup.threads, restored.threads, backup.broken)
    assert before == contents(folder)
    assert [] == names(temporary)
    for name in ("backup.db", "restored.db"):
        assert ["Two chairs, please."] == await read(tmp_path / name, new)


async def test_beside_a_process_that_has_it_open(tmp_path: Path) -> None:
    """Its shared memory and its locks are left as they are."""
    folder = tmp_path / "there"
    folder.mkdir()
    await filled(folder / "m.db", RAW, "first")
    with running("hold", folder / "m.db", RAW):
        before = contents(folder)
        async with memory_engine.open(folder / "m.db", key=RAW, config=ONLY_READS) as engine:
            assert ["first"] == await said(engine.thread("t"))
        assert before == contents(folder)


@pytest.mark.parametrize("key", [RAW, None], ids=["encrypted", "plain"])
async def test_commits_of_this_process_are_read(tmp_path: Path, key: bytes | None) -> None:
    """By a reader that was there before the writer, and one that comes after it."""
    path = tmp_path / "m.db"
    await filled(path, key, "first")
    async with memory_engine.open(path, key=key, config=ONLY_READS) as before:
        assert ["first"] == await said(before.thread("t"))
        async with memory_engine.open(path, key=key) as writer:
            await writer.thread("t").dispatch(UserMessage(content="second"))
            async with memory_engine.open(path, key=key, config=ONLY_READS) as after:
                for reader in (before, after):
                    assert ["first", "second"] == await said(reader.thread("t"))
        assert ["first", "second"] == await said(before.thread("t"))


async def test_another_key_is_noticed(tmp_path: Path) -> None:
    """A file that is read as it stands is nobody's hindrance; what reads it says that the key is another one now."""
    path = tmp_path / "m.db"
    await filled(path, RAW, "first")
    async with memory_engine.open(path, key=RAW, config=ONLY_READS) as reader:
        assert ["first"] == await said(reader.thread("t"))
        async with memory_engine.open(path, key=RAW) as writer:
            await writer.admin.rekey(OTHER)
        with pytest.raises(errors.WrongKey):
            await reader.threads()
    assert ["first"] == await read(path, OTHER)
