"""Workspace files: what is recorded comes back byte for byte; nothing unrecorded or outside is touched."""

import asyncio
import hashlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, UserMessage, errors
from memory_engine import events as e
from memory_engine.workspace import Workspace, WorkspaceLimits
from memory_engine.workspace.ignoring import unsafe
from tests.places import on_both_back_ends, place_of

pytestmark = pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="the platform cannot open files in a folder")
PASSWORD = "password: hunter2-Zx9!\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a text, a script and bytes that are not text."""
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"one\n")
    (root / "src" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "src" / "run.sh").chmod(0o755)
    (root / "image").write_bytes(b"\xff\x00\x01\xfe")
    return root


def tree(root: Path) -> dict[str, tuple[bytes, bool]]:
    """Each file's content, and whether it can be run."""
    files = [one for one in root.rglob("*") if one.is_file() and not one.is_symlink()]
    return {str(one.relative_to(root)): (one.read_bytes(), bool(one.stat().st_mode & 0o100)) for one in files}


def within(root: Path, pattern: str = "*") -> set[Path]:
    """All that is in a folder, by a pattern."""
    return set(root.rglob(pattern))


def empty(root: Path) -> None:
    """Remove all that is in a folder."""
    for one in sorted(root.rglob("*"), reverse=True):
        one.rmdir() if one.is_dir() else one.unlink()


def change(path: str, content: bytes = b"owned\n", **more: object) -> e.WorkspaceChange:
    """A file as a log has it, whatever its path."""
    digest = hashlib.sha256(content).hexdigest()
    return e.WorkspaceChange(path=path, digest=digest, size=len(content), text=content.decode(), **more)  # type: ignore[arg-type]


# what is recorded comes back


@on_both_back_ends
async def test_a_moment_comes_back_byte_for_byte(back_end: str, tmp_path: Path, work: Path) -> None:
    """Contents, whether they can be run, what was removed; after a restart too, and the log verifies and rebuilds."""
    place = place_of(back_end, tmp_path)
    async with memory_engine.open(place) as engine:
        thread = await engine.create_thread("t")
        first = await Workspace(thread, work).record()
        before = tree(work)
        (work / "a.txt").write_bytes(b"")
        (work / "src" / "run.sh").chmod(0o644)
        (work / "image").unlink()
        (work / "src" / "new").write_bytes(b"new")
        second = await Workspace(thread, work).record()
        assert (("a.txt", "src/new", "src/run.sh"), ("image",)) == (second.written, second.removed)
        after = tree(work)
    async with memory_engine.open(place) as engine:
        thread = engine.thread("t")
        space = Workspace(thread, work)
        await space.restore(at=first.seq)
        assert before == tree(work)
        await Workspace(await thread.at(second.seq), work).restore()
        assert after == tree(work)
        assert b"\xff\x00\x01\xfe" == await space.read("image", at=first.seq)
        assert (await thread.replay.verify()).ok
        await thread.replay.rebuild()
        assert sorted(after) == [one.path for one in await space.files()]


async def test_a_rewind_takes_the_files_back_and_a_redo_brings_them_again(thread: Thread, work: Path) -> None:
    """By the same act, and nothing is recorded for it but the rewind."""
    space = Workspace(thread, work)
    start = await space.record()
    before = tree(work)
    await thread.dispatch(UserMessage(content="Rewrite it."))
    (work / "a.txt").write_bytes(b"two\n")
    (work / "src" / "run.sh").unlink()
    (work / "src").rmdir()
    (work / "src").write_bytes(b"now a file")
    last = await space.record()
    after = tree(work)
    told = await space.rewind(start.seq, dry_run=True)
    assert (after, last.seq) == (tree(work), (await thread.info()).events)
    done = await space.rewind(start.seq)
    assert (before, told.files) == (tree(work), done.files)
    assert sorted(before) == [one.path for one in await space.files()]
    assert 0 == (await space.record()).seq
    await space.rewind(redo=True)
    assert after == tree(work)
    assert (await thread.replay.verify()).ok


