"""A hundred recorded conversations of an airline's agent, from file to context, as a user would take them in.

The recordings are not part of the project; without them these tests are skipped and say so.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from attrs import frozen

import memory_engine
from memory_engine.cli import main

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT.parent / "shared" / "data" / "tau_bench" / "airline_gpt4o.json"
CONVERSATIONS = 100
MESSAGES = 2_658
NO_RESULT = "[no result yet]"

recorded = pytest.mark.skipif(not RECORDINGS.is_file(), reason=f"the recordings are not at {RECORDINGS}")


def faults(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """What a strict provider of chat-completions would refuse in these messages; nothing if all is well.

    Roles are known; every content has its type; calls have ids that differ and JSON text as
    arguments; directly after a message with calls comes one result for each, in any order,
    and a result comes nowhere else.
    """
    found: list[str] = []
    waiting: list[str] = []
    for n, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                found.append(f"{n}: a result of {call_id!r}, which does not wait for one here")
            else:
                waiting.remove(str(call_id))
        elif waiting:
            found.append(f"{n}: {role!r} while {waiting} wait for their results")
            waiting = []
        found += [f"{n}: {why}" for why in _faults_of(message)]
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            waiting = [call["id"] for call in calls]
    return found + [f"the end: {waiting} have no results"] * bool(waiting)


def _faults_of(message: Mapping[str, object]) -> list[str]:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    found = []
    if role not in ("system", "user", "assistant", "tool"):
        found.append(f"the role {role!r}")
    if not isinstance(content, str | list) and not (content is None and calls):
        found.append(f"content of type {type(content).__name__}")
    if calls is not None:
        if role != "assistant" or not isinstance(calls, list) or not calls:
            return [*found, "tool_calls that are no list of an assistant's calls"]
        if len({call["id"] for call in calls}) != len(calls):
            found.append("two calls of one id")
        for call in calls:
            json.loads(call["function"]["arguments"])
            if call["type"] != "function" or not call["function"]["name"]:
                found.append("a call of no function")
    return found


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASKED: Mapping[str, object] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER: Mapping[str, object] = {"role": "tool", "tool_call_id": "c1", "content": "seen"}
USER: Mapping[str, object] = {"role": "user", "content": "go"}


def test_the_validator_passes_a_whole_pair() -> None:
    """A call with its result directly after it is valid."""
    assert [] == faults([USER, ASKED, ANSWER, USER])


@pytest.mark.parametrize(
    "messages",
    [
        [USER, ANSWER],
        [USER, ASKED],
        [USER, ASKED, USER, ANSWER],
        [USER, ASKED, ANSWER, ANSWER],
        [{"role": "robot", "content": "go"}],
        [{"role": "user", "content": None}],
        [{**ASKED, "tool_calls": [CALL, CALL]}, ANSWER, ANSWER],
        [{**ASKED, "role": "user"}, ANSWER],
    ],
)
def test_the_validator_refuses_what_a_provider_refuses(messages: list[Mapping[str, object]]) -> None:
    """Orphans, unanswered calls, separated pairs, wrong roles and wrong types are all found."""
    assert faults(messages)


@frozen
class Ingested:
    """The database made of the recordings, and the summary that the command printed."""

    db: str
    summary: dict[str, object]


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """Ingest all recordings once, in a process of their own."""
    db = str(tmp_path_factory.mktemp("real") / "airline.db")
    return Ingested(db, in_new_process("ingest", str(RECORDINGS), "--db", db, "--window", "2500"))


def in_new_process(*words: str) -> dict[str, object]:
    """Run the command line in a new process and return the JSON that it prints."""
    command = [sys.executable, "-m", "memory_engine", *words, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@recorded
def test_every_recorded_message_becomes_an_event(
    ingested: Ingested, record_property: Callable[[str, object], None]
) -> None:
    """All 100 conversations are taken in without an error, compacting on the way."""
    record_property("seconds", ingested.summary["seconds"])
    threads = ingested.summary["threads"]
    assert isinstance(threads, list)
    assert CONVERSATIONS == len(threads)
    assert [MESSAGES, MESSAGES, 0] == [ingested.summary[name] for name in ("messages", "added", "invalid")]
    compactions = ingested.summary["compactions"]
    assert isinstance(compactions, int)
    assert compactions > CONVERSATIONS // 3


@recorded
def test_recorded_conversations_compact_to_less_than_a_third(ingested: Ingested) -> None:
    """What compactions covered takes less than a third of its tokens afterwards."""
    before, after = ingested.summary["tokens_before"], ingested.summary["tokens_after"]
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert 0 < after < before / 3


@recorded
def test_recorded_conversations_verify_in_a_new_process_to_the_same_hashes(
    ingested: Ingested, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes that know nothing of each other replay every log to the hashes that were written."""
    assert 0 == main(["verify", "--db", ingested.db, "--json"])
    here = json.loads(capsys.readouterr().out)
    there = in_new_process("verify", "--db", ingested.db)
    assert [True, [], CONVERSATIONS] == [here["ok"], here["divergences"], len(here["heads"])]
    assert here["heads"] == there["heads"]


@recorded
def test_ingesting_the_recordings_again_adds_nothing(ingested: Ingested) -> None:
    """The same file over again is known to the last message."""
    again = in_new_process("ingest", str(RECORDINGS), "--db", ingested.db)
    assert [0, MESSAGES, 0] == [again[name] for name in ("added", "known", "compactions")]


@recorded
@pytest.mark.parametrize("max_tokens", [2_000, 8_000, 32_000])
async def test_contexts_of_recorded_conversations_are_valid(ingested: Ingested, max_tokens: int) -> None:
    """Every thread gives a context within its budget that the strictest provider would take."""
    wrong: dict[str, list[str]] = {}
    async with memory_engine.open(ingested.db) as engine:
        for info in await engine.threads():
            context = await engine.thread(info.id).context(max_tokens=max_tokens)
            found = faults(context.messages)
            if context.tokens > max_tokens:
                found.append(f"{context.tokens} tokens")
            if found:
                wrong[info.id] = found
    assert {} == wrong


@recorded
async def test_no_recorded_result_is_parted_from_its_call(ingested: Ingested) -> None:
    """In a context that holds the whole state no call lacks its result, and no result stands as a note."""
    parted: list[str] = []
    async with memory_engine.open(ingested.db) as engine:
        for info in await engine.threads():
            context = await engine.thread(info.id).context()
            said = [str(message.get("content")) for message in context.messages]
            parted += [info.id for text in said if text == NO_RESULT or text.startswith("[Result of call ")]
    assert [] == parted
