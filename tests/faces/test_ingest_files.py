"""Files of every shape, whole and broken, through the records that they hold to threads in an engine."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine.core.recordings import Record
from memory_engine.core.records import NewEvent
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine
from memory_engine.errors import IngestError
from memory_engine.events import ExecutionPause, MemoryForget, SessionStarted, TodoItem, TodoSet, UserMessage
from memory_engine.ingest import Format, Ingestion, IngestOptions, IngestReport, holds_a_log, json_stream, records
from memory_engine.ingest.events import event_id
from memory_engine.ingest.records import read_records
from memory_engine.runtime.config import EngineConfig

SAMPLE = Path(memory_engine.__file__).parent / "cli" / "sample"
HELLO: list[object] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
]


def lines(values: Sequence[object]) -> str:
    """JSON Lines."""
    return "".join(json.dumps(value) + "\n" for value in values)


def put(folder: Path, name: str, text: str | bytes) -> Path:
    """A file with this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


async def ingest(engine: Engine, path: Path, options: IngestOptions = IngestOptions()) -> IngestReport:  # noqa: B008 - frozen
    """Ingest one file into an engine."""
    ingestion = Ingestion(engine, options)
    await ingestion.file(path)
    return ingestion.report


async def threads_of(path: Path, options: IngestOptions = IngestOptions()) -> dict[str, int]:  # noqa: B008 - frozen
    """The threads that a file becomes in an empty engine, each with its messages; it has no error."""
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, path, options)
    assert [] == report.errors
    return {thread.id: thread.messages for thread in report.threads}


async def fault_of(path: Path, options: IngestOptions = IngestOptions()) -> str:  # noqa: B008 - frozen
    """The one error that a file has."""
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, path, options)
    (error,) = report.errors
    return str(error).replace(str(path), path.name)


TRAJECTORIES = [{"task_id": 7, "trial": 0, "traj": HELLO}, {"reward": 1.0, "traj": HELLO[:2]}]


@pytest.mark.parametrize(
    ("name", "text", "threads"),
    [
        ("talk.json", json.dumps(HELLO), {"talk": 3}),
        ("talk.json", json.dumps(HELLO, indent=2), {"talk": 3}),
        ("talk.json", json.dumps({"model": "m", "messages": HELLO, "n": 1}), {"talk": 3}),
        ("talk.json", json.dumps({"messages": HELLO}, indent=1), {"talk": 3}),
        ("talk.jsonl", lines(HELLO), {"talk": 3}),
        ("talk.json", lines(HELLO), {"talk": 3}),
        ("talk.txt", "\n" + lines(HELLO).replace("\n", "\r\n\r\n"), {"talk": 3}),
        ("talk.jsonl", "\ufeff" + lines(HELLO), {"talk": 3}),
        ("talk.json", "\ufeff" + json.dumps(HELLO), {"talk": 3}),
        ("many.jsonl", lines([{"messages": HELLO}, HELLO[:1]]), {"many/1": 3, "many/2": 1}),
        ("many.json", json.dumps([{"messages": HELLO}, {"messages": []}]), {"many/1": 3, "many/2": 0}),
        ("air.json", json.dumps(TRAJECTORIES), {"air/7-0": 3, "air/2": 2}),
        ("none.json", "[]", {}),
        ("none.jsonl", "", {}),
    ],
)
async def test_a_file_becomes_its_threads(tmp_path: Path, name: str, text: str, threads: dict[str, int]) -> None:
    """Lists, objects, lines and trajectories are told apart by their first record."""
    assert threads == await threads_of(put(tmp_path, name, text))


async def test_a_thread_may_be_named(tmp_path: Path) -> None:
    """A name that is given stands in for the file's."""
    path = put(tmp_path, "many.jsonl", lines([{"messages": HELLO}]))
    assert {"mine/1": 3} == await threads_of(path, IngestOptions(thread_id="mine"))


