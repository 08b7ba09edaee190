"""Acts that meet: one erases while another does, or has; a thread goes, and another comes by its id."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, NewEvent, RetentionRule, ThreadInfo, UserMessage
from memory_engine.administration.erasing import ErasurePlan, ErasureReport
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, LiveChunk, ThreadRecord
from memory_engine.engine import kernel_of
from memory_engine.errors import ThreadNotFound
from memory_engine.store.acts import Act
from memory_engine.store.protocol import Traces
from memory_engine.testing import FakeCompactor, Hangs
from memory_engine.thread import handle_of
from tests.scripted_compactors import Scripted, a_line, a_line_each

WORDS = ("plum", "quince", "sorrel", "teasel")


def secret(word: str) -> str:
    """A word that only one event says, and what the compactor makes of that event."""
    return f"{word}77412"


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine over a file, with a compactor that repeats the first word of each chunk in one summary."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=len(WORDS), tokens_min=0, keep_recent=1))
    async with memory_engine.open(str(tmp_path / "m.db"), compactor=Scripted(a_line_each), config=config) as opened:
        yield opened


def held(path: Path) -> set[str]:
    """The words whose secrets are in the store's files."""
    content = b"".join(file.read_bytes() for file in path.iterdir())
    return {word for word in WORDS if secret(word).encode() in content}


@pytest.mark.parametrize("first", [0, 1])
async def test_two_acts_at_once_bring_back_nothing(engine: Engine, tmp_path: Path, first: int) -> None:
    """Both erase lines of one summary: whichever writes last has read the summary before the other erased its line."""
    thread = await engine.create_thread("t")
    for word in WORDS:
        await thread.dispatch(UserMessage(content=f"{secret(word)} grows by the river. " * 3), event_id=word)
    await thread.dispatch(UserMessage(content="And what of the rest?"))
    await thread.compaction.settle()
    asked = [WORDS[first], WORDS[1 - first]]
    for report in await asyncio.gather(*(thread.admin.erase([word]) for word in asked)):
        assert report.proof is not None
        assert report.proof.ok
    assert (await thread.replay.verify()).ok
    await engine.flush()
    assert set(WORDS[2:]) == held(tmp_path)


async def test_a_thread_with_an_earlier_erasure_is_deleted_without_a_trace(engine: Engine) -> None:
    """Its log names the earlier act, whose record stays with the store: that is no trace of the thread."""
    thread = await engine.create_thread("t")
    receipt = await thread.dispatch(UserMessage(content="My passport is 77412-Osterfeldt"))
    await thread.admin.erase([receipt.event_id], by="the data protection officer", reason="asked for by letter")
    report = await thread.admin.delete()
    assert report.proof is not None
    assert () == report.proof.left


async def test_an_act_on_a_thread_that_has_gone_leaves_its_successor_alone(engine: Engine) -> None:
    """A process died before it had erased an event; the thread was deleted, and another has its id. It is done."""
    thread = await engine.create_thread("t")
    receipt = await thread.dispatch(UserMessage(content="a first word"))
    plan = msgspec.json.encode(ErasurePlan({"t": [receipt.event_id]})).decode()
    await kernel_of(engine).store.put_act(Act(id="left", kind="erase", plan=plan, by="", reason="", asked_at_us=1))
    await thread.admin.delete()
    successor = await engine.create_thread("t")
    await successor.dispatch(UserMessage(content="another first word"))
    reports = await engine.admin.finish_acts()
    assert [("left", {"t": 0})] == [(report.act, dict(report.erased)) for report in reports]
    assert [] == [act for act in await engine.admin.acts() if not act.done_at_us]
    assert ["another first word"] == [chunk.text for chunk in (await successor.state()).chunks()]


