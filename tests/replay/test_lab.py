"""The regression lab: each class of regression breaks its threshold, and everything else of a run."""

import asyncio
import json
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import inf
from pathlib import Path

import anyio
import msgspec
import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, LlmTextResponse, SessionStarted, UserMessage, lab
from memory_engine.core.json_form import as_data
from memory_engine.errors import InvalidLabChange, ModelNotAllowed
from memory_engine.lab.change import read_change
from memory_engine.lab.page import page
from memory_engine.lab.report import judged
from tests.command_line import Run

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT.parent / "shared" / "data"
RULE = "Never ship to Norway without asking me first."
CODE = """
from memory_engine import Add, Chunk, CompactionResult, Plugin, Reduction, SummaryLine
from memory_engine.recall.ranking import rank

class Forgetful:
    name = "forgetful"
    def can_compact(self, chunks):
        return True
    async def compact(self, chunks, context):
        return CompactionResult(lines=(SummaryLine("key_information", "Things were said.", (chunks[0].id,)),))

class Broken(Forgetful):
    name = "broken"
    async def compact(self, chunks, context):
        raise RuntimeError("no luck")

class Dies(Forgetful):
    name = "dies"
    async def compact(self, chunks, context):
        import os
        os._exit(9)

forgetful, broken, dies = Forgetful(), Broken(), Dies()

def backwards(*args, **kwargs):
    found = list(rank(*args, **kwargs))
    return found[::-1]

count = 0
impure = Plugin("impure")

@impure.replaces_reducer("reduce_user_message")
def reduce_impurely(_view, event, ctx):
    global count
    count += 1
    chunk = Chunk(id=ctx.new_id(), type="user_message", content=f"{event.content} {count}")
    return Reduction(operations=(Add(chunk.id),), chunks=(chunk,))

silent = Plugin("silent")

@silent.replaces_reducer("reduce_user_message")
def reduce_silently(_view, event, ctx):
    return Reduction(operations=(), chunks=())
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one exported log: a rule, then 24 orders, with compactions as recorded."""
    folder = tmp_path_factory.mktemp("logs")

    async def record() -> None:
        config = EngineConfig(compaction=CompactionPolicy(threshold=16, tokens_min=0, keep_recent=8))
        async with memory_engine.open(":memory:", config=config) as engine:
            thread = await engine.create_thread("orders")
            await thread.dispatch(SessionStarted(content="You are the assistant of a shop."))
            await thread.dispatch_all([UserMessage(content=RULE), LlmTextResponse(content="Understood.")])
            for n in range(10, 34):
                order = f"Order FW-20{n} of Ann Lee costs {n}.50 EUR, due on 2025-03-{n - 9:02}."
                await thread.dispatch(UserMessage(content=order + " We like it a lot." * 12))
                await thread.dispatch(LlmTextResponse(content=f"Noted: order FW-20{n}."))
                await thread.compaction.settle()
            await thread.replay.export(folder / "orders.jsonl")

    anyio.run(record)
    (folder / "orders.questions.jsonl").write_text(
        '{"question": "What does order FW-2030 cost?", "words": ["30.50 EUR"], "thread": "orders"}\n'
    )
    return folder


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The working directory, with a module of regressions to load."""
    (tmp_path / "regressions.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("regressions", None)


TALK = '[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]'


def change(path: str, text: str) -> str:
    """A file in the working directory, such as a change."""
    Path(path).write_text(text)
    return path


def program(path: str, line: str) -> Path:
    """A shell script of one line that runs this Python."""
    Path(path).write_text(f"#!/bin/sh\n{line}\n".replace("INTERPRETER", shlex.quote(sys.executable)))
    Path(path).chmod(stat.S_IRWXU)
    return Path(path).resolve()


def scratch_folders() -> set[Path]:
    """The temporary folders of runs."""
    return set(Path(tempfile.gettempdir()).glob("memory-engine-lab-*"))


def other_version() -> Path:
    """A copy of the package, of another version, in which a context's frame takes more tokens."""
    other = Path("other").resolve()
    shutil.copytree(ROOT / "memory_engine", other / "memory_engine")
    version = other / "memory_engine" / "core" / "version.py"
    version.write_text(version.read_text() + "\n\ndef installed_version() -> str:\n    return '0.0.9'\n")
    builder = other / "memory_engine" / "context" / "builder.py"
    builder.write_text(builder.read_text().replace("FRAME = 3\n", "FRAME = 300\n"))
    return other


