"""Every command through `main`, as a script would call it, with its output, its JSON and its exit code."""

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig
from memory_engine.cli import main
from memory_engine.events import Event, TodoItem, TodoSet, UserMessage
from memory_engine.ingest.ingestion import Ingestion, IngestOptions
from memory_engine.plugins import Plugin
from tests.command_line import Run

SAMPLE = Path(memory_engine.__file__).parent / "cli" / "sample"
THREADS = ["coding", "datenanalyse", "support"]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database that holds the packaged sample, compacted on the way. Not to be written to."""
    path = str(tmp_path_factory.mktemp("cli") / "sample.db")

    async def fill() -> None:
        config = EngineConfig(compaction=CompactionPolicy(tokens_min=0))
        async with memory_engine.open(path, config=config) as engine:
            for name in THREADS:
                assert await Ingestion(engine, IngestOptions()).file(SAMPLE / f"{name}.jsonl")

    anyio.run(fill)
    return path


def fill(path: str, *events: Event, thread: str = "t") -> None:
    """Dispatch events to a thread of a database."""

    async def work() -> None:
        async with memory_engine.open(path) as engine:
            await (await engine.create_thread(thread)).dispatch_all(events)

    anyio.run(work)


def test_threads_lists_what_is_there(run: Run, db: str) -> None:
    """Each thread has a line with its size and when its last event came, that of the newest first."""
    code, out, _ = run("threads", "--db", db)
    assert (0, ["THREAD", *THREADS[::-1]]) == (code, [line.split()[0] for line in out.splitlines()])
    assert ["LAST", "just", "just", "just"] == [line.split()[-2] for line in out.splitlines()]
    _, out, _ = run("threads", "--db", db, "--order", "created")
    assert THREADS == [line.split()[0] for line in out.splitlines()[1:]]


def test_threads_as_json_is_a_list_with_ids(run: Run, db: str) -> None:
    """A program finds ids, sizes, scopes and heads."""
    found = json.loads(run("threads", "--json", "--db", db)[1])
    assert THREADS[::-1] == [info["id"] for info in found]
    assert {"events", "chunks", "tokens", "status", "user_id", "tenant_id", "head_hash", "updated_at"} <= set(found[0])


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (("--limit", "1"), ["support"]),
        (("--after", "", "--limit", "1", "--order", "created"), THREADS[:1]),
        (("--after", "support", "--limit", "1"), ["datenanalyse"]),
        (("--after", THREADS[0], "--limit", "1", "--order", "created"), THREADS[1:2]),
        (("--after", THREADS[-1], "--order", "created"), []),
        (("--kind", "agent"), []),
        (("--status", "active"), THREADS[::-1]),
        (("--user", "%"), []),
        (("--tenant", "acme"), []),
    ],
)
def test_threads_can_be_filtered(run: Run, db: str, filters: tuple[str, ...], expected: list[str]) -> None:
    """Filters match exactly; a limit keeps the latest."""
    assert expected == [info["id"] for info in json.loads(run("threads", *filters, "--db", db, "--json")[1])]


def test_log_prints_events_in_order(run: Run, db: str) -> None:
    """Each event has a line with its seq, type and an excerpt."""
    lines = run("log", "support", "--db", db)[1].splitlines()
    assert list(range(1, 42)) == [int(line.split()[0]) for line in lines]
    assert "find_order" in lines[2]


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (("--limit", "2"), [40, 41]),
        (("--after", "39"), [40, 41]),
        (("--after", "3", "--limit", "2"), [4, 5]),
        (("--type", "tool_result", "--after", "2", "--limit", "2"), [4, 8]),
        (("--type", "user_message", "--limit", "1"), [41]),
        (("--type", "session_started"), [1]),
        (("--after", "41"), []),
    ],
)
def test_log_can_be_narrowed(run: Run, db: str, options: tuple[str, ...], seqs: list[int]) -> None:
    """A limit means the latest, after a seq the first; a type chooses before either counts."""
    out = run("log", "support", *options, "--json", "--db", db)[1]
    assert seqs == [json.loads(line)["seq"] for line in out.splitlines()]


def test_a_printed_log_can_be_ingested(run: Run, db: str, tmp_path: Path) -> None:
    """What `log --json` prints gives the same state in another database, and nothing a second time."""
    printed = tmp_path / "copy.jsonl"
    printed.write_text(run("log", "coding", "--json", "--db", db)[1], encoding="utf-8")
    other = str(tmp_path / "other.db")
    assert 0 == run("ingest", str(printed), "--db", other)[0]
    here, there = (json.loads(run("show", *words, "--json")[1]) for words in (
        ("coding", "--db", db),
        ("copy", "--db", other),
    ))  # fmt: skip
    assert here["chunks"] == there["chunks"]
    again = json.loads(run("ingest", str(printed), "--db", other, "--json")[1])
    assert (0, 48) == (again["added"], again["known"])


def test_show_prints_the_state(run: Run, db: str) -> None:
    """Each chunk has its id, type, retention, tokens, parents and text."""
    lines = run("show", "support", "--db", db)[1].splitlines()
    assert re.fullmatch(r"support after event 41: \d+ chunks, [\d,]+ tokens \(estimated\)", lines[0])
    assert re.match(r"\d+\.0 +compacted +compressible +\d+ +2\.0…\d+\.0 +\S", lines[3])


def test_show_prints_the_past(run: Run, db: str) -> None:
    """The state after an earlier event is that of then: nothing was compacted yet."""
    found = json.loads(run("show", "support", "--at", "10", "--json", "--db", db)[1])
    assert (10, [f"{n}.0" for n in range(1, 11)]) == (
        found["seq"],
        [chunk["id"] for chunk in found["chunks"]],
    )
    assert {"type", "retention", "tokens", "text", "parent_ids"} <= set(found["chunks"][0])


def test_show_beyond_the_end_is_an_error(run: Run, db: str) -> None:
    """A seq that the thread has not reached is named."""
    code, out, err = run("show", "support", "--at", "99", "--db", db)
    assert (2, "") == (code, out)
    assert "memory-engine: error: thread 'support' has seqs 1 to 41 (0: before the first), not 99\n" == err


def test_show_indents_what_a_container_holds(run: Run, tmp_path: Path) -> None:
    """A to-do list's items stand under it."""
    path = str(tmp_path / "x.db")
    fill(path, TodoSet(items=(TodoItem("1", "buy milk"),)))
    assert "\n└ 1.1  todo_item" in run("show", "t", "--db", path)[1]


