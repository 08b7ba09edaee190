"""`engine.copy_to` and `memory-engine copy`: a whole store into another one, with the same ids and hashes."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, InitialChunk, LlmTextResponse, RetentionRule, UserMessage
from memory_engine.core.threads import CompactionPolicy, Head, LiveChunk, ThreadRecord
from memory_engine.engine import kernel_of
from memory_engine.errors import CopyRefused, InvalidArgument, ReadOnly, StorageFailed
from memory_engine.storage.memory import MemoryStore
from memory_engine.store.acts import Act
from memory_engine.store.protocol import CommitUnit, ProjectionChange
from memory_engine.testing import FaultyStore
from tests.command_line import Run
from tests.conversations import SMALL, log, turns
from tests.postgres_server import new_url

READS = EngineConfig(read_only=True)


async def fill(engine: Engine) -> None:
    """A store with everything that a copy has to bring."""
    talk = await engine.create_thread(
        "talk",
        user_id="u",
        tenant_id="t",
        metadata={"k": "v"},
        policy=SMALL,
        initial_chunks=[InitialChunk("Be brief.")],
    )
    for event in turns(9):
        await talk.dispatch(event)
        await talk.compaction.settle()
    await talk.scratchpad.write("Revenue dips every Sunday")
    fork = await talk.fork(5, thread_id="fork")
    await fork.dispatch(UserMessage(content="another way"))
    again = await fork.fork(thread_id="fork of the fork")
    await again.dispatch(UserMessage(content="and another"))
    await engine.user("u", tenant_id="t").preferences.update("verbosity", "concise")
    ids = [recorded.id for recorded in await log(talk)]
    await talk.forget(event_ids=ids[3:4])
    gone = await engine.create_thread("gone")
    await gone.dispatch(UserMessage(content="bye"))
    await gone.admin.delete(by="ines")
    shut = await engine.create_thread("shut")
    await shut.dispatch(UserMessage(content="done"))
    await shut.admin.archive()
    erased = await engine.create_thread("erased")
    await erased.dispatch_all([UserMessage(content=text) for text in ("keep", "my secret", "keep too")])
    await erased.admin.erase(seqs=[2], by="ines", reason="asked")
    paused = await engine.create_thread("paused")
    await paused.admin.pause("lunch")
    await engine.create_thread("empty", kind="task")
    await shut.admin.hold(by="lawyer", reason="case 7")
    await engine.settle()


async def contents(engine: Engine) -> object:
    """What two stores that are alike have alike: threads, logs, states, contexts, acts and ids that are taken."""
    threads = await engine.threads()
    return (
        [info.as_data() for info in threads],
        {info.id: await log(engine.thread(info.id)) for info in threads},
        {info.id: list((await engine.thread(info.id).state()).chunks()) for info in threads},
        {info.id: (await engine.thread(info.id).context()).messages for info in threads},
        list(await engine.admin.acts()),
        await engine.admin.holds(),
        sorted(await kernel_of(engine).store.taken()),
        await engine.user("u", tenant_id="t").preferences.all(),
    )


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of a new store."""
    if request.param == "postgres":
        return new_url()
    return str(tmp_path / "target.db") if request.param == "sqlite" else ":memory:"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a full store, which no test changes."""
    path = tmp_path_factory.mktemp("filled") / "source.db"

    async def make() -> None:
        async with memory_engine.open(path) as engine:
            await fill(engine)

    anyio.run(make)
    return path


@pytest.fixture
def source(tmp_path: Path, filled: Path) -> str:
    """The path of a full store."""
    return str(shutil.copy2(filled, tmp_path / "source.db"))


def bytes_of(*files: Path) -> bytes:
    """All that these files hold."""
    return b"".join(file.read_bytes() for file in files if file.is_file())


def beside(path: str) -> list[Path]:
    """A store's files."""
    return sorted(Path(path).parent.glob(f"{Path(path).name}*"))


def beyond_progress(err: str) -> list[str]:
    """What is said on the standard error but for progress, which is told where a copy takes a second."""
    return [line for line in err.splitlines() if not line.startswith(("copying: ", "verifying: "))]