SEEDED = {
    "brief_missing": "contexts.policy = {blocks = []}",
    "answers_lost": 'search = {ranker = "regressions:backwards", limit = 1}',
    "over_budget": "contexts.max_tokens = 40",
    "unverified": 'plugins = ["regressions:impure"]',
    "events_refused": 'plugins = ["regressions:silent"]',
    "compactions_failed": 'compaction = {compactor = "regressions:broken", policy = {threshold = 8}}',
    "values_lost": 'compaction = {compactor = "regressions:forgetful", policy = {threshold = 8, keep_recent = 2}}',
    "cache_lost": "contexts.policy = {refill = 0.95}",
    "tokens": f'system_prompt = "{"Be kind. " * 300}"',
    "cost": f'system_prompt = "{"Be kind. " * 300}"\nprices = {{input = 2.5, output = 10}}',
    "contexts_changed": 'system_prompt = "Be kind."\nthresholds = {contexts_changed = 0}',
}


@pytest.mark.parametrize("metric", SEEDED)
async def test_a_seeded_regression_of_each_class_breaks_its_threshold(logs: Path, metric: str) -> None:
    """A finding leads to thread, event and command; a threshold that allows any amount of it is never broken."""
    text = f"contexts.max_tokens = 1200\n{SEEDED[metric]}" if "max_tokens" not in SEEDED[metric] else SEEDED[metric]
    baseline = change("before.toml", "contexts.max_tokens = 1200")
    found = await lab.run([logs], change("c.toml", text), against=baseline, processes=0)
    assert () == found.unmeasured
    assert metric in {one.metric for one in found.broken}, str(found)
    of_it = [one for one in found.findings if one.metric == metric]
    assert {"orders"} == {one.thread for one in of_it}
    last = found.threads[0].under.events
    assert all(1 <= one.seq <= last and one.what and one.command.startswith("memory-engine ") for one in of_it)
    allowed = msgspec.structs.replace(found.under.thresholds, **{metric: inf})
    assert metric not in {one.metric for one in judged(found.threads, allowed)[0] if one.broken}


async def test_a_log_under_what_it_was_recorded_with_is_safe(logs: Path) -> None:
    """Nothing differs, and nothing is found."""
    found = await lab.run([logs], "recorded", processes=0)
    assert found.safe
    assert ((), 0) == (found.findings, found.threads[0].contexts_changed)
    assert "SAFE: no threshold is broken" == found.verdict


def test_processes_and_the_command_give_the_same_bytes(logs: Path, run: Run) -> None:
    """JSON but for the timings, which are apart; exit code 1 for a broken threshold, 0 for none."""
    text = "compaction.policy = {threshold = 6, keep_recent = 1}\ncontexts.max_tokens = 900\nthresholds.tokens = inf"
    path = change("c.toml", text)
    outs = []
    for jobs in ("0", "2", "2"):
        code, out, err = run("lab", "run", str(logs), "--under", path, "--jobs", jobs, "--json")
        data = json.loads(out)
        assert (1, "") == (code, err), data["verdict"]
        assert {"orders"} == {key.split()[-1] for key in data.pop("timings")}
        outs.append(json.dumps(data))
    assert outs[0] == outs[1] == outs[2]
    assert 0 == run("lab", "run", str(logs), "--under", "recorded", "--jobs", "0")[0]


def test_what_a_report_names_can_be_looked_at(logs: Path, run: Run) -> None:
    """The databases are kept, each command of the report runs on them, and the tests of the events pass."""
    path = change("c.toml", SEEDED["values_lost"] + "\ncontexts.max_tokens = 1200\nprices = {input = 1, output = 1}")
    words = ("--keep", "kept", "--tests", "made", "--html", "r.html", "--jobs", "0", "--window", "1200", "--json")
    code, out, _ = run("lab", "run", str(logs), "--under", path, *words)
    found = json.loads(out)
    assert 1 == code
    assert found["findings"]
    for command in {one["command"] for one in found["findings"]}:
        assert 0 == run(*shlex.split(command)[1:])[0], command
    assert [*Path("made").iterdir()]
    assert (
        0
        == subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "made"], check=False
        ).returncode
    )
    html = Path("r.html").read_text()
    assert all(text in html for text in (found["verdict"].partition(" (")[0], "prefers-color-scheme: dark", "viewport"))
    assert (2, True) == (run("lab", "run", str(logs), "--under", path, "--keep", "kept")[0], Path("kept").is_dir())


