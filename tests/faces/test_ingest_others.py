"""Refusals that help, mappings, readers of plug-ins, folders."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, Plugin
from memory_engine.core.moments import moment
from memory_engine.errors import IngestError, InvalidArgument
from memory_engine.ingest import Ingestion, IngestOptions, Record, RecordedConversation, RecordedFile
from memory_engine.ingest.mapping import mapping_of
from tests.command_line import Run
from tests.faces.test_ingest_tools import came_in, engine, events_of, ingest

__all__ = ["engine"]
AT = "2026-02-03T04:05:06Z"
HI = {"role": "user", "content": "hi"}


def lines(*values: object) -> str:
    """JSON Lines."""
    return "".join(json.dumps(value) + "\n" for value in values)


def put(folder: Path, name: str, value: object) -> Path:
    """A file with a text, or with JSON."""
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"sender": "x", "chat_messages_v9": [], "uuid": "u"}, ["sender, chat_messages_v9, uuid", "Claude"]),
        ([{"ts": 1, "type": "say", "say": "text", "text": "x"}], ["api_conversation_history.json"]),
        ({"foo": 1, "observation": ""}, ["(its keys: foo, observation); docs/how-to/ingest-recordings.md", "--map"]),
    ],
)
def test_a_refusal_helps_and_leaves_nothing(tmp_path: Path, run: Run, value: object, words: list[str]) -> None:
    """It says what was seen, and what comes nearest. No database is made for it."""
    path = put(tmp_path, "x.json", value)
    code, _, error = run("ingest", str(path), "--db", str(tmp_path / "m.db"))
    assert 1 == code
    assert all(word in error for word in words)
    assert not list(tmp_path.glob("m.db*"))


async def test_a_conversation_refused_at_its_first_message_leaves_no_thread(tmp_path: Path) -> None:
    """A thread is made once a message of it could be read."""
    path = put(tmp_path, "x.jsonl", lines({"role": "cat", "content": "m"}))
    async with memory_engine.open(":memory:") as opened:
        await ingest(opened, path)
        assert [] == await opened.threads()


@pytest.mark.parametrize(
    ("words", "value", "texts"),
    [
        ("role=by.type,text=t,time=at,name=by.id", {"by": {"type": "human", "id": "A"}, "t": "x"}, ["user_message"]),
        ("role=who,text=t,role:0=user,role:1=assistant", {"who": 1, "t": "hello"}, ["llm_text_response"]),
        ("role=r,text=t,calls=c", {"r": "bot", "t": None, "c": [{"name": "ls", "args": {}}]}, ["llm_tool_call"]),
        ("messages=log.turns,thread=log.id,text=t", {"log": {"id": "k", "turns": [{"t": "a"}]}}, ["user_message"]),
        ("thread=room,text=t", {"room": "k", "t": "a"}, ["user_message"]),
    ],
)  # fmt: skip
async def test_a_mapping_reads_anything(
    engine: Engine, tmp_path: Path, words: str, value: object, texts: list[str]
) -> None:
    """It says where the parts of a message are."""
    ingestion = Ingestion(engine, IngestOptions(format="map"), readers=[mapping_of(words)])
    assert await ingestion.file(put(tmp_path, "x.json", [value]))
    (thread,) = ingestion.report.threads
    assert ("x/k" if "thread=" in words else "x") == thread.id
    assert texts == [event.type for event in await events_of(engine, thread.id)]


@pytest.mark.parametrize("words", ["role", "rolle=x,text=t", "role=x", "/no/such.json"])
def test_a_mapping_that_says_too_little_is_refused(words: str) -> None:
    """With what to write."""
    with pytest.raises(InvalidArgument, match=r"role=author\.type,text=body"):
        mapping_of(words)


def test_a_mapping_may_stand_in_a_file(tmp_path: Path, run: Run) -> None:
    """It has the same keys."""
    put(tmp_path, "map.json", {"role": "who", "text": "t", "roles": {"me": "user"}})
    path = put(tmp_path, "x.jsonl", lines({"who": "me", "t": "hi"}, {"who": "bot", "t": "hello"}, {"who": "bot"}))
    code, out, _ = run("ingest", str(path), "--db", str(tmp_path / "m.db"), "--map", str(tmp_path / "map.json"))
    assert 0 == code
    assert "2 messages into 1 thread" in out
    assert "not taken: 1 record without a text" in out


class Diary:
    """Reads entries of a diary."""

    name = "diary"

    def sees(self, file: RecordedFile) -> bool:
        """By the key that only a diary has."""
        return "entry" in file.first_keys

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """One conversation."""
        yield RecordedConversation(map(self._read, file.records), label="notes")

    def _read(self, record: Record | IngestError) -> Record | IngestError:
        if isinstance(record, IngestError) or not isinstance(record.value, dict):
            return record
        said = {"role": "user", "content": record.value["entry"]}
        return Record(said, record.line, record.number, at=moment(record.value["day"]), origin="")


async def test_a_plug_in_adds_a_reader(tmp_path: Path) -> None:
    """It is tried before the built-in ones, and its name is a format."""
    plugin = Plugin("diaries")
    plugin.reader(Diary())
    path = put(tmp_path, "x.jsonl", lines({"entry": "Rain", "day": AT, "role": "user", "content": "no"}))
    async with memory_engine.open(":memory:", plugins=[plugin]) as opened:
        for format_ in ("auto", "diary"):
            report = await ingest(opened, path, format=format_)
            assert ["x/notes"] == [one.id for one in report.threads]
        (event,) = await events_of(opened, "x/notes")
    assert ("Rain", moment(AT)) == (getattr(event.event, "content", ""), event.occurred_at)


def test_a_folder_is_read(tmp_path: Path, run: Run) -> None:
    """Every recording in it, also where files have the same name; what is none is passed over, and named."""
    for name, text in (("a/talk.jsonl", lines(HI)), ("b/talk.jsonl", lines(HI)), ("b/package.json", '{"name": "x"}')):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        put(tmp_path / "in", name, text)
    db = str(tmp_path / "m.db")
    code, out, _ = run("ingest", str(tmp_path / "in"), "--db", db, "--json")
    report = json.loads(out)
    assert (0, ["a/talk", "b/talk"]) == (code, [thread["id"] for thread in report["threads"]])
    assert [str(tmp_path / "in" / "b" / "package.json")] == [one["path"] for one in report["passed_over"]]
    code, out, _ = run("ingest", str(tmp_path / "in" / "*" / "talk.jsonl"), "--db", db)
    assert 0 != code
    code, out, _ = run("ingest", str(tmp_path / "in" / "a" / "*.jsonl"), "--db", db)
    assert (0, True) == (code, "1 message into 1 thread" in out)


def test_a_format_that_nobody_knows_is_refused(tmp_path: Path, run: Run) -> None:
    """With those that are known."""
    path = put(tmp_path, "x.jsonl", lines(HI))
    code, _, error = run("ingest", str(path), "--db", str(tmp_path / "m.db"), "--format", "klaude")
    assert 0 != code
    assert "claude-code" in error


async def test_every_answer_of_a_real_log_of_calls_comes_in(engine: Engine) -> None:
    """OpenHands' logs of model calls, whose response follows the messages."""
    from tests.recordings import real

    path = real("openhands/llm_log_claude.json")
    messages = json.loads(path.read_text())["messages"]
    report = await ingest(engine, path)
    assert [] == report.errors
    assert len(messages) + 1 == report.messages
    roles = Counter(message["role"] for message in messages)
    assert roles["tool"] == (await came_in(engine, path.stem)).results


@pytest.mark.parametrize(
    "value", [True, -1, "yesterday", "", "12", [], None, float("inf"), 10**30, "2026-13-01T00:00:00", "0" * 40]
)
def test_what_is_not_a_moment_is_none(value: object) -> None:
    """A time that makes no sense does not cost the message."""
    assert moment(value) is None
