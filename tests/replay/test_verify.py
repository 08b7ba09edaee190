"""Verify says what differs, in lines that people read, and writes nothing."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest

import memory_engine
from memory_engine import (
    Add,
    Chunk,
    CompactionPolicy,
    EngineConfig,
    Plugin,
    ReduceContext,
    Reduction,
    StateView,
    Thread,
    UserMessage,
)
from memory_engine import events as e
from memory_engine.cli import main
from memory_engine.core.chunks import Retention
from memory_engine.core.operations import Batch, BatchReplace, Delete, Operation, Reorder, Update
from memory_engine.replay import Divergence, VerifyReport
from memory_engine.replay.differences import (
    arrow,
    operation_line,
    reducers_behind,
    reductions_differ,
    rows_differ,
)

ROOT = Path(__file__).resolve().parents[2]
POSITION = "pos & 0xFFFFFFFF"
PLACE = "(pos >> 12 & 0xFFFFFFF)"


def tamper(path: str, statement: str, *values: object) -> None:
    """Change a file behind the engine's back."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        assert 0 < raw.execute(statement, values).rowcount


async def filled(path: str, *events: e.Event, plugins: Sequence[Plugin] = (), thread_id: str = "t") -> None:
    """A thread with these events in a file."""
    async with memory_engine.open(path, plugins=plugins) as engine:
        await (await engine.create_thread(thread_id)).dispatch_all(events)


async def verified(path: str, plugins: Sequence[Plugin] = ()) -> Divergence:
    """What diverges in the one thread of a file."""
    config = EngineConfig(read_only=True)
    async with memory_engine.open(path, plugins=plugins, config=config) as engine:
        [report] = await engine.verify()
        assert report.divergence is not None
        return report.divergence


def saying(text: str, **fields: object) -> Callable[[StateView, UserMessage, ReduceContext], Reduction]:
    """A reducer that places one chunk."""

    def reduce(_view: StateView, _event: UserMessage, ctx: ReduceContext) -> Reduction:
        chunk = msgspec.structs.replace(Chunk(id=ctx.new_id(), type="note", content=text), **fields)
        return Reduction((Add(chunk.id),), (chunk,))

    return reduce


def with_reducers(*reducers: tuple[str, Callable[[StateView, UserMessage, ReduceContext], Reduction]]) -> Plugin:
    """A plug-in whose reducers alone read user messages, under these names."""
    plugin = Plugin("p")
    plugin.replaces_reducer("reduce_user_message")(lambda _view, _event, _ctx: Reduction())
    for order, (name, reduce) in enumerate(reducers, 1):
        plugin.reducer(UserMessage, name=name, order=order)(reduce)
    return plugin


async def test_changed_operations_are_said_line_by_line(tmp_path: Path) -> None:
    """Operation, chunk and field, old and new, with event, type and reducer."""
    path = str(tmp_path / "m.db")
    await filled(path, UserMessage(content="Hello"))
    plugin = Plugin("p")

    @plugin.replaces_reducer("reduce_user_message")
    def reduce(_view: StateView, _event: UserMessage, ctx: ReduceContext) -> Reduction:
        chunk = Chunk(id=ctx.new_id(), type="user_message", content="Hi", retention=Retention.CRITICAL)
        return Reduction((Add(chunk.id, first=True),), (chunk,))

    found = await verified(path, [plugin])
    assert ("t", 1, "operations", "user_message", "reduce_user_message") == (
        found.thread_id, found.seq, found.kind, found.event_type, found.reducer,
    )  # fmt: skip
    assert (
        "operation 1: ADD 1.0 → ADD 1.0 first",
        "chunk 1.0 content: 'Hello' → 'Hi'",
        "chunk 1.0 retention: 'batch_compressible' → 'critical'",
        "chunk 1.0 tokens: 2 → 1",
    ) == found.difference
    assert "thread 't', seq 1 (user_message, reducer reduce_user_message): operations differ" == found.title
    assert str(found).endswith("operation 1: ADD 1.0 → ADD 1.0 first (and 3 lines more)")


