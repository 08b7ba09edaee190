"""`memory-engine export` and `import`: a log in one file, as a person and a program carry it."""

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import jsonschema  # type: ignore[import-untyped]
import pytest

import memory_engine
from memory_engine.cli import main
from tests.exports import NEVER, TALK, files_in, lines_of, read, talk

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], db: str) -> Run:
    """Call the command line on the database; gives the exit code and what was printed on either stream."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main([*words] if "--db" in words else [*words, "--db", db])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database with a short conversation, something of which was forgotten."""
    path = str(tmp_path / "talk.db")

    async def fill() -> None:
        async with memory_engine.open(path, config=NEVER) as engine:
            thread = await talk(engine)
            await thread.forget(chunk_ids=["5.0"])

    anyio.run(fill)
    return path


def test_a_log_goes_into_a_file_and_into_another_database(run: Run, tmp_path: Path) -> None:
    """Both say how many events and which head; the copy verifies; again, nothing is added."""
    file, other = str(tmp_path / "t.jsonl.gz"), str(tmp_path / "other.db")
    code, out, err = run("export", "t", file)
    head = out.splitlines()[1].removeprefix("head ")
    assert (0, True, "") == (code, out.startswith(f"10 events of t → {file} ("), err)
    code, out, _ = run("import", file, "--as-exported", "--thread", "copy", "--db", other)
    assert (0, f"head {head}") == (code, out.splitlines()[1])
    assert out.startswith(f"10 events into thread copy of {other}, in ")
    assert "0 events into thread copy" in run("import", file, "--as-exported", "--thread", "copy", "--db", other)[1]
    assert (0, "10 events") == (run("verify", "--db", other)[0], run("verify", "--db", other)[1][10:19])


def test_a_program_gets_both_reports(run: Run, tmp_path: Path) -> None:
    """With --json, one value each."""
    file = str(tmp_path / "t.jsonl")
    exported = json.loads(run("export", "t", file, "--json", "--upto", "4")[1])
    imported = json.loads(run("import", file, "--as-exported", "--json", "--db", str(tmp_path / "other.db"))[1])
    assert (4, 0, "t", 4, 4) == (
        exported["events"], exported["redacted"], imported["thread_id"], imported["events"], imported["added"]
    )  # fmt: skip
    assert exported["head_hash"] == imported["head_hash"]


def test_a_redacted_log_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    """Rules of each kind, with what was forgotten; the import and its verification count what is redacted."""
    file, other = tmp_path / "t.jsonl", str(tmp_path / "other.db")
    rules = ("--redact-type", "tool_result", "--redact-pattern", "blu.", "--redact-field", "name", "--redact-seq", "1")
    code, out, err = run("export", "t", str(file), *rules, "--redact-pattern", "nothing like it")
    assert (1, True) == (code, out.startswith("10 events of t, 6 of them redacted"))  # a rule may be misspelt
    assert "memory-engine: nothing in the log matches this rule: pattern nothing like it\n" == err
    whole = b"\n".join(lines_of(file))
    assert [] == [text for text in (b"blue", b"bicycles", b"3 blue", b'"Ann"', b"three of them") if text in whole]
    assert "; 6 of all are redacted" in run("import", str(file), "--as-exported", "--db", other)[1]
    code, out, _ = run("verify", "--db", other)
    assert (0, True) == (
        code,
        "6 events redacted in a file: what stands in place of their texts cannot be checked" in out,
    )
    assert 6 == json.loads(run("verify", "--json", "--db", other)[1])["redacted"]


def test_what_was_forgotten_is_left_out_or_kept(run: Run, tmp_path: Path) -> None:
    """By itself only if asked for; with other rules, unless it is to be kept."""
    rules = {"plain": (), "asked": ("--redact-forgotten",), "with": ("--redact-field", "name")}
    rules["kept"] = ("--redact-field", "name", "--keep-forgotten")
    for name, words in rules.items():
        assert 0 == run("export", "t", str(tmp_path / name), *words)[0]
    kept = [name for name in rules if b"three of them" in b"".join(lines_of(tmp_path / name))]
    assert ["plain", "kept"] == kept


def test_a_file_is_replaced_only_by_force(run: Run, tmp_path: Path) -> None:
    """An error says how; nothing is left beside it."""
    file = tmp_path / "t.jsonl"
    file.write_text("mine")
    code, _, err = run("export", "t", str(file))
    assert (2, True, "mine") == (code, "the file exists; --force replaces it" in err, file.read_text())
    assert 0 == run("export", "t", str(file), "--force", "--compress")[0]
    assert (b"\x1f\x8b", 12) == (file.read_bytes()[:2], len(read(file)))
    assert {"t.jsonl", "talk.db"} <= set(files_in(tmp_path)) <= {"t.jsonl", "talk.db", "talk.db.lock"}


def test_what_cannot_be_done_is_an_error_in_a_line(run: Run, tmp_path: Path) -> None:
    """No such thread, wrong rules, a spoilt file, another log, no file: exit code 2, and no database made of it."""
    file, other = str(tmp_path / "t.jsonl"), tmp_path / "other.db"
    assert 2 == run("export", "nobody", file)[0]
    assert "not a regular expression" in run("export", "t", file, "--redact-pattern", "(")[2]
    assert "exclude each other" in run("export", "t", file, "--redact-forgotten", "--keep-forgotten")[2]
    assert "name a thread and the file to make" in run("export", "t")[2]
    assert (2, False) == (run("import", file, "--db", str(other))[0], other.exists())
    assert 0 == run("export", "t", file)[0]
    text = Path(file).read_text(encoding="utf-8")
    Path(file).write_text(text.replace("blue", "green"), encoding="utf-8")
    error = json.loads(run("import", file, "--as-exported", "--json", "--db", str(other))[1])["error"]
    assert ("ImportRefused", True) == (error["type"], error["message"].endswith("nothing was imported"))
    Path(file).write_text(text, encoding="utf-8")
    assert "exists already" in run("import", str(_other_log(tmp_path)), "--as-exported")[2]


def _other_log(tmp_path: Path) -> Path:
    """A file of another thread that has the same id."""
    path = tmp_path / "other.jsonl"

    async def write() -> None:
        async with memory_engine.open(":memory:") as engine:
            await (await talk(engine)).replay.export(path)

    anyio.run(write)
    return path


def test_the_schema_is_printed(run: Run, tmp_path: Path) -> None:
    """Without a thread, for people and programs alike; every line fits it."""
    schema = json.loads(run("export", "--schema")[1])
    assert schema == json.loads(run("export", "--schema", "--json")[1])
    run("export", "t", str(tmp_path / "t.jsonl"), "--redact-type", "user_message")
    for line in read(tmp_path / "t.jsonl"):
        jsonschema.validate(line, schema)
    assert len(TALK) + 3 == len(read(tmp_path / "t.jsonl"))
