"""The key at the command line: from a file, from the environment or typed in, and never an argument."""

import asyncio
import json
from pathlib import Path

import pytest

from memory_engine.cli import options
from memory_engine.errors import StorageError
from tests.command_line import Run
from tests.trust.sealing import OTHER, RAW, filled, holding, prints, read, sealed

TEXT = "my passport is Osterfeldt-77412"
OLD, NEW = (f"x'{key.hex()}'" for key in (RAW, OTHER))


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here needs SQLCipher's driver, and no key of the machine's own."""
    sealed()
    monkeypatch.delenv(options.KEY_VARIABLE, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An encrypted store, in a folder of its own."""
    (tmp_path / "store").mkdir()
    asyncio.run(filled(tmp_path / "store" / "m.db", RAW, TEXT))
    return tmp_path / "store" / "m.db"


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A file with its key, as an editor leaves it."""
    (tmp_path / "old.key").write_text(OLD + "\n")
    return str(tmp_path / "old.key")


@pytest.fixture
def new(tmp_path: Path) -> str:
    """A file with another key."""
    (tmp_path / "new.key").write_text(NEW)
    return str(tmp_path / "new.key")


def test_a_key_comes_from_a_file_or_the_environment(
    run: Run, path: Path, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the command or after it; without one the database is refused, and left as it is."""
    assert TEXT in run("log", "t", "--db", str(path), "--key-file", old)[1]
    assert TEXT in run("--key-file", old, "--db", str(path), "log", "t")[1]
    monkeypatch.setenv("MY_KEY", OLD)
    assert 0 == run("verify", "--jobs", "2", "--db", str(path), "--key-env", "MY_KEY")[0]
    before = prints(path.parent)
    code, out, err = run("log", "t", "--db", str(path))
    assert (2, "") == (code, out)
    assert "--key-file" in err
    assert before == prints(path.parent)
    monkeypatch.setenv(options.KEY_VARIABLE, OLD)
    assert 0 == run("stats", "--db", str(path))[0]
    assert 0 == run("migrate", "--check", "--db", str(path))[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key-env", "NOT_THERE"), "NOT_THERE"),
        (("--key-file", "not/there"), "not/there"),
        (("--key-file", "{new}"), "does not open it"),
        (("--key-file", "{odd}"), "UTF-8"),
    ],
)
def test_what_gives_no_key_says_so(  # noqa: PLR0917 - what is combined
    run: Run, path: Path, new: str, tmp_path: Path, words: tuple[str, str], said: str
) -> None:
    """In one line, which holds no key."""
    (tmp_path / "odd.key").write_bytes(b"\xff" * 32)
    places = {"{new}": new, "{odd}": str(tmp_path / "odd.key")}
    code, _, err = run("stats", "--db", str(path), words[0], places.get(words[1], words[1]))
    assert 2 == code
    assert said in err
    assert NEW[2:-1] not in err


