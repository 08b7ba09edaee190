"""What a person reads who called a command with wrong words, and whether the examples work."""

import contextlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine.cli import main
from memory_engine.cli.program import COMMANDS
from memory_engine.cli.usage import EXAMPLES, USUAL, example
from memory_engine.events import UserMessage
from tests.command_line import Run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples name, and the database of the demonstration."""
    folder = tmp_path_factory.mktemp("usage")
    (folder / "conversation.jsonl").write_text('{"role": "user", "content": "Hello"}\n')
    (folder / "handbook").mkdir()
    (folder / "handbook" / "refunds.md").write_text("# Refunds\n\nRefunds take fourteen days.\n")
    (folder / "memories.json").write_text('[{"id": "1", "memory": "Likes tea"}]')
    (folder / "key.txt").write_text("a passphrase of several words")
    (folder / "rules.toml").write_text('[[rule]]\nname = "old"\nact = "delete"\nolder_than = "180 days"\n')

    async def fill() -> None:
        async with memory_engine.open(str(folder / "memory.db")) as engine:
            for name, user, tenant in (("invoices", "ines", "globex"), ("support", "", "")):
                thread = await engine.create_thread(name, user_id=user, tenant_id=tenant)
                await thread.dispatch_all([UserMessage(content=f"About {name}, {n}: where is it?") for n in range(12)])

    anyio.run(fill)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work in."""
    folder = tmp_path / "work"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    for name in ("MEMORY_ENGINE_DB", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines of a refusal; nothing is on standard output."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    assert (2, "") == (ended.value.code, printed.out)
    return printed.err.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bisect support", "bisect needs --expr EXPR"),
        ("debug bisect support", "bisect needs --expr EXPR"),
        ("bisect support --exp x", "bisect has no option --exp; did you mean --expr?"),
        ("bisect support --exp=x", "bisect has no option --exp; did you mean --expr?"),
        ("migrate", "migrate needs --check or --apply"),
        ("diff support", "diff needs A"),
        ("docs", "docs needs ACTION (add, list, remove, search)"),
        ("docs lsit", "docs: ACTION is not 'lsit'; did you mean list?; it is one of add, list, remove, search"),
        ("threads --limit x", "threads: --limit takes a whole number, not 'x'"),
        ("threads --limit", "threads: --limit needs N after it"),
        ("threads --order creatd", "threads: --order is not 'creatd'; did you mean created?; it is one of created"),
        ("stats extra", "stats takes no words: extra is too much"),
        ("show support again", "show takes THREAD: again is too much"),
        ("docs list --tenan x", "docs list has no option --tenan; did you mean --tenant?"),
        ("shwo", "there is no command 'shwo'; did you mean show?"),
    ],
)
def test_wrong_words_are_explained(capsys: pytest.CaptureFixture[str], folder: Path, words: str, said: str) -> None:
    """What is missing or wrong, the nearest guess, an example, and where the help is: three lines, and no usage."""
    lines = refused(capsys, *words.split())
    assert lines[0].startswith(f"memory-engine: error: {said}")
    assert len(lines) <= 3
    assert lines[-1].startswith("  help:    memory-engine ")
    assert all(line.startswith("  example: memory-engine ") for line in lines[1:-1])


@pytest.mark.parametrize(
    ("words", "found", "shown"),
    [
        ("show", "threads of memory.db: support, invoices", "memory-engine show support --at 3"),
        ("docs list", "tenants of memory.db: globex", "memory-engine docs list --tenant globex"),
        ("memories export out", "users of memory.db: ines", "memory-engine memories export memories/ --user ines"),
    ],
)
def test_what_is_missing_is_looked_up(
    capsys: pytest.CaptureFixture[str], folder: Path, words: str, found: str, shown: str
) -> None:
    """The names that the database has, and an example with the latest."""
    lines = refused(capsys, *words.split())
    assert lines[0].endswith(found)
    assert f"  example: {shown}" == lines[1]