@pytest.mark.parametrize(
    ("format", "value", "error"),
    [
        ("tau", {"messages": HELLO}, "x.json:1: conversation 1 has no list of traj"),
        ("openai", {"traj": HELLO}, "x.json:1: message 1: the role null is not one of"),
        ("events", HELLO[1], "x.json:1: message 1: the event type '' is not known here"),
        ("auto", 5, "x.json:1: a number that is neither a message, nor a conversation, nor an event"),
    ],
)
async def test_a_given_format_is_not_guessed_at(tmp_path: Path, format: Format, value: object, error: str) -> None:
    """A file that is of another format than it is said to be is an error."""
    path = put(tmp_path, "x.json", json.dumps(value))
    assert (await fault_of(path, IngestOptions(format=format))).startswith(error)


@pytest.mark.parametrize(
    ("format", "value", "threads"),
    [
        ("tau", TRAJECTORIES, {"x/7-0": 3, "x/2": 2}),
        ("openai", [{"messages": HELLO}], {"x/1": 3}),
        ("openai", HELLO, {"x": 3}),
    ],
)
async def test_a_given_format_is_taken(tmp_path: Path, format: Format, value: object, threads: dict[str, int]) -> None:
    """A file of the format that it is said to be gives its threads."""
    path = put(tmp_path, "x.json", json.dumps(value))
    assert threads == await threads_of(path, IngestOptions(format=format))


