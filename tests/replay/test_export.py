"""Export and import: one file, and a thread of the same events, operations, hashes and views anywhere else."""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, EngineConfig, Event, Plugin, UserMessage
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import (
    ImportRefused,
    ReadOnly,
    SeqNotInLog,
    StorageBusy,
    ThreadExists,
    ThreadNotFound,
)
from memory_engine.projections.outbox import OUTBOX
from memory_engine.replay.export import importer
from memory_engine.replay.export.export import export
from memory_engine.replay.export.log_file import schema
from memory_engine.replay.export.redaction import Redaction
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.threads import OpenThreads
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.thread import handle_of
from tests.engine.test_laws import LOGS
from tests.exports import NEVER, TALK, files_in, lines_of, read, rows, shown, talk
from tests.staying import StayOpen

# there and back


async def test_X6_an_export_is_imported_elsewhere_with_the_same_hashes(tmp_path: Path, where: str) -> None:
    """Rows come out byte for byte; state, views, scopes and head are the source's, and the log verifies."""
    path = tmp_path / "t.jsonl.gz"
    async with memory_engine.open(str(tmp_path / "source.db")) as source:
        thread = await talk(source)
        exported = await thread.replay.export(path)
        expected = await rows(source, "t"), await shown(thread), await thread.info()
    async with memory_engine.open(where) as engine:
        report = await engine.transfer.import_log(path, scopes="as exported")
        imported = engine.thread("t")
        assert expected == (await rows(engine, "t"), await shown(imported), await imported.info())
        assert (await imported.replay.verify()).ok
        assert (exported.head_hash, len(TALK), len(TALK)) == (report.head_hash, report.events, report.added)
        receipt = await imported.dispatch(UserMessage(content="And on it goes."))
        assert len(TALK) + 1 == receipt.seq


@settings(max_examples=25)
@given(LOGS, st.integers(0, 14))
@example([UserMessage(content=""), e.MemoryForget(chunk_ids=("1.0",))], 1)
async def test_every_log_comes_back_as_it_was(log: list[Event], upto: int) -> None:
    """Whatever was dispatched, and wherever the export ends: the same rows, and the state as it was then.

    What a later event forgets is in an export that ends before it: only the thread itself hides it at every moment.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        async with memory_engine.open(":memory:", config=NEVER) as source:
            thread = await source.create_thread("t")
            await thread.dispatch_all(log[:upto])
            placed = list((await thread.state()).placed())
            await thread.dispatch_all(log[upto:])
            upto = min(upto, len(log))
            await thread.replay.export(path, upto=upto)
            expected = (await rows(source, "t"))[:upto], placed
        async with memory_engine.open(":memory:", config=NEVER) as engine:
            await engine.transfer.import_log(path, scopes="as exported")
            state = await engine.thread("t").state()
            assert expected == (await rows(engine, "t"), list(state.placed()))
            assert [] == [report for report in await engine.verify() if not report.ok]


async def test_an_imported_log_exports_to_the_same_bytes(file: Path, tmp_path: Path) -> None:
    """Nothing is added or lost on the way, and a second export is the first."""
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(file, scopes="as exported")
        await engine.thread("t").replay.export(tmp_path / "again.jsonl")
    assert lines_of(file) == lines_of(tmp_path / "again.jsonl")


async def test_a_compressed_export_is_the_same_each_time(tmp_path: Path) -> None:
    """Neither the time nor the name is in it; what is compressed is seen from its bytes, not its name."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine)
        await thread.replay.export(tmp_path / "one.jsonl.gz")
        await export(handle_of(thread), tmp_path / "two", compress=True)
        await engine.transfer.import_log(tmp_path / "two", thread_id="copy", scopes="as exported")
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two").read_bytes()


async def test_a_fork_is_exported_with_its_whole_past(tmp_path: Path) -> None:
    """The file stands alone: the same hashes, though nothing of the thread it was forked from is there."""
    path = tmp_path / "fork.jsonl"
    async with memory_engine.open(str(tmp_path / "source.db")) as source:
        fork = await (await talk(source)).fork(4, thread_id="fork")
        await fork.dispatch(UserMessage(content="another way"))
        await fork.replay.export(path)
        expected = await rows(source, "fork"), await shown(fork)
    assert {"thread_id": "t", "seq": 4} == read(path)[0]["thread"]["forked_from"]  # type: ignore[index]
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(path, scopes="as exported")
        imported = engine.thread("fork")
        assert expected == (await rows(engine, "fork"), await shown(imported))
        assert ((await imported.info()).forked_from, True) == (None, (await imported.replay.verify()).ok)


