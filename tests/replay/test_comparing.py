"""Comparing compactors: what each keeps of the same logs, and facts by their looks."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import Chunk, CompactionContext, CompactionPolicy, CompactionResult, SummaryLine, UserMessage
from memory_engine.compactors import EmbeddedCompactor
from memory_engine.errors import InvalidChange, ModelNotAllowed
from memory_engine.files.comparison import CompactorScore, Comparison, Unread, compare_compactors, files_of
from memory_engine.files.comparison_chart import draw
from memory_engine.files.facts import facts_of, missing, stands_in
from memory_engine.testing import FakeCompactor
from tests.command_line import Run
from tests.conversations import call, say, turns
from tests.scripted_compactors import Scripted, a_line

ROOT = Path(__file__).resolve().parents[2]
TAU_BENCH = ROOT.parent / "shared" / "data" / "tau_bench"
SMALL = CompactionPolicy(threshold=6, tokens_min=0, keep_recent=1)
recordings = pytest.mark.skipif(not TAU_BENCH.is_dir(), reason=f"the recordings are not at {TAU_BENCH}")


class Verbatim:
    """Keeps the first words of every chunk, all of its digits with them."""

    name = "verbatim"

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Anything."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """A line for each chunk."""
        lines = [SummaryLine(section="key_information", text=c.text[:40] or "-", sources=(c.id,)) for c in chunks]
        return CompactionResult(lines=tuple(lines))


def chat(path: Path, count: int) -> Path:
    """A recorded conversation, with an order number in every message."""
    roles = ("user", "assistant")
    messages = [
        {"role": roles[n % 2], "content": f"Order FW-2087{n} of Ann Lee, {n}.50 EUR." + " And so on." * 30}
        for n in range(count)
    ]
    path.write_text(json.dumps(messages), encoding="utf-8")
    return path


async def test_each_compactor_is_measured_on_each_log(tmp_path: Path) -> None:
    """Tokens that stand for what was compacted, and facts that the last context still says; the sums over all logs."""
    chat(tmp_path / "one.json", 14)
    chat(tmp_path / "two.json", 9)
    found = await compare_compactors([tmp_path], [Verbatim(), Scripted(a_line)], policy=SMALL)
    assert [("one.json", "verbatim"), ("one.json", "scripted"), ("two.json", "verbatim"), ("two.json", "scripted")] == [
        (Path(row.log).name, row.compactor) for row in found.rows
    ]
    verbatim, scripted = found.totals()
    assert ((), 3) == (found.unread, verbatim.compactions)
    assert verbatim.tokens[0] == scripted.tokens[0] == sum(r.tokens[0] for r in found.rows if r.compactor == "verbatim")
    assert verbatim.facts[0] == scripted.facts[0]
    assert (1.0, True) == (verbatim.facts_kept, (scripted.facts_kept or 0) < 0.3)
    assert 0 < (scripted.tokens_kept or 0) < (verbatim.tokens_kept or 0) < 0.5
    assert {"logs", "totals", "unread"} == found.as_data().keys()


async def test_exports_databases_and_conversations_are_read(tmp_path: Path) -> None:
    """A folder of all of them; a database stays as it is, byte for byte, and its forks are passed over."""
    folder = tmp_path / "logs"
    folder.mkdir()
    chat(folder / "chat.json", 12)
    path = folder / "deep" / "memory.db"
    path.parent.mkdir()
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await say(thread, [*turns(10), *call("c1"), *turns(10, start=20)])
        await thread.fork(5, thread_id="f")
        await engine.user("u1").preferences.update("tone", "dry")
        await thread.replay.export(folder / "log.jsonl.gz")
        await thread.replay.export(folder / "log2.jsonl")
    before = path.read_bytes()
    (folder / "notes.txt").write_text("nothing to see")
    found = await compare_compactors([folder], [EmbeddedCompactor()], policy=SMALL)
    assert (["chat.json", "memory.db#t", "log.jsonl.gz#t", "log2.jsonl#t"], ()) == (
        [Path(row.log).name for row in found.rows], found.unread
    )  # fmt: skip
    assert 1 == len({(row.compactions, row.tokens, row.facts) for row in found.rows[1:]})
    assert before == path.read_bytes()


async def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Files that are broken, empty, or not there are told with their reason; the others are compared."""
    good = chat(tmp_path / "good.json", 9)
    (tmp_path / "broken.json").write_text('[{"role": "user"')
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "noise.db").write_bytes(b"no database" * 100)
    (tmp_path / "noise.jsonl.gz").write_bytes(b"\x1f\x8bnoise")
    found = await compare_compactors(
        [tmp_path, tmp_path / "none.db", tmp_path / "none.json"], [Verbatim()], policy=SMALL
    )
    assert [str(good)] == [row.log for row in found.rows]
    assert {"broken.json", "noise.db", "noise.jsonl.gz", "none.db", "none.json"} == {
        Path(u.path).name for u in found.unread
    }
    assert all(one.why for one in found.unread)
    assert not (tmp_path / "none.db").exists()