async def test_a_content_is_in_the_log_once(thread: Thread, work: Path) -> None:
    """Equal contents are referred to: in one record, in later ones, and when a file goes back to an earlier content."""
    (work / "b.txt").write_bytes(b"one\n")
    await Workspace(thread, work).record()
    for content in (b"two\n", b"one\n", b"two\n"):
        (work / "a.txt").write_bytes(content)
        await Workspace(thread, work).record()
    held = [one.text for event in [r.event async for r in thread.events()] for one in getattr(event, "changes", ())]
    assert (1, 1) == (held.count("one\n"), held.count("two\n"))
    await Workspace(thread, work).restore(at=1)
    assert b"one\n" == (work / "a.txt").read_bytes() == (work / "b.txt").read_bytes()


async def test_a_large_record_is_whole_or_not_at_all(work: Path) -> None:
    """It is several events; a moment between them shows the files of before, and so does a rewind to it."""
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=16_384)) as engine:
        thread = await engine.create_thread("t")
        space = Workspace(thread, work)
        first = await space.record()
        for n in range(7):
            (work / f"big{n}").write_bytes(bytes([65 + n]) * 5_000)
        second = await space.record()
        assert second.seq > first.seq + 1
        before = sorted(one.path for one in await space.files(at=first.seq))
        for seq in range(first.seq, second.seq):
            assert before == [one.path for one in await space.files(at=seq)]
        await space.rewind(first.seq + 1)
        assert before == sorted(tree(work))
        (work / "big0").write_bytes(b"again")
        await space.record()
        assert [*before[:1], "big0", *before[1:]] == [one.path for one in await space.files()]


async def test_two_that_record_at_once_record_the_same_change_once(tmp_path: Path, work: Path) -> None:
    """The second finds it recorded."""
    async with memory_engine.open(tmp_path / "log.db") as one, memory_engine.open(tmp_path / "log.db") as other:
        await one.create_thread("t")
        found = await asyncio.gather(*(Workspace(each.thread("t"), work).record() for each in (one, other, one)))
        assert [0, 0, 1] == sorted(record.seq for record in found)


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.dictionaries(names, st.binary(max_size=40), max_size=5), min_size=1, max_size=4))
def test_every_record_comes_back(tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, bytes]]) -> None:
    """Whatever the names and bytes: each is restored as it was recorded, or was left out with a reason."""

    async def run() -> None:
        root = tmp_path_factory.mktemp("law")
        async with memory_engine.open(":memory:") as engine:
            space = Workspace(await engine.create_thread(), root)
            seen: list[tuple[int, dict[str, tuple[bytes, bool]]]] = []
            for step in steps:
                empty(root)
                for name, content in step.items():
                    if name not in (".", ".."):
                        (root / name).write_bytes(content)
                await space.record()
                there = {one.path for one in await space.files()}
                recorded = {path: one for path, one in tree(root).items() if path in there}
                seen.append(((await engine.thread(space._thread.id).info()).events, recorded))
                for path in set(tree(root)) - there:
                    (root / path).unlink()
            for seq, recorded in reversed(seen):
                await space.restore(at=seq)
                assert recorded == tree(root)

    asyncio.run(run())


# nothing that is not recorded is lost


async def test_a_folder_that_changed_otherwise_is_refused(thread: Thread, work: Path) -> None:
    """A changed file, a new one, one with a secret where another was: nothing is written, and the log has no rewind."""
    space = Workspace(thread, work)
    await space.record()
    (work / "a.txt").write_bytes(b"two\n")
    second = await space.record()
    changes: list[tuple[str, bytes]] = [("a.txt", b"by hand"), ("new", b"by hand"), ("a.txt", PASSWORD.encode())]
    for name, content in changes:
        (work / name).write_bytes(content)
        was = tree(work)
        with pytest.raises(errors.WorkspaceChanged, match=name):
            await space.restore(at=1)
        with pytest.raises(errors.WorkspaceChanged, match=name):
            await space.rewind(1)
        assert (name,) == (await space.restore(at=1, dry_run=True)).changed
        assert (was, second.seq) == (tree(work), (await thread.info()).events)
        (work / "new").unlink(missing_ok=True)
        (work / "a.txt").write_bytes(b"two\n")