async def test_a_large_payload_stands_whole_in_the_file(tmp_path: Path) -> None:
    """What a store keeps apart is in its event's line, and is kept apart again."""
    path, text = tmp_path / "large.jsonl", "a long result " * 20_000
    async with memory_engine.open(str(tmp_path / "source.db"), config=NEVER) as source:
        thread = await source.create_thread("t")
        await thread.dispatch(UserMessage(content=text))
        await thread.replay.export(path)
    async with memory_engine.open(str(tmp_path / "other.db"), config=NEVER) as engine:
        await engine.transfer.import_log(path, scopes="as exported")
        assert text == (await engine.thread("t").replay.chunk("1.0")).content
        assert (await engine.thread("t").replay.verify()).ok


async def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    """A thread to which nothing was said comes back as one."""
    async with memory_engine.open(":memory:") as source:
        report = await (await source.create_thread("t", kind="agent")).replay.export(tmp_path / "empty.jsonl")
    assert (0, "") == (report.events, report.head_hash)
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(tmp_path / "empty.jsonl", scopes="as exported")
        assert ("agent", 0) == ((await engine.thread("t").info()).kind, (await engine.thread("t").info()).events)


async def test_progress_hears_of_every_event(file: Path, tmp_path: Path) -> None:
    """An export counts up to the last event; an import does so twice, checking and writing."""
    heard: list[int] = []
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(file, progress=heard.append, scopes="as exported")
        assert [len(TALK), len(TALK)] == heard
        heard.clear()
        await engine.thread("t").replay.export(tmp_path / "again.jsonl", progress=heard.append)
        assert [len(TALK)] == heard


# the file


async def test_every_line_fits_the_schema(tmp_path: Path) -> None:
    """Header, events and end, plain and redacted, are just one of the kinds that the schema knows."""
    validator = jsonschema.Draft202012Validator(schema())
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine)
        await thread.replay.export(tmp_path / "plain.jsonl")
        await thread.replay.export(
            tmp_path / "redacted.jsonl", redaction=Redaction(types=["user_message"], patterns=["blue"])
        )
    for name in ("plain", "redacted"):
        for line in read(tmp_path / f"{name}.jsonl"):
            validator.validate(line)


async def test_a_file_that_is_there_is_not_written_over(file: Path) -> None:
    """Unless that is asked for; and what is no file, never."""
    before = lines_of(file)
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("other")
        with pytest.raises(FileExistsError):
            await thread.replay.export(file)
        with pytest.raises(FileExistsError):
            await export(handle_of(thread), file.parent, force=True)
        assert before == lines_of(file)
        await export(handle_of(thread), file, force=True)
        assert 2 == len(lines_of(file))


async def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """No half of a file, neither under its name nor beside it."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine)
        with pytest.raises(SeqNotInLog):
            await thread.replay.export(tmp_path / "t.jsonl", upto=99)
        with pytest.raises(ThreadNotFound):
            await engine.thread("nobody").replay.export(tmp_path / "t.jsonl")

        def stop(_events: int) -> None:
            raise KeyError("enough")

        with pytest.raises(KeyError):
            await thread.replay.export(tmp_path / "t.jsonl", progress=stop)
    assert [] == files_in(tmp_path)


async def test_a_beginning_can_be_exported(tmp_path: Path) -> None:
    """Up to a moment: the head is the event there."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine)
        stored = await rows(engine, "t")
        report = await thread.replay.export(tmp_path / "t.jsonl", upto=stored[3].id)
        assert (4, stored[3].hash.hex()) == (report.events, report.head_hash)
        assert 6 == len(lines_of(tmp_path / "t.jsonl"))


async def test_a_broken_log_can_be_exported_and_says_so(tmp_path: Path) -> None:
    """What the log says is in the file; that no import will take it is in the report."""
    db, path = str(tmp_path / "t.db"), tmp_path / "t.jsonl"
    async with memory_engine.open(db) as engine:
        await talk(engine)
    raw = sqlite3.connect(db)
    raw.execute("DROP TRIGGER events_are_immutable")
    raw.execute("""UPDATE events SET payload = CAST('{"content":"red"}' AS BLOB) WHERE pos & 4294967295 = 2""")
    raw.commit()
    raw.close()
    async with memory_engine.open(db, config=EngineConfig(read_only=True)) as engine:
        assert 2 == (await engine.thread("t").replay.export(path)).broken_at
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(ImportRefused, match="line 3: its hash is not that of what it says"):
            await engine.transfer.import_log(path, scopes="as exported")


# threads that are there


