"""What people type: groups of commands, what was probably meant, `-` for a file, and completion in their shell."""

import io
import json
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine.cli import main
from memory_engine.cli.program import COMMANDS, GROUPS
from memory_engine.core.clock import to_us
from memory_engine.events import UserMessage
from memory_engine.testing import ManualClock
from tests.command_line import Run


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with the threads `invoices`, `support`, and one whose id a shell would expand."""
    path = str(tmp_path_factory.mktemp("console") / "m.db")

    async def fill() -> None:
        async with memory_engine.open(path) as engine:
            for name in ("invoices", "support", "$(touch owned)"):
                await (await engine.create_thread(name)).dispatch(UserMessage(content=f"About {name}."))

    anyio.run(fill)
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The first line of what a command says that is refused for its words."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert 2 == ended.value.code
    return capsys.readouterr().err.splitlines()[0]


def test_every_command_is_in_one_group_and_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """With a line of its own, under the group's; no group takes the place of a command with words of its own."""
    grouped = [name for group in GROUPS.values() for name in group.commands.values()]
    assert sorted(COMMANDS) == sorted(grouped)
    assert {"threads"} == COMMANDS.keys() & GROUPS
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [1] * len(COMMANDS) == [sum(line.startswith(f"  {name} ") for line in lines) for name in COMMANDS]
    assert [] == [line for line in lines if len(line) > 100]


def test_a_command_is_called_by_its_group_too(run: Run, db: str) -> None:
    """By the group's word for it or by its own name, with shared options between; the old names stay."""
    shown = run("show", "support", "--db", db)
    assert (0, True) == (shown[0], "About support." in shown[1])
    for words in (
        ("threads", "show", "support", "--db", db),
        ("--db", db, "threads", "show", "support"),
    ):
        assert shown == run(*words)
    logged = run("log", "support", "--db", db, "--json")
    assert (
        logged
        == run("logs", "--db", db, "--json", "show", "support")
        == run("logs", "log", "support", "--db", db, "--json")
    )
    assert run("threads", "--db", db, "--json") == run("threads", "list", "--json", "--db", db)
    assert 0 == run("debug", "why", "support", "1.0", "--db", db)[0]


def test_a_group_alone_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for, that is done; else there was nothing to do."""
    for words, code in ((("debug", "--help"), 0), (("debug",), 2), (("debug", "--json"), 2)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert code == ended.value.code
        out = capsys.readouterr().out
        assert ("usage: memory-engine", True) == (out[:20], "  bisect " in out)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("serach", "x"), "there is no command 'serach'; did you mean search?"),
        (("--no-plugins", "thread"), "did you mean threads?"),
        (("debug", "wyh", "t"), "'debug' has no command 'wyh'; did you mean why?"),
        (("threads", "lsit"), "'threads' has no command 'lsit'; did you mean list?"),
        (("zzzzzz",), "there is no command 'zzzzzz'; `memory-engine --help` lists them"),
    ],
)
def test_a_wrong_command_is_told_what_was_meant(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], meant: str
) -> None:
    """The nearest names, or where all are listed."""
    assert meant in refused(capsys, *words)


def test_a_wrong_thread_or_type_is_told_what_was_meant(run: Run, db: str) -> None:
    """Among the threads that are there, and among the types that are known."""
    assert (2, "", "memory-engine: error: thread 'suport' does not exist; did you mean support?\n") == run(
        "show", "suport", "--db", db
    )
    told = json.loads(run("forget", "suport", "--seq", "1", "--yes", "--json", "--db", db)[1])["error"]
    assert ("ThreadNotFound", True) == (told["type"], told["message"].endswith("did you mean support?"))
    for of in (("support",), ("--correlation", "x")):
        code, out, err = run("log", *of, "--type", "user_mesage", "--db", db)
        assert (2, "", True) == (code, out, "no event type 'user_mesage'; did you mean user_message" in err)
    assert (0, "", "") == run("log", "support", "--type", "tool_result", "--db", db)


REFUSED = [
    ("serach", "x"),
    ("search", "x"),
    ("threads", "list"),
    ("logs", "show", "t"),
    ("completion", "--threads"),
    ("completion", "bash"),
    ("ingest", "nothing.jsonl"),
    ("ingest", "-"),
    ("import", "talk.txt"),
    ("docs", "add", "nothing", "--tenant", "t"),
    ("stats", "--chart"),
    ("forget", "t", "--seq", "1", "--yes"),
    ("archive", "t"),
    ("export", "t", "-"),
]


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_refused_or_only_reads_makes_no_database(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Nor any other file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.txt").write_text("no log")
    try:
        code = run(*words, "--db", "mistyped.db")[0]
    except SystemExit as ended:
        code = 2 if ended.code == 2 else 1
    assert (0 if words[0] == "completion" else 2) == code
    assert ["talk.txt"] == [file.name for file in tmp_path.iterdir()]


async def test_stats_draws_the_events_of_each_day(run: Run, tmp_path: Path) -> None:
    """From the first of the days that has any until today; what a fork shares counts once."""
    path, days = str(tmp_path / "m.db"), (40, 3, 3, 1)
    now = datetime.now(UTC)
    clock = ManualClock()
    async with memory_engine.open(path, clock=clock) as engine:
        thread = await engine.create_thread("t")
        for n, ago in enumerate(days):
            clock.us = to_us(now - timedelta(days=ago)) + n
            await thread.dispatch(UserMessage(content=str(n)))
        clock.us += 1
        fork = await thread.fork()
        await fork.dispatch_all([UserMessage(content="and"), UserMessage(content="so on")])

    def asked(*words: str) -> tuple[int, str, str]:
        return run("stats", *words, "--db", path)

    _, out, _ = await anyio.to_thread.run_sync(asked, "--chart")
    heads, *lines = out.partition("events a day (UTC)\n")[2].splitlines()
    assert [now.date() - timedelta(days=ago) for ago in (3, 2, 1, 0)] == [
        date.fromisoformat(line.split()[0]) for line in (heads, *lines)
    ]
    assert ["2", "0", "3", "0"] == [line.split()[1] for line in (heads, *lines)]
    assert len(heads.split()[2]) < len(lines[1].split()[2]) < 80
    found = json.loads((await anyio.to_thread.run_sync(asked, "--json", "--chart", "100"))[1])
    assert (41, 6) == (len(found["days"]), sum(found["days"].values()))
    assert "days" not in json.loads((await anyio.to_thread.run_sync(asked, "--json"))[1])


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Standard input, to be written to."""
    given = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    return given