async def test_ignored_and_secret_files_are_left_where_they_are(thread: Thread, work: Path) -> None:
    """They are not recorded, not removed and not replaced; patterns decide, and may take some in again."""
    hidden = [".env", "notes.log", "node_modules/x.js", ".git/config", "key.pem", "app.db"]
    for name in [*hidden, "secret.txt", "fixture.txt"]:
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(PASSWORD)
    space = Workspace(thread, work, ignore=["*.log", "!fixture.txt"])
    record = await space.record()
    assert ["a.txt", "fixture.txt", "image", "src/run.sh"] == sorted(record.written)
    assert [("secret.txt", "it contains a secret")] == [(one.path, one.why) for one in record.left_out]
    (work / "a.txt").write_bytes(b"two\n")
    await space.record()
    await space.restore(at=record.seq)
    assert {*hidden, "secret.txt"} <= tree(work).keys()
    assert not [r async for r in thread.events() if "node_modules" in str(r.event) or ".git" in str(r.event)]


async def test_what_is_written_meanwhile_is_kept(thread: Thread, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has the file open and writes to it, between the check and the move: the bytes are found beside it."""
    space = Workspace(thread, work)
    await space.record()
    (work / "a.txt").write_bytes(b"two\n")
    await space.record()
    real = os.rename
    with (work / "a.txt").open("ab") as other:

        def late(*given: object, **more: object) -> None:
            other.write(b"and more")
            other.flush()
            real(*given, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "rename", late)
        done = await space.restore(at=1)
    assert b"one\n" == (work / "a.txt").read_bytes()
    assert [b"two\nand more"] == [(work / one).read_bytes() for one in done.kept]


@pytest.mark.parametrize("by", ["another content", "a link", "a folder", "nothing"])
async def test_a_file_replaced_after_the_plan_is_refused(thread: Thread, work: Path, by: str) -> None:
    """Between the plan and its turn: what is there now is not written to or followed, and nothing is left behind."""
    space = Workspace(thread, work)
    await space.record()
    (work / "a.txt").write_bytes(b"two\n")
    await space.record()
    outside = work.parent / "outside"
    outside.write_bytes(b"two\n")
    plan = await space._planned(1, imported=False)
    (work / "a.txt").unlink()
    if by == "another content":
        (work / "a.txt").write_bytes(b"late")
    elif by == "a link":
        (work / "a.txt").symlink_to(outside)
    elif by == "a folder":
        (work / "a.txt").mkdir()
    with pytest.raises(errors.WorkspaceChanged, match=r"a\.txt"):
        await asyncio.to_thread(plan.applied, space._folder)
    assert b"two\n" == outside.read_bytes()
    assert (by == "another content") == (tree(work).get("a.txt") == (b"late", False))
    assert not within(work, ".memory-engine-*")


# nothing outside


HOSTILE = [
    "../up", "/etc/x", "a/../../up", "a//b", "./a", "a/.", "", "..", "a\\b", "a\nb", "a\0b", "x" * 300, "a/" * 70 + "b",
    ".git/hooks/pre-commit", ".GIT/config", "sub/.git/config", ".g\u200cit/config", ".git ./config", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE)
async def test_a_hostile_path_is_never_written(thread: Thread, work: Path, path: str) -> None:
    """Neither where it leads nor in the folder; the other files of the record are."""
    assert unsafe(path)
    if path == "\ud800":
        return  # no event can have it
    above = within(work.parent)
    await thread.dispatch(e.WorkspaceRecorded(changes=(change(path), change("good.txt"))))
    empty(work)
    done = await Workspace(thread, work).restore()
    assert (("good.txt",), [path]) == (done.written, [one.path for one in done.left_out])
    assert ["good.txt"] == sorted(tree(work))
    assert within(work.parent) - above == {work / "good.txt"}


@pytest.mark.parametrize("where", ["src", "src/deep", "a.txt"])
async def test_a_link_is_never_followed(thread: Thread, work: Path, where: str) -> None:
    """In place of a folder, of one within it or of the file: to write or to read, and what it leads to stays."""
    outside = work.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "victim").write_bytes(b"mine")
    path = "src/deep/victim" if where != "a.txt" else "a.txt"
    await thread.dispatch(e.WorkspaceRecorded(changes=(change(path),)))
    empty(work)
    (work / where).parent.mkdir(exist_ok=True)
    (work / where).symlink_to(outside / "victim" if where == "a.txt" else outside)
    with pytest.raises(errors.WorkspaceChanged):
        await Workspace(thread, work).restore()
    with Workspace(thread, work)._folder.opened() as opened, pytest.raises(errors.WorkspaceChanged):
        opened.write(path, b"x", executable=False, instead_of="")
    assert {"victim": (b"mine", False)} == tree(outside)
    record = await Workspace(thread, work).record()
    assert [(where, "it is a link")] == [(one.path, one.why) for one in record.left_out]
    assert () == record.written


async def test_pipes_sockets_and_devices_are_left_out(
    thread: Thread, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the other end, also of one that takes a file's place after it was recorded."""
    os.mkfifo(work / "pipe")
    (work / "a.txt").unlink()
    os.mkfifo(work / "a.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(work)  # a socket's path is short
        listener.bind("socket")
        record = await Workspace(thread, work).record()
    assert ["a.txt", "pipe", "socket"] == [one.path for one in record.left_out]


async def test_a_hard_link_is_replaced_and_not_written_through(thread: Thread, work: Path) -> None:
    """The file outside that it shares its bytes with stays."""
    space = Workspace(thread, work)
    await space.record()
    outside = work.parent / "outside"
    outside.write_bytes(b"two\n")
    (work / "a.txt").unlink()
    (work / "a.txt").hardlink_to(outside)
    await space.record()
    await space.restore(at=1)
    assert (b"one\n", b"two\n") == ((work / "a.txt").read_bytes(), outside.read_bytes())


async def test_names_that_a_file_system_takes_for_one_do_not_overwrite_each_other(thread: Thread, work: Path) -> None:
    """Where the second name is taken by the first, as without letter case, it is refused."""
    with Workspace(thread, work)._folder.opened() as opened:
        opened.write("New.txt", b"1", executable=False, instead_of="")
        with pytest.raises(errors.WorkspaceChanged):
            opened.write("New.txt", b"2", executable=False, instead_of="")
    assert b"1" == (work / "New.txt").read_bytes()


async def test_a_content_that_is_not_what_its_digest_says_is_not_written(thread: Thread, work: Path) -> None:
    """Nor does it count as kept: a log that claims to hold a file's bytes cannot have the file removed."""
    digest = hashlib.sha256(b"one\n").hexdigest()
    lie = e.WorkspaceChange(path="a.txt", digest=digest, size=3, text="bad")
    await thread.dispatch(e.WorkspaceRecorded(changes=(lie,)))
    await thread.dispatch(e.WorkspaceRecorded(changes=(e.WorkspaceChange(path="a.txt"),)))
    with pytest.raises(errors.WorkspaceChanged, match=r"a\.txt"):
        await Workspace(thread, work).restore()
    (work / "a.txt").unlink()
    done = await Workspace(thread, work).restore(at=(await thread.info()).events - 1, dry_run=True)
    assert [("a.txt", "its content was forgotten")] == [(one.path, one.why) for one in done.left_out]


async def test_a_strangers_log_is_written_with_consent_only(engine: Engine, work: Path, tmp_path: Path) -> None:
    """An imported thread and a fork of it: looking is free."""
    thread = await engine.create_thread("mine")
    await Workspace(thread, work).record()
    await thread.replay.export(tmp_path / "log.jsonl")
    await engine.transfer.import_log(tmp_path / "log.jsonl", thread_id="theirs")
    fork = await engine.thread("theirs").fork()
    target = tmp_path / "target"
    target.mkdir()
    for one in (engine.thread("theirs"), fork):
        space = Workspace(one, target)
        assert ["a.txt", "image", "src/run.sh"] == [file.path for file in await space.files()]
        with pytest.raises(errors.ImportedWorkspace):
            await space.restore()
        assert {} == tree(target)
    await Workspace(fork, target).restore(imported=True)
    assert tree(work) == tree(target)


# forgetting, erasing, tenants


async def test_an_erased_content_is_in_no_byte_and_not_restored(tmp_path: Path, work: Path) -> None:
    """The proof holds, later records that refer to it show the file no more, and a text in bytes is found too."""
    path, needle = tmp_path / "log.db", "the treasure is under the old oak tree"
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        space = Workspace(thread, work)
        await space.record()
        (work / "map.txt").write_text(needle)
        (work / "map.bin").write_bytes(b"\xff\xfe\xfd" + needle.encode())
        told = await space.record()
        (work / "copy.txt").write_text(needle)
        await space.record()
        report = await thread.admin.erase(seqs=[told.seq])
        assert report.proof is not None
        assert report.proof.ok
        assert ["a.txt", "image", "src/run.sh"] == [one.path for one in await space.files()]
        assert await space.read("map.txt") is None
        assert (await thread.replay.verify()).ok
        await thread.replay.rebuild()
        assert ["a.txt", "image", "src/run.sh"] == [one.path for one in await space.files()]
    assert needle.encode() not in b"".join(one.read_bytes() for one in within(tmp_path, "log.db*"))


async def test_a_file_that_quotes_an_erased_message_goes_with_it(tmp_path: Path, work: Path) -> None:
    """In text and in bytes; the other files of the record stay."""
    path, needle = tmp_path / "log.db", "my account at the bank is overdrawn by nine"
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        said = await thread.dispatch(UserMessage(content=needle))
        (work / "notes.md").write_text(f"# Notes\n{needle}\n")
        (work / "notes.bin").write_bytes(b"\xff" + needle.encode())
        space = Workspace(thread, work)
        await space.record()
        report = await thread.admin.erase(seqs=[said.seq])
        assert report.proof is not None
        assert report.proof.ok
        assert ["a.txt", "image", "src/run.sh"] == [one.path for one in await space.files()]
        assert (await thread.replay.verify()).ok
    assert needle.encode() not in path.read_bytes()


async def test_tenants_share_no_content(tmp_path: Path, work: Path) -> None:
    """Each log holds its own, so that the deletion of one takes nothing from the other."""
    path = tmp_path / "log.db"
    async with memory_engine.open(path) as engine:
        threads = [await engine.create_thread(f"t-{tenant}", tenant_id=tenant) for tenant in ("acme", "evil")]
        for thread in threads:
            assert {"a.txt", "image", "src/run.sh"} == {*(await Workspace(thread, work).record()).written}
        await threads[0].admin.delete()
        target = tmp_path / "target"
        target.mkdir()
        await Workspace(threads[1], target).restore()
        assert tree(work) == tree(target)


# limits


async def test_too_many_files_record_nothing(thread: Thread, work: Path) -> None:
    """Nor does too much content; a single large file is left out, and named."""
    for limits in (WorkspaceLimits(files=3), WorkspaceLimits(new_bytes=9)):
        with pytest.raises(errors.WorkspaceTooLarge, match="nothing was recorded"):
            await Workspace(thread, work, limits=limits).record()
    assert 0 == (await thread.info()).events
    record = await Workspace(thread, work, limits=WorkspaceLimits(file_bytes=5)).record()
    assert ["src/run.sh"] == [one.path for one in record.left_out]


async def test_an_event_never_grows_beyond_its_limit(tmp_path: Path, work: Path) -> None:
    """However the engine is configured: more events, or one file that does not fit, which is named."""
    (work / "b").write_bytes(b'"' * 5_000)
    (work / "c").write_bytes(b"'" * 9_000)
    async with memory_engine.open(tmp_path / "a.db", config=EngineConfig(event_bytes_max=16_384)) as engine:
        space = Workspace(await engine.create_thread("t"), work)
        assert 2 == (await space.record()).seq
        (work / "d").write_bytes(b'"' * 9_000)
        with pytest.raises(errors.WorkspaceTooLarge, match="'d'"):
            await space.record()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_an_unreadable_file_is_left_out(thread: Thread, work: Path) -> None:
    """And so is an unreadable folder; neither is touched by a restore."""
    space = Workspace(thread, work)
    await space.record()
    (work / "a.txt").chmod(0)
    (work / "src").chmod(0)
    try:
        record = await space.record()
        assert ["a.txt", "src"] == sorted(one.path for one in record.left_out)
        with pytest.raises(errors.WorkspaceChanged):
            await space.restore(at=1)
    finally:
        (work / "a.txt").chmod(0o644)
        (work / "src").chmod(0o755)


async def test_a_file_that_keeps_changing_is_left_out(
    thread: Thread, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half of one content and half of another is recorded."""
    real = os.read

    def growing(file: int, size: int) -> bytes:
        found = real(file, size)
        if b"one" in found:
            with (work / "a.txt").open("ab") as other:
                other.write(b"x")
        return found

    monkeypatch.setattr(os, "read", growing)
    record = await Workspace(thread, work).record()
    assert [("a.txt", "it changes while it is read")] == [(one.path, one.why) for one in record.left_out]
