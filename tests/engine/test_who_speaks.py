"""Who wrote a message of the user role: decided as it is recorded, by flags, tags and the form of what it answers."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import AgentLifecycle, CompactionPolicy, Engine, EngineConfig, Thread, UserMessage
from memory_engine import events as e
from memory_engine.ingest import Ingestion, IngestOptions
from memory_engine.ingest.events import event_id
from memory_engine.thread import handle_of
from tests.conversations import LONG

Message = Mapping[str, object]
TASK = "Find out why the parser drops the last line, and mend it. Leave the tests alone."


@pytest.fixture
async def thread() -> AsyncIterator[Thread]:
    """A thread without events."""
    async with memory_engine.open(":memory:") as engine:
        yield await engine.create_thread("t")


def user(text: str, **more: object) -> Message:
    """A message of the user role."""
    return {"role": "user", "content": text, **more}


def agent(text: str) -> Message:
    """A text of the model."""
    return {"role": "assistant", "content": text}


async def origins(thread: Thread) -> list[str]:
    """The origins of a thread's messages of the user role, in order."""
    return [r.event.origin async for r in thread.events() if isinstance(r.event, UserMessage)]


async def recorded(thread: Thread, messages: Sequence[Message]) -> list[str]:
    """The origins of messages that are recorded one by one, each with what the thread holds already."""
    for message in messages:
        await thread.record([message])
    return await origins(thread)


CALLS = [
    "I look at it.\n<function=open>\n<parameter=path>src/reader.py</parameter>\n</function>",
    "<function=open>\n<parameter=path>src/reader.py</parameter>",
    'Let me see.\n<tool_call>\n{"name": "open", "arguments": {"path": "src/reader.py"}}\n</tool_call>',
    "Ich sehe nach.\n<execute_bash>\nls -la src\n</execute_bash>",
    "Thought: I need the file.\nAction: open\nAction Input: src/reader.py",
]
"""Responses that end in a call that is written out."""


@pytest.mark.parametrize("response", CALLS)
async def test_a_call_that_is_written_out_is_answered_by_a_tool(thread: Thread, response: str) -> None:
    """From the first step on, whatever the result says."""
    messages = [user(TASK), agent(response), user("def read(lines):"), agent(response), user("Never delete this file.")]
    assert ["", "tool", "tool"] == await recorded(thread, messages)


async def test_a_list_is_read_like_single_messages(thread: Thread) -> None:
    """All messages in one call have the same origins; a final answer is followed by a person."""
    await thread.record([user(TASK), agent(CALLS[0]), user("def read"), agent("It is mended."), user("Thank you.")])
    assert ["", "tool", ""] == await origins(thread)


async def test_a_person_who_interrupts_a_loop_is_heard(thread: Thread) -> None:
    """Where results have a frame, a message without it is a person's; also after a written call."""
    step = [agent(CALLS[3]), user("Ergebnis: drei Dateien")]
    messages = [user(TASK), *step, *step, agent(CALLS[3]), user("Halt, lösche nichts!"), *step]
    assert ["", "tool", "tool", "", "tool"] == await recorded(thread, messages)


async def test_talks_about_code_are_between_people(thread: Thread) -> None:
    """Each answer ends in its only fenced block, and each question stays a person's."""
    asked = [
        "Write a loop.",
        "Nun rückwärts bitte.",
        "With a step of two?",
        "再快一点。",
        "Why does it fail?\nIt ends.",
    ]
    answer = agent("Here you are:\n```python\nfor n in range(9):\n    print(n)\n```")
    messages = [message for text in asked for message in (user(text), answer)]
    assert [""] * 5 == await recorded(thread, messages)


async def test_a_speaker_before_each_message_is_no_frame(thread: Thread) -> None:
    """A front end that puts names before messages did so before the first answer, too."""
    answer = agent("Here you are:\n```sql\nselect 1\n```")
    messages = [m for n in range(5) for m in (user(f"Ann: {n} rows, please"), answer)]
    assert [""] * 5 == await recorded(thread, messages)


FRAMED = [
    ("Ich sehe nach.\n```bash\nls\n```", "Ausgabe:\nreader.py\nwriter.py"),
    ("Je regarde.\n<commande>\nls\n</commande>", "reader.py\nwriter.py\n(répertoire : /src)\nshell>"),
    ("想一下。\n动作: 打开 reader.py", "观察: 文件有三行"),
    ('{"thought": "I look.", "command": "ls"}', "<output>\nreader.py\n</output>"),
]
"""Forms that occur in talks as well, and results in a frame."""


@pytest.mark.parametrize(("response", "result"), FRAMED)
async def test_results_in_one_frame_are_a_tools(thread: Thread, response: str, result: str) -> None:
    """A frame that comes a third time to the same form of response shows a tool, in any language."""
    messages = [user(TASK), *[agent(response), user(result)] * 4]
    assert ["", "", "", "tool", "tool"] == await recorded(thread, messages)