async def test_long_texts_are_cut_around_the_first_difference(tmp_path: Path) -> None:
    """A megabyte that differs in one letter is one short line."""
    path = str(tmp_path / "m.db")
    long = "x" * 700_000 + "A" + "y" * 300_000
    old, new = (with_reducers(("said", saying(text))) for text in (long, long.replace("A", "B")))
    await filled(path, UserMessage(content="q"), plugins=[old])
    [line] = (await verified(path, [new])).difference
    assert line.startswith(f"chunk 1.0 content: …'{'x' * 24}A{'y' * 47}'… → …'{'x' * 24}B")
    assert line.endswith("(from character 700,001 on, of 1,000,001 and 1,000,001)")


@pytest.mark.parametrize(
    ("recorded", "now", "blamed"),
    [
        ("ab", "aB", "b"),
        ("ab", "Ab", "a"),
        ("abc", "aBc", "b"),
        ("abc", "AbC", "a, b, c"),
        ("ab", "aa", "b"),
    ],
)
async def test_the_reducer_that_changed_is_named(tmp_path: Path, recorded: str, now: str, blamed: str) -> None:
    """Of several it is the one whose operations differ; where it cannot be told, all that may be it."""
    path = str(tmp_path / "m.db")
    names = "abc"[: len(recorded)]
    old, new = (
        with_reducers(*((name, saying(text)) for name, text in zip(names, texts, strict=True)))
        for texts in (recorded, now)
    )
    await filled(path, UserMessage(content="q"), plugins=[old])
    assert blamed == (await verified(path, [new])).reducer


def part(*texts: str) -> Reduction:
    """What a reducer does that adds chunks of these texts; ids do not matter here."""
    chunks = tuple(Chunk(id=f"1.{ord(text)}", type="note", content=text) for text in texts)
    return Reduction(tuple(Add(chunk.id) for chunk in chunks), chunks)


@pytest.mark.parametrize(
    ("parts", "recorded", "expected"),
    [
        ({"a": "x", "b": "y"}, "xyz", ("b",)),
        ({"a": "x", "b": "z"}, "xyz", ("a", "b")),
        ({"a": "xz", "b": "y"}, "xy", ("a",)),
        ({"a": "x", "b": "yz"}, "xy", ("b",)),
        ({"a": "x", "b": "", "c": "z"}, "xyz", ("a", "b", "c")),
        ({"a": "x", "b": "q", "c": "z"}, "xyz", ("b",)),
        ({"a": ""}, "x", ("a",)),
        ({}, "x", ()),
    ],
)
def test_who_may_be_behind_a_difference(parts: dict[str, str], recorded: str, expected: tuple[str, ...]) -> None:
    """Reducers that did what stands at their place, from the front or from the back, are not it."""
    assert expected == reducers_behind([(name, part(*texts)) for name, texts in parts.items()], part(*recorded))


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        (None, "nothing"),
        (Add("5.0"), "ADD 5.0"),
        (Add("5.1", container="5.0", after="4.0"), "ADD 5.1 in 5.0 after 4.0"),
        (Reorder("5.0", before="3.0"), "REORDER 5.0 before 3.0"),
        (Update("3.0", "5.0"), "UPDATE 3.0 -> 5.0"),
        (Batch((Delete("1.0"), Add("5.0", first=True))), "BATCH [DELETE 1.0; ADD 5.0 first]"),
        (BatchReplace(("1.0", "2.0")), "BATCH_REPLACE 1.0, 2.0 -> nothing"),
    ],
)
def test_an_operation_in_a_line(operation: Operation | None, line: str) -> None:
    """With its place, inside batches too."""
    assert line == operation_line(operation)


def test_many_differences_are_counted() -> None:
    """Twenty lines at most; the rest is a number."""
    lines = reductions_differ(Reduction(), part(*map(chr, range(200, 250))))
    assert (20, "… and 81 more") == (len(lines), lines[-1])
    assert "operation 1: nothing → ADD 1.200" == lines[0]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("a\x1b[31m\u202e", "", "'a\\x1b[31m\\u202e' → ''"),
        (3, 2, "3 → 2"),
        (None, {"a": [1]}, "None → {'a': [1]}"),
        (True, "True", "True → 'True'"),
    ],
)
def test_values_are_shown_as_python_writes_them(before: object, after: object, line: str) -> None:
    """Text in quotes, whatever it holds."""
    assert line == arrow(before, after)