def test_a_line_without_end_costs_that_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line over the limit is an error, is not held, and the next line is read."""
    monkeypatch.setattr(records, "VALUE_CHARS_MAX", 1 << 20)
    path = put(tmp_path, "x.jsonl", '"' + "x" * (5 << 20) + '"\n' + GOOD)
    error, record = read_records(path)
    assert isinstance(error, IngestError)
    assert (1, "a line of over 1 MB") == (error.line, error.why)
    assert isinstance(record, Record)
    assert 2 == record.line


async def test_skipping_goes_on_after_a_conversation(tmp_path: Path) -> None:
    """A broken line among conversations costs that line; a name that is taken costs that conversation."""
    texts = ["5", "{", json.dumps({"messages": HELLO}), "{", json.dumps({"messages": HELLO})]
    path = put(tmp_path, "x.jsonl", "\n".join(texts))
    async with memory_engine.open(":memory:") as engine:
        await engine.create_thread("x/5", user_id="ana")
        report = await ingest(engine, path, IngestOptions(skip_invalid=True, user_id="ben"))
    assert ["x/3"] == [thread.id for thread in report.threads]
    assert [1, 2, 4, 5] == [error.line for error in report.errors]


GOOD = '{"role": "user", "content": "Hi"}\n'


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (
            "x.jsonl",
            GOOD + "{oops\n",
            "x.jsonl:2: not JSON: Expecting property name enclosed in double quotes "
            "at column 2 (kept 1 message before it)",
        ),
        ("x.jsonl", b'{"role": "\xff"}\n', "x.jsonl:1: not UTF-8: byte 0xff"),
        (
            "x.jsonl",
            GOOD + '{"role": NaN}',
            "x.jsonl:2: not JSON: NaN is not a JSON number (kept 1 message before it)",
        ),
        (
            "x.jsonl",
            GOOD * 2 + '{"role": "cat", "content": "m"}',
            'x.jsonl:3: the role "cat" is not one of assistant, developer, function, system, tool, user '
            "(kept 2 messages before it)",
        ),
        (
            "x.json",
            json.dumps([*HELLO, {"role": "user"}], indent=1),
            "x.json:14: message 4: the message has no content (kept 3 messages before it)",
        ),
        (
            "x.json",
            json.dumps(HELLO, indent=1)[:-2] + ", }",
            "x.json:13: not JSON: Expecting value at column 5 (kept 3 messages before it)",
        ),
        ("x.json", b'[{"role": "user", "content": "\xc3"}]', "x.json:1: not UTF-8: byte 0xc3"),
        (
            "x.json",
            b"[%s,\n\n\xff]" % GOOD.encode(),
            "x.json:4: not UTF-8: byte 0xff (kept 1 message before it)",
        ),
        (
            "x.json",
            "[]\n[]",
            "x.json:2: something follows the JSON value; if this is JSON Lines, name the file .jsonl",
        ),
        ("x.json", '{"a": 1', "x.json:1: not JSON: expected '}', found the end of the file"),
        (
            "x.json",
            '{"a": 1}',
            "x.json:1: an object that is neither a message, nor a conversation, nor an event (its keys: a); "
            "docs/how-to/ingest-recordings.md lists the forms that are read, and --map reads any other",
        ),
        ("x.jsonl", "[" * 100_000, "x.jsonl:1: not usable: its values are nested too deep"),
        ("x.json", "[" * 100_000, "x.json:1: not usable: its values are nested too deep"),
        (
            "x.json",
            json.dumps([{"messages": HELLO}, {"messages": [*HELLO, 5]}]),
            "x.json:1: x/2, message 4: a message is an object, this is a number (kept 3 messages before it)",
        ),
        ("x.json", json.dumps([{"messages": HELLO}, 5]), "x.json:1: conversation 2 has no list of messages"),
        (
            "x.json",
            json.dumps([TRAJECTORIES[0], TRAJECTORIES[0]]),
            "x.json:1: a second conversation would be thread 'x/7-0'",
        ),
        (
            "x.jsonl",
            '{"role": "user", "content": "\\ud800"}',
            "x.jsonl:1: event 'user_message' cannot be recorded: a lone surrogate is not a character at a text; "
            "nothing was written (kept 0 messages before it)",
        ),
    ],
)
async def test_an_error_names_its_place(tmp_path: Path, name: str, text: str | bytes, error: str) -> None:
    """File, line, message and cause are told, and what was kept."""
    assert error == await fault_of(put(tmp_path, name, text))


async def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """A missing file and a folder are errors of that file, not of the program."""
    assert "none:1: cannot be read: No such file or directory" == await fault_of(tmp_path / "none")
    assert ":1: cannot be read: Is a directory" in await fault_of(tmp_path)


async def test_skipping_goes_on_after_each_error(tmp_path: Path) -> None:
    """What is broken is listed, what hangs on it too, and the rest is taken."""
    call = {"id": "a", "type": "function", "function": {"name": "", "arguments": "{}"}}
    broken = [
        json.dumps(HELLO[0]),
        "{",
        json.dumps({"role": "assistant", "tool_calls": [call]}),
        json.dumps({"role": "tool", "tool_call_id": "a", "content": "x"}),
        json.dumps(HELLO[1]),
    ]
    path = put(tmp_path, "x.jsonl", "\n".join(broken))
    async with memory_engine.open(":memory:") as engine:
        report = await ingest(engine, path, IngestOptions(skip_invalid=True))
    assert (2, [2, 3, 4], 3) == (report.messages, [error.line for error in report.errors], report.invalid)


async def test_an_extended_file_adds_what_is_new(tmp_path: Path) -> None:
    """A longer recording of the same conversation continues its thread."""
    path = put(tmp_path, "x.jsonl", lines(HELLO))
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, path)
        put(tmp_path, "x.jsonl", lines([*HELLO, HELLO[1]]))
        (thread,) = (await ingest(engine, path)).threads
    assert (1, 3) == (thread.added, thread.known)


async def test_a_changed_file_is_told_apart_from_a_longer_one(tmp_path: Path) -> None:
    """A message that differs from the one in the log is an error that says what to do."""
    path = put(tmp_path, "x.jsonl", lines(HELLO))
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, path)
        put(tmp_path, "x.jsonl", lines([HELLO[0], {"role": "user", "content": "Hello"}, HELLO[2]]))
        (error,) = (await ingest(engine, path)).errors
    assert 2 == error.line
    assert "ingested before, as seq 2 of thread 'x', with other content" in error.why
    assert "(--thread) (kept 1 message before it)" in error.why


async def test_reasoning_added_later_is_a_conflict_not_a_new_event(tmp_path: Path) -> None:
    """The events of one message are taken together or not at all."""
    path = put(tmp_path, "x.jsonl", lines([{"role": "assistant", "content": "4"}]))
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, path)
        put(tmp_path, "x.jsonl", lines([{"role": "assistant", "content": "4", "reasoning": "2 + 2"}]))
        assert 1 == (await ingest(engine, path)).invalid
        assert 1 == (await engine.thread("x").info()).events


async def test_a_thread_of_another_user_is_not_written_to(tmp_path: Path) -> None:
    """A name that is taken by somebody else's thread is an error."""
    path = put(tmp_path, "x.jsonl", lines(HELLO))
    async with memory_engine.open(":memory:") as engine:
        await engine.create_thread("x", user_id="ana")
        (error,) = (await ingest(engine, path, IngestOptions(user_id="ben"))).errors
    assert "thread 'x' is of user 'ana', not 'ben'; use --thread" == error.why


