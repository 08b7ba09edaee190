"""`memory-engine migrate`: which schema version a database has, and bringing it up to date."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine.errors import SchemaError, StorageFailed
from memory_engine.storage.places import schema_of
from memory_engine.storage.sqlite import schema
from memory_engine.storage.sqlite.schema import APPLICATION_ID, MIGRATIONS
from tests.command_line import Run

NEWEST = len(MIGRATIONS)


def older(path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database that an older package has made."""
    with monkeypatch.context() as patched, closing(sqlite3.connect(path, isolation_level=None)) as raw:
        patched.setattr(schema, "MIGRATIONS", MIGRATIONS[:version])
        schema.migrate(raw, str(path))
    return str(path)


def version_of(path: str) -> int:
    """The number in the file's header."""
    with closing(sqlite3.connect(path)) as raw:
        return int(raw.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("version", range(1, NEWEST))
def test_an_older_database_is_told_and_brought_up_to_date(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """A check changes nothing, leaves nothing and ends with 1; applying has a line for each migration."""
    path = older(tmp_path / "m.db", version, monkeypatch)
    before = (Path(path).read_bytes(), sorted(tmp_path.iterdir()))
    code, out, err = run("migrate", "--check", "--db", path)
    assert (1, "") == (code, err)
    assert f"schema version {version}, this package has {NEWEST}" in out
    assert before == (Path(path).read_bytes(), sorted(tmp_path.iterdir()))
    code, out, _ = run("migrate", "--apply", "--db", path)
    steps = [line.split()[0] for line in out.splitlines()[1:-1]]
    assert (0, [str(n) for n in range(version + 1, NEWEST + 1)]) == (code, steps)
    assert f"schema version {NEWEST}, brought up from {version}" in out.splitlines()[-1]
    assert NEWEST == version_of(path)
    assert 0 == run("migrate", "--check", "--db", path)[0]
    assert "as it was" in run("migrate", "--apply", "--db", path)[1]


def test_a_program_reads_the_versions(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, and what each migration that waits would bring."""
    path = older(tmp_path / "m.db", NEWEST - 1, monkeypatch)
    found = json.loads(run("migrate", "--check", "--json", "--db", path)[1])
    assert (path, NEWEST - 1, NEWEST, [str(NEWEST)]) == (
        found["path"],
        found["stored"],
        found["newest"],
        list(found["waiting"]),
    )


def test_each_migration_says_what_it_brings() -> None:
    """In a comment at its beginning."""
    for number, script in enumerate(MIGRATIONS, 1):
        assert script.strip().startswith("-- "), number
        assert 5 < len(schema.brings(number)) < 100


def test_a_newer_database_is_told_and_left_alone(run: Run, tmp_path: Path) -> None:
    """A check ends with 1, applying with 2."""
    path = str(tmp_path / "m.db")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute("PRAGMA user_version = 99")
    code, out, _ = run("migrate", "--check", "--db", path)
    assert (1, True) == (code, "upgrade" in out)
    code, _, err = run("migrate", "--apply", "--db", path)
    assert (2, True, 99) == (code, "upgrade" in err, version_of(path))


@pytest.mark.parametrize("what", ["--check", "--apply"])
def test_what_is_not_a_database_is_an_error(run: Run, tmp_path: Path, what: str) -> None:
    """No file is made of a wrong path, and another program's is not touched."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as raw:
        raw.execute("CREATE TABLE theirs (x)")
    before = other.read_bytes()
    assert 2 == run("migrate", what, "--db", str(other))[0]
    assert 2 == run("migrate", what, "--db", str(tmp_path / "nothing.db"))[0]
    assert ([other], before) == (list(tmp_path.iterdir()), other.read_bytes())


def test_one_of_the_two_is_asked_for(run: Run, tmp_path: Path) -> None:
    """Neither is done by default."""
    with pytest.raises(SystemExit):
        run("migrate", "--db", str(tmp_path / "m.db"))


async def test_a_schema_is_looked_at_while_the_database_is_in_use(tmp_path: Path) -> None:
    """Through the public function; a store in memory and a missing file have none."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path):
        assert NEWEST == (await schema_of(path).versions()).stored
        assert {} == (await schema_of(path).migrate(lambda *_: None)).waiting
    with pytest.raises(SchemaError):
        schema_of(":memory:")
    with pytest.raises(StorageFailed):
        await schema_of(str(tmp_path / "nothing.db")).versions()


def test_a_file_that_cannot_be_written_to_is_checked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking needs no right to write."""
    path = older(tmp_path / "m.db", NEWEST - 1, monkeypatch)
    Path(path).chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert 1 == run("migrate", "--check", "--db", path)[0]
    finally:
        tmp_path.chmod(0o755)


def test_opening_goes_on_migrating_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it always did."""
    path = older(tmp_path / "m.db", 1, monkeypatch)

    async def opened() -> None:
        async with memory_engine.open(path):
            pass

    anyio.run(opened)
    assert NEWEST == version_of(path)
