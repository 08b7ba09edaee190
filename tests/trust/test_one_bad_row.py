"""One careless call, or one damaged row, never takes the rest of a store along."""

from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, UserMessage, errors
from memory_engine.core.threads import ThreadRecord
from memory_engine.storage.sqlite.store import SQLiteStore
from tests.trust.files import asked, tamper


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "memory.db")


async def written(path: str) -> None:
    """Two threads with a message each, and an index for search: `bad`, which will be damaged, and `good`."""
    async with memory_engine.open(path) as engine:
        for name in ("bad", "good"):
            thread = await engine.create_thread(name, metadata={"channel": "web"})
            await thread.dispatch(UserMessage(content=f"Hello from {name}"))
            await thread.search("hello")


# on the way in


@pytest.mark.parametrize("value", [None, 0, False, 1.5, [], {}, b"web"])
async def test_metadata_that_could_not_be_read_back_is_refused(path: str, value: object) -> None:
    """A value that is not a text names its key; there is no thread, in a file as in memory."""
    for place in (path, ":memory:"):
        async with memory_engine.open(place) as engine:
            with pytest.raises(errors.InvalidIdentifier, match="channel"):
                await engine.create_thread("bad", metadata={"channel": value})  # type: ignore[dict-item]
            assert [] == await engine.threads()


@pytest.mark.parametrize("metadata", [5, "text", ["channel"], {5: "web"}, {None: "web"}])
async def test_metadata_that_are_not_texts_by_name_are_refused(engine: Engine, metadata: object) -> None:
    """Neither is a list, nor a key that is not a text."""
    with pytest.raises(errors.InvalidInput):
        await engine.create_thread("bad", metadata=metadata)  # type: ignore[arg-type]
    thread = await engine.create_thread("good")
    with pytest.raises(errors.InvalidInput):
        await thread.fork(metadata=metadata)  # type: ignore[arg-type]
    assert ["good"] == [info.id for info in await engine.threads()]


@pytest.mark.parametrize("policy", [{"threshold": 3}, 5, "none", False])
async def test_a_policy_that_is_none_is_refused(engine: Engine, policy: object) -> None:
    """Only a `CompactionPolicy` is one."""
    with pytest.raises(errors.InvalidPolicy, match="CompactionPolicy"):
        await engine.create_thread("bad", policy=policy)  # type: ignore[arg-type]
    assert [] == await engine.threads()


@pytest.mark.parametrize(
    "fields",
    [{"deadline_s": float("inf")}, {"deadline_s": float("nan")}, {"threshold": 2.5}, {"threshold": True},
     {"enabled": "no"}],
)  # fmt: skip
def test_a_policy_that_could_not_be_read_back_cannot_be_made(fields: dict[str, object]) -> None:
    """Each field is read by the decoder of records when the policy is made."""
    with pytest.raises(errors.InvalidPolicy):
        CompactionPolicy(**fields)  # type: ignore[arg-type]


# what an older version has written, or something else has damaged

RECORDS = {
    "metadata null": """UPDATE threads SET metadata = '{"channel": null}' WHERE id = 'bad'""",
    "metadata number": """UPDATE threads SET metadata = '{"channel": 0, "kept": "yes"}' WHERE id = 'bad'""",
    "metadata list": "UPDATE threads SET metadata = '[]' WHERE id = 'bad'",
    "metadata not JSON": "UPDATE threads SET metadata = '{\"channel\": ' WHERE id = 'bad'",
    "metadata not UTF-8": "UPDATE threads SET metadata = CAST(x'7bff7d' AS TEXT) WHERE id = 'bad'",
    "policy null": """UPDATE threads SET policy = '{"threshold": 9, "deadline_s": null}' WHERE id = 'bad'""",
    "policy not JSON": "UPDATE threads SET policy = '{' WHERE id = 'bad'",
    "a circle": "UPDATE threads SET forked_tid = tid, forked_seq = 1 WHERE id = 'bad'",
    "a circle of two": "UPDATE threads SET forked_tid = 3 - tid, forked_seq = 1",
    "a fork of nobody": "UPDATE threads SET forked_tid = 99, forked_seq = 1 WHERE id = 'bad'",
}