async def test_a_compactor_that_fails_is_counted(tmp_path: Path) -> None:
    """What it did not compact counts for nothing, and no other suffers."""
    failing = FakeCompactor(RuntimeError("boom"), name="failing")
    found = await compare_compactors([chat(tmp_path / "a.json", 9)], [failing, Verbatim()], policy=SMALL)
    first, second = found.rows
    assert (0, True, None, None) == (first.compactions, first.failed > 0, first.tokens_kept, first.facts_kept)
    assert second.compactions


async def test_compactors_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    """None at all, two of one name, one that calls a model and was not told that it may."""

    class Asking(Scripted):
        calls_model = True

    logs = [chat(tmp_path / "a.json", 9)]
    for compactors in ([], [Verbatim(), Verbatim()]):
        with pytest.raises(InvalidChange):
            await compare_compactors(logs, compactors)
    with pytest.raises(ModelNotAllowed):
        await compare_compactors(logs, [Asking()])
    asking = Asking()
    await compare_compactors(logs, [asking], policy=SMALL, call_models=True)
    assert asking.given


@recordings
async def test_recorded_conversations_keep_their_facts() -> None:
    """The embedded compactor keeps far more than its share of tokens would by chance."""
    found = await compare_compactors([TAU_BENCH], [EmbeddedCompactor()])
    (total,) = found.totals()
    assert (100, ()) == (len(found.rows), found.unread)
    assert (total.tokens_kept or 1) < 0.3
    assert (total.facts_kept or 0) > 0.5


def test_files_are_found_once_and_in_order(tmp_path: Path) -> None:
    """A folder's by name, however deep; a file that was named also where its ending says nothing."""
    for name in ("b.json", "a/c.jsonl", "a/d.txt", "e.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    named = tmp_path / "a" / "d.txt"
    assert ["a/c.jsonl", "b.json", "e.db", "a/d.txt"] == [
        path.relative_to(tmp_path).as_posix() for path in files_of([tmp_path, named, tmp_path / "b.json"])
    ]


# The chart.


def test_the_chart_is_an_image_of_the_figures() -> None:
    """A dot for each log and each compactor, with names that can do no harm in it."""
    rows = [
        CompactorScore(log=f"<log {n}>", compactor=name, compactions=1, tokens=(100, tokens), facts=(10, n))
        for n in range(3)
        for name, tokens in (("<embedded> & co", 20), ("other", 60))
    ]
    drawn = draw(Comparison(rows=tuple(rows), unread=(Unread("x", "y"),)))
    root = ET.fromstring(drawn)
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert 8 == len(circles)
    assert all(0 <= float(one.attrib["cx"]) <= 760 and 0 <= float(one.attrib["cy"]) <= 520 for one in circles)
    assert "<embedded> & co: 20% of tokens, 10% of facts" in [one.text for one in root.iter()]


@pytest.mark.parametrize(
    "rows", [(), (CompactorScore(log="a", compactor="b"),), (CompactorScore(log="a", compactor="b", tokens=(1, 9)),)]
)
def test_a_chart_of_nothing_is_an_image_too(rows: tuple[CompactorScore, ...]) -> None:
    """No log, nothing compacted, no facts, more tokens than before."""
    assert "svg" in ET.fromstring(draw(Comparison(rows=rows))).tag


# Facts.


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("It costs 1,250.50 EUR, due 2025-03-24.", ["1,250.50", "EUR", "2025-03-24"]),
        ("Order FW-20871 by ann@example.org", ["FW-20871", "ann@example.org"]),
        ("see src/app/main.py and config.toml", ["src/app/main.py", "config.toml"]),
        ("call list_user_orders or getUserName now", ["list_user_orders", "getUserName"]),
        ("We met Ann Lee in Oslo. The end. I think so.", ["Ann", "Lee", "Oslo"]),
        ("and/or he said so, e.g. this 1 time", []),
        ("", []),
        ("🎉\x00\n", []),
    ],
)
def test_facts_are_told_by_their_looks(text: str, facts: list[str]) -> None:
    """Numbers, dates, ids, paths, addresses, identifiers and names; not the first word of a sentence."""
    assert sorted(facts) == sorted(facts_of(text))


