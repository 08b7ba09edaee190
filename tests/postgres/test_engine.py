"""An engine over PostgreSQL does what one over a file does, and their logs are the same bytes."""

import json
import os
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, ToolCall, UserMessage
from memory_engine import events as e
from memory_engine.administration.proof import find_texts
from memory_engine.engine import kernel_of
from memory_engine.errors import BackupFailed, LegalHold, ReadOnly, SchemaError, ThreadNotFound
from memory_engine.testing import FakeCompactor
from memory_engine.views.checkpoints.events import CheckpointSaved
from memory_engine.views.checkpoints.pieces import Packed, to_text
from tests.exports import TALK, lines_of, rows, shown, talk
from tests.golden_logs import DIGESTS, LOGS, digest_of, logs_in
from tests.postgres_server import new_url

RELEASE = max(path.name for path in LOGS.iterdir())
FEW = EngineConfig(compaction=CompactionPolicy(threshold=4, keep_recent=1, tokens_min=1))
LONG = "The bicycle of the neighbours is green and stands in the shed. " * 8


@pytest.mark.parametrize("path", logs_in(LOGS / RELEASE), ids=lambda path: path.name)
async def test_golden_logs_are_read_and_shown_as_from_a_file(url: str, path: Path, tmp_path: Path) -> None:
    """Hashes, state and views come out as they were written down, and the export is the file again."""
    expected = json.loads((LOGS / RELEASE / DIGESTS).read_text(encoding="utf-8"))[path.name]
    async with memory_engine.open(url) as engine:
        report = await engine.transfer.import_log(path, scopes="as exported")
        thread = engine.thread(report.thread_id)
        verified = await thread.replay.verify()
        assert (None, expected["redacted"]) == (verified.divergence, verified.redacted)
        found = await digest_of(engine, report.thread_id)
        await thread.replay.export(tmp_path / "again.jsonl")
    then, views = expected.pop("views"), found.pop("views")
    assert isinstance(views, dict)
    assert expected == {"redacted": report.redacted, **found}
    assert {name: then[name] for name in views if name in then} == {name: views[name] for name in views if name in then}
    assert lines_of(path)[1:-1] == lines_of(tmp_path / "again.jsonl")[1:-1]


@pytest.mark.parametrize("to_server", [True, False])
async def test_what_one_exports_the_other_imports(url: str, tmp_path: Path, *, to_server: bool) -> None:
    """From a file to a server and back: the same rows, hashes, states and views, and the thread goes on."""
    places = [str(tmp_path / "log.db"), url]
    source, target = places if to_server else places[::-1]
    path = tmp_path / "t.jsonl"
    async with memory_engine.open(source) as engine:
        thread = await talk(engine)
        await thread.replay.export(path)
        expected = await rows(engine, "t"), await shown(thread), await thread.info()
    async with memory_engine.open(target) as engine:
        await engine.transfer.import_log(path, scopes="as exported")
        thread = engine.thread("t")
        assert expected == (await rows(engine, "t"), await shown(thread), await thread.info())
        assert (await thread.replay.verify()).ok
        assert len(TALK) + 1 == (await thread.dispatch(UserMessage(content="And on it goes."))).seq


async def test_a_thread_lives_as_in_a_file(url: str) -> None:
    """Messages, context, views, a compaction, a fork, the past, a rebuild: and all of it after opening it again."""
    async with memory_engine.open(url, config=FEW, compactor=FakeCompactor("They have green bikes.")) as engine:
        thread = await talk(engine)
        await engine.user("ann").preferences.update("verbosity", "concise")
        await thread.dispatch_all([UserMessage(content=f"{LONG} {n}.") for n in range(8)])
        await thread.compaction.settle()
        compacted = [one async for one in thread.events() if one.type == "compaction_completed"]
        assert compacted
        fork = await thread.fork(at=5, thread_id="f")
        await fork.dispatch(UserMessage(content="Another way."))
        then = (await (await thread.at(2)).context()).messages
        assert ["Ann: My bike is blue."] == [one["content"] for one in then if one["role"] == "user"]
        assert (await thread.replay.verify()).ok
        assert (await fork.replay.verify()).ok
        state = await shown(thread)
        assert len([one async for one in thread.events()]) == (await thread.replay.rebuild()).events
        assert state == await shown(thread)
    async with memory_engine.open(url, config=FEW) as engine:
        assert state == await shown(engine.thread("t"))
        assert ["f", "t"] == sorted([one.id for one in await engine.threads(kind="conversation")])
        assert "concise" == (await engine.user("ann").preferences.get("verbosity"))