async def test_an_import_goes_on_from_where_one_stopped(tmp_path: Path, where: str) -> None:
    """A thread that holds a beginning gets the rest; one that holds all, or more, gets nothing."""
    async with memory_engine.open(":memory:") as source:
        thread = await talk(source)
        await thread.replay.export(tmp_path / "part.jsonl", upto=4)
        await thread.replay.export(tmp_path / "whole.jsonl")
        expected = await shown(thread)
    async with memory_engine.open(where) as engine:
        assert 4 == (await engine.transfer.import_log(tmp_path / "part.jsonl", scopes="as exported")).added
        imported = engine.thread("t")
        await shown(imported)
        assert 5 == (await engine.transfer.import_log(tmp_path / "whole.jsonl", scopes="as exported")).added
        assert expected == await shown(imported)
        for name in ("part", "whole"):
            assert 0 == (await engine.transfer.import_log(tmp_path / f"{name}.jsonl", scopes="as exported")).added
        assert (await imported.replay.verify()).ok


async def test_an_import_that_died_leaves_a_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stay_open: StayOpen
) -> None:
    """After each commit the thread holds a log that verifies; the next import writes the rest."""
    monkeypatch.setattr(importer, "EVENTS_MAX", 2)
    kept = MemoryStore()
    async with memory_engine.open(":memory:") as source:
        await (await talk(source)).replay.export(tmp_path / "t.jsonl")
    for commit in (1, 3, 5):
        store = FaultyStore(kept)
        stay_open(store)
        async with memory_engine.open(store) as engine:
            store.fail(StorageBusy("it died here", 0.0), commit=commit)
            with pytest.raises(StorageBusy):
                await engine.transfer.import_log(tmp_path / "t.jsonl", thread_id=f"t{commit}", scopes="as exported")
            thread = engine.thread(f"t{commit}")
            assert ((commit - 1) * 2, True) == ((await thread.info()).events, (await thread.replay.verify()).ok)
            again = await engine.transfer.import_log(tmp_path / "t.jsonl", thread_id=thread.id, scopes="as exported")
            assert (len(TALK) - (commit - 1) * 2, True) == (again.added, (await thread.replay.verify()).ok)


async def test_another_log_under_the_id_is_left_alone(file: Path) -> None:
    """A thread of other events, one that went another way, and a deleted one's id."""
    async with memory_engine.open(":memory:") as engine:
        await talk(engine)
        with pytest.raises(ThreadExists):
            await engine.transfer.import_log(file, scopes="as exported")
        await engine.transfer.import_log(file, thread_id="copy", scopes="as exported")
        fork = await engine.thread("copy").fork(5, thread_id="fork")
        await fork.dispatch(UserMessage(content="another way"))
        with pytest.raises(ThreadExists):
            await engine.transfer.import_log(file, thread_id="fork", scopes="as exported")
        await engine.thread("t").admin.delete()
        with pytest.raises(ThreadExists):
            await engine.transfer.import_log(file, scopes="as exported")
        assert len(TALK) == (await engine.thread("copy").info()).events


async def test_a_thread_at_work_takes_the_rest_between_its_events(tmp_path: Path) -> None:
    """What it holds in memory follows, and who waits for it goes on from there."""
    async with memory_engine.open(":memory:") as source:
        thread = await talk(source)
        await thread.replay.export(tmp_path / "part.jsonl", upto=4)
        await thread.replay.export(tmp_path / "whole.jsonl")
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(tmp_path / "part.jsonl", scopes="as exported")
        runtime = await kernel_of(engine)[OpenThreads].open("t")
        runtime.queue.block(BlockingReason.COMPACTING)
        waiting = asyncio.ensure_future(engine.thread("t").dispatch(UserMessage(content="I wait.")))
        await asyncio.sleep(0)
        assert 5 == (await engine.transfer.import_log(tmp_path / "whole.jsonl", scopes="as exported")).added
        assert len(TALK) == runtime.head.seq
        runtime.unblock(BlockingReason.COMPACTING)
        assert len(TALK) + 1 == (await waiting).seq
        assert (await engine.thread("t").replay.verify()).ok


# what a log leaves open


async def test_an_unfinished_compaction_is_not_ended_by_who_imports_it(tmp_path: Path) -> None:
    """It is at work where the log is from: opening the copy records nothing, and the copy goes on."""
    started = e.CompactionStarted(
        compaction_id="k", trigger="auto", chunk_ids=(), compactor="c", owner="host/1/1", deadline_us=1
    )
    async with memory_engine.open(":memory:", config=NEVER) as source:
        thread = await source.create_thread("t")
        await thread.dispatch_all([UserMessage(content="Hello"), started])
        head = (await thread.replay.export(tmp_path / "t.jsonl")).head_hash
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(tmp_path / "t.jsonl", scopes="as exported")
        imported = engine.thread("t")
        await imported.state()
        assert head == (await imported.info()).head_hash
        assert 3 == (await imported.dispatch(UserMessage(content="Hello?"))).seq
        assert (await imported.replay.verify()).ok