def test_context_prints_what_a_model_sees(run: Run, db: str) -> None:
    """The measure comes first, then every message whole."""
    out = run("context", "coding", "--max-tokens", "600", "--db", db)[1]
    assert re.match(r"\d+ messages, \d+ tokens \(estimated\), \d+ of \d+ chunks\n", out)
    assert "Can you write the query for that alert?\n" in out


def test_context_as_json(run: Run, db: str) -> None:
    """A program finds messages ready to send, their tokens, and which chunks are in and out."""
    found = json.loads(run("context", "coding", "--max-tokens", "600", "--json", "--db", db)[1])
    assert found["tokens"] <= 600
    assert found["tokens_exact"] is False
    assert "system" == found["messages"][0]["role"]
    state = json.loads(run("show", "coding", "--json", "--db", db)[1])
    ids = {chunk["id"] for chunk in state["chunks"]}
    assert (ids, set()) == (
        {*found["included"], *found["excluded"]},
        {*found["included"]} & {*found["excluded"]},
    )


def test_context_with_a_question_shows_what_is_recalled(run: Run, db: str) -> None:
    """The block stands before the newest turn, and below are the passages with why they were recalled."""
    out = run("context", "coding", "--max-tokens", "900", "--query", "How is the migration run?", "--db", db)[1]
    measured, _, rest = out.partition("\n")
    assert re.search(r"chunks, [1-9]\d* passages recalled$", measured)
    assert rest.index("[From memory, not said now] Oldest first:\n[") < rest.index("Can you write the query for that")
    assert re.search(r"\nrecalled, best first\n  event \d+ · ", rest)