async def test_an_act_amid_which_its_thread_is_made_again_leaves_the_successor_alone(tmp_path: Path) -> None:
    """It waits for a compaction while another process deletes the thread; others have its id and its seqs then."""
    config = EngineConfig(compaction=CompactionPolicy(enabled=False))
    compactor, place = FakeCompactor(Hangs("too late")), str(tmp_path / "m.db")
    async with (
        memory_engine.open(place, config=config, compactor=compactor) as one,
        memory_engine.open(place, config=config) as other,
    ):
        thread = await one.create_thread("t")
        for word in WORDS:
            await thread.dispatch(UserMessage(content=f"{secret(word)} grows by the river. " * 9), event_id=word)
        compacting = asyncio.ensure_future(thread.compact())
        await compactor.begun.wait()
        began = await handle_of(thread).last_seq()
        erasing = asyncio.ensure_future(thread.admin.erase(["plum"]))
        while await handle_of(thread).last_seq() == began:  # noqa: ASYNC110 - the thread forgets first: no event tells that
            await asyncio.sleep(0)
        await other.thread("t").admin.delete()
        successor = await other.create_thread("t")
        texts = [f"The heron number {n} stands in the reeds." for n in range(8)]
        await successor.dispatch_all([UserMessage(content=text) for text in texts])
        compactor.release()
        report = await erasing
        await asyncio.wait([compacting])
        assert compacting.exception() is not None
        assert ({"t": 0}, True) == (dict(report.erased), report.is_done)
        assert texts == [chunk.text for chunk in (await successor.state()).chunks()]
        assert (await successor.replay.verify()).ok


async def test_an_act_leaves_events_alone_that_bear_the_ids_of_those_it_was_for(engine: Engine) -> None:
    """In a later thread of the same id, in another thread, and in a fork that had parted before: it is done."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="hello"))
    fork = await thread.fork(at=1)
    other = await engine.create_thread("u")
    for one, text in ((thread, "what is to go"), (fork, "the fork's"), (other, "another's")):
        await one.dispatch(UserMessage(content=text), event_id="order")
    erased = await thread.admin.erase(["order"])
    assert {"t": 1} == erased.erased
    await fork.admin.delete()
    await thread.admin.delete()
    later = await engine.create_thread("t")
    await later.dispatch_all([UserMessage(content="hello"), NewEvent(UserMessage(content="later"), id="order")])
    [act] = [act for act in await engine.admin.acts() if act.id == erased.act]
    await kernel_of(engine).store.put_act(msgspec.structs.replace(act, done_at_us=0, outcome=""))  # as a copy has it
    [report] = await engine.admin.finish_acts()
    assert {"t": 0} == report.erased
    assert ["hello", "later"] == [chunk.text for chunk in (await later.state()).chunks()]
    assert ["another's"] == [chunk.text for chunk in (await other.state()).chunks()]


async def test_retention_erases_events_that_bear_the_ids_of_erased_ones(engine: Engine) -> None:
    """What an act did to an earlier thread of the same id says nothing about this one's."""
    first = await engine.create_thread("t")
    await first.dispatch(UserMessage(content="the first"), event_id="order")
    await first.admin.erase(["order"])
    await first.admin.delete()
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="the second"), event_id="order")
    await engine.admin.retain([RetentionRule(act="erase", older_than=timedelta(microseconds=1))])
    assert [] == [chunk.text for chunk in (await thread.state()).chunks()]


@pytest.mark.parametrize("doing", ["erase", "delete"])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_copy_that_another_act_destroys_meanwhile_fails_no_proof(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doing: str, *, elsewhere: bool
) -> None:
    """It goes between the look at the bytes and the look at the rows: in the same engine, or in another one."""
    said = f"{secret('plum')} grows by the river"
    for name in ("t", "u"):
        await (await engine.create_thread(name)).dispatch(UserMessage(content=said), event_id="plum")
    async with memory_engine.open(str(tmp_path / "m.db")) as other:
        looks = kernel_of(engine).store.traces
        theirs: list[ErasureReport] = []

        async def looked(pieces: Sequence[bytes]) -> Traces:
            found = await looks(pieces)
            if not theirs:
                monkeypatch.undo()
                thread = (other if elsewhere else engine).thread("u")
                theirs.append(await (thread.admin.delete() if doing == "delete" else thread.admin.erase(["plum"])))
            return found

        monkeypatch.setattr(kernel_of(engine).store, "traces", looked)
        mine = await engine.thread("t").admin.erase(["plum"])
    assert [(True, ()), (True, ())] == [(one.proof.ok, one.proof.left) for one in (mine, *theirs) if one.proof]
    assert set() == held(tmp_path)