@pytest.mark.parametrize("damage", RECORDS.values(), ids=RECORDS)
async def test_a_damaged_record_is_told_and_mended_and_the_rest_works(path: str, damage: str) -> None:
    """The store lists, searches, verifies; `verify` names thread and place; `rebuild` mends."""
    await written(path)
    tamper(path, "PRAGMA foreign_keys = OFF", damage)
    async with memory_engine.open(path) as engine:
        assert ["bad", "good"] == [info.id for info in await engine.threads()]
        reports = {report.thread_id: report for report in await engine.verify()}
        found = reports["bad"].divergence
        assert found is not None
        assert found.kind in ("record", "gap")
        if "two" not in damage and "3 - tid" not in damage:
            assert reports["good"].ok
            assert (await engine.search("hello good")).hits[0].thread_id == "good"
            await engine.thread("good").dispatch(UserMessage(content="more"))
        for name in ("bad", "good"):
            await engine.thread(name).replay.rebuild()
        assert [True, True] == [report.ok for report in await engine.verify()]
        await engine.thread("bad").dispatch(UserMessage(content="again"))
        assert {"bad", "good"} == {hit.thread_id for hit in await engine.search("hello")}


async def test_a_mended_record_loses_nothing_that_could_be_read(path: str) -> None:
    """Values that are not texts come as their JSON, the readable fields of a policy stay, the rest is of its time."""
    await written(path)
    tamper(path, RECORDS["metadata number"], RECORDS["policy null"])
    before = CompactionPolicy(threshold=9, tokens_min=0, soft_tokens=24_000, hard_tokens=96_000, blocking="whole")
    async with memory_engine.open(path) as engine:
        for _ in range(2):
            info = await engine.thread("bad").info()
            assert ({"channel": "0", "kept": "yes"}, before) == (info.metadata, info.policy)
            await engine.thread("bad").replay.rebuild()
    assert [('{"channel":"0","kept":"yes"}',)] == asked(path, "SELECT metadata FROM threads WHERE id = 'bad'")


@pytest.mark.parametrize("damage", RECORDS.values(), ids=RECORDS)
async def test_a_thread_with_a_damaged_record_can_be_deleted(path: str, damage: str) -> None:
    """And only it goes."""
    await written(path)
    tamper(path, "PRAGMA foreign_keys = OFF", damage)
    async with memory_engine.open(path) as engine:
        if "3 - tid" in damage:  # each is a fork of the other, until one is mended
            await engine.thread("good").replay.rebuild()
        await engine.thread("bad").admin.delete()
        assert ["good"] == [info.id for info in await engine.threads()]
        assert (await engine.thread("good").replay.verify()).ok


@pytest.mark.parametrize("marks", ["{", "[]", '{"session_started": null}', '{"a": 1.5}'])
async def test_marks_that_cannot_be_read_are_made_again(path: str, marks: str) -> None:
    """`verify` names the head; whoever opens the thread mends it, and its views are up to date."""
    await written(path)
    async with memory_engine.open(path) as engine:
        await engine.thread("bad").scratchpad.write("Revenue dips every Sunday")
    tamper(path, f"UPDATE heads SET marks = '{marks}' WHERE tid = 1")
    async with memory_engine.open(path) as engine:
        assert ["bad", "good"] == [info.id for info in await engine.threads()]
        report = await engine.thread("bad").replay.verify()
        assert report.divergence is not None
        assert "marks cannot be read" in report.divergence.found
        assert 1 == len(await engine.thread("bad").scratchpad.read())
        assert [True, True] == [report.ok for report in await engine.verify()]


async def test_a_read_only_engine_does_not_take_unreadable_marks_for_none(path: str) -> None:
    """It cannot mend them: what would go by them says so."""
    await written(path)
    tamper(path, "UPDATE heads SET marks = '{' WHERE tid = 1")
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        with pytest.raises(errors.IntegrityError, match="marks"):
            await (await engine.thread("bad").at(1)).state()
        assert 1 == (await (await engine.thread("good").at(1)).state()).tally.chunks