def test_context_with_a_question_as_json(run: Run, db: str) -> None:
    """A program gets the passages, what each part of the budget took, and the block's text."""
    asked = ("context", "coding", "--max-tokens", "900", "--query", "How is the migration run?", "--json", "--db", db)
    found = json.loads(run(*asked)[1])
    spent = found["spent"]
    assert (1.0, 0) == (spent.pop("correction"), spent.pop("usages"))
    assert found["tokens"] == sum(spent.values()) <= 900
    assert all(hit["text"] and hit["why"] for hit in found["recalled"])
    assert ("", True) == (found["recall_failure"], "Oldest first" in found["recalled_text"])
    assert "recalled" not in json.loads(run("context", "coding", "--json", "--db", db)[1])


def test_context_counted_by_a_tokenizer(run: Run, db: str) -> None:
    """With a tokenizer named, the count is exact and says whose it is."""
    found = json.loads(run("context", "coding", "--tokenizer", "gpt-4o", "--json", "--db", db)[1])
    assert (True, "o200k_base") == (found["tokens_exact"], found["tokenizer"])


def test_context_as_xml(run: Run, db: str) -> None:
    """The XML form bears the chunks' ids."""
    assert run("context", "support", "--format", "xml", "--db", db)[1].startswith('<memory>\n<system id="1.0">')


def test_a_budget_that_is_too_small_is_an_error(run: Run, db: str) -> None:
    """What must be in does not fit, and the message says how much it takes."""
    code, _, err = run("context", "support", "--max-tokens", "5", "--db", db)
    assert 2 == code
    assert "max_tokens is 5" in err


def test_compact_says_what_it_did(run: Run, tmp_path: Path) -> None:
    """The tokens before and after, and the summary; then there is nothing left to compact."""
    path = str(tmp_path / "x.db")
    assert 0 == run("ingest", str(SAMPLE / "datenanalyse.jsonl"), "--db", path)[0]
    code, out, _ = run("compact", "datenanalyse", "--db", path)
    assert 0 == code
    assert re.match(r"\d+ chunks → 1 summary: [\d,]+ → \d+ tokens \(by embedded\)\n", out)
    assert "### " in out
    code, out, _ = run("compact", "datenanalyse", "--db", path, "--json")
    assert (2, "NothingToCompact") == (code, json.loads(out)["error"]["type"])


def test_compact_with_a_focus(run: Run, tmp_path: Path) -> None:
    """The report, the list of compactions and the log say what the summary was to go into."""
    path = str(tmp_path / "x.db")
    run("ingest", str(SAMPLE / "datenanalyse.jsonl"), "--db", path)
    focus = "the umsatz\nof March"
    code, out, _ = run("compact", "datenanalyse", "--focus", focus, "--db", path)
    assert 0 == code
    assert out.splitlines()[0].endswith("tokens (by embedded; focus: the umsatz of March)")
    heads, row = run("compactions", "datenanalyse", "--db", path)[1].splitlines()
    assert "FOCUS" == heads.split()[-1]
    assert row.endswith("the umsatz of March")
    [listed] = json.loads(run("compactions", "datenanalyse", "--db", path, "--json")[1])["compactions"]
    assert focus == listed["focus"]
    assert "; focus: the umsatz of March" in run("log", "datenanalyse", "--db", path)[1]


def test_compact_as_json(run: Run, tmp_path: Path) -> None:
    """A program finds the chunks and the tokens."""
    path = str(tmp_path / "x.db")
    run("ingest", str(SAMPLE / "support.jsonl"), "--db", path)
    found = json.loads(run("compact", "support", "--db", path, "--json")[1])
    assert found["tokens_after"] < found["tokens_before"]
    assert ["manual", "embedded", ""] == [found["trigger"], found["compactor"], found["focus"]]
    assert found["covered"]


def test_verify_passes_a_whole_database(run: Run, db: str) -> None:
    """All threads are replayed; the measure says how many events that were."""
    code, out, _ = run("verify", "--db", db)
    assert 0 == code
    assert re.match(r"3 threads, 124 events in .*: every hash, operation and state is as recorded\n", out)