async def test_a_paused_thread_is_an_error_not_a_wait(tmp_path: Path) -> None:
    """Nothing would ever resume the thread while the file is read."""
    path = put(tmp_path, "x.jsonl", lines(HELLO))
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("x")
        await thread.dispatch(ExecutionPause())
        assert "is paused" in (await ingest(engine, path)).errors[0].why


MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, st.text(st.characters(codec="utf-8"))),
        st.builds(lambda text: {"role": "assistant", "content": text}, st.text(st.characters(codec="utf-8"))),
        st.builds(
            lambda text: {"role": "assistant", "content": text, "reasoning_content": "so"},
            st.text(max_size=9),
        ),
        st.just({"role": "system", "content": "Be kind."}),
    ),
    max_size=40,
)


async def test_a_message_keeps_what_has_no_field(tmp_path: Path) -> None:
    """And one that an earlier version ingested without it is known: a file may be ingested again."""
    path = put(tmp_path, "x.jsonl", lines([{"role": "developer", "content": "Be kind.", "x": 1}]))
    async with memory_engine.open(":memory:") as engine:
        earlier = NewEvent(SessionStarted(content="Be kind."), id=event_id("x", 1))
        await (await engine.create_thread("x")).dispatch(earlier)
        (known,) = (await ingest(engine, path)).threads
        assert (0, 1) == (known.added, known.known)
        await ingest(engine, path, IngestOptions(thread_id="y"))
        (kept,) = [recorded.event async for recorded in engine.thread("y").events()]
    assert SessionStarted(content="Be kind.", native='{"openai.chat":{"message":{"role":"developer","x":1}}}') == kept


@settings(max_examples=20, deadline=None)
@given(messages=MESSAGES, cut=st.integers(0, 40))
async def test_ingesting_twice_adds_nothing(
    tmp_path_factory: pytest.TempPathFactory, messages: list[object], cut: int
) -> None:
    """Law: first a part and then the whole, then the whole again, is the same log as the whole once."""
    folder = tmp_path_factory.mktemp("twice")
    part = put(folder, "x.jsonl", lines(messages[:cut]))
    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, part)
        path = put(folder, "x.jsonl", lines(messages))
        await ingest(engine, path)
        before = [info.head_hash for info in await engine.threads()]
        again = await ingest(engine, path)
        assert before == [info.head_hash for info in await engine.threads()]
    assert (0, len(messages)) == (sum(thread.added for thread in again.threads), again.messages)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(JSON, max_size=12), block=st.integers(1, 40), indent=st.sampled_from([None, 1]))
