"""State reports: what a person, a log collector and the command line see of a conversation's memory."""

import json
import logging
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine import Engine, Thread
from memory_engine import events as e
from memory_engine.thread import handle_of
from memory_engine.views.report import memory_report
from memory_engine.views.screen.view import ProactiveTool
from tests.command_line import Run

EXPECTED = """\
=== MEMORY STATE ===
Session: ABC123 | Exchanges: 2 | Summary: 0 bytes | LLM compressions: 0

=== FUNCTION CACHE STATE ===
Cached functions: 2
  • gcs_get_champion_details({'champion_name': 'droideka'}): 2/3 exchanges remaining
  • db_get_ux_details({'query': 'screen help'}): 1/2 exchanges remaining

=== AGENT RECEIVES (10 messages) ===
[1] USER: Who is it?
[2] ASSISTANT: A tank.
[3] USER: How strong?
[4] ASSISTANT: Very.
[5] ASSISTANT: → gcs_get_champion_details({"champion_name":"droideka"})
[6] TOOL: a tank
[7] ASSISTANT: → db_get_ux_details({"query":"screen help"})
[8] TOOL: press X
[9] USER: And now?
[10] ASSISTANT: Let me see."""
HOSTILE = "\x1b[31mred\x1b[0m \x00 \u202eback\u202c \x9bcsi \u2028end 👩\u200d👧"


async def talked(thread: Thread) -> None:
    """A short conversation with a cache."""
    await thread.dispatch(e.SessionStarted(session_id="ABC123"))
    await thread.conversation.prepare_messages("Who is it?")
    await thread.conversation.finalize_cycle("Who is it?", "A tank.")
    await thread.tool_cache.add("gcs_get_champion_details", {"champion_name": "droideka"}, "a tank", 3)
    await thread.tool_cache.add("db_get_ux_details", {"query": "screen help"}, "press X", 2)
    await thread.conversation.prepare_messages("How strong?")
    await thread.conversation.finalize_cycle("How strong?", "Very.")
    await thread.conversation.prepare_messages("And now?")
    await thread.dispatch(e.LlmTextResponse(content="Let me see."))


async def hostile(thread: Thread) -> None:
    """A conversation that would play tricks on a terminal."""
    await thread.tool_cache.add(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE, 1)
    await thread.conversation.prepare_messages(HOSTILE)


async def test_C6_a_report_shows_memory_cache_and_messages(thread: Thread) -> None:
    """Figures, durations left, and every message that the agent receives."""
    await talked(thread)
    report = await thread.views.report()
    assert EXPECTED == report.text == str(report)


async def test_C6_a_reports_data_are_plain_json(thread: Thread) -> None:
    """A program gets the same figures, and the messages whole."""
    await talked(thread)
    data = json.loads(json.dumps(dict((await thread.views.report()).data)))
    assert ("t", "ABC123", 2, 0, 0, True) == (
        data["thread_id"], data["session"], data["exchanges"], data["summary_bytes"],
        data["llm_compressions"], data["cycle_open"],
    )  # fmt: skip
    cached = data["cached_functions"][0]
    assert ({"champion_name": "droideka"}, 2, 3) == (cached["parameters"], cached["remaining"], cached["duration"])
    assert await thread.conversation.messages() == data["messages"]


async def test_C6_a_report_is_logged(thread: Thread, caplog: pytest.LogCaptureFixture) -> None:
    """One record with the text as its message and the data as its attributes."""
    with caplog.at_level(logging.INFO, "memory_engine.report"):
        report = await thread.views.report()
    (record,) = caplog.records
    assert (report.text, "t", report.data) == (
        record.getMessage(), record.__dict__["thread_id"], record.__dict__["memory"]
    )  # fmt: skip


async def test_C6_an_empty_thread_has_a_report(engine: Engine) -> None:
    """Nothing is there, and the report says so; the thread's id stands for the session's."""
    text = (await (await engine.create_thread("t")).views.report()).text
    assert "Session: t | Exchanges: 0 | Summary: 0 bytes" in text
    assert text.endswith("=== AGENT RECEIVES (0 messages) ===")


async def test_C6_a_report_holds_no_control_characters(thread: Thread) -> None:
    """What would colour, move or turn the text is written out; joined emoji stay whole."""
    await hostile(thread)
    text = (await thread.views.report()).text
    assert {"\n"} == {c for c in text if not c.isprintable() and c != "\u200d"}
    assert all(part in text for part in (r"\x1b[31mred", r"\x00", r"\u202eback", "👩\u200d👧"))


async def test_C6_a_report_of_the_past(thread: Thread) -> None:
    """As of an earlier seq it says what it would have said then."""
    await thread.screen.inject("x", [ProactiveTool(tool="t", result="r", duration=2)])
    before = await thread.views.report()
    await talked(thread)
    assert before.text == (await memory_report(handle_of(thread), at=1)).text


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database with an ordinary thread and a hostile one."""
    path = str(tmp_path / "log.db")

    async def fill() -> None:
        async with memory_engine.open(path) as engine:
            await talked(await engine.create_thread("t"))
            await hostile(await engine.create_thread("hostile"))

    anyio.run(fill)
    return path


def test_C6_the_command_prints_the_report(run: Run, db: str) -> None:
    """The very text, and nothing on standard error."""
    assert (0, EXPECTED + "\n", "") == run("report", "t", "--db", db)


def test_C6_the_command_prints_the_data_as_json(run: Run, db: str) -> None:
    """One JSON object for programs."""
    code, out, _ = run("report", "t", "--db", db, "--json")
    found = json.loads(out)
    assert (0, "t", 2, 10) == (code, found["thread_id"], len(found["cached_functions"]), len(found["messages"]))


def test_C6_the_command_looks_into_the_past(run: Run, db: str) -> None:
    """`--at` gives the report as it would have been after an event; beyond the log is an error."""
    assert "Exchanges: 1 |" in run("report", "t", "--at", "6", "--db", db)[1]
    code, _, err = run("report", "t", "--at", "999", "--db", db)
    assert (2, True) == (code, "seqs 1 to" in err)


def test_C6_the_command_is_safe_with_hostile_content(run: Run, db: str) -> None:
    """No control character reaches the terminal, in either form."""
    for words in ((), ("--json",)):
        out = run("report", "hostile", "--db", db, *words)[1]
        assert {"\n"} == {c for c in out if not c.isprintable() and c != "\u200d"}


def test_C6_a_thread_that_is_not_there_is_an_error(run: Run, db: str) -> None:
    """Exit code 2, and one line that says so."""
    code, out, err = run("report", "nobody", "--db", db)
    assert (2, "", 1) == (code, out, len(err.splitlines()))


async def test_C6_without_conversation_memory_the_agent_receives_the_context(engine: Engine) -> None:
    """A loop that only dispatches and asks for contexts sees in the report what its model sees."""
    thread = await engine.create_thread()
    await thread.dispatch_all([e.UserMessage(content="Where is it?"), e.LlmTextResponse(content="On its way.")])
    report = await memory_report(handle_of(thread))
    assert (await thread.context()).messages == report.data["messages"]
    assert report.text.endswith("(2 messages) ===\n[1] USER: Where is it?\n[2] ASSISTANT: On its way.")
    earlier = await memory_report(handle_of(thread), at=1)
    assert ["Where is it?"] == [message["content"] for message in earlier.data["messages"]]  # type: ignore[attr-defined]