def test_a_bad_log_is_reported_and_does_not_stop_the_rest(logs: Path, run: Run) -> None:
    """It is named with the reason; the exit code is 2, or 1 if a threshold is broken among the others."""
    Path("bad.jsonl").write_text('{"nothing": "known"}\n')
    change("talk.json", TALK)
    words = ("lab", "run", "bad.jsonl", "none.db", str(logs), "talk.json", "--jobs", "0", "--json", "--under")
    code, out, _ = run(*words, "recorded")
    found = json.loads(out)
    assert (2, ["orders", "talk"]) == (code, [one["thread"] for one in found["threads"]])
    assert ["bad.jsonl", "none.db"] == [one["log"] for one in found["unmeasured"]]
    assert found["verdict"].startswith("INCOMPLETE: ")
    assert 1 == run(*words, change("c.toml", SEEDED["tokens"]))[0]
    assert 2 == run("lab", "run", "bad.jsonl", "--under", "recorded")[0]


async def test_a_process_that_dies_costs_its_thread_alone(logs: Path) -> None:
    """Its thread is reported; another process takes the next."""
    change("talk.json", TALK)
    change("last.json", TALK)
    path = change("c.toml", 'compaction = {compactor = "regressions:dies", policy = {threshold = 8}}')
    found = await lab.run(["talk.json", logs, "last.json"], path, processes=1)
    assert ["talk", "last"] == [one.thread for one in found.threads]
    assert ["its process ended with code 9"] == [one.why for one in found.unmeasured]


async def test_a_run_that_is_stopped_leaves_what_is_finished(logs: Path) -> None:
    """And says that it is not all."""
    change("talk.json", TALK)
    stop = asyncio.Event()

    def stop_after_one(done: int, _found: int) -> None:
        if done:
            stop.set()

    found = await lab.run(["talk.json", logs], "recorded", processes=0, progress=stop_after_one, stop=stop)
    assert (["talk"], True, False) == ([one.thread for one in found.threads], found.interrupted, found.safe)
    assert found.verdict.startswith("INCOMPLETE: ")


async def test_a_cancelled_run_leaves_nothing_behind(logs: Path) -> None:
    """Neither processes nor its temporary folder."""
    before = scratch_folders()
    running = asyncio.ensure_future(lab.run([logs], "defaults", processes=1))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert before == scratch_folders()


async def test_an_earlier_report_is_the_baseline(logs: Path) -> None:
    """As after a change of the code: what was measured then is compared with what is measured now."""
    then = await lab.run([logs], "recorded", processes=0)
    change("then.json", json.dumps(then, default=as_data))
    found = await lab.run([logs], change("c.toml", SEEDED["tokens"]), against="then.json", processes=0)
    assert ["tokens"] == [one.metric for one in found.broken]
    same = await lab.run([logs], "recorded", against="then.json", processes=0)
    assert same.safe
    change("then.json", '{"lab": 99}')
    with pytest.raises(InvalidLabChange, match="lab run --json"):
        await lab.run([logs], "recorded", against="then.json", processes=0)


async def test_the_baseline_is_measured_by_another_version(logs: Path) -> None:
    """By an interpreter with a `memory_engine` of its own, here one whose reducer says more."""
    python = program("python", f'PYTHONPATH={other_version()} exec INTERPRETER "$@"')
    found = await lab.run([logs], "recorded", python=python, processes=1)
    assert "0.0.9" == found.versions[1]
    assert found.threads[0].against.tokens > found.threads[0].under.tokens
    with pytest.raises(InvalidLabChange, match="has no regression lab"):
        await lab.run([logs], "recorded", python=program("none", 'exec INTERPRETER -S -I "$@"'), processes=1)