async def test_all_of_a_store_is_copied(source: str, target: str) -> None:
    """Threads with what they are, logs, states, contexts, views, acts, holds; and the source stays as it was."""
    before = bytes_of(Path(source))
    progress: list[tuple[str, int, int]] = []
    async with memory_engine.open(source, config=READS) as here, memory_engine.open(target) as there:
        report = await here.copy_to(there, progress=lambda *told: progress.append(told))
        total = sum(info.events for info in await here.threads())
        assert (True, 8, total, 0, 1) == (report.ok, report.threads, report.events, report.known, report.deleted)
        assert ({}, ()) == (report.failed, report.diverged)
        assert ("copying", 8, total) == [told for told in progress if told[0] == "copying"][-1]
        assert ("verifying", 8, total) == progress[-1]
        assert await contents(here) == await contents(there)
        assert all(one.ok for one in await there.verify())
        assert ["gone"] == list(await kernel_of(there).store.taken())
    assert before == bytes_of(Path(source))


async def test_a_memory_store_is_copied_into_a_file(tmp_path: Path) -> None:
    """The other way round."""
    path = str(tmp_path / "target.db")
    async with memory_engine.open(":memory:") as here, memory_engine.open(path) as there:
        await fill(here)
        assert (await here.copy_to(there)).ok
        assert await contents(here) == await contents(there)


async def test_a_copy_goes_on_with_what_is_new(source: str, target: str) -> None:
    """A second one brings nothing, or what was said, archived, deleted and erased meanwhile."""
    async with memory_engine.open(source) as here, memory_engine.open(target) as there:
        first = await here.copy_to(there)
        again = await here.copy_to(there)
        assert (first.events, 0, first.threads) == (again.events, 0, again.known)
        await here.thread("talk").dispatch(LlmTextResponse(content="more"))
        await here.thread("empty").admin.archive()
        await (await here.create_thread("new")).dispatch(UserMessage(content="hello"))
        third = await here.copy_to(there)
        assert (True, 2, first.threads - 2) == (third.ok, third.added, third.known)
        assert await contents(here) == await contents(there)


class CutOff(FaultyStore):
    """A store that fails before its nth write."""

    left = 0

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            raise StorageFailed("target", "cut off")

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Count."""
        self._count()
        return super().commit(unit)

    async def create(
        self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk], *, origin: ThreadRecord | None = None
    ) -> None:
        """Count."""
        self._count()
        await super().create(record, head, live, origin=origin)

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Count."""
        self._count()
        await super().write_projection(thread_id, change, replace=replace)

    async def delete(self, thread_id: str) -> None:
        """Count."""
        self._count()
        await super().delete(thread_id)

    async def put_act(self, act: Act) -> None:
        """Count."""
        self._count()
        await super().put_act(act)


async def test_a_copy_that_was_cut_off_anywhere_is_simply_done_again() -> None:
    """Before any of its writes: what is there is a beginning, and the next copy ends right."""
    async with memory_engine.open(":memory:") as here:
        await fill(here)
        expected, cut = await contents(here), 1
        while cut:
            store = CutOff(MemoryStore())
            async with memory_engine.open(store) as there:
                store.left = cut
                with suppress(StorageFailed):
                    await here.copy_to(there)
                cut = cut + 3 if store.left <= 0 else 0
                store.left = 0
                assert (await here.copy_to(there)).ok
                assert expected == await contents(there)


async def test_what_was_erased_after_it_was_copied_is_erased_there_too(source: str, tmp_path: Path) -> None:
    """No byte of it is left in the target's files."""
    target = str(tmp_path / "target.db")
    async with memory_engine.open(source) as here, memory_engine.open(target) as there:
        thread = await here.create_thread("late")
        await thread.dispatch_all([UserMessage(content=f"word {n}") for n in range(5)])
        await thread.dispatch(UserMessage(content="xylophonic"))
        await here.copy_to(there)
        await thread.admin.erase(seqs=[6])
        report = await here.copy_to(there)
        assert (True, await contents(here)) == (report.ok, await contents(there))
        assert all(one.ok for one in await there.verify())
    assert b"xylophonic" not in bytes_of(*beside(target))


async def test_what_a_retention_destroyed_is_destroyed_there_too(source: str, tmp_path: Path) -> None:
    """The retention comes along, with the acts that it was done by."""
    target = str(tmp_path / "target.db")
    async with memory_engine.open(source) as here, memory_engine.open(target) as there:
        thread = await here.create_thread("late", kind="notes")
        await thread.dispatch(UserMessage(content="xylophonic"))
        await here.copy_to(there)
        rule = RetentionRule(act="erase", kind="notes", older_than=timedelta(microseconds=1))
        await here.admin.retain([rule], by="the officer")
        report = await here.copy_to(there)
        assert report.ok
        assert [one.kind for one in await here.admin.acts()] == [one.kind for one in await there.acts()]
        assert {"retention", "erase"} <= {one.kind for one in await there.admin.acts()}
    assert b"xylophonic" not in bytes_of(*beside(target))


