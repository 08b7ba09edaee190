"""Anchors: a log that was rewritten whole verifies by itself, and not against a hash that was kept elsewhere."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.core.chain import link_hash
from memory_engine.core.records import StoredEvent
from memory_engine.errors import UnreadableAnchors
from memory_engine.replay.anchors import Anchor, add_anchors, read_anchors
from tests.command_line import Run
from tests.exports import NEVER, TALK, rows, talk


@contextlib.contextmanager
def unguarded(db: Path) -> Iterator[sqlite3.Connection]:
    """The file as whoever has it can change it."""
    with contextlib.closing(sqlite3.connect(db)) as raw:
        raw.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        yield raw
        raw.commit()


def rewrite(db: Path, log: list[StoredEvent], old: bytes, new: bytes) -> None:
    """Say something else in a log, and give every event after it the hash that then fits."""
    previous = b""
    with unguarded(db) as raw:
        for row in log:
            told = msgspec.structs.replace(row, payload=row.payload.replace(old, new))
            previous = link_hash(told, previous)
            raw.execute(
                "UPDATE events SET payload = ?, hash = ? WHERE pos & 4294967295 = ?", (told.payload, previous, row.seq)
            )
        raw.execute("UPDATE heads SET hash = ?", (previous,))


async def test_X8_a_rewritten_log_verifies_and_is_found_by_its_anchor(tmp_path: Path) -> None:
    """Whoever has the file can make a chain that holds; the hash that was written down before tells."""
    db = tmp_path / "t.db"
    async with memory_engine.open(str(db), config=NEVER) as engine:
        thread = await talk(engine)
        early, late = await thread.anchor(1), await thread.anchor()
        log = await rows(engine, "t")
    rewrite(db, log, b"My bike is blue.", b"My bike is gray.")
    async with memory_engine.open(str(db), config=NEVER) as engine:
        assert (await engine.thread("t").verify()).ok
        assert "My bike is gray." == (await engine.thread("t").chunk("2.0")).content
        assert [late] == await engine.check_anchors([early, late])


async def test_anchors_hold_while_a_log_goes_on(tmp_path: Path) -> None:
    """Those of every moment and every thread are borne out, in memory and in files, by forks and by imports too."""
    for where in (":memory:", str(tmp_path / "t.db")):
        async with memory_engine.open(where) as engine:
            thread = await talk(engine)
            await engine.create_thread("empty")
            anchors = [*await engine.anchors(), await thread.anchor(0), await thread.anchor(3)]
            fork = await thread.fork(4)
            await thread.dispatch(UserMessage(content="On."))
            anchors += [await fork.anchor(), *await engine.anchors()]
            assert [] == await engine.check_anchors(anchors)
            assert ("t", len(TALK)) == (anchors[0].thread_id, anchors[0].seq)


async def test_an_anchor_tells_what_it_is_of() -> None:
    """The hash and the time of the event at its seq; before the first event there is neither."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine)
        third = [event async for event in thread.events()][2]
        assert Anchor("t", 3, third.hash, third.recorded_at) == await thread.anchor(third.id)
        assert Anchor("t", 0, "") == await thread.anchor(0)


async def test_what_is_gone_is_found(tmp_path: Path) -> None:
    """A log that was cut, an event that was taken out, a thread that is not there: none bears its anchor out."""
    db = tmp_path / "t.db"
    async with memory_engine.open(str(db)) as engine:
        thread = await talk(engine)
        second, fifth, last = await thread.anchor(2), await thread.anchor(5), await thread.anchor()
    with unguarded(db) as raw:
        raw.execute("DELETE FROM events WHERE pos & 4294967295 = 5")
    async with memory_engine.open(str(db)) as engine:
        nobody = msgspec.structs.replace(second, thread_id="nobody")
        unheard = msgspec.structs.replace(second, seq=1 << 70)
        assert [fifth, nobody, unheard] == await engine.check_anchors([second, fifth, last, nobody, unheard])
    with unguarded(db) as raw:
        raw.execute("DELETE FROM events WHERE pos & 4294967295 > 4")
        raw.execute("UPDATE heads SET seq = 4")
    async with memory_engine.open(str(db)) as engine:
        assert [fifth, last] == await engine.check_anchors([second, fifth, last])


def test_a_file_of_anchors_grows(tmp_path: Path) -> None:
    """Earlier ones stay; what is no anchor is refused by its line."""
    path = tmp_path / "anchors.jsonl"
    first, second = Anchor("t", 1, "aa"), Anchor("é", 2, "bb")
    add_anchors(path, [first])
    add_anchors(path, [second])
    assert [first, second] == read_anchors(path)
    path.write_bytes(path.read_bytes() + b'\n{"thread_id": "t"}\n')
    with pytest.raises(UnreadableAnchors, match="line 4: no anchor"):
        read_anchors(path)


def test_the_command_line_keeps_anchors_and_compares(run: Run, tmp_path: Path) -> None:
    """`anchors` prints or keeps them, `verify --anchors` finds a log that was rewritten."""
    import anyio

    db, kept = tmp_path / "t.db", tmp_path / "anchors.jsonl"

    async def fill() -> list[StoredEvent]:
        async with memory_engine.open(str(db), config=NEVER) as engine:
            await talk(engine)
            await talk(engine, "other")
            return await rows(engine, "t")

    log = anyio.run(fill)
    printed = run("anchors", "--db", str(db))[1].splitlines()
    assert [("t", 9), ("other", 9)] == [(one["thread_id"], one["seq"]) for one in map(json.loads, printed)]
    assert (0, json.loads(printed[0])) == (0, json.loads(run("anchors", "t", "--json", "--db", str(db))[1])[0])
    assert "2 anchors added" in run("anchors", "--out", str(kept), "--db", str(db))[1]
    code, out, _ = run("verify", "--anchors", str(kept), "--db", str(db))
    assert (0, True) == (code, "2 anchors: every log has the hash that was kept" in out)
    with unguarded(db) as raw:
        raw.execute("DELETE FROM live WHERE tid = 2")
        raw.execute("DELETE FROM events WHERE tid = 2")
        raw.execute("UPDATE heads SET seq = 0, hash = x'', chunks = 0, tokens = 0 WHERE tid = 2")
    rewrite(db, log, b"blue", b"gray")
    code, out, _ = run("verify", "--anchors", str(kept), "--db", str(db))
    assert (1, 2) == (code, out.count("the log is not the one whose hash was kept"))
    found = json.loads(run("verify", "t", "--anchors", str(kept), "--json", "--db", str(db))[1])
    assert (False, 1, ["t"]) == (
        found["ok"],
        found["anchors"]["checked"],
        [one["thread_id"] for one in found["anchors"]["rewritten"]],
    )