WRONG = {
    "tresholds = {}": "c.toml, tresholds: there is no such key; did you mean thresholds?",
    "thresholds.tokns = 0.1": "c.toml, thresholds.tokns: there is no such key; did you mean tokens?",
    "compaction.policy.windw = 8000": "c.toml, compaction.policy.windw: there is no such key; did you mean window?",
    "contexts.policy.blockz = []": "c.toml, contexts.policy.blockz: there is no such key; did you mean blocks?",
    "compaction.policy.window = 0": "c.toml, compaction.policy: CompactionPolicy.window cannot be 0",
    "contexts.max_tokens = 'many'": "c.toml, contexts.max_tokens: Expected `int | null`, got `str`",
    "prices.inputs = 1": "c.toml, prices.inputs: there is no such key; did you mean input?",
    "name =": "c.toml: it is not TOML: ",
    "questions = [{question = 'When?'}]": 'c.toml, questions[0]: give "question", and "events" or "words"',
    "questions = [{question = 'When?', wrods = ['May']}]": "c.toml, questions[0].wrods: there is no such key; did you",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_change_names_file_key_and_what_to_do(text: str, logs: Path, run: Run) -> None:
    """Before anything is run, with exit code 2."""
    code, _, err = run("lab", "run", str(logs), "--under", change("c.toml", text))
    assert (2, True) == (code, f"error: {WRONG[text]}" in err), err


async def test_questions_come_from_a_file(logs: Path) -> None:
    """From the change's folder; a line that cannot be one is named."""
    change("asked.jsonl", '\n{"question": "Norway?", "words": ["Never ship"]}\n')
    path = change("c.toml", 'questions = "asked.jsonl"')
    found = await lab.run([logs], path, processes=0)
    assert ["Norway?", "What does order FW-2030 cost?"] == [one.question for one in found.threads[0].under.answers]
    change("asked.jsonl", '{"question": "Norway?"}\n')
    with pytest.raises(InvalidLabChange, match=r"asked\.jsonl, line 1: give"):
        read_change(path)


async def test_a_change_that_names_a_model_needs_permission(logs: Path) -> None:
    """A model costs money."""
    with pytest.raises(ModelNotAllowed):
        await lab.run([logs], change("c.toml", 'compaction.model = "openai/gpt-4o-mini"'), processes=0)


async def test_databases_are_only_read(logs: Path) -> None:
    """A database has the same bytes after a run; its forks are left out."""
    async with memory_engine.open("agent.db") as engine:
        await engine.transfer.import_log(logs / "orders.jsonl")
        await (await engine.thread("orders").at(5)).fork(thread_id="fork")
    before = await anyio.Path("agent.db").read_bytes()
    found = await lab.run(["agent.db"], "defaults", processes=0, window=4_000)
    assert ["orders"] == [one.thread for one in found.threads]
    assert before == await anyio.Path("agent.db").read_bytes()


async def test_texts_of_a_log_are_no_markup(logs: Path) -> None:
    """What a log says cannot leave its place in the page, nor move the cursor of a terminal."""
    talk = [{"role": "user", "content": "Never use <script>alert(1)</script> \x1b[2J of AB-12."}]
    talk += [{"role": ("assistant", "user")[n % 2], "content": f"{n} " + "And so on. " * 60} for n in range(12)]
    change("<b>.json", json.dumps(talk))
    path = change("c.toml", "contexts = {max_tokens = 600, policy = {blocks = []}}")
    found = await lab.run(["<b>.json"], path, processes=0)
    assert "<script>alert" in found.findings[0].what
    assert "<script>" not in page(found)
    assert "<b>.json" not in page(found)
    assert "<script>" not in found._repr_html_()
    assert "\x1b" not in str(found)


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are not at {RECORDINGS}")
async def test_recordings_of_real_agents_run(logs: Path) -> None:
    """Coding agents as they were recorded: what cannot be read is named, all else is measured."""
    found = await lab.run([RECORDINGS / "swe_agent", RECORDINGS / "openhands"], "defaults", window=8_000)
    assert 20 == len(found.threads)
    assert () == found.unmeasured
    assert all(not one.under.verified for one in found.threads)