def test_rows_of_a_view_differ_by_key_and_field() -> None:
    """Which row is missing, which was never given, and which field of which differs; bytes where nothing else does."""
    stored = {"tone": b'{"value":"a","seq":3}', "old": b"1", "same": b"[1]", "torn": b'{"x', "spaced": b'{"v": 1}'}
    made = {"tone": b'{"value":"b","seq":3}', "new": b"2", "same": b"[1]", "torn": b"{}", "spaced": b'{"v":1}'}
    assert (
        "prefs 'new': its row is missing",
        "prefs 'old': a row that the log never gave",
        "prefs 'spaced': the same values in other bytes: '{\"v\": 1}' → '{\"v\":1}'",
        "prefs 'tone' value: 'a' → 'b'",
        "prefs 'torn': '{\"x' → '{}'",
    ) == rows_differ("prefs", stored, made)


async def prefer(path: str) -> None:
    """A file whose one thread is a user's, with two preferences, both read."""
    async with memory_engine.open(path) as engine:
        user = engine.user("u")
        await user.preferences.update("tone", "dry")
        await user.preferences.update("length", "short")
        assert 2 == len(await user.preferences.all())


async def test_a_changed_row_of_a_view_is_said_with_key_and_field(tmp_path: Path) -> None:
    """By a field that differs; the view is named."""
    path = str(tmp_path / "m.db")
    await prefer(path)
    tamper(
        path,
        "UPDATE projection_rows SET value = CAST(replace(value, '\"dry\"', '\"wet\"') AS BLOB) "
        "WHERE projection = 'preferences' AND key = 'tone'",
    )
    found = await verified(path)
    assert ("projection", "preferences", ("preferences 'tone' value: 'wet' → 'dry'",)) == (
        found.kind, found.reducer, found.difference,
    )  # fmt: skip


async def test_changed_rows_of_the_state_are_said_by_chunk(tmp_path: Path) -> None:
    """A key that moved and a row that is gone."""
    path = str(tmp_path / "m.db")
    await filled(path, *(UserMessage(content=text) for text in "abc"))
    tamper(path, "UPDATE live SET key = x'9999' WHERE seq = 2")
    tamper(path, "DELETE FROM live WHERE seq = 3")
    found = await verified(path)
    assert "state" == found.kind
    assert ("chunk 2.0 key: '9999' → '8100'", "chunk 3.0: its row is missing") == found.difference


async def test_changed_counters_and_hashes_of_the_head_are_said(tmp_path: Path) -> None:
    """The counters first kept, then given by the log; the head's hash."""
    path = str(tmp_path / "m.db")
    await filled(path, UserMessage(content="a"))
    tamper(path, "UPDATE heads SET tokens = 7")
    assert ("the head's tokens: 7 → 1",) == (await verified(path)).difference
    tamper(path, "UPDATE heads SET hash = x'00'")
    found = await verified(path)
    assert ("head", True) == (found.kind, found.difference[0].startswith("hash: '00' → '"))