async def test_a_pause_holds_where_it_is_imported(tmp_path: Path) -> None:
    """A thread that waits for a person waits there too."""
    async with memory_engine.open(":memory:") as source:
        thread = await talk(source)
        await thread.admin.pause()
        await thread.replay.export(tmp_path / "t.jsonl")
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(tmp_path / "t.jsonl", scopes="as exported")
        assert BlockingReason.PAUSED is await engine.thread("t").admin.blocking_reason()
        await engine.thread("t").admin.resume()
        assert len(TALK) + 3 == (await engine.thread("t").dispatch(UserMessage(content="On."))).seq


shop = Plugin("shop")


@shop.event("order_cancelled", version=3)
class OrderCancelled(Event):
    """An event of somebody's own."""

    order: str


async def test_events_that_are_not_known_here_survive(tmp_path: Path) -> None:
    """Type, version and bytes: exported again, they are read where they are known."""
    async with memory_engine.open(":memory:", plugins=[shop]) as source:
        thread = await source.create_thread("t")
        await thread.dispatch_all([UserMessage(content="Stop!"), OrderCancelled(order="A-7")])
        await thread.replay.export(tmp_path / "t.jsonl")
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(tmp_path / "t.jsonl", scopes="as exported")
        await engine.thread("t").replay.export(tmp_path / "again.jsonl")
    async with memory_engine.open(":memory:", plugins=[shop]) as back:
        await back.transfer.import_log(tmp_path / "again.jsonl", scopes="as exported")
        events = [recorded.event async for recorded in back.thread("t").events()]
        assert ([UserMessage(content="Stop!"), OrderCancelled(order="A-7")], True) == (
            events,
            (await back.thread("t").replay.verify()).ok,
        )


# facts for others


def shared(content: str) -> e.MemoryShared:
    """A fact for an agent."""
    return e.MemoryShared(destination=e.Destination("agent", "b"), layer="episodic", content=content)


async def arrived(engine: Engine) -> list[object]:
    """What came to the agent."""
    if "agent:b" not in [info.id for info in await engine.threads()]:
        return []
    return [getattr(one.event, "content", None) async for one in engine.agent("b").events()]


async def test_facts_of_an_imported_log_are_delivered_where_it_came_from(tmp_path: Path) -> None:
    """Neither those that have arrived there, nor one that still waits, reach anybody here; new ones do."""
    path, db = tmp_path / "t.jsonl", str(tmp_path / "other.db")
    async with memory_engine.open(":memory:") as source:
        thread = await source.create_thread("t")
        await thread.dispatch(shared("arrived"))
        await thread.views.delivered()
        await source.agent("b").admin.pause()
        await thread.dispatch(shared("waiting"))
        await thread.replay.export(path)
    for _ in range(2):  # the second time as the next process that opens the file
        async with memory_engine.open(db) as engine:
            await engine.transfer.import_log(path, scopes="as exported")
            await engine.thread("t").views.delivered()
            await (await engine.thread("t").fork()).views.delivered()
            await engine.thread("t").replay.rebuild()
            await engine.settle()
            assert [] == await arrived(engine)
            assert ["0000000003.0"] == [key for key, _ in (await engine.thread("t").views.rows(OUTBOX)).items()]
    async with memory_engine.open(db) as engine:
        await engine.thread("t").dispatch(shared("new"))
        await engine.thread("t").views.delivered()
        assert ["new"] == await arrived(engine)


async def test_an_engine_that_only_reads_exports_and_does_not_import(file: Path, tmp_path: Path) -> None:
    """A log can be carried away from a file that nobody may change."""
    db = str(tmp_path / "t.db")
    async with memory_engine.open(db) as engine:
        await talk(engine)
    async with memory_engine.open(db, config=EngineConfig(read_only=True)) as engine:
        await engine.thread("t").replay.export(tmp_path / "out.jsonl")
        with pytest.raises(ReadOnly):
            await engine.transfer.import_log(file, thread_id="copy", scopes="as exported")


async def test_search_finds_in_an_imported_log(file: Path) -> None:
    """A thread begins without an index, and one that has one follows what is imported."""
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(file, scopes="as exported")
        assert "blue" in (await engine.thread("t").search("which colour is the bike: blue?")).hits[0].text