def test_a_fact_stands_whole() -> None:
    """Not as a part of a longer word or number."""
    assert (True, True, True) == (stands_in("42", "42"), stands_in("42", "is 42, so"), stands_in("a.py", "(a.py)"))
    assert [False] * 5 == [stands_in("42", text) for text in ("142", "42.5", "x42", "0.42", "42nd")]


@given(st.text(max_size=300))
def test_every_text_says_its_own_facts(text: str) -> None:
    """And nothing says facts that it does not hold."""
    facts = facts_of(text)
    assert [] == missing(text, facts)
    assert list(facts) == missing("", facts)


# The commands.


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A thread with two compactions, and an order number in every message."""
    path = str(tmp_path / "m.db")

    async def fill() -> None:
        async with memory_engine.open(path, config=memory_engine.EngineConfig(compaction=SMALL)) as engine:
            thread = await engine.create_thread("t")
            await say(thread, [*turns(9), UserMessage(content="\x1b[31mred"), *turns(4, start=20)])

    anyio.run(fill)
    return path


def test_the_command_compares_and_draws(tmp_path: Path, run: Run) -> None:
    """A line for each log, the sums, and a chart; JSON has all of it."""
    chat(tmp_path / "a.json", 14)
    chart = tmp_path / "c.svg"
    code, out, _ = run("compare-compactors", str(tmp_path), "--threshold", "6", "--chart", str(chart))
    assert (0, True, True) == (code, "embedded" in out, "COMPACTIONS" in out)
    assert "svg" in ET.parse(chart).getroot().tag
    code, out, _ = run("compare-compactors", str(tmp_path / "a.json"), "--threshold", "6", "--json")
    assert (0, ["embedded"]) == (code, [total["compactor"] for total in json.loads(out)["totals"]])


def test_the_command_takes_the_window_of_a_model(tmp_path: Path, run: Run) -> None:
    """A conversation that fits into it is not compacted; by default the window is a small one."""
    path = chat(tmp_path / "a.json", 200)
    for words, compacted in (([], True), (["--window", "4000"], True), (["--window", "200000"], False)):
        code, out, _ = run("compare-compactors", str(path), *words, "--json")
        (total,) = json.loads(out)["totals"]
        assert (0, compacted) == (code, total["compactions"] > 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compactor", "nobody"], "there is no compactor 'nobody'; there are embedded"),
        (["--model", "m"], "--call-models"),
        (["--no-compaction"], "nothing to compare"),
    ],
)
def test_the_command_says_what_it_cannot_compare(tmp_path: Path, run: Run, words: list[str], said: str) -> None:
    """In one line, with exit code 2."""
    code, _, err = run("compare-compactors", str(chat(tmp_path / "a.json", 9)), *words)
    assert (2, True) == (code, said in err)


def test_the_command_compares_a_thread(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of --db gives what its file gives, and stays as it is; a typo is told from a missing file."""
    monkeypatch.chdir(tmp_path)
    file = chat(tmp_path / "talk.json", 14)
    assert 0 == run("ingest", str(file), "--db", "x.db")[0]
    before = run("stats", "--db", "x.db", "--json")[1]
    of_thread, of_file = (
        json.loads(run("compare-compactors", one, "--threshold", "6", "--db", "x.db", "--json")[1])["logs"]
        for one in ("talk", "talk.json")
    )
    assert ["talk", "talk.json"] == [rows[0]["log"] for rows in (of_thread, of_file)]
    untimed = [[{**row, "log": "", "seconds": 0} for row in rows] for rows in (of_thread, of_file)]
    assert untimed[0] == untimed[1]
    assert before == run("stats", "--db", "x.db", "--json")[1]
    code, _, err = run("compare-compactors", "tlak", "--db", "x.db")
    assert (2, True) == (code, "thread 'tlak' does not exist; did you mean talk?" in err)
    code, out, err = run("compare-compactors", "talk", "none.json", "--threshold", "6", "--db", "x.db")
    assert (1, True, True) == (code, "talk" in out, "none.json: No such file or directory\n" in err)


def test_a_file_that_cannot_be_read_is_exit_code_1(tmp_path: Path, run: Run) -> None:
    """The others are compared all the same."""
    good = chat(tmp_path / "a.json", 9)
    code, out, err = run("compare-compactors", str(good), str(tmp_path / "none.json"), "--threshold", "6")
    assert (1, True, True) == (code, "a.json" in out, "none.json" in err)