def test_a_log_goes_from_one_database_to_another_through_a_pipe(
    capsysbinary: pytest.CaptureFixture[bytes], piped: io.BytesIO, db: str, tmp_path: Path
) -> None:
    """`export T -` writes nothing but the log to standard output, and `import -` reads it."""
    assert 0 == main(["export", "support", "-", "--db", db, "--json"])
    out, err = capsysbinary.readouterr()
    assert {"path": "-", "thread_id": "support"}.items() <= json.loads(err).items()
    piped.write(out)
    piped.seek(0)
    assert 0 == main(["import", "-", "--thread", "copy", "--db", str(tmp_path / "other.db"), "--json"])
    told = json.loads(capsysbinary.readouterr().out)
    assert ("-", "copy", 1) == (told["path"], told["thread_id"], told["added"])


def test_recordings_are_read_from_a_pipe(tmp_path: Path) -> None:
    """In a real one; without a name for the thread that is refused."""
    path = str(tmp_path / "m.db")
    done = [
        subprocess.run(
            [sys.executable, "-m", "memory_engine", "ingest", "-", "--db", path, *words],
            input='{"role": "user", "content": "Hello"}\n',
            capture_output=True,
            text=True,
            check=False,
        )
        for words in ((), ("--thread", "talk"))
    ]
    assert [2, 0] == [one.returncode for one in done]
    assert "1 message into 1 thread" in done[1].stdout


COMPLETE = """
source "$1"
COMP_WORDS=(memory-engine {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_memory_engine
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, and its script for bash."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "memory-engine").write_text(f'#!/bin/sh\nexec {sys.executable} -m memory_engine "$@"\n')
    (folder / "memory-engine").chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run([folder / "memory-engine", "completion", shell], capture_output=True, check=True)
        (folder / shell).write_bytes(done.stdout)
    return folder


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sea", {"search"}),
        ("deb", {"debug"}),
        ("debug ''", {"why", "diff", "bisect", "ledger", "what-if", "compare-compactors", "to-pytest", "lab"}),
        ("debug why --dep", {"--depth"}),
        ("compaction und", {"undo"}),
        ("threads --order ''", {"created", "updated"}),
        ("--db none.db threads l", {"list"}),
        ("docs r", {"remove"}),
        ("docs add --ov", {"--overlap"}),
        ("show s", {"support"}),
        ("threads show ''", {"support", "invoices"}),
        ("search x --thread in", {"invoices"}),
        ("show --at ''", {""}),
        ("--js", {"--json"}),
    ],
)
def test_bash_completes(program: Path, db: str, words: str, offered: set[str]) -> None:
    """Groups, commands, options, their values, and threads; an id that bash would run is not offered."""
    done = subprocess.run(
        ["bash", "-c", COMPLETE.format(words=words), "bash", program / "bash"],
        env={"PATH": f"{program}:/usr/bin:/bin", "MEMORY_ENGINE_DB": db},
        cwd=program,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("", offered) == (done.stderr, set(done.stdout.splitlines()))
    assert not (program / "owned").exists()


def test_fish_completes(program: Path, db: str) -> None:
    """The same, each with a word that says what it is."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    asked = ("sea", "debug wh", "debug why --dep", "threads --order u", "show s", "--js")
    script = f"source {program / 'fish'}; " + "; ".join(f"complete -C 'memory-engine {words}'" for words in asked)
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env={"PATH": f"{program}:/usr/bin:/bin", "MEMORY_ENGINE_DB": db, "HOME": str(program)},
        cwd=program,
        capture_output=True,
        text=True,
        check=True,
    )
    offered = ["search", "what-if", "why", "--depth", "updated", "support", "--json"]
    assert ("", offered) == (done.stderr, [line.partition("\t")[0] for line in done.stdout.splitlines()])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_of_its_shell(program: Path, shell: str) -> None:
    """The shell itself reads it without running it, where it is installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", program / shell], check=True)