async def test_a_row_of_a_view_that_cannot_be_read_concerns_its_thread_alone(path: str) -> None:
    """A typed error names it, `verify` names the view, `rebuild` mends it: of the outbox too."""
    await written(path)
    async with memory_engine.open(path) as engine:
        for name in ("bad", "good"):
            await engine.thread(name).conversation.finalize_cycle("q", "a")
    tamper(
        path,
        "UPDATE projection_rows SET value = x'7b' WHERE tid = 1 AND projection = 'conversation'",
        "INSERT INTO projection_rows (projection, version, tid, key, value) VALUES ('outbox', 1, 1, 'k', x'7b')",
    )
    async with memory_engine.open(path) as engine:
        await engine.settle()
        with pytest.raises(errors.UnreadableRow):
            await engine.thread("bad").conversation.exchanges()
        assert 2 == len(await engine.thread("good").conversation.exchanges())
        reports = await engine.verify()
        assert [("projection", False), (None, True)] == [
            (report.divergence and report.divergence.kind, report.ok) for report in reports
        ]
        await engine.thread("bad").replay.rebuild()
        assert 2 == len(await engine.thread("bad").conversation.exchanges())
        assert [True, True] == [report.ok for report in await engine.verify()]


async def test_a_store_writes_a_record_anew(path: str) -> None:
    """`put_record` is what mends; a thread that is not there is refused."""
    store = await SQLiteStore.open(path)
    with pytest.raises(errors.ThreadNotFound):
        await store.put_record(ThreadRecord(id="nobody"))
    await store.close()