async def test_equal_words_erased_at_once_are_proved_gone(engine: Engine, tmp_path: Path) -> None:
    """Each act finds the other's copies as what others say, or not at all."""
    said = f"{secret('sorrel')} grows by the river"
    threads = [await engine.create_thread(f"t{n}") for n in range(6)]
    for thread in threads:
        await thread.dispatch(UserMessage(content=said), event_id="sorrel")
    async with memory_engine.open(str(tmp_path / "m.db")) as other:
        doing = [(other if n % 2 else engine).thread(one.id).admin.erase(["sorrel"]) for n, one in enumerate(threads)]
        for report in await asyncio.gather(*doing):
            assert report.proof is not None
            assert () == report.proof.left
    assert set() == held(tmp_path)


async def test_what_nobody_destroys_is_left_at_once(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy in a file beside, which no act reaches: the proof says where, without waiting for anybody."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content=f"{secret('teasel')} grows by the river"), event_id="teasel")
    beside = tmp_path / "m.db-graphs"
    beside.mkdir()
    (beside / "old").write_text(f"{secret('teasel')} grows by the river")
    looks = 0
    traces = kernel_of(engine).store.traces

    async def counted(pieces: Sequence[bytes]) -> Traces:
        nonlocal looks
        looks += 1
        return await traces(pieces)

    monkeypatch.setattr(kernel_of(engine).store, "traces", counted)
    report = await thread.admin.erase(["teasel"])
    assert report.proof is not None
    assert not report.proof.ok
    assert 1 == looks


async def test_no_proof_looks_for_rows_that_came_after_the_act_was_finished_elsewhere(tmp_path: Path) -> None:
    """It waits for a compaction, and another process finishes it; a later row would lose a line to it, and stays."""
    config = EngineConfig(compaction=CompactionPolicy(enabled=False, tokens_min=0, keep_recent=1))
    compactor, place = FakeCompactor(Hangs("too late")), str(tmp_path / "m.db")
    async with (
        memory_engine.open(place, config=config, compactor=compactor) as one,
        memory_engine.open(place, config=config, compactor=Scripted(a_line)) as other,
    ):
        theirs = await other.create_thread("t")
        for word in (*WORDS, "recent"):
            await theirs.dispatch(UserMessage(content=f"{secret(word)} grows by the river. " * 9), event_id=word)
        await theirs.compact()
        for n in range(4):
            await theirs.dispatch(UserMessage(content=f"The heron number {n} stands in the reeds. " * 9))
        mine = one.thread("t")
        compacting = asyncio.ensure_future(mine.compact())
        await compactor.begun.wait()
        began = await handle_of(mine).last_seq()
        erasing = asyncio.ensure_future(mine.admin.erase(["plum"]))
        while await handle_of(mine).last_seq() == began:  # noqa: ASYNC110 - the thread forgets first: no event tells that
            await asyncio.sleep(0)
        [first] = await other.admin.finish_acts()
        await theirs.forget(event_ids=["quince"])
        compactor.release()
        second = await erasing
        await asyncio.wait([compacting])
        assert compacting.exception() is not None
        assert [(True, ()), (True, ())] == [(one.proof.ok, one.proof.left) for one in (first, second) if one.proof]
        [act] = await other.admin.acts()
        assert act.outcome == msgspec.json.encode(first.as_data()).decode()
        assert (await theirs.replay.verify()).ok


async def test_no_proof_looks_for_the_rows_of_a_successor(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the rows of a thread to delete are read, another process deletes it, and makes another by its id."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="plums grow by the river"))
    async with memory_engine.open(str(tmp_path / "m.db")) as other:
        heads = kernel_of(engine).store.head

        async def read(thread_id: str) -> Head:
            found = await heads(thread_id)
            if await kernel_of(engine).store.acts(pending=True):
                monkeypatch.undo()
                await other.thread("t").admin.delete()
                successor = await other.create_thread("t")
                await successor.dispatch(UserMessage(content="herons stand in the reeds"))
            return found

        monkeypatch.setattr(kernel_of(engine).store, "head", read)
        report = await thread.admin.delete()
        assert report.proof is not None
        assert () == report.proof.left
        assert ["herons stand in the reeds"] == [chunk.text for chunk in (await other.thread("t").state()).chunks()]


@pytest.mark.parametrize("doing", ["erase", "replace"])
async def test_a_log_is_whole_that_loses_rows_while_it_is_verified(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    """Another process erases an event, or makes another thread by the id, once the rows are read: nothing is broken."""
    thread = await engine.create_thread("t")
    for word in ("plum", "quince"):
        await thread.dispatch(UserMessage(content=f"{secret(word)} grows by the river"), event_id=word)
    async with memory_engine.open(str(tmp_path / "m.db")) as other:
        reads = kernel_of(engine).store.read

        async def read(*place: object, **span: object) -> Sequence[StoredEvent]:
            monkeypatch.undo()
            if doing == "erase":
                await other.thread("t").admin.erase(["plum"])
            else:
                await other.thread("t").admin.delete()
                await (await other.create_thread("t")).dispatch(UserMessage(content="herons stand in the reeds"))
            return await reads(*place, **span)  # type: ignore[arg-type]  # as it was called

        monkeypatch.setattr(kernel_of(engine).store, "read", read)
        [report] = await engine.verify()
        assert (None, True) == (report.divergence, report.ok)
        await other.thread("t").dispatch(UserMessage(content="and the thread goes on"))
    await thread.dispatch(UserMessage(content="in every process"))


async def test_a_row_that_another_act_replaces_while_it_is_read_is_read_again(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary is as an act has left it; before that act is looked up, another one takes a line more."""
    thread = await engine.create_thread("t")
    for word in WORDS:
        await thread.dispatch(UserMessage(content=f"{secret(word)} grows by the river. " * 3), event_id=word)
    await thread.dispatch(UserMessage(content="And what of the rest?"))
    await thread.compaction.settle()
    await thread.admin.erase(["plum"])
    async with memory_engine.open(str(tmp_path / "m.db")) as other:
        reads = kernel_of(other).store.read

        async def read(*place: object, **span: object) -> Sequence[StoredEvent]:
            found = await reads(*place, **span)  # type: ignore[arg-type]  # as it was called
            monkeypatch.undo()
            await thread.admin.erase(["quince"])
            return found

        monkeypatch.setattr(kernel_of(other).store, "read", read)
        said = [str(recorded.event) async for recorded in other.thread("t").events()]
    assert ["sorrel", "teasel"] == [word for word in WORDS if any(secret(word) in text for text in said)]


async def test_a_fork_has_no_past_of_another_thread(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is made, its origin is deleted, and another thread made by that id: there is no fork."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([UserMessage(content=word) for word in WORDS])
    async with memory_engine.open(str(tmp_path / "m.db")) as other:
        creates = kernel_of(engine).store.create

        async def create(
            record: ThreadRecord, head: Head, live: Sequence[LiveChunk], *, origin: ThreadRecord | None = None
        ) -> None:
            monkeypatch.undo()
            await other.thread("t").admin.delete()
            successor = await other.create_thread("t")
            await successor.dispatch(UserMessage(content="herons stand in the reeds"))
            await creates(record, head, live, origin=origin)

        monkeypatch.setattr(kernel_of(engine).store, "create", create)
        with pytest.raises(ThreadNotFound):
            await thread.fork(thread_id="f")
        assert ["t"] == [info.id for info in await other.threads()]
        assert (await other.thread("t").admin.delete()).is_done


async def test_a_thread_that_is_deleted_while_all_are_verified_has_no_report(engine: Engine, tmp_path: Path) -> None:
    """Another process deletes it behind the list of threads; one that is named must be there."""
    for name in ("a", "b"):
        await (await engine.create_thread(name)).dispatch(UserMessage(content="It grows by the river."))
    async with memory_engine.open(str(tmp_path / "m.db")) as other:
        listed = engine.threads

        async def threads() -> list[ThreadInfo]:
            found = await listed()
            await other.thread("a").admin.delete()
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(engine, "threads", threads)
            assert [("b", True)] == [(report.thread_id, report.ok) for report in await engine.verify()]
    with pytest.raises(ThreadNotFound):
        await engine.verify(["a", "b"])