async def test_a_target_that_went_on_by_itself_stays_as_it_is(source: str, target: str) -> None:
    """It goes on from the source's logs; once both have gone on, they are two."""
    async with memory_engine.open(source) as here, memory_engine.open(target) as there:
        await here.copy_to(there)
        await there.thread("talk").dispatch(UserMessage(content="there"))
        assert (await here.copy_to(there)).ok
        assert "there" == (await there.thread("talk").replay.latest(1))[0].event.content  # type: ignore[union-attr]
        await here.thread("talk").dispatch(UserMessage(content="here"))
        with pytest.raises(CopyRefused, match="talk"):
            await here.copy_to(there)


async def test_a_copy_that_is_done_again_follows_what_has_changed(target: str, tmp_path: Path) -> None:
    """New metadata and policies, a thread that is archived no more, another thread of a deleted one's id."""
    path = str(tmp_path / "changing.db")
    async with memory_engine.open(path) as here, memory_engine.open(target) as there:
        kept = await here.create_thread("kept", metadata={"n": "1"})
        await kept.admin.archive()
        await (await here.create_thread("gone")).dispatch(UserMessage(content="first"))
        await here.thread("gone").admin.delete()
        await here.copy_to(there)
        assert ("archived", ["gone"]) == (
            (await there.thread("kept").info()).status,
            list(await kernel_of(there).store.taken()),
        )
        await kept.admin.unarchive()
        await kept.admin.update(metadata={"n": "2"}, policy=CompactionPolicy(threshold=9))
        await (await here.create_thread("gone")).dispatch(UserMessage(content="second"))
        assert (await here.copy_to(there)).ok
        assert await contents(here) == await contents(there)
        await kept.admin.archive()
        assert 1 == (await here.copy_to(there)).known
        assert "archived" == (await there.thread("kept").info()).status


async def test_a_target_with_other_threads_is_refused(source: str, target: str) -> None:
    """Another thread, another log under the same id, an id that was deleted there; nothing is written."""
    async with memory_engine.open(source, config=READS) as here:
        async with memory_engine.open(target) as there:
            await there.create_thread("theirs")
            with pytest.raises(CopyRefused, match="theirs"):
                await here.copy_to(there)
            assert ["theirs"] == [info.id for info in await there.threads()]
        for name in ("shut", "fork"):
            async with memory_engine.open(":memory:") as there:
                await (await there.create_thread(name)).dispatch(UserMessage(content="mine"))
                with pytest.raises(CopyRefused, match=name):
                    await here.copy_to(there)
        async with memory_engine.open(":memory:") as there:
            await (await there.create_thread("talk")).admin.delete()
            with pytest.raises(CopyRefused, match="it was deleted there"):
                await here.copy_to(there)


async def test_what_cannot_be_copied_to_is_refused(source: str, tmp_path: Path) -> None:
    """An engine that only reads, and what is not an engine."""
    async with memory_engine.open(source, config=READS) as here:
        with pytest.raises(ReadOnly):
            await here.copy_to(here)
        with pytest.raises(InvalidArgument):
            await here.copy_to(str(tmp_path / "target.db"))  # type: ignore[arg-type]


async def damage(source: str, thread_id: str, seq: int) -> None:
    """Exchange the texts of an event behind the store's back."""
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("DROP TRIGGER events_are_immutable")
        [tid] = raw.execute("SELECT tid FROM threads WHERE id = ?", (thread_id,)).fetchone()
        changed = raw.execute(
            "UPDATE events SET payload = CAST(replace(payload, 'word', 'W0RD') AS BLOB) WHERE pos = ?",
            (tid << 32 | seq,),
        )
        assert 1 == changed.rowcount