async def test_a_thread_whose_head_is_gone_does_not_vanish(tmp_path: Path) -> None:
    """It is listed, `verify` names it, reading it raises what is wrong, and it can be deleted; others go on."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        for name in ("lost", "kept"):
            await (await engine.create_thread(name)).dispatch(UserMessage(content="Hello"))
    tamper(path, "DELETE FROM heads WHERE tid = (SELECT tid FROM threads WHERE id = 'lost')")
    async with memory_engine.open(path) as engine:
        assert ["lost", "kept"] == [info.id for info in await engine.threads()]
        assert [("lost", False), ("kept", True)] == [(one.thread_id, one.ok) for one in await engine.verify()]
        with pytest.raises(errors.IntegrityError, match="head"):
            await engine.thread("lost").dispatch(UserMessage(content="more"))
        await engine.thread("lost").admin.delete()
        assert ["kept"] == [info.id for info in await engine.threads()]
        assert 2 == (await engine.thread("kept").dispatch(UserMessage(content="more"))).seq


@pytest.mark.parametrize("damage", ["chunks = 65537", "tokens = tokens + 4096", "checksum = checksum - 1"])
async def test_numbers_of_a_damaged_head_are_shown_to_nobody(path: str, damage: str) -> None:
    """A list names it in their place, totals leave it out; opening or rebuilding the thread sets it right."""
    await written(path)
    async with memory_engine.open(path) as engine:
        bad, good = await engine.threads()
    tamper(path, f"UPDATE heads SET {damage} WHERE tid = 1")
    async with memory_engine.open(path) as engine:
        [found, other] = await engine.threads()
        assert (0, 0, good) == (found.chunks, found.tokens, other)
        assert ("head: its row is not what was written",) == found.damaged
        assert found == await engine.thread("bad").info()
        totals = await engine.stats()
        assert (2, 2, good.chunks, good.tokens, ("bad",)) == (
            totals.threads, totals.events, totals.chunks, totals.tokens, totals.damaged
        )  # fmt: skip
        assert [("bad", "head"), ("good", None)] == [
            (report.thread_id, report.divergence and report.divergence.kind) for report in await engine.verify()
        ]
        await engine.thread("bad").dispatch(UserMessage(content="more"))
        await engine.thread("bad").replay.rebuild()
        assert [(2, ()), (1, ())] == [(info.chunks, info.damaged) for info in await engine.threads()]
        assert bad.tokens < (await engine.stats()).tokens


async def test_a_head_from_before_there_were_checksums_is_whole(path: str) -> None:
    """It has none, until the next event."""
    await written(path)
    tamper(path, "UPDATE heads SET checksum = NULL")
    async with memory_engine.open(path) as engine:
        assert [(1, ()), (1, ())] == [(info.chunks, info.damaged) for info in await engine.threads()]
        assert [True, True] == [report.ok for report in await engine.verify()]
        await engine.thread("good").dispatch(UserMessage(content="more"))
    assert [(True,), (False,)] == asked(path, "SELECT checksum IS NULL FROM heads ORDER BY tid")


NAMES = ("id", "kind", "user_id", "tenant_id", "agent_id", "parent_id")


@pytest.mark.parametrize("column", NAMES)
async def test_a_text_that_is_not_utf8_takes_no_other_thread_along(path: str, column: str) -> None:
    """The store lists, searches, verifies, counts and is backed up; `verify` names the column; `rebuild` mends."""
    await written(path)
    tamper(path, f"UPDATE threads SET {column} = CAST(x'62e164' AS TEXT) WHERE id = 'bad'")
    name = "b\\xe1d" if column == "id" else "bad"
    async with memory_engine.open(path) as engine:
        [found, other] = await engine.threads()
        assert (name, "good") == (found.id, other.id)
        assert ((f"{column}: it is not a text of UTF-8",), ()) == (found.damaged, other.damaged)
        assert "b\\xe1d" == getattr(found, column)
        assert (found.id, 2) == ((await engine.thread(name).info()).id, (await engine.stats()).threads)
        assert 2 == len(await engine.admin.anchors())
        assert 2 == (await engine.admin.backup(path + ".backup")).threads
        reports = {report.thread_id: report.divergence for report in await engine.verify()}
        assert reports.pop("good") is None
        [divergence] = reports.values()
        assert divergence is not None
        assert ("record", (f"{column}: it is not a text of UTF-8",)) == (divergence.kind, divergence.difference)
        assert "good" in {hit.thread_id for hit in await engine.search("hello good", thread_ids=["good", name])}
        await engine.thread("good").dispatch(UserMessage(content="more"))
        await engine.thread(name).replay.rebuild()
        assert [True, True] == [report.ok for report in await engine.verify()]
        assert "b\\xe1d" == getattr((await engine.threads())[0], column)
        assert 2 == (await engine.thread(name).dispatch(UserMessage(content="again"))).seq


@pytest.mark.parametrize("column", NAMES)
async def test_a_thread_with_a_text_that_is_not_utf8_can_be_deleted(path: str, column: str) -> None:
    """By the name that the list gives it; it is read and exported by that too."""
    await written(path)
    tamper(path, f"UPDATE threads SET {column} = CAST(x'62e164' AS TEXT) WHERE id = 'bad'")
    async with memory_engine.open(path) as engine:
        thread = engine.thread((await engine.threads())[0].id)
        assert ["Hello from bad"] == [placed.chunk.content for placed in (await thread.state()).placed()]
        await thread.replay.export(path + ".jsonl")
        await thread.admin.delete()
        assert ["good"] == [info.id for info in await engine.threads()]
        assert (await engine.thread("good").replay.verify()).ok


async def test_an_id_with_a_backslash_is_not_a_damaged_one(path: str) -> None:
    """Both are found by what they are called."""
    async with memory_engine.open(path) as engine:
        for name in ("b\\xe1d", "b\\x41d"):
            await (await engine.create_thread(name)).dispatch(UserMessage(content="Hello"))
        assert ["b\\xe1d", "b\\x41d"] == [info.id for info in await engine.threads()]
        for name in ("b\\xe1d", "b\\x41d"):
            assert 1 == (await engine.thread(name).info()).events
        with pytest.raises(errors.ThreadNotFound):
            await engine.thread("bAd").info()


async def test_a_status_that_is_not_utf8_takes_no_other_thread_along(path: str) -> None:
    """It is shown as far as it can be read, and named."""
    await written(path)
    tamper(path, "UPDATE heads SET status = CAST(x'61e174' AS TEXT) WHERE tid = 1")
    async with memory_engine.open(path) as engine:
        assert [("a\\xe1t", False), ("active", True)] == [
            (info.status, info.damaged == ()) for info in await engine.threads()
        ]
        assert [False, True] == [report.ok for report in await engine.verify()]
        await engine.thread("bad").admin.delete()
        assert ["good"] == [info.id for info in await engine.threads()]