def test_verify_names_the_first_divergence(run: Run, tmp_path: Path, break_byte: Callable[[str], None]) -> None:
    """A changed byte is found: thread, seq and what differs, with exit code 1."""
    path = str(tmp_path / "x.db")
    fill(path, UserMessage(content="untouched"), UserMessage(content="the original text"))
    break_byte(path)
    code, out, _ = run("verify", "t", "--db", path)
    assert 1 == code
    assert "thread 't', seq 2 (user_message): hash differs\n" in out
    found = json.loads(run("verify", "--db", path, "--json")[1])
    assert [False, 2, "hash"] == [
        found["ok"],
        found["divergences"][0]["seq"],
        found["divergences"][0]["kind"],
    ]


@pytest.fixture
def break_byte() -> Callable[[str], None]:
    """Change a letter of a recorded text behind the engine's back."""

    def change(path: str) -> None:
        file = Path(path)
        held = file.read_bytes()
        assert 1 == held.count(b"the original text")
        file.write_bytes(held.replace(b"the original text", b"the Original text"))

    return change


def test_stats(run: Run, db: str) -> None:
    """Totals, for people and for programs."""
    found = json.loads(run("stats", "--db", db, "--json")[1])
    assert {"threads", "events", "chunks", "tokens", "bytes"} <= set(found)
    assert (3, 124) == (found["threads"], found["events"])
    assert run("stats", "--db", db)[1].startswith("threads  3\nevents   124\n")


@pytest.mark.parametrize(
    "words",
    [
        ("--db", "DB", "--json", "log", "support"),
        ("log", "--db", "DB", "--json", "support"),
        ("log", "support", "--json", "--db", "DB"),
        ("--json", "log", "support", "--db", "DB"),
    ],
)
def test_options_stand_anywhere(run: Run, db: str, words: tuple[str, ...]) -> None:
    """Shared options may stand before the command, before its arguments or after them."""
    out = run(*(db if word == "DB" else word for word in words))[1]
    assert 41 == len([json.loads(line) for line in out.splitlines()])