async def test_what_is_forgotten_erased_and_deleted_is_gone(url: str) -> None:
    """From views, from rows and from the search; the proof says what a client cannot look into."""
    async with memory_engine.open(url) as engine:
        thread = await talk(engine)
        secret = await thread.dispatch(UserMessage(content="The code of the shed is zanzibar."))
        assert "zanzibar" in (await thread.search("zanzibar shed"))[0].text
        await thread.forget(chunk_ids=[secret.chunks[0].id])
        assert not [hit for hit in await thread.search("zanzibar") if "zanzibar" in hit.text]
        report = await thread.admin.erase(seqs=[secret.seq], by="ann", reason="asked")
        assert report.proof is not None
        assert report.proof.ok
        assert "not the server's files" in report.proof.files[0]
        assert (await find_texts(kernel_of(engine), ["zanzibar"])).ok
        assert (await thread.replay.verify()).ok
        await thread.admin.hold(reason="a court")
        with pytest.raises(LegalHold):
            await thread.admin.delete()
        await thread.admin.release()
        await thread.admin.delete(by="ann", reason="asked")
        with pytest.raises(ThreadNotFound):
            await thread.info()
        assert (await find_texts(kernel_of(engine), ["bicycles"])).ok
        assert 0 == (await (await engine.open_thread("t")).info()).events


async def test_a_view_finds_rows_whose_keys_hold_anything(url: str) -> None:
    """A NUL, which PostgreSQL's text cannot hold, a key of 10 KB, and texts that differ in their last byte."""
    keys = ["a\0b", "a\0", "x" * 10_000, "x" * 9_999 + "y", "é" * 3_000]
    async with memory_engine.open(url) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(
            [e.MemoryAppended(layer="semantic", content=f"Fact {n}", key=key) for n, key in enumerate(keys)]
        )
        await thread.dispatch(UserMessage(content="With a \0 inside."))
        found = [await thread.memory.recall(key) for key in keys]
        assert [f"Fact {n}" for n in range(len(keys))] == [entry.value for entry in found if entry is not None]
        assert (await thread.replay.verify()).ok


async def test_a_store_that_is_only_read_refuses_writes(url: str) -> None:
    """It shows what is there, makes no schema, and writes nothing."""
    config = EngineConfig(read_only=True)
    with pytest.raises(SchemaError, match="open it once"):
        async with memory_engine.open(url, config=config):
            pass
    async with memory_engine.open(url) as engine:
        await talk(engine)
    async with memory_engine.open(url, config=config) as engine:
        past = await engine.thread("t").at(len(TALK))
        assert (await past.context()).messages
        with pytest.raises(ReadOnly):
            await engine.create_thread("u")


async def test_a_backup_names_the_tools_of_the_server(url: str, tmp_path: Path) -> None:
    """There is no file to copy."""
    async with memory_engine.open(url) as engine:
        with pytest.raises(BackupFailed, match="pg_dump"):
            await engine.admin.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_two_schemas_are_two_stores() -> None:
    """What one holds, the other does not see."""
    async with memory_engine.open(new_url()) as one, memory_engine.open(new_url()) as other:
        await talk(one)
        assert [] == list(await other.threads())
        await talk(other)
        assert (await one.thread("t").info()).events == (await other.thread("t").info()).events


async def test_a_proof_reads_what_rows_on_the_server_say(url: str) -> None:
    """Escaped, packed in a checkpoint, and in a large event, page after page."""
    async with memory_engine.open(url) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"hello {n}") for n in range(600)])
        call = ToolCall(id="c", name="save", arguments=json.dumps({"who": "Søren"}))
        await thread.dispatch(e.LlmToolCall(calls=(call,)))
        pieces = (to_text(b"Ten boxes for Aagot, and twelve boxes for somebody else."), to_text(os.urandom(300_000)))
        await thread.dispatch(CheckpointSaved(id="1", state=Packed("json", ("{}",)), pieces=pieces))
        proof = await find_texts(kernel_of(engine), ["Søren", "Aagot", "Kierkegaard"])
        places = {place.partition(": ")[::2] for place in proof.left}
        assert ("events.payload of thread t, event 601", "text 1") in places
        assert [("text 2", True)] == [(n, ", event 602, piece 0" in place) for place, n in places if n == "text 2"]
        assert "text 3" not in {n for _, n in places}
        assert 602 == proof.tables["events.payload"].values + proof.tables["blobs.body"].values
