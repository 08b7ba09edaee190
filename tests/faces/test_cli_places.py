"""Wherever the command line takes the path of a database it takes a URL, and no password of one is ever shown."""

import argparse
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine.cli.program import COMMANDS, build_parser
from memory_engine.errors import BackupFailed, SchemaError, StorageBusy, StorageFailed, StorageUnreachable
from memory_engine.errors.base import is_url, shown_place
from memory_engine.files.verify_file import verify_file
from memory_engine.storage.places import restore, schema_of
from tests.command_line import Run

URL = "postgresql://u:s3cret@127.0.0.1:1/db?wait=0"
SHOWN = "postgresql://u:***@127.0.0.1:1/db?wait=0"
PLACE = "@127.0.0.1:1/db"
SECRET = "s3cret"

WORDS: dict[str, list[list[str]]] = {
    "acts": [[], ["--finish"]],
    "anchors": [[]],
    "archive": [["t"]],
    "backup": [["copy.db"]],
    "bisect": [["t", "--expr", "True"]],
    "clear": [["t"]],
    "compact": [["t"]],
    "compactions": [["t"]],
    "compare-compactors": [],
    "context": [["t"]],
    "copy": [[URL, "copy.db"], ["FILE.db", URL], [URL, URL]],
    "delete": [["t", "--yes"]],
    "demo": [[]],
    "diff": [["t", "1", "2"]],
    "docs": [
        ["list", "--tenant", "acme"],
        ["search", "q", "--tenant", "acme"],
        ["add", "talk.jsonl", "--tenant", "acme"],
    ],
    "erase": [["t", "--seq", "1", "--yes"], ["--user", "u", "--yes"], ["--prove", "--text", "x"]],
    "export": [["t", "out.jsonl"], ["--all", "out"]],
    "files": [["t"]],
    "forget": [["t", "--seq", "1"]],
    "fork": [["t"]],
    "hold": [["t"], ["t", "--release"]],
    "import": [["talk.jsonl"]],
    "ingest": [["talk.jsonl"]],
    "inspect": [["--port", "0"]],
    "lab": [],
    "ledger": [["t"]],
    "log": [["t"], ["--correlation", "k", "--follow"]],
    "mcp": [[], ["--read-only"], ["--http", "127.0.0.1:0"]],
    "memories": [["import", "memories.json", "--user", "u"], ["export", "out.mem", "--user", "u"]],
    "memory-files": [["t"], ["t", "--history"]],
    "migrate": [["--check"], ["--apply"]],
    "brief": [["t"]],
    "pin": [["t", "a text"]],
    "unpin": [["t", "1"]],
    "rebuild": [[], ["t"]],
    "redo-compaction": [["t"]],
    "rekey": [["--new-key-file", "key.txt"]],
    "report": [["t"]],
    "rereduce": [["t", "1"], ["t", "1", "--dry-run"]],
    "restore": [[URL, "new.db"], ["FILE.db", URL]],
    "completion": [],
    "retain": [["rules.toml", "--dry-run"], ["rules.toml", "--yes"]],
    "restore-files": [["t", "--to", "out"]],
    "rewind": [["t", "--to", "1"], ["t", "--redo", "--dry-run"]],
    "quarantine": [["t"], ["t", "tool:read_mail", "--dry-run"]],
    "release": [["t", "tool:read_mail"]],
    "search": [["t", "q"], ["q", "--thread", "t"]],
    "show": [["t"]],
    "stats": [[]],
    "threads": [[], ["--order", "updated", "--metadata", "k=v"]],
    "to-pytest": [["t", "--seqs", "1..2"]],
    "unarchive": [["t"]],
    "undo-compaction": [["t"]],
    "update": [["t", "--remove", "k"]],
    "verify": [[], ["t"], ["--jobs", "2"], ["--anchors", "anchors.jsonl"]],
    "view": [["t"]],
    "what-if": [["t"]],
    "why": [["t", "1.0"]],
}
"""What each command is called with. `compare-compactors` and `lab` read logs of a folder, no database."""