async def test_a_damaged_thread_is_named_and_the_others_are_copied(source: str, target: str) -> None:
    """And those forks of it that do not share the damage; what there is of it takes no events at the target."""
    await damage(source, "talk", 7)
    async with memory_engine.open(source, config=READS) as here, memory_engine.open(target) as there:
        report = await here.copy_to(there)
        assert (False, ["talk"]) == (report.ok, list(report.failed))
        assert "7" in report.failed["talk"]
        assert 7 == report.threads
        others = [info.id for info in await here.threads() if info.id != "talk"]
        assert [await log(here.thread(one)) for one in others] == [await log(there.thread(one)) for one in others]
        with pytest.raises(memory_engine.errors.IntegrityError):
            await there.thread("talk").dispatch(UserMessage(content="more"))


async def test_once_the_damage_is_mended_the_copy_is_made_whole(source: str, target: str, tmp_path: Path) -> None:
    """By copying again from a store that is whole."""
    whole = tmp_path / "whole.db"
    async with memory_engine.open(source, config=READS) as engine:
        await engine.admin.backup(whole)
    await damage(source, "talk", 7)
    async with memory_engine.open(target) as there:
        async with memory_engine.open(source, config=READS) as here:
            assert not (await here.copy_to(there)).ok
        async with memory_engine.open(str(whole), config=READS) as here:
            assert (await here.copy_to(there)).ok
            assert await contents(here) == await contents(there)
        await there.thread("talk").dispatch(UserMessage(content="more"))


async def test_many_events_go_over_in_batches(tmp_path: Path) -> None:
    """Each commit holds a page; what is imported is known as such there too."""
    folder = tmp_path / "talk.jsonl"
    quiet = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=quiet) as first:
        thread = await first.create_thread("many")
        await thread.dispatch_all([UserMessage(content=f"{n}") for n in range(1_300)])
        await thread.replay.export(folder)
    async with memory_engine.open(":memory:") as here, memory_engine.open(str(tmp_path / "target.db")) as there:
        await here.transfer.import_log(folder, scopes="as exported")
        report = await here.copy_to(there)
        assert (True, 1_300) == (report.ok, report.added)
        assert await log(here.thread("many")) == await log(there.thread("many"))
        rows = [await kernel_of(engine).store.rows("imported", 1, "many") for engine in (here, there)]
        assert rows[0] == rows[1]
        assert rows[0][1]


def test_the_command_copies_and_says_so(run: Run, tmp_path: Path, source: str) -> None:
    """In a line, or as JSON; again it adds nothing."""
    target = str(tmp_path / "target.db")
    code, out, err = run("copy", source, target)
    assert (0, [], 1) == (code, beyond_progress(err), out.count("\n"))
    assert f"{source} → {target}: 8 threads" in out
    code, out, _ = run("copy", source, target, "--json")
    found = json.loads(out)
    assert (0, 8, 0, 8, {}, []) == (
        code,
        *(found[name] for name in ("threads", "added", "known", "failed", "diverged")),
    )
    assert run("anchors", "--db", source)[1] == run("anchors", "--db", target)[1]


def test_the_command_names_what_it_could_not_copy(run: Run, tmp_path: Path, source: str) -> None:
    """Exit code 1; wrong words are refused with 2, and make no file."""
    anyio.run(damage, source, "talk", 7)
    code, out, _ = run("copy", source, str(tmp_path / "target.db"))
    assert (1, True) == (code, "'talk' is not whole there" in out)
    for words in ((source, source), (source, ":memory:"), (str(tmp_path / "none.db"), str(tmp_path / "new.db"))):
        assert 2 == run("copy", *words)[0]
    assert not (tmp_path / "new.db").exists()


def test_a_backup_is_restored_to_a_server(run: Run, tmp_path: Path, source: str) -> None:
    """As a copy is: with the same ids and hashes, whole after a second try; a server is not backed up into a file."""
    backup, url = str(tmp_path / "nightly.db"), new_url()
    assert 0 == run("backup", backup, "--db", source)[0]
    code, out, err = run("restore", backup, url)
    assert (0, [], True) == (code, beyond_progress(err), out.startswith(f"{backup} → postgresql://"))
    assert 0 == json.loads(run("restore", backup, url, "--json")[1])["added"]
    assert run("anchors", "--db", source)[1] == run("anchors", "--db", url)[1]
    for words in (("restore", url, str(tmp_path / "new.db")), ("backup", str(tmp_path / "new.db"), "--db", url)):
        code, _, err = run(*words)
        assert (2, True) == (code, "memory-engine copy" in err)
    assert not (tmp_path / "new.db").exists()