def test_the_environment_names_the_database(run: Run, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --db the variable counts, and --db counts more."""
    monkeypatch.setenv("MEMORY_ENGINE_DB", db)
    assert 0 == run("stats")[0]
    assert 2 == run("stats", "--db", db + ".not")[0]


READING = [
    ("threads",),
    ("log", "t"),
    ("show", "t"),
    ("context", "t"),
    ("compact", "t"),
    ("verify",),
    ("stats",),
]


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_reading_never_makes_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A database that is not there is named, with what to do, and is still not there afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMORY_ENGINE_DB", raising=False)
    code, out, err = run(*words)
    assert (2, "") == (code, out)
    assert err.startswith("memory-engine: error: memory.db: there is no such file; name a database with --db")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "the file is empty"), ("this is no database, whatever its name may say " * 50, "not an SQLite file")],
)
def test_a_file_that_is_no_database_is_refused(run: Run, tmp_path: Path, text: str, why: str) -> None:
    """The error names the file, which stays as it was."""
    path = tmp_path / "x.db"
    path.write_text(text, encoding="utf-8")
    code, _, err = run("threads", "--db", str(path))
    assert 2 == code
    assert f"memory-engine: error: {path}: " in err
    assert why in err
    assert text == path.read_text(encoding="utf-8")


def test_errors_for_programs_are_json(run: Run, db: str) -> None:
    """With --json an error is an object on standard output, and standard error stays silent."""
    code, out, err = run("log", "nobody", "--db", db, "--json")
    assert (2, "") == (code, err)
    assert "ThreadNotFound" == json.loads(out)["error"]["type"]


def test_ingest_reports_errors_and_goes_on_only_if_told_to(run: Run, tmp_path: Path) -> None:
    """An error ends the run with exit code 1; --skip-invalid takes what it can and lists the rest."""
    broken = tmp_path / "a.jsonl"
    broken.write_text('{"role": "user", "content": "Hi"}\n{\n{"role": "user", "content": "Ho"}\n', encoding="utf-8")
    good = tmp_path / "b.jsonl"
    good.write_text('{"role": "user", "content": "Hi"}\n', encoding="utf-8")
    path = str(tmp_path / "x.db")
    code, out, err = run("ingest", str(broken), str(good), "--db", path)
    assert 1 == code
    assert "1 message into 1 thread of" in out
    assert f"memory-engine: error: {broken}:2: not JSON: " in err
    assert err.endswith("(kept 1 message before it)\n")
    code, out, _ = run("ingest", str(broken), str(good), "--db", path, "--skip-invalid", "--json")
    found = json.loads(out)
    assert (1, 3, 1, [2]) == (code, found["messages"], found["invalid"], [e["line"] for e in found["errors"]])


def test_ingest_puts_threads_into_a_scope(run: Run, tmp_path: Path) -> None:
    """User, tenant and name are the new thread's."""
    path = str(tmp_path / "x.db")
    scope = ("--user", "ana", "--tenant", "acme", "--thread", "mine")
    assert 0 == run("ingest", str(SAMPLE / "support.jsonl"), "--db", path, *scope)[0]
    (info,) = json.loads(run("threads", "--tenant", "acme", "--user", "ana", "--db", path, "--json")[1])
    assert "mine" == info["id"]
    assert ["ana", "acme"] == run("threads", "--db", path)[1].split()[-2:]


def test_two_files_of_one_name_are_refused(run: Run, tmp_path: Path) -> None:
    """They would be one thread, and the second would contradict the first."""
    code, _, err = run("ingest", "a/x.json", "b/x.jsonl", "--db", str(tmp_path / "x.db"))
    assert 2 == code
    assert "a/x.json and b/x.jsonl would both be thread 'x'" in err


def test_nothing_asked_shows_the_help(run: Run) -> None:
    """A bare call lists the commands and fails."""
    code, out, _ = run()
    assert 2 == code
    assert "verify" in out


@pytest.mark.parametrize("words", [("nonsense",), ("show",), ("threads", "--limit", "0"), ("log", "t", "--aft", "1")])
def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """Arguments that do not parse end with exit code 2, and say where the help is."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert 2 == ended.value.code
    assert "  help:    memory-engine " in capsys.readouterr().err


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b31m\r\n\ttext\x00"


def test_hostile_content_cannot_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    """Escape sequences, controls and turned text are written out wherever content is shown."""
    path = str(tmp_path / "x.db")
    fill(path, UserMessage(content=HOSTILE), thread="t\x1b[31m")
    shown = [
        run(command, *words, "--db", path)
        for command in ("threads", "log", "show", "context")
        for words in ((), ("--json",))
        if command == "threads"
    ]
    shown += [
        run(command, "t\x1b[31m", *words, "--db", path)
        for command in ("log", "show", "context")
        for words in ((), ("--json",))
    ]
    shown.append(run("log", "\x1b[31mnobody", "--db", path))
    for _, out, err in shown:
        assert [] == re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out + err)


def test_verify_reports_a_gap(run: Run, tmp_path: Path) -> None:
    """A log that cannot even be read to its end is a divergence, not a failure of the command."""
    path = str(tmp_path / "x.db")
    fill(path, *(UserMessage(content=str(n)) for n in range(5)))
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DELETE FROM events WHERE pos & 0xFFFFFFFF = 3")
    code, out, _ = run("verify", "--db", path)
    assert 1 == code
    assert "thread 't', seq 3: a gap in the log\n" in out


def test_an_event_that_is_not_known_here_is_shown_as_such(run: Run, tmp_path: Path) -> None:
    """A log written by a program with events of its own can be read and printed without it."""
    plugin = Plugin("shop")

    @plugin.event("shop_order")
    class ShopOrder(Event):
        order: str

    path = str(tmp_path / "x.db")

    async def work() -> None:
        async with memory_engine.open(path, plugins=[plugin]) as engine:
            await (await engine.create_thread("t")).dispatch(ShopOrder(order="FW-1"))

    anyio.run(work)
    assert run("log", "t", "--db", path)[1].endswith("shop_order            (version 1 is not known here)\n")
    assert {"order": "FW-1"} == json.loads(run("log", "t", "--db", path, "--json")[1])["payload"]
    assert 2 == run("verify", "--db", path)[0]


@pytest.mark.parametrize(("name", "why"), [(".", "it is a directory"), (":memory:", "it is always empty at first")])
def test_what_can_hold_no_database_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    """A folder and the memory of the process itself have nothing to be read."""
    monkeypatch.chdir(tmp_path)
    assert (2, f"memory-engine: error: {name}: {why}; name a database") == (
        (found := run("stats", "--db", name))[0],
        found[2].split(" with --db")[0],
    )