def test_every_command_is_tried() -> None:
    """A new one gets a line here."""
    assert set(COMMANDS) == set(WORDS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that commands read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memories.json").write_text('[{"id": "1", "memory": "Likes tea"}]')
    (tmp_path / "talk.jsonl").write_text('{"role": "user", "content": "Hello"}\n')
    (tmp_path / "anchors.jsonl").write_text("")
    (tmp_path / "key.txt").write_text("a passphrase of several words")
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "old"\nact = "delete"\nolder_than = "180 days"\n')
    return tmp_path


def names(folder: Path) -> list[str]:
    """The files of a folder."""
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(("command", "words"), [(name, words) for name, all_ in WORDS.items() for words in all_])
def test_an_unreachable_server_is_an_error_that_keeps_the_password(
    run: Run, folder: Path, command: str, words: list[str], form: tuple[str, ...]
) -> None:
    """A typed error with the place, exit code 2, and neither a file nor a folder of the URL's name."""
    if "FILE.db" in words:
        run("ingest", "talk.jsonl", "--db", "FILE.db")
    before = names(folder)
    code, out, err = run(command, *words, "--db", URL, *form)
    assert 2 == code, (out, err)
    assert SECRET not in out + err
    told = json.loads(out)["error"]["message"] if form else err
    assert PLACE in told
    assert before == names(folder)


def test_a_url_where_none_belongs_is_not_repeated_with_its_password(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refusal shows the words that are not known."""
    for words in (("threads", URL), (URL,), ("copy", URL, "x", URL), ("--nonsense", URL), ("show", "--db", URL)):
        for form in ((), ("--json",)):
            with pytest.raises(SystemExit):
                run(*words, *form)
        told = "".join(capsys.readouterr())
        assert SECRET not in told
        assert told


THREAD_FIRST = [
    ("search", ("kettle",), ("kettle", "--thread", "talk")),
    ("compare-compactors", (), ("FILE.db",)),
]
"""Commands that once had another order: the words after the thread, and the older call."""


def test_the_thread_comes_first() -> None:
    """In every command that takes one; a word that names several things (a file, a thread) may be a thread."""
    for name, parser in inner_parsers():
        words = [str(one.metavar) for one in parser._actions if not one.option_strings]
        assert "THREAD" not in words[1:], name


@pytest.mark.parametrize(("command", "words", "older"), THREAD_FIRST)
def test_the_older_order_still_works(
    run: Run, folder: Path, command: str, words: tuple[str, ...], older: tuple[str, ...]
) -> None:
    """Both do the same."""
    run("ingest", "talk.jsonl", "--db", "FILE.db")
    first, before = (run(command, *given, "--db", "FILE.db") for given in (("talk", *words), older))
    assert (0, 0) == (first[0], before[0])
    assert first[1].splitlines()[0] == before[1].splitlines()[0]


def inner_parsers() -> list[tuple[str, argparse.ArgumentParser]]:
    """The parser of each command, by its name."""
    for action in build_parser(COMMANDS)._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [*action.choices.items()]
    return []


def test_a_url_comes_from_the_environment_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it stands in no list of processes."""
    monkeypatch.setenv("MEMORY_ENGINE_DB", URL)
    code, _, err = run("stats")
    assert (2, True, False) == (code, PLACE in err, SECRET in err)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (URL, SHOWN),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("postgres://u:p%40ss@h/db?sslmode=require", "postgres://u:***@h/db?sslmode=require"),
        ("postgresql://u:my p@ss/word@h/db", "postgresql://u:***@h/db"),
        ("postgresql://:only@h/db", "postgresql://:***@h/db"),
        ("postgresql://h/db?user=u&password=p&x=1", "postgresql://h/db?user=u&password=***&x=1"),
        ("postgresql:///db?sslpassword=p", "postgresql:///db?sslpassword=***"),
        (
            "could not reach postgresql://u:p@h/db, ask ines@x.org",
            "could not reach postgresql://u:***@h/db, ask ines@x.org",
        ),
        (SHOWN, SHOWN),
        ("memory.db", "memory.db"),
        ("/a:b@c/password=x.db", "/a:b@c/password=x.db"),
        (":memory:", ":memory:"),
        ("", ""),
    ],
)
def test_a_place_is_shown_without_its_password(place: str, shown: str) -> None:
    """In a URL, and in a sentence that names one; a path stays as it is."""
    assert shown == shown_place(place)


def test_a_url_is_told_from_a_path() -> None:
    """By the two slashes after its scheme."""
    assert [True, True, False, False, False] == [
        is_url(place) for place in (URL, "mysql://h/db", "a/b.db", "C:\\m.db", ":memory:")
    ]


@pytest.mark.parametrize("kind", [StorageFailed, SchemaError, BackupFailed])
def test_no_error_of_a_store_holds_a_password(kind: type[StorageFailed]) -> None:
    """Not in its text, its facts, nor when it is shown to a developer; a driver's text neither."""
    error = kind(URL, f"connection to {URL} refused")
    assert SECRET not in f"{error} {error!r} {error.args} {error.path} {error.why}"
    assert SECRET not in str(StorageBusy(URL, 1.0))


async def test_no_call_takes_a_url_for_a_path(folder: Path) -> None:
    """Opening, verifying, restoring, backing up and migrating raise typed errors, and make nothing."""
    before = names(folder)
    for place, error in ((URL, StorageUnreachable), ("mysql://u:s3cret@h/db", SchemaError)):
        with pytest.raises(error) as opened:
            async with memory_engine.open(place):
                pass
        with pytest.raises(error):
            await schema_of(place).versions()
        with pytest.raises(error):
            await verify_file(place)
        for paths in ((place, "new.db"), ("old.db", place)):
            with pytest.raises(BackupFailed):
                await restore(*paths)
        async with memory_engine.open(":memory:") as engine:
            with pytest.raises(BackupFailed, match="one file"):
                await engine.admin.backup(place)
        assert SECRET not in str(opened.value)
    assert before == names(folder)
