"""Another key for a store that is open: whole or not at all, and nobody is left with a file that has no name."""

import asyncio
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, UserMessage, errors
from memory_engine.storage.sqlite import rekeying
from tests.trust.sealing import KEY, OTHER, RAW, filled, has, holding, in_clear, prints, read, running, said, sealed

TEXT = "my passport is Osterfeldt-77412"


@pytest.fixture(autouse=True)
def _driver() -> None:
    """Everything here needs SQLCipher's driver."""
    sealed()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the store, in a folder of its own."""
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "m.db"


@pytest.mark.parametrize(
    ("old", "new"), [(RAW, OTHER), (None, RAW), (RAW, None), (RAW, RAW), (RAW, KEY)], ids=lambda key: type(key).__name__
)
async def test_a_store_goes_on_with_another_key(path: Path, old: bytes | None, new: bytes | None) -> None:
    """Encrypted, rotated and decrypted by one act, with what was said before and after, its index and its hashes."""
    await filled(path, old, TEXT, "second")
    async with memory_engine.open(path, key=old) as engine:
        thread = engine.thread("t")
        head = (await thread.info()).head_hash
        report = await engine.admin.rekey(new, plain=new is None)
        assert (1, 2, ()) == (report.threads, report.events, report.broken)
        assert head == (await thread.info()).head_hash
        await thread.dispatch(UserMessage(content="third"))
        assert [TEXT, "second", "third"] == await said(thread)
        assert await thread.search("passport")
        assert (await thread.replay.verify()).ok
    assert [TEXT, "second", "third"] == await read(path, new)
    if old != new:
        with pytest.raises(errors.StorageError):
            await read(path, old)
    assert {"m.db", "m.db.lock"} == set(prints(path.parent))
    assert (new is None) == bool(holding(path.parent, TEXT))


async def test_writes_and_reads_wait_meanwhile_and_none_is_lost(path: Path) -> None:
    """Dispatches, contexts and searches from many tasks while the key changes again and again."""
    await filled(path, RAW, TEXT)
    async with memory_engine.open(path, key=RAW) as engine:
        thread, is_over = engine.thread("t"), False

        async def write(name: str) -> int:
            count = 0
            while not is_over:
                await thread.dispatch(UserMessage(content=f"{name}{count}"))
                count += 1
                await asyncio.sleep(0)
            return count

        async def look() -> int:
            count = 0
            while not is_over:
                assert await thread.search("passport")
                assert await said(thread)
                count += 1
            return count

        work = [asyncio.create_task(one) for one in (write("a"), write("b"), look(), look())]
        for key in (OTHER, RAW, None, OTHER):
            await engine.admin.rekey(key, plain=key is None)
        is_over = True
        counts = await asyncio.gather(*work)
        found = await said(thread)
        for name, count in zip("ab", counts, strict=False):
            assert [f"{name}{number}" for number in range(count)] == [text for text in found if text[0] == name]
        assert (await thread.replay.verify()).ok
    assert found == await read(path, OTHER)


async def test_it_is_refused_while_another_process_has_the_file_open(path: Path) -> None:
    """Every byte of it stays; when that one has closed it, it is done."""
    await filled(path, RAW, TEXT)
    async with memory_engine.open(path, key=RAW) as engine:
        with running("hold", path, RAW):
            before = prints(path.parent)["m.db"]
            with pytest.raises(errors.StoreInUse, match="open elsewhere"):
                await engine.admin.rekey(OTHER)
            assert before == prints(path.parent)["m.db"]
            await engine.thread("t").dispatch(UserMessage(content="still here"))
        await engine.admin.rekey(OTHER)
    assert [TEXT, "still here"] == await read(path, OTHER)


@pytest.mark.parametrize("old", [RAW, None], ids=["encrypted", "plain"])
@pytest.mark.parametrize("read_only", [True, False])
async def test_it_is_refused_while_another_engine_has_the_file_open(
    path: Path, old: bytes | None, read_only: bool
) -> None:
    """Of this process, one that only reads too; a backup under way is one."""
    await filled(path, old, TEXT)
    async with memory_engine.open(path, key=old) as engine:
        async with memory_engine.open(path, key=old, config=EngineConfig(read_only=read_only)) as other:
            await said(other.thread("t"))
            with pytest.raises(errors.StoreInUse):
                await engine.admin.rekey(OTHER)
            assert [TEXT] == await said(other.thread("t"))
        await engine.admin.rekey(OTHER)
        assert [TEXT] == await said(engine.thread("t"))


@pytest.mark.parametrize("old", [RAW, None], ids=["encrypted", "plain"])
@pytest.mark.parametrize("step", ["_copied", "sync", "checked"])
async def test_what_fails_on_the_way_changes_nothing(
    path: Path, old: bytes | None, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a copy that is found damaged: the store goes on with its old key, in the same file."""

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    await filled(path, old, TEXT)
    async with memory_engine.open(path, key=old) as engine:
        monkeypatch.setattr(rekeying, step, fails)
        with pytest.raises(errors.StorageRefused, match="No space"):
            await engine.admin.rekey(OTHER)
        monkeypatch.undo()
        await engine.thread("t").dispatch(UserMessage(content="after"))
    assert [TEXT, "after"] == await read(path, old)
    assert {"m.db", "m.db.lock"} == set(prints(path.parent))