def test_what_if_on_the_command_line(database: str, run: Run) -> None:
    """A summary and a table; JSON has everything; what it shows can play no tricks on a terminal."""
    code, out, err = run("what-if", "t", "--db", database, "--threshold", "9", "--fork-id", "f", "--price-input", "2.5")
    assert (0, True, True, "") == (code, "another policy" in out, "cost, USD" in out, err)
    assert "\x1b" not in out
    code, out, _ = run("what-if", "t", "--db", database, "--no-compaction", "--json")
    data = json.loads(out)
    assert (0, 0, True) == (code, data["compactions"]["fork"]["completed"], bool(data["turns"]))
    assert 0 == run("verify", "--db", database)[0]
    assert 0 == run("show", "f", "--db", database)[0]
    assert 1 == run("threads", "--db", database)[1].count("active, a what-if")


def test_what_if_keeps_nothing_unless_asked_to(database: str, run: Run) -> None:
    """It runs in memory, and reads the file only; `--keep` makes a fork with an id of its own."""
    words, before = ("what-if", "t", "--db", database, "--skip", "1"), Path(database).read_bytes()
    code, out, _ = run(*words)
    assert (0, True) == (code, "--keep" in out)
    assert before == Path(database).read_bytes()
    in_memory, kept = json.loads(run(*words, "--json")[1]), json.loads(run(*words, "--keep", "--json")[1])
    assert in_memory == {name: kept[name] for name in in_memory}
    assert {"fork_id", "state", "seconds"} == set(kept) - set(in_memory)
    assert 1 == run("threads", "--db", database)[1].count("active, a what-if")


def test_edits_on_the_command_line(database: str, run: Run, tmp_path: Path) -> None:
    """Events come from files, as `log --json` prints them."""
    event = tmp_path / "e.json"
    event.write_text('{"type": "user_message", "payload": {"content": "Never mind."}, "id": ""}')
    words = ["--skip", "1", "--replace", "2", str(event), "--insert", "3", str(event), "--insert", "0", str(event)]
    code, out, _ = run("what-if", "t", "--db", database, *words, "--json")
    events = json.loads(out)["events"]
    assert (0, 1, 1, 2) == (code, events["skipped"], events["replaced"], events["inserted"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "it changes nothing"),
        (["--skip", "999"], "the log has the seqs 1 to"),
        (["--replace", "x", "e.json"], "the first is the seq of an event"),
        (["--insert", "1", "none.json"], "No such file"),
        (["--compactor", "embedded", "--model", "m", "--call-models"], "name one of them"),
        (["--model", "m"], "--call-models"),
        (["--price-output", "1", "--skip", "1"], "--price-input"),
        (["--skip", "1", "--fork-id", "t"], "exists already"),
        (["--skip", "1", "--upto", "999"], "999"),
    ],
)
def test_what_if_says_what_it_cannot_do(database: str, run: Run, words: list[str], said: str) -> None:
    """In one line, with exit code 2, and no fork."""
    code, _, err = run("what-if", "t", "--db", database, *words)
    assert (2, True) == (code, said in err)
    assert 1 == len(json.loads(run("threads", "--db", database, "--json")[1]))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"type": "nobody", "payload": {}}', '{"type": "user_message"}'])
def test_an_event_file_that_is_none_is_refused(database: str, run: Run, tmp_path: Path, text: str) -> None:
    """With the file's name and the reason."""
    event = tmp_path / "e.json"
    event.write_text(text)
    code, _, err = run("what-if", "t", "--db", database, "--insert", "1", str(event))
    assert (2, True) == (code, str(event) in err)


def test_fork_on_the_command_line(database: str, run: Run) -> None:
    """At the end, at a seq, under an id of one's own; beyond the log there is nothing to share."""
    code, out, _ = run("fork", "t", "--at", "3", "--id", "f", "--db", database)
    assert (0, True) == (code, "up to event 3" in out)
    code, out, _ = run("fork", "t", "--db", database, "--json")
    assert (0, "t") == (code, json.loads(out)["thread_id"])
    code, _, err = run("fork", "t", "--at", "99", "--db", database)
    assert (2, True) == (code, "99" in err)
    assert 2 == run("fork", "t", "--id", "f", "--db", database)[0]
    assert 2 == run("fork", "nobody", "--db", database)[0]