def test_a_refusal_makes_no_database(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Nothing is looked up where there is nothing."""
    lines = refused(capsys, "show", "--db", "other.db")
    assert "memory-engine: error: show needs THREAD" == lines[0]
    assert not Path("other.db").exists()


def test_a_refusal_for_programs_is_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """An object on standard output, and nothing on standard error."""
    with pytest.raises(SystemExit):
        main(["bisect", "support", "--json"])
    printed = capsys.readouterr()
    assert "" == printed.err
    error = json.loads(printed.out)["error"]
    assert ["UsageError", "bisect needs --expr EXPR"] == [error["type"], error["message"]]
    assert error["example"].startswith("memory-engine bisect ")


@pytest.mark.parametrize(
    "words",
    [
        ("export", "support", "--upto", "3", "-"),
        ("export", "--upto", "3", "support", "-"),
        ("export", "support", "-", "--upto=3"),
        ("export", "support", "-", "--redact-pattern=a b", "--upto", "3"),
    ],
)
def test_options_stand_between_words(run: Run, folder: Path, words: tuple[str, ...]) -> None:
    """Also between those that may be left out, which argparse would take for left out."""
    code, out, _ = run(*words)
    assert code in (0, 1)  # a rule that matches nothing is 1
    assert '{"end":3,' in out


def test_every_command_has_an_example() -> None:
    """A new one gets a line."""
    assert set() == COMMANDS.keys() - EXAMPLES.keys()


def test_the_help_of_a_command_has_its_example(capsys: pytest.CaptureFixture[str]) -> None:
    """At its end."""
    with pytest.raises(SystemExit):
        main(["why", "--help"])
    assert capsys.readouterr().out.endswith("\nexample: memory-engine why support --context\n")


SERVERS = {"inspect", "mcp"}
BEFORE = {
    "docs remove": ["docs add"],
    "import": ["export"],
    "memories check": ["memories export"],
    "release": ["quarantine"],
    "restore": ["backup"],
    "redo-compaction": ["compact"],
    "undo-compaction": ["compact"],
    "unpin": ["pin"],
}
"""Examples that need what another one makes."""


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
    """In that folder, and back."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in SERVERS])
def test_an_example_works(run: Run, folder: Path, name: str) -> None:
    """Each one is done, or finds nothing to do; none is refused."""
    names = {**USUAL, "tenant": "globex"}
    for one in (*BEFORE.get(name, ()), name):
        words = shlex.split(example(one, names))[1:]
        if one == "unpin":
            words[-1] = "13"
        code, out, err = run(*words, *(("--db", "demo.db") if one == "demo" else ()))
        idle = any(
            said in err for said in ("nothing to compact", "nothing differs", "--yes", "no record of a workspace")
        )
        assert code in (0, 1) or idle, (words, out, err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("verify suport", "thread 'suport' does not exist; did you mean support?"),
        ("view support screem", "there is no view 'screem'; did you mean screen?"),
        ("bisect support --expr tokns>3", "name 'tokns' is not defined; did you mean tokens?"),
        ("bisect support --expr foo>3", "name 'foo' is not defined; it may use state, chunks"),
        ("fork support --id invoices", "thread 'invoices' exists already: give another id"),
        ("memory-files support x.md", "`memory-engine memory-files support` gives those there are"),
    ],
)
def test_a_wrong_name_is_told_what_was_meant(run: Run, folder: Path, words: str, said: str) -> None:
    """In the words of the command line."""
    code, out, err = run(*words.split())
    assert (2, "") == (code, out)
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("search order --kind tol", "nothing was found; did you mean tool?"),
        ("search order --tenant globx", "nothing was searched; did you mean globex?"),
        ("search order --user inez", "--thread a thread; did you mean ines?"),
        ("threads --user inez", "no thread matches"),
    ],
)
def test_nothing_found_says_what_was_meant(run: Run, folder: Path, words: str, said: str) -> None:
    """A wrong filter is not an error."""
    code, out, _ = run(*words.split())
    assert (0, True) == (code, said in out)