async def test_a_key_or_plain_has_to_be_said(path: Path) -> None:
    """A store is not decrypted by an argument that was left out."""
    async with memory_engine.open(path, key=RAW) as engine:
        with pytest.raises(errors.InvalidArgument):
            await engine.admin.rekey()
        with pytest.raises(errors.InvalidArgument):
            await engine.admin.rekey(OTHER, plain=True)
        with pytest.raises(errors.InvalidKey):
            await engine.admin.rekey(b"short")
    async with memory_engine.open(path, key=RAW, config=EngineConfig(read_only=True)) as engine:
        with pytest.raises(errors.ReadOnly):
            await engine.admin.rekey(OTHER)


async def test_a_process_that_still_waits_with_the_old_key_writes_to_no_file_without_a_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the old file, and comes to its turn when another one stands there."""
    from memory_engine.storage.sqlite import file, store

    await filled(path, RAW, TEXT)
    prepare: Callable[..., bool] = file.prepare

    def late(*given: object) -> bool:
        other = path.with_name("other.db")
        other.write_bytes(path.read_bytes())
        other.replace(path)
        return prepare(*given)

    monkeypatch.setattr(store, "prepare", late)
    with pytest.raises(errors.StoreReplaced):
        await memory_engine.open(path, key=RAW)


async def test_what_a_killed_one_left_is_removed(path: Path) -> None:
    """By the next engine, and by the next of its kind; files of others stay, however they are called."""
    await filled(path, RAW, TEXT)
    left = [path.with_name(name) for name in (".m.db.4711.part", ".m.db.4711.part-journal", ".m.db.8.plain")]
    kept = [path.with_name(name) for name in (".m.db.notes", ".other.db.4711.part", "m.db.4711.part")]
    for file in left + kept:
        file.write_text(TEXT)
    async with memory_engine.open(path, key=RAW) as engine:
        assert [False] * 3 == [file.exists() for file in left]
        left[0].write_text(TEXT)
        await engine.admin.rekey(OTHER)
    assert [False] * 3 + [True] * 3 == [file.exists() for file in left + kept]


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither such modes, nor links for everybody")
def test_the_new_file_has_the_rights_and_the_place_of_the_old_one(path: Path) -> None:
    """A store that only its owner can read stays so, and a link to it stays a link."""
    asyncio.run(filled(path, None, TEXT))
    path.chmod(0o600)
    link = path.parent.parent / "link.db"
    link.symlink_to(path)

    async def rekeyed() -> None:
        async with memory_engine.open(link) as engine:
            await engine.admin.rekey(RAW)
            await engine.thread("t").dispatch(UserMessage(content="after"))

    asyncio.run(rekeyed())
    assert (True, 0o600) == (link.is_symlink(), path.stat().st_mode & 0o777)
    assert [TEXT, "after"] == asyncio.run(read(path, RAW))


@pytest.mark.parametrize("keys", [(RAW, OTHER), (RAW, None)], ids=["rotated", "encrypted and decrypted"])
def test_killed_at_any_moment_exactly_one_of_the_two_keys_opens_it(
    path: Path, keys: tuple[bytes | None, bytes | None]
) -> None:
    """Over and over on one file: it verifies, nothing is lost, and what was in clear is only ever asked for."""
    texts = [f"{number} {TEXT}" for number in range(200)]
    asyncio.run(filled(path, RAW, *texts))
    chance, opened = random.Random(7), []
    for _ in range(8):
        with running("rekey", path, *keys) as child:
            try:
                child.wait(chance.uniform(0.0, 0.5))
            except subprocess.TimeoutExpired:
                child.kill()
        opens = []
        for key in keys:
            try:
                assert texts == asyncio.run(read(path, key))
                opens.append(key)
            except errors.StorageError:
                continue
        assert 1 == len(opens)
        opened += opens
        if None not in keys:
            assert not holding(path.parent, TEXT)
    assert in_clear(path, opened[-1]) if opened[-1] else has(path.read_bytes(), TEXT)