async def test_a_changed_snapshot_is_found(tmp_path: Path) -> None:
    """Who reads the past would see it: its seq and its chunk are named. One that no reader takes is let be."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        for _ in range(5):
            await thread.dispatch_all([e.ExternalInject(source="s", content="x") for _ in range(250)])
        await thread.compaction.settle()
        assert (await thread.replay.verify()).ok
    with closing(sqlite3.connect(path)) as raw:
        [(key, value)] = raw.execute("SELECT key, value FROM projection_rows WHERE projection = 'snapshots'").fetchall()
    hash_, chunks, tokens, live = msgspec.msgpack.decode(value)
    changes = "UPDATE projection_rows SET value = ? WHERE projection = 'snapshots'"
    tamper(path, changes, msgspec.msgpack.encode((hash_, chunks, tokens + 1, live[1:])))
    found = await verified(path)
    assert ("snapshot", int(key.removeprefix("state:"))) == (found.kind, found.seq)
    assert (
        f"chunk {live[0]['chunk_id']}: its row is missing",
        f"state tokens: {tokens + 1} → {tokens}",
    ) == found.difference
    tamper(path, changes, msgspec.msgpack.encode((b"another", chunks, tokens, live[1:])))
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        assert (await engine.thread("t").replay.verify()).ok


async def searched(path: str, *, documents: bool = False) -> None:
    """A file whose thread has a search index, with all its words. Nothing is compacted: when is a matter of timing."""
    config = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(path, config=config) as engine:
        thread: Thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"Order A-{n} of apples") for n in range(90)])
        await thread.forget(event_ids=[(await thread.replay.latest(1))[0].id])
        await thread.admin.prepare_search()
        await thread.dispatch(UserMessage(content="and pears"))
        if documents:
            await engine.tenant("acme").documents.add("A paper about plums.", id="d")
            await engine.tenant("acme").documents.add("A paper about cherries.", id="d")
            await engine.tenant("acme").admin.prepare_search()
        assert all(report.ok for report in await engine.verify())


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        (f"UPDATE passages SET role = 'x' WHERE {PLACE} = 7", "passage 7.0 role: 'x' → 'user'"),
        (
            f"UPDATE passages SET terms = replace(terms, 'appl', 'pear') WHERE {PLACE} = 7",
            "passage 7.0 words: 'order a6 6 pear' → 'order a6 6 appl'",
        ),
        (f"DELETE FROM passages WHERE {PLACE} = 7", "passage 7.0: it is missing"),
        (
            "INSERT INTO passages SELECT pos + 1, kind, role, speaker, at_us, tid, key, origins, ended, size, terms "
            f"FROM passages WHERE {PLACE} = 7",
            "passages: 91 → 90",
        ),
    ],
)  # fmt: skip
async def test_a_damaged_search_index_is_found(tmp_path: Path, statement: str, line: str) -> None:
    """A passage that was changed, lost or made up; a rebuild mends what is not the words of it."""
    path = str(tmp_path / "m.db")
    await searched(path)
    tamper(path, statement)
    found = await verified(path)
    assert ("search", (line,)) == (found.kind, found.difference)
    if statement.startswith("INSERT"):
        return  # words that the full-text index never had cannot be taken out of it
    async with memory_engine.open(path) as engine:
        await engine.thread("t").replay.rebuild((), search=True)
        assert (await engine.thread("t").replay.verify()).ok


async def test_an_index_with_ended_and_dropped_passages_verifies(tmp_path: Path) -> None:
    """Documents that were replaced, and what was forgotten, are as the log says."""
    await searched(str(tmp_path / "m.db"), documents=True)


def dump(path: str) -> list[str]:
    """All that a file holds."""
    with closing(sqlite3.connect(path)) as raw:
        return list(raw.iterdump())


def test_the_command_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even what an engine would mend or deliver: a compaction that never ended stays open."""
    path = str(tmp_path / "m.db")
    anyio.run(prefer, path)
    started = e.CompactionStarted(
        compaction_id="c", trigger="manual", chunk_ids=(), compactor="x", owner="0@nowhere", deadline_us=0
    )
    anyio.run(filled, path, UserMessage(content="a"), started)
    before = dump(path)
    assert 0 == main(["verify", "--db", path])
    assert 0 == main(["verify", "--jobs", "2", "--db", path])
    assert before == dump(path)
    assert "2 threads, 4 events" in capsys.readouterr().out


def test_the_command_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A title and the lines for people, all of it for programs; exit code 1."""
    path = str(tmp_path / "m.db")
    anyio.run(prefer, path)
    tamper(path, "DELETE FROM projection_rows WHERE key = 'tone'")
    assert 1 == main(["verify", "--db", path])
    assert [
        "thread 'user:u', seq 2 (preferences): rows of a view differ",
        "  preferences 'tone': its row is missing",
    ] == capsys.readouterr().out.splitlines()[:2]
    assert 1 == main(["verify", "--db", path, "--json"])
    [found] = json.loads(capsys.readouterr().out)["divergences"]
    assert ("projection", ["preferences 'tone': its row is missing"]) == (found["kind"], found["difference"])


def test_reports_are_plain_data() -> None:
    """What `--json` prints, of a report that is clean and of one that is not."""
    clean = VerifyReport(thread_id="t", events=1, head_seq=1, head_hash="aa")
    diverged = VerifyReport(
        thread_id="t", events=1, head_seq=1, head_hash="aa", divergence=Divergence(thread_id="t", seq=1, kind="hash")
    )
    assert (True, None) == (clean.as_data()["ok"], clean.as_data()["divergence"])
    assert json.loads(json.dumps(diverged.as_data()))["divergence"]["kind"] == "hash"