@pytest.mark.parametrize(("response", "result"), FRAMED[:3])
async def test_instructions_that_show_the_form_make_it_sure_sooner(thread: Thread, response: str, result: str) -> None:
    """Where the instructions show how an action is written, the second result of a frame is a tool's."""
    messages = [{"role": "system", "content": f"Answer like this:\n{response}"}, user(TASK)]
    messages += [agent(response), user(result)] * 3
    assert ["", "", "tool", "tool"] == await recorded(thread, messages)


async def test_a_frame_that_the_task_has_too_shows_the_first_result(thread: Thread) -> None:
    """A prompt below the task as below each result: the first is a tool's, if the instructions show the form."""
    step = [agent("First the files.\n```\nls\n```"), user("a.py\n(Open file: n/a)\nbash-$")]
    system = {"role": "system", "content": "One command:\n```\nls -a\n```"}
    messages = [system, user(f"{TASK}\n(Open file: n/a)\nbash-$"), *step, *step]
    assert ["", "tool", "tool"] == await recorded(thread, messages)


async def test_new_instructions_begin_anew(thread: Thread) -> None:
    """What follows them is a person's, though the response before ended in a call."""
    messages = [user(TASK), agent(CALLS[0]), {"role": "system", "content": "Be brief."}, user("Another task.")]
    assert ["", ""] == await recorded(thread, messages)


async def test_a_speaker_with_a_name_is_a_person(thread: Thread) -> None:
    """Also where a written call waits for its result."""
    assert ["", ""] == await recorded(thread, [user(TASK), agent(CALLS[0]), user("Wait for me.", name="Ann")])


async def test_a_client_that_says_observation_is_believed(thread: Thread) -> None:
    """But for the task itself, which nothing was asked before."""
    step = [agent("I look around."), user("a.py", message_type="observation")]
    assert ["", "tool", "tool"] == await recorded(thread, [user(TASK, message_type="observation"), *step, *step])


FLAGGED: list[tuple[str, Mapping[str, object], str]] = [
    ("Caveat: not for you.", {"isMeta": True}, "client"),
    ("This session goes on from another.", {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}, "summary"),
    ("Shown to people alone.", {"isVisibleInTranscriptOnly": True}, "client"),
    ("An ordinary question.", {"isMeta": False}, ""),
    ("<system-reminder>\nThe list is empty.\n</system-reminder>", {}, "client"),
    ("<system-reminder>one</system-reminder>\n<system-reminder>two</system-reminder>", {}, "client"),
    ("<system-reminder>one</system-reminder>\nNever push on Fridays.", {}, ""),
    ("<command-name>/clear</command-name>\n<command-message>clear</command-message>\n<command-args></command-args>", {},
     "client"),
    ("<command-name>/review</command-name><command-args>mind the locks</command-args>", {}, ""),
    ("<local-command-stdout>Bye!</local-command-stdout>", {}, "client"),
    ("<task>Never push on Fridays.</task>", {}, ""),
    ("What does <system-reminder> mean?", {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "flags", "origin"), FLAGGED)
async def test_flags_and_tags_of_the_client_decide(
    thread: Thread, text: str, flags: Mapping[str, object], origin: str
) -> None:
    """On the message itself, and on the line of a transcript that holds it."""
    line = {"type": "user", "uuid": "u1", "message": user(text), **flags}
    assert [origin, origin] == await recorded(thread, [user(text, **flags), line])


async def test_flags_do_not_go_to_a_provider(thread: Thread) -> None:
    """A provider would refuse a key that it does not know."""
    await thread.record(user("Caveat.", isMeta=True))
    request = (await thread.context()).render("openai.chat")
    assert [{"role": "user", "content": "Caveat."}] == request.messages


@pytest.mark.parametrize("origin", ["tool", "client", "summary"])
async def test_providers_get_the_same_bytes(origin: str) -> None:
    """Whoever wrote it, a message of the user role is sent as it came."""
    requests = []
    async with memory_engine.open(":memory:") as engine:
        for name in ("", origin):
            thread = await engine.create_thread()
            await thread.dispatch_all(
                [
                    UserMessage(content=TASK),
                    e.LlmTextResponse(content=CALLS[0]),
                    UserMessage(content="three lines", origin=name),  # type: ignore[arg-type]
                ]
            )
            context = await thread.context()
            forms = [context.render("openai.chat"), context.render("openai.responses"), context.render("anthropic")]
            requests.append(repr((context.messages, context.tokens, forms)))
    assert requests[0] == requests[1]


async def test_recording_what_is_known_changes_nothing(thread: Thread) -> None:
    """A list that is recorded again with one message more adds that one, with its origin."""
    messages = [user(TASK), agent(CALLS[0]), user("def read"), agent(CALLS[1])]
    await thread.record(messages, new_only=True)
    await thread.record([*messages, user("def write")], new_only=True)
    assert ["", "tool", "tool"] == await origins(thread)
    assert 5 == await handle_of(thread).last_seq()


async def test_a_text_loop_keeps_its_task() -> None:
    """However often it is compacted, the message that is worked on is the person's, not a result."""
    policy = CompactionPolicy(threshold=6, tokens_min=0, keep_recent=0)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread()
        await thread.record(user(TASK))
        for n in range(20):
            await thread.record(agent(f"Step {n}.{LONG}\n{CALLS[0]}"))
            await thread.compaction.settle()
            assert TASK in str((await thread.context()).messages)
            await thread.record(user(f"result {n}{LONG}"))
            await thread.compaction.settle()
            assert TASK in str((await thread.context()).messages)
        assert len(await thread.state()) < 20


async def added(engine: Engine, path: Path) -> list[int]:
    """The events that an ingestion of a file adds, by thread."""
    ingestion = Ingestion(engine, IngestOptions())
    assert await ingestion.file(path)
    return [one.added for one in ingestion.report.threads]


async def test_a_response_in_several_messages_keeps_its_request(tmp_path: Path) -> None:
    """A client that writes a line for each block: its first text is no final answer."""
    lines: list[Message] = [user(TASK)]
    for n in range(20):
        blocks: list[Message] = [
            {"type": "text", "text": f"Now module {n}.{LONG}"},
            {"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"path": f"m{n}.py"}},
        ]
        head = {"role": "assistant", "id": f"msg_{n}", "type": "message", "stop_reason": None}
        lines += [{**head, "content": [block]} for block in blocks]
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"lines of {n}{LONG}"}
        lines.append({"role": "user", "content": [result]})
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(json.dumps({"type": line["role"], "message": line}) for line in lines))
    policy = CompactionPolicy(threshold=6, tokens_min=0, keep_recent=0)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        assert [61] == await added(engine, path)
        assert TASK in str((await engine.thread("s").context()).messages)
        assert [0] == await added(engine, path)


