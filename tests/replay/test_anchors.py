"""Anchors: a log that was rewritten whole verifies by itself, and not against a hash that was kept elsewhere."""

import contextlib
import io
import json
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec
import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.cli.schedule import again_and_again
from memory_engine.cli.terminal import Terminal
from memory_engine.core.chain import link_hash
from memory_engine.core.records import StoredEvent
from memory_engine.errors import IntegrityError, UnreadableAnchors
from memory_engine.replay.anchors import Anchor, add_anchors, read_anchors
from tests.command_line import Run
from tests.exports import NEVER, TALK, rows, talk
from tests.interruptible import python

ROOT = Path(__file__).resolve().parents[2]


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
        raw.execute("UPDATE heads SET hash = ?, checksum = NULL", (previous,))


async def test_X8_a_rewritten_log_verifies_and_is_found_by_its_anchor(tmp_path: Path) -> None:
    """Whoever has the file can make a chain that holds; the hash that was written down before tells."""
    db = tmp_path / "t.db"
    async with memory_engine.open(str(db), config=NEVER) as engine:
        thread = await talk(engine)
        early, late = await thread.replay.anchor(1), await thread.anchor()
        log = await rows(engine, "t")
    rewrite(db, log, b"My bike is blue.", b"My bike is gray.")
    async with memory_engine.open(str(db), config=NEVER) as engine:
        assert (await engine.thread("t").replay.verify()).ok
        assert "My bike is gray." == (await engine.thread("t").replay.chunk("2.0")).content
        assert [late] == await engine.admin.check_anchors([early, late])


async def test_anchors_hold_while_a_log_goes_on(tmp_path: Path) -> None:
    """Those of every moment and every thread are borne out, in memory and in files, by forks and by imports too."""
    for where in (":memory:", str(tmp_path / "t.db")):
        async with memory_engine.open(where) as engine:
            thread = await talk(engine)
            await engine.create_thread("empty")
            anchors = [*await engine.admin.anchors(), await thread.replay.anchor(0), await thread.anchor(3)]
            fork = await thread.fork(4)
            await thread.dispatch(UserMessage(content="On."))
            anchors += [await fork.replay.anchor(), *await engine.admin.anchors()]
            assert [] == await engine.admin.check_anchors(anchors)
            assert ("t", len(TALK)) == (anchors[0].thread_id, anchors[0].seq)


async def test_an_anchor_tells_what_it_is_of() -> None:
    """The hash and the time of the event at its seq; before the first event there is neither."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine)
        third = [event async for event in thread.events()][2]
        assert Anchor("t", 3, third.hash, third.recorded_at) == await thread.replay.anchor(third.id)
        assert Anchor("t", 0, "") == await thread.replay.anchor(0)


async def test_what_is_gone_is_found(tmp_path: Path) -> None:
    """A log that was cut, an event that was taken out, a thread that is not there: none bears its anchor out."""
    db = tmp_path / "t.db"
    async with memory_engine.open(str(db)) as engine:
        thread = await talk(engine)
        second, fifth, last = await thread.replay.anchor(2), await thread.anchor(5), await thread.anchor()
    with unguarded(db) as raw:
        raw.execute("DELETE FROM events WHERE pos & 4294967295 = 5")
    async with memory_engine.open(str(db)) as engine:
        nobody = msgspec.structs.replace(second, thread_id="nobody")
        unheard = msgspec.structs.replace(second, seq=1 << 70)
        assert [fifth, nobody, unheard] == await engine.admin.check_anchors([second, fifth, last, nobody, unheard])
    with unguarded(db) as raw:
        raw.execute("DELETE FROM events WHERE pos & 4294967295 > 4")
        raw.execute("UPDATE heads SET seq = 4")
    async with memory_engine.open(str(db)) as engine:
        assert [fifth, last] == await engine.admin.check_anchors([second, fifth, last])


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


async def filled(db: Path) -> None:
    """Two threads."""
    async with memory_engine.open(str(db), config=NEVER) as engine:
        await talk(engine)
        await talk(engine, "other")


async def test_a_hash_that_was_changed_is_no_anchor(tmp_path: Path) -> None:
    """An error names thread and seq; it was written down as if it were the log's."""
    db = tmp_path / "t.db"
    await filled(db)
    with unguarded(db) as raw:
        raw.execute("UPDATE events SET hash = zeroblob(32) WHERE pos & 4294967295 = 9 AND tid = 1")
    async with memory_engine.open(str(db), config=NEVER) as engine:
        with pytest.raises(IntegrityError, match="its hash binds"):
            await engine.admin.anchors()
        assert 9 == (await engine.thread("other").replay.anchor()).seq


def test_one_damaged_thread_does_not_keep_the_others_from_their_anchors(run: Run, tmp_path: Path) -> None:
    """It is named, and the exit code says so; asked for alone it is an error."""
    db, kept = tmp_path / "t.db", tmp_path / "anchors.jsonl"
    anyio.run(filled, db)
    with unguarded(db) as raw:
        raw.execute("UPDATE events SET hash = zeroblob(32) WHERE pos & 4294967295 = 9 AND tid = 1")
    code, _, told = run("anchors", "--out", str(kept), "--db", str(db))
    assert (1, True, ["other"]) == (code, "'t'" in told, [one.thread_id for one in read_anchors(kept)])
    assert 2 == run("anchors", "t", "--db", str(db))[0]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_anchors_are_kept_on_a_schedule_until_the_command_is_told_to_end(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    """A line a run; what is in the file by then is whole."""
    db, kept = tmp_path / "t.db", tmp_path / "anchors.jsonl"
    anyio.run(filled, db)
    words = python("-m", "memory_engine", "anchors", "--every", "1 hour", "--out", str(kept), "--db", str(db), "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert {"added": 2, "out": str(kept), "damaged": []} == json.loads(child.stdout.readline())
        child.send_signal(sent)
        assert (code, "") == (child.wait(60), child.stdout.read())
    assert ["t", "other"] == [one.thread_id for one in read_anchors(kept)]


def test_a_schedule_needs_a_place_and_a_database(run: Run, tmp_path: Path) -> None:
    """What can never work is refused at once, and not tried for ever."""
    db, out = str(tmp_path / "t.db"), str(tmp_path / "anchors.jsonl")
    assert 2 == run("anchors", "--every", "1 hour", "--out", out, "--db", db)[0]
    anyio.run(filled, Path(db))
    code, _, told = run("anchors", "--every", "1 hour", "--db", db)
    assert (2, True) == (code, "--out" in told)


async def test_a_run_that_fails_is_told_and_the_next_one_goes_on() -> None:
    """A busy file, a full disk: the schedule stands."""
    told, runs = io.StringIO(), 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise OSError(28, "No space left on device")
        raise RuntimeError("the end of the test")

    with pytest.raises(RuntimeError):
        await again_and_again(timedelta(microseconds=1), Terminal(err=told), run)
    assert (2, True) == (runs, "No space left" in told.getvalue())