def test_a_person_is_asked_once(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for a database that needs a key, and only where there is somebody to ask."""
    asked: list[str] = []

    def typed(question: str) -> str:
        asked.append(question)
        return OLD

    monkeypatch.setattr(options, "can_ask", lambda: True)
    monkeypatch.setattr(options, "typed", typed)
    anchors = path.with_name("anchors.jsonl")
    assert 0 == run("anchors", "--out", str(anchors), "--db", str(path))[0]
    assert 0 == run("verify", "--anchors", str(anchors), "--db", str(path))[0]
    assert 2 == len(asked)
    asyncio.run(filled(path.with_name("plain.db"), None, TEXT))
    assert 0 == run("stats", "--db", str(path.with_name("plain.db")))[0]
    assert 0 == run("completion", "--threads", "--db", str(path))[0]
    assert 2 == len(asked)


def test_backups_keep_the_key_unless_told_otherwise(run: Run, path: Path, old: str, new: str) -> None:
    """So do copies, and what is restored from them."""
    made = {name: path.with_name(f"{name}.db") for name in ("same", "other", "plain", "back", "copied", "clear")}
    common = ("--key-file", old, "--db", str(path))
    assert 0 == run("backup", str(made["same"]), *common)[0]
    assert 0 == run("backup", str(made["other"]), "--new-key-file", new, *common)[0]
    assert 0 == run("backup", str(made["plain"]), "--plain", *common)[0]
    assert 0 == run("restore", str(made["other"]), str(made["back"]), "--key-file", new)[0]
    assert 0 == run("copy", str(path), str(made["copied"]), "--key-file", old)[0]
    assert 0 == run("copy", str(path), str(made["clear"]), "--key-file", old, "--plain")[0]
    keys = {"same": RAW, "other": OTHER, "plain": None, "back": OTHER, "copied": RAW, "clear": None}
    for name, key in keys.items():
        assert [TEXT] == asyncio.run(read(made[name], key))
    assert {str(made["plain"]), str(made["clear"])} == set(holding(path.parent, TEXT))


def test_rekey_rotates_decrypts_and_encrypts(run: Run, path: Path, old: str, new: str) -> None:
    """It says what only the new key opens, and that backups keep their own."""
    code, out, _ = run("rekey", "--new-key-file", new, "--key-file", old, "--db", str(path))
    assert 0 == code
    assert "only the new key" in out
    assert "backups" in out
    with pytest.raises(StorageError):
        asyncio.run(read(path, RAW))
    assert [TEXT] == asyncio.run(read(path, OTHER))
    assert 0 == run("rekey", "--plain", "--key-file", new, "--db", str(path))[0]
    assert [TEXT] == asyncio.run(read(path, None))
    code, out, _ = run("rekey", "--new-key-file", old, "--json", "--db", str(path))
    assert (0, 1) == (code, json.loads(out)["events"])
    assert [TEXT] == asyncio.run(read(path, RAW))


def test_rekey_asks_twice_or_names_the_options(run: Run, path: Path, old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was mistyped unseen would open nothing any more."""
    from memory_engine.cli import rekey

    code, _, err = run("rekey", "--key-file", old, "--db", str(path))
    assert 2 == code
    assert "--new-key-file" in err
    answers = [NEW, OLD, NEW, NEW]
    monkeypatch.setattr(rekey, "can_ask", lambda: True)
    monkeypatch.setattr(rekey, "typed", lambda _: answers.pop(0))
    assert 2 == run("rekey", "--key-file", old, "--db", str(path))[0]
    assert 0 == run("rekey", "--key-file", old, "--db", str(path))[0]
    assert [TEXT] == asyncio.run(read(path, OTHER))


def test_a_server_takes_no_key(run: Run, old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is named for it is refused; that of the environment is for files."""
    code, _, err = run("stats", "--db", "postgresql://ann:pw@127.0.0.1:1/x", "--key-file", old)
    assert 2 == code
    assert "takes no key" in err
    assert "pw" not in err
    monkeypatch.setenv(options.KEY_VARIABLE, OLD)
    assert "takes no key" not in run("stats", "--db", "postgresql://ann:pw@127.0.0.1:1/x?connect_timeout=1")[2]


def test_compactors_are_compared_on_encrypted_logs_and_on_others(run: Run, path: Path, old: str, new: str) -> None:
    """The key is for those that need one; without it, or with a wrong one, the file is named and the others read."""
    asyncio.run(filled(path.with_name("plain.db"), None, TEXT))
    found = json.loads(run("compare-compactors", str(path.parent), "--key-file", old, "--json")[1])
    assert [] == found["unread"]
    assert {str(path), str(path.with_name("plain.db"))} == {row["log"].partition("#")[0] for row in found["logs"]}
    for keys in ((), ("--key-file", new)):
        code, out, _ = run("compare-compactors", str(path.parent), *keys, "--json")
        assert (1, [str(path)]) == (code, [one["path"] for one in json.loads(out)["unread"]])