def test_a_list_is_read_alike_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], block: int, indent: int | None
) -> None:
    """Law: reading in blocks that cut values anywhere gives the list, and each element's line."""
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    path = put(tmp_path_factory.mktemp("blocks"), "x.json", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BLOCK", block)
        found = [record for record in read_records(path) if isinstance(record, Record)]
    assert values == [record.value for record in found]
    if indent is None:
        assert {1} >= {record.line for record in found}


def test_a_value_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is not read into memory for a value that no event could hold."""
    monkeypatch.setattr(json_stream, "VALUE_CHARS_MAX", 1 << 20)
    path = put(tmp_path, "x.json", '["' + "x" * (5 << 20))
    (error,) = read_records(path)
    assert isinstance(error, IngestError)
    assert "not usable: broken, or a single value of over 1 MB" == error.why


async def test_events_are_read_as_they_are_written(tmp_path: Path) -> None:
    """Type and payload suffice; a version, an id and times are taken where they are given."""
    events: list[object] = [
        {"type": "user_message", "payload": {"content": "Hi"}},
        {"type": "todo_set", "version": 1, "payload": {"items": ["buy milk"]}},
        {
            "type": "user_message",
            "version": 1,
            "id": "mine",
            "occurred_at": "1969-07-20T20:17:40+00:00",
            "causation_id": "c",
            "payload": {"content": "Later"},
        },
    ]
    async with memory_engine.open(":memory:") as engine:
        assert [] == (await ingest(engine, put(tmp_path, "x.jsonl", lines(events)))).errors
        found = [event async for event in engine.thread("x").events()]
    assert [UserMessage(content="Hi"), TodoSet(items=(TodoItem("1", "buy milk"),))] == [e.event for e in found[:2]]
    assert ("mine", "c", 1969) == (
        found[2].id,
        found[2].causation_id,
        getattr(found[2].occurred_at, "year", 0),
    )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"type": "nonsense", "payload": {}}, "the event type 'nonsense' is not known here"),
        ({"type": "user_message", "payload": []}, "the payload of an event is an object, this is a list"),
        (
            {"type": "user_message", "version": 9, "payload": {}},
            "version 9 of user_message is not known here, 2 is",
        ),
        ({"type": "user_message", "version": 0, "payload": {}}, "version is a whole number from 1 on"),
        ({"type": "user_message", "payload": {}}, "the payload does not fit user_message: Object missing"),
        (
            {"type": "user_message", "payload": {"content": "", "nam": 1}},
            "the payload of user_message has no 'nam'",
        ),
        ({"type": "user_message", "payload": {"content": ""}, "id": 5}, "id is a text, this is a number"),
        ({"type": "user_message", "payload": {"content": ""}, "occurred_at": "noon"}, "a moment in ISO 8601"),
        (
            {"type": "user_message", "payload": {"content": ""}, "occurred_at": "2025-01-01T10:00:00"},
            "occurred_at has no time zone",
        ),
        (
            {"type": "user_message", "payload": {"content": ""}, "seq": 4},
            "it is seq 4 of its log and the thread ends at 0",
        ),
        ({"type": "memory_mark_critical", "payload": {"chunk_ids": "1.0"}}, "the payload does not fit"),
    ],
)
async def test_what_is_no_event_is_refused(tmp_path: Path, event: dict[str, object], why: str) -> None:
    """Nothing is guessed: an unknown type, version, field or place is an error."""
    path = put(tmp_path, "x.jsonl", lines([event]))
    assert why in await fault_of(path, IngestOptions(format="events"))


async def test_a_log_finds_its_places_again(tmp_path: Path) -> None:
    """A printed log, with its compactions and what refers to its chunks, gives the same state elsewhere."""
    from memory_engine.replay.data import event_as_data

    async with memory_engine.open(":memory:") as engine:
        await ingest(engine, SAMPLE / "coding.jsonl")
        thread = engine.thread("coding")
        await thread.dispatch(MemoryForget(chunk_ids=("44.0",)))
        printed = [event_as_data(event) async for event in thread.events()]
        state = await thread.state()
    path = put(tmp_path, "copy.jsonl", lines(printed))
    assert holds_a_log(path)
    config = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=config) as engine:
        assert [] == (await ingest(engine, path)).errors
        assert state == await engine.thread("copy").state()
        assert (await engine.thread("copy").replay.verify()).ok
        other = put(tmp_path, "copy.jsonl", lines([{**printed[0], "id": "another"}]))
        assert "seq 1 of thread 'copy' is another event" in (await ingest(engine, other)).errors[0].why
