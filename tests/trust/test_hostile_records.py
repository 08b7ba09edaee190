"""Recordings and logs made to hurt: one bad record costs itself, and nothing takes all memory."""

import gzip
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage, errors
from memory_engine.cli import main
from memory_engine.core.limits import ReadingLimits
from memory_engine.formats.values import is_json
from memory_engine.ingest import Ingestion, IngestOptions, IngestReport
from memory_engine.ingest.records import read_records
from tests.trust.hostile_files import is_linear

HELLO = {"role": "user", "content": "hello"}


def called(arguments: str) -> dict[str, object]:
    """A message with a call."""
    return {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}],
    }


def nested(depth: int) -> str:
    """Lists in lists."""
    return "[" * depth + "]" * depth


async def ingested(path: Path, limits: ReadingLimits) -> IngestReport:
    """The report of a file whose bad records are passed over."""
    async with memory_engine.open(":memory:") as engine:
        ingestion = Ingestion(engine, IngestOptions(skip_invalid=True, limits=limits))
        await ingestion.file(path)
        return ingestion.report


HOSTILE = {
    "nested lists": nested(100_000),
    "nested objects": '{"a":' * 100_000,
    "nested content": json.dumps({**HELLO, "content": json.loads(nested(900))}),
    "nested event": '{"type": "user_message", "payload": {"content": ' + nested(900) + "}}",
    "many values": json.dumps({**HELLO, "content": [0] * 5_000}),
    "a long number": '{"role": "user", "content": ' + "9" * 5_000 + "}",
    "infinity": '{"role": "user", "content": 1e999}',
    "half of a character": '{"role": "user", "content": "\\ud800"}',
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_record_costs_itself(tmp_path: Path, what: str) -> None:
    """Those before and after it are taken, and the report names its line."""
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join((json.dumps(HELLO), HOSTILE[what], json.dumps(HELLO))))
    report = await ingested(path, ReadingLimits(json_values=2_000))
    assert ([2], 1) == ([error.line for error in report.errors], report.invalid)
    assert 2 == report.messages


async def test_arguments_that_are_nested_are_a_text(tmp_path: Path) -> None:
    """What a model wrote as arguments need not be JSON."""
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, (HELLO, called(nested(100_000)), called("{}")))))
    report = await ingested(path, ReadingLimits())
    assert 2 <= report.messages
    assert not is_json(nested(100_000))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_record_of_many_values_is_refused_before_it_takes_memory(tmp_path: Path, name: str) -> None:
    """Each empty list takes a hundred times the memory of its two signs."""
    path = tmp_path / name
    path.write_text(f"[{'[],' * 100_000}[]]" if name == "a.jsonl" else f'{{"messages": [[{"[]," * 100_000}[]]]}}')
    (error,) = read_records(path, ReadingLimits(json_values=10_000))
    assert isinstance(error, errors.IngestError)
    assert "raise it: limits=ReadingLimits(json_values=…)" in str(error)


@pytest.mark.parametrize("piece", ["[", "{", '"', " ", "\n", "1", "1,", "[],", '{"a":', "\\", '"a"\n', "{}\n"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_records_are_read_in_linear_time(tmp_path: Path, name: str, piece: str) -> None:
    """However a file is broken."""

    def made(size: int) -> Path:
        path = tmp_path / f"{size}-{name}"
        path.write_text("[" + piece * (size // len(piece)))
        return path

    assert is_linear(lambda path: list(read_records(path)), made, 20_000)


async def test_a_packed_log_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    """64 KB of gzip can be 64 MB; unpacked by hand it is read as any other."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="hello"))
        await thread.replay.export(tmp_path / "t.jsonl")
    head, rest = (tmp_path / "t.jsonl").read_bytes().split(b"\n", 1)
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(head + b"\n" + b" " * 68_000_000 + rest, 1))
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(errors.ImportRefused, match="unpacks to over 200 times its size"):
            await engine.transfer.import_log(tmp_path / "t.jsonl.gz", scopes="as exported")
        assert [] == await engine.threads()


def test_limits_are_raised_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the name that the error gives; a wrong name is refused."""
    path, db = tmp_path / "a.md", str(tmp_path / "m.db")
    path.write_text("word " * 100)
    words = ["docs", "add", str(path), "--tenant", "acme", "--db", db]
    assert 1 == main([*words, "--limits", "file_bytes=100,mail_parts=3"])
    assert "ReadingLimits(file_bytes=…)" in capsys.readouterr().err
    assert 0 == main([*words, "--limits", "file_bytes=1000"])
    for wrong in ("bytes=3", "file_bytes=0", "file_bytes"):
        with pytest.raises(SystemExit):
            main([*words, "--limits", wrong])