async def test_search_finds_a_result_as_a_tools(thread: Thread) -> None:
    """Not as something that a person said."""
    await recorded(thread, [user(TASK), agent(CALLS[0]), user("The harbour office closes at noon.")])
    (hit,) = [hit for hit in await thread.search("When does the harbour office close?") if "harbour" in hit.text]
    assert ("tool", "tool") == (hit.kind, hit.role)


async def test_nothing_is_learned_from_what_is_no_persons() -> None:
    """A statement that a tool, a client or another tool's summary makes is no fact about the user."""
    async with memory_engine.open(":memory:") as engine:
        run = AgentLifecycle(engine, await engine.create_thread(user_id="u1"), agent_id="analyst")
        await run.start("Plan the trip")
        for origin, text in (("tool", "CET"), ("client", "EST"), ("summary", "JST"), ("", "GMT")):
            await run.thread.dispatch(UserMessage(content=f"My time zone is {text}.", origin=origin))  # type: ignore[arg-type]
        assert [("time-zone", "GMT")] == [(fact.key, fact.value) for fact in await run.end("Planned.")]


async def test_an_exchange_is_a_question_and_its_answer(thread: Thread) -> None:
    """Results are no questions, and the actions of a text loop are no answers."""
    await recorded(thread, [user("Why?"), agent(CALLS[0]), user("def read"), agent("Because of the last line.")])
    assert [("Why?", "Because of the last line.")] == [
        (one.question, one.answer) for one in await thread.conversation.exchanges()
    ]


async def test_a_file_that_was_ingested_without_origins_is_known(tmp_path: Path) -> None:
    """A file of a text loop that an earlier release ingested adds nothing when it is ingested again."""
    messages = [user(TASK), agent(CALLS[0]), user("def read")]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, messages)))
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        ids = [event_id("t", n) for n in (1, 2, 3)]
        await thread.dispatch(UserMessage(content=TASK), event_id=ids[0])
        await thread.dispatch(e.LlmTextResponse(content=CALLS[0]), event_id=ids[1])
        await thread.dispatch(UserMessage(content="def read"), event_id=ids[2])
        assert [0] == await added(engine, path)


async def test_a_pin_of_an_agent_that_read_a_tool_is_a_tools(thread: Thread) -> None:
    """After an observation as after a result: it may repeat the tool's words."""
    await thread.record([user(TASK), agent(CALLS[0])])
    await thread.brief.pin("The parser drops the last line.", by_agent=True)
    await thread.record(user("Always run setup.sh first."))
    await thread.brief.pin("Run setup.sh first.", by_agent=True)
    assert ["agent", "tool"] == [r.event.origin async for r in thread.events() if isinstance(r.event, e.BriefPinned)]
