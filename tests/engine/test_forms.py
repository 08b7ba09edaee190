"""A context as a provider's request: what each form does with thinking, images, files, names, errors and the cache."""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Context, EngineConfig
from memory_engine import events as e
from memory_engine.context.rendering import NO_RESULT
from memory_engine.events import Event
from memory_engine.formats.turns import EMPTY, GO_ON, NO_OUTPUT
from tests.engine.provider_rules import broken_in_anthropic, broken_in_chat, broken_in_responses

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
PNG = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = "data:application/pdf;base64,JVBERi0="
SIGNED = e.LlmThinking(content="The lamp is off. ", signature="sig==", response_id="r1")
SEALED = e.LlmThinking(
    content="",
    response_id="r1",
    native=json.dumps({"anthropic": {"message": [{"$whole": {"type": "redacted_thinking", "data": "EmwK"}}]}}),
)
REASONED = e.LlmThinking(
    content="Look first.",
    response_id="r1",
    native=json.dumps({"openai.responses": {"message": [{"id": "rs_1", "encrypted_content": "gAAA"}]}}),
)
CALL = e.LlmToolCall(calls=(e.ToolCall("c1", "look", '{"at":"lamp"}'),), response_id="r1")
RESULT = e.ToolResult(call_id="c1", content="off")
ANSWER = e.LlmTextResponse(content="No.")
Json = Mapping[str, object]


def call(number: int) -> e.LlmToolCall:
    """A call with an id of its own."""
    return e.LlmToolCall(calls=(e.ToolCall(f"c{number}", "look"),))


def user(text: str = "Is the lamp on?") -> e.UserMessage:
    """A message."""
    return e.UserMessage(content=text)


async def shown(*events: Event, max_tokens: int | None = None, query: str | None = None) -> Context:
    """The context after these events, which breaks no rule of any form."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(events)
        context = await thread.context(max_tokens, query=query)
    assert [] == broken_in_chat(context.render("openai.chat"))
    assert [] == broken_in_responses(context.render("openai.responses"))
    assert [] == broken_in_anthropic(context.render("anthropic"))
    return context


def chat(context: Context) -> list[Json]:
    """The messages for chat completions."""
    return list(context.render("openai.chat").messages)


def items(context: Context) -> list[Json]:
    """The items for Responses."""
    return list(context.render("openai.responses").input)


def blocks(context: Context, *, cache: bool = False) -> list[tuple[str, Json]]:
    """The blocks for Anthropic, each with its role."""
    messages: Sequence[Json] = context.render("anthropic", cache=cache).messages
    found: list[tuple[str, Json]] = []
    for message in messages:
        content = message["content"]
        assert isinstance(content, list)
        found += [(str(message["role"]), block) for block in content]
    return found


def kinds(context: Context) -> str:
    """The types of the blocks for Anthropic, a word each; `/` where the role changes."""
    found = blocks(context)
    apart = ["", *(" / " if one[0] != other[0] else " " for one, other in pairwise(found))]
    return "".join(f"{space}{block['type']}" for space, (_, block) in zip(apart, found, strict=True))


# Thinking.


async def test_signed_thinking_stands_unchanged_before_its_call() -> None:
    """While the loop runs: text and signature are what they were, to the last blank."""
    context = await shown(user(), SIGNED, CALL, RESULT)
    assert "text / thinking tool_use / tool_result" == kinds(context)
    assert {"type": "thinking", "thinking": "The lamp is off. ", "signature": "sig=="} == blocks(context)[1][1]


async def test_sealed_thinking_goes_back_as_it_came() -> None:
    """Of a redacted thought only the provider's own block is there."""
    context = await shown(user(), SEALED, CALL, RESULT)
    assert {"type": "redacted_thinking", "data": "EmwK"} == blocks(context)[1][1]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([user(), SIGNED, CALL, RESULT, user("And now?")], "text / thinking tool_use / tool_result text"),
        ([user(), SIGNED, CALL, RESULT, e.TaskStarted(goal="See.")], "text / thinking tool_use / tool_result text"),
        ([user(), SIGNED, CALL, RESULT, ANSWER], "text / tool_use / tool_result / text / text"),
        ([user(), SIGNED, CALL, RESULT, ANSWER, user("Sure?")],
         "text / tool_use / tool_result / text / text"),
        ([user(), SIGNED], "text"),
        ([user(), e.LlmThinking(content="Hm."), CALL, RESULT], "text / tool_use / tool_result"),
        ([user(), SIGNED, CALL, RESULT, e.LlmThinking(content="On.", signature="s2", response_id="r2"),
          e.LlmToolCall(calls=(e.ToolCall("c2", "look"),), response_id="r2")],
         "text / thinking tool_use / tool_result / thinking tool_use / tool_result"),
        ([user(), e.LlmTextResponse(content="Yes."), SIGNED, CALL, RESULT],
         "text / text / text / thinking tool_use / tool_result"),
        ([user(), SIGNED, CALL, RESULT, e.LlmTextResponse(content="I go on.", response_id="r2"),
          e.LlmToolCall(calls=(e.ToolCall("c2", "look"),), response_id="r3")],
         "text / thinking tool_use / tool_result / text tool_use / tool_result"),
        ([user(), SIGNED, CALL, RESULT, ANSWER, e.UserMessage(content="Idle.", origin="client"), call(2)],
         "text / tool_use / tool_result / text / text / tool_use / tool_result"),
    ],
    ids=["a person speaks before the answer", "a task stands last", "the loop has ended", "a new question",
         "thinking that led to nothing", "unsigned", "two rounds", "first in its message", "words between two calls",
         "a notice after the answer"],
)  # fmt: skip
async def test_thinking_stands_while_its_loop_runs(events: list[Event], expected: str) -> None:
    """From the last call back to the last message of a person before it; nowhere else."""
    assert expected == kinds(await shown(*events))


async def test_reasoning_items_stand_with_the_calls_they_led_to() -> None:
    """As they came, by their id and what the provider encrypted; and for nobody else."""
    context = await shown(user(), REASONED, CALL, RESULT)
    summary = [{"type": "summary_text", "text": "Look first."}]
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA"}
    assert [reasoning, "function_call", "function_call_output"] == [
        items(context)[1],
        *(i["type"] for i in items(context)[2:]),
    ]
    assert "text / tool_use / tool_result" == kinds(context)
    ended = await shown(user(), REASONED, CALL, RESULT, e.LlmTextResponse(content="No."))
    assert "reasoning" not in [item["type"] for item in items(ended)]


async def test_an_item_keeps_its_id_beside_its_reasoning_alone() -> None:
    """Without the reasoning that it is bound to, the provider would refuse it."""
    native = json.dumps({"openai.responses": {"message": [{"id": "fc_1", "status": "completed"}]}})
    call = e.LlmToolCall(calls=CALL.calls, response_id="r1", native=native)
    running = items(await shown(user(), REASONED, call, RESULT))
    assert ("fc_1", "c1") == (running[2]["id"], running[2]["call_id"])
    assert "id" not in items(await shown(user(), call, RESULT))[1]


async def test_chat_completions_take_reasoning_as_an_option() -> None:
    """Some who speak them want it back as `reasoning_content`, signed or not, while the loop runs."""
    context = await shown(user(), e.LlmThinking(content="Hm.", response_id="r1"), CALL, RESULT)
    assert "reasoning_content" not in chat(context)[1]
    asked: list[Json] = list(context.render("openai.chat", reasoning_content=True).messages)
    assert "Hm." == asked[1]["reasoning_content"]


async def test_thinking_counts_towards_the_budget() -> None:
    """What a provider gets back has its room, so turns before it go."""
    thought = e.LlmThinking(content="step " * 300, signature="s", response_id="r1")
    events = [*(user(f"question {n} " * 10) for n in range(30)), thought, CALL, RESULT]
    context = await shown(*events, max_tokens=900)
    assert (("31.0",), True) == (context.thinking, context.thinking_tokens > 280)
    assert context.tokens + context.thinking_tokens <= 900
    assert context.tokens + context.thinking_tokens == context.render("anthropic").tokens
    assert context.tokens == context.render("openai.chat").tokens


async def test_thinking_over_half_the_budget_stays_out() -> None:
    """Then the model is to be called without thinking; a context that fits without it is no error."""
    thought = e.LlmThinking(content="step " * 3_000, signature="s", response_id="r1")
    context = await shown(user(), thought, CALL, RESULT, max_tokens=900)
    assert ((), "text / tool_use / tool_result") == (context.thinking, kinds(context))


# Calls.


async def test_numbers_that_a_model_gives_anew_become_ids_of_their_own() -> None:
    """Each call has an id that no other has, the first one its own, and each result follows its call."""
    rounds = [e.LlmToolCall(calls=(e.ToolCall("1", "f"),)), e.ToolResult(call_id="1", content="ok")]
    found = [message for message in chat(await shown(user(), *rounds, user(), *rounds)) if message["role"] == "tool"]
    assert "1" == found[0]["tool_call_id"] != found[1]["tool_call_id"]


async def test_parallel_calls_of_one_response_stand_in_one_message() -> None:
    """Also where a tool and a skill were recorded as two events: all their results follow together."""
    skill = e.LlmSkillCall(call_id="s1", name="plan", response_id="r1")
    context = await shown(user(), SIGNED, CALL, skill, RESULT, e.SkillResult(call_id="s1", content="done"))
    assert "text / thinking tool_use tool_use / tool_result tool_result" == kinds(context)
    assert ["user", "assistant", "tool", "tool"] == [message["role"] for message in chat(context)]


async def test_a_failed_call_is_marked_where_the_form_has_a_mark() -> None:
    """Anthropic's results say so; and then hold text alone."""
    error = e.ToolError(call_id="c1", content=(e.TextPart("No lamp"), e.ImagePart(PNG, alt="the room")))
    found = blocks(await shown(user(), CALL, error))[-1][1]
    assert (True, "No lamp\n[image: the room]") == (found["is_error"], found["content"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"q": 1}', {"q": 1}), ("", {}), ("[1]", {"arguments": "[1]"}), ('{"q": NaN}', {"arguments": '{"q": NaN}'})],
)
async def test_arguments_are_an_object(arguments: str, expected: dict[str, object]) -> None:
    """As the model wrote them, if that is one; else an object that holds what it wrote."""
    call = e.LlmToolCall(calls=(e.ToolCall("c1", "look", arguments),))
    assert expected == blocks(await shown(user(), call, RESULT))[1][1]["input"]


async def test_a_call_without_a_result_and_a_result_without_words_say_so() -> None:
    """No provider takes silence."""
    two = e.LlmToolCall(calls=(e.ToolCall("c1", "f"), e.ToolCall("c2", "f")))
    found = chat(await shown(user(), two, e.ToolResult(call_id="c2", content=" ")))
    assert [NO_RESULT, NO_OUTPUT] == [message["content"] for message in found[2:]]


# Images, files, names.


async def test_images_and_files_stand_in_each_providers_own_form() -> None:
    """Base64 for Anthropic, `data:` URLs for OpenAI, with the speaker's name before them."""
    parts = (e.ImagePart(PNG, detail="low"), e.FilePart(PDF, name="a.pdf"), e.FilePart("https://x.org/b.pdf"))
    context = await shown(e.UserMessage(content=parts, name="Ann"))
    image, data = {"url": PNG, "detail": "low"}, {"filename": "a.pdf", "file_data": PDF}
    assert [
        {"type": "text", "text": "Ann:"},
        {"type": "image_url", "image_url": image},
        {"type": "file", "file": data},
        {"type": "text", "text": "[file: https://x.org/b.pdf]"},
    ] == chat(context)[0]["content"]
    assert [
        {"type": "input_text", "text": "Ann:"},
        {"type": "input_image", "image_url": PNG, "detail": "low"},
        {"type": "input_file"} | data,
        {"type": "input_file", "file_url": "https://x.org/b.pdf"},
    ] == items(context)[0]["content"]
    held = {"type": "base64", "media_type": "image/png", "data": PNG.partition(",")[2]}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    assert [
        {"type": "text", "text": "Ann:"},
        {"type": "image", "source": held},
        {"type": "document", "source": pdf, "title": "a.pdf"},
        {"type": "document", "source": {"type": "url", "url": "https://x.org/b.pdf"}},
    ] == [block for _, block in blocks(context)]


@pytest.mark.parametrize(("media_type", "sound"), [("audio/x-wav", "wav"), ("audio/mpeg", "mp3"), ("audio/MP3", "mp3")])
async def test_audio_is_heard_where_a_provider_takes_it(media_type: str, sound: str) -> None:
    """Chat completions has a part of its own for it; as a file it would be refused."""
    heard = {"type": "input_audio", "input_audio": {"data": "JVBERi0=", "format": sound}}
    note = {"type": "input_text", "text": f"[file: a, {media_type}]"}
    context = await shown(e.UserMessage(content=(e.FilePart(f"data:{media_type};base64,JVBERi0=", media_type, "a"),)))
    assert [heard] == chat(context)[0]["content"] == context.messages[0]["content"]
    assert [note] == items(context)[0]["content"]


async def test_audio_that_no_provider_takes_is_a_note() -> None:
    """It is named with its type, in requests and in messages."""
    part = e.FilePart("data:audio/ogg;base64,JVBERi0=", "audio/ogg", "a.ogg")
    context = await shown(e.UserMessage(content=(part,)))
    assert [{"type": "text", "text": "[file: a.ogg, audio/ogg]"}] == chat(context)[0]["content"]
    assert [{"type": "text", "text": "[file: a.ogg]"}] == context.messages[0]["content"]


async def test_recorded_audio_goes_back_as_it_came() -> None:
    """A provider's own part of a user's message, recorded from its form."""
    heard = {"type": "input_audio", "input_audio": {"data": "JVBERi0=", "format": "mp3"}}
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.record({"role": "user", "content": [heard, {"type": "text", "text": "What is it?"}]})
        context = await thread.context()
    assert [heard, {"type": "text", "text": "What is it?"}] == chat(context)[0]["content"]
    assert chat(context)[0]["content"] == context.messages[0]["content"]


async def test_an_uploaded_file_goes_to_the_provider_that_has_it() -> None:
    """Others are told what it is."""
    context = await shown(e.UserMessage(content=(e.FilePart(file_id="file_011C"), e.FilePart(file_id="file-9aZ"))))
    assert [{"type": "file", "file_id": "file_011C"}, "[file: file-9aZ]"] == [
        block.get("source", block.get("text")) for _, block in blocks(context)
    ]
    assert ["[file: file_011C]", {"file_id": "file-9aZ"}] == [
        part.get("file", part.get("text"))
        for part in chat(context)[0]["content"]  # type: ignore[attr-defined]
    ]


async def test_what_a_tool_shows_is_seen_in_each_form() -> None:
    """Chat completions takes no image in a result: it follows, with a line that says whose it is."""
    context = await shown(user(), CALL, e.ToolResult(call_id="c1", content=(e.TextPart("Here:"), e.ImagePart(PNG))))
    assert "Here:\n[image]" == chat(context)[2]["content"]
    assert [
        {"type": "text", "text": "[Shown by the result of call c1]"},
        {"type": "image_url", "image_url": {"url": PNG}},
    ] == chat(context)[3]["content"]
    for content in (items(context)[-1]["output"], blocks(context)[-1][1]["content"]):
        assert isinstance(content, list)
        assert ["text", "image"] == [str(part["type"]).removeprefix("input_") for part in content]


def png(width: int, height: int) -> str:
    """The head of a PNG of this size."""
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + struct.pack(">IIxx", width, height)
    return "data:image/png;base64," + base64.b64encode(head).decode()


@pytest.mark.parametrize(
    ("count", "size", "kept"),
    [(100, 1_000, 100), (101, 1_000, 81), (120, 1_000, 100), (20, 2_001, 20), (21, 2_001, 17), (24, 2_001, 20)],
)
async def test_of_too_many_images_the_newest_are_shown(count: int, size: int, kept: int) -> None:
    """Anthropic takes a hundred; twenty where one is large. They go in steps, so that the prefix stays for a while."""
    chart = [
        [call(n), e.ToolResult(call_id=f"c{n}", content=(e.ImagePart(png(size, 90), alt=f"chart {n}"),))]
        for n in range(count)
    ]
    context = await shown(user("Which one falls?"), *(event for one in chart for event in one))
    said = json.dumps([block for _, block in blocks(context)])
    assert kept == said.count('"type": "image"')
    assert (kept < count) == ("[image: chart 0 (left out: too many images for one request)]" in said)
    assert f"chart {count - kept}" not in said
    assert "Which one falls?" in said
    assert count == json.dumps(items(context)).count("input_image")


async def test_an_image_that_no_request_may_hold_is_a_note() -> None:
    """Anthropic takes 8,000 px to a side; OpenAI scales it."""
    context = await shown(e.UserMessage(content=(e.ImagePart(png(8_001, 1), alt="a long one"), e.ImagePart(PNG))))
    assert "text image" == kinds(context)
    assert "[image: a long one (left out: over 8000 px)]" == blocks(context)[0][1]["text"]
    assert 2 == json.dumps(chat(context)).count('"image_url": {"url"')


async def test_openai_takes_five_hundred_images() -> None:
    """The oldest of more stand as notes, in a message of a person too."""
    context = await shown(e.UserMessage(content=tuple(e.ImagePart(f"https://x.org/{n}.png") for n in range(501))))
    for shown_to in (chat(context), items(context)):
        said = json.dumps(shown_to)
        assert 401 == said.count('.png", "detail"') + said.count('.png"}')
        assert "[image: https://x.org/99.png (left out: too many images for one request)]" in said


async def test_an_image_of_a_stray_result_is_not_lost() -> None:
    """A note stands where it came, with all that it shows."""
    context = await shown(user(), e.ToolResult(call_id="gone", content=(e.ImagePart(PNG),)))
    assert "text text image" == kinds(context)


# Instructions, beginnings and ends.


async def test_instructions_stand_where_the_form_wants_them() -> None:
    """The first ones at the top; later ones in their place, for Anthropic as a note."""
    context = await shown(
        e.SessionStarted(content="Be kind."), user("Hi"), e.ExternalInject(content="Be brief.", source="system")
    )
    assert ["system", "user", "system"] == [message["role"] for message in chat(context)]
    request = context.render("openai.responses")
    assert ("Be kind.", ["user", "developer"]) == (request.instructions, [item["role"] for item in items(context)])
    system: list[Json] = list(context.render("anthropic").system)
    assert (["Be kind."], "[Instructions] Be brief.") == (
        [one["text"] for one in system],
        blocks(context)[-1][1]["text"],
    )


async def test_where_nobody_has_spoken_a_note_stands() -> None:
    """Anthropic wants the user first and last; an empty thread can be sent, too."""
    alone = await shown(e.LlmTextResponse(content="Hello. "))
    assert [GO_ON, "Hello. ", GO_ON] == [block["text"] for _, block in blocks(alone)]
    assert "Hello." == chat(alone)[-1]["content"]
    empty = await shown()
    assert [GO_ON] == [block["text"] for _, block in blocks(empty)]
    assert (GO_ON, GO_ON) == (chat(empty)[0]["content"], items(empty)[0]["content"])
    assert (None, []) == (empty.render("openai.responses").instructions, empty.render("anthropic").system)


async def test_a_message_without_words_says_so() -> None:
    """A person's; the agent's is left out."""
    context = await shown(user(" \n"), e.LlmTextResponse(content=""), user("Hi"))
    assert [EMPTY, "Hi"] == [message["content"] for message in chat(context)]


# The prompt cache.


def marked(context: Context) -> list[object]:
    """The texts of the blocks with a breakpoint."""
    system: Sequence[Json] = context.render("anthropic").system
    found = [*system, *(block for _, block in blocks(context, cache=True))]
    return [block.get("text", block.get("content")) for block in found if "cache_control" in block]


async def test_breakpoints_stand_where_the_prompt_stays_as_it_is() -> None:
    """After the instructions, before the newest turn, and after it: what changes in place stands behind them all."""
    context = await shown(
        e.SessionStarted(content="Be kind."), user("one"), e.LlmTextResponse(content="two"),
        user("three"), CALL, RESULT, e.TaskStarted(goal="four"),
    )  # fmt: skip
    assert ["Be kind.", "two", "off"] == marked(context)
    assert [] == [block for _, block in blocks(context) if "cache_control" in block]


async def test_what_was_recalled_stands_behind_a_breakpoint() -> None:
    """The block changes with every question; what comes before it does not."""
    old = [e.UserMessage(content=f"Parcel {n} went to Oslo by the northern road, as Ann had asked.") for n in range(60)]
    context = await shown(*old, user("Where did parcel 3 go?"), max_tokens=500, query="Where did parcel 3 go?")
    assert context.recalled_text
    assert ["went to Oslo" in str(text) for text in marked(context)] == [True, False]
    assert "Where did parcel 3 go?" == marked(context)[-1]


async def test_the_prefix_stays_from_call_to_call() -> None:
    """While a loop runs, each request begins with the one before it, byte for byte."""
    events: list[Event] = [user(), SIGNED, CALL, RESULT]
    events += [
        e.LlmThinking(content="On.", signature="s2", response_id="r2"),
        e.LlmToolCall(calls=(e.ToolCall("c1", "look"),), response_id="r2"),
        e.ToolResult(call_id="c1", content="on"),
    ]
    first, second = await shown(*events[:4]), await shown(*events)
    assert blocks(first) == blocks(second)[: len(blocks(first))]
    assert items(first) == items(second)[: len(items(first))]
    assert chat(first) == chat(second)[: len(chat(first))]


async def test_standing_blocks_stand_with_the_instructions() -> None:
    """What holds for every call is behind the first breakpoint."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
        await engine.user("u1", tenant_id="acme").preferences.update("verbosity", "concise")
        await thread.dispatch_all([e.SessionStarted(content="Be kind."), user("one"), ANSWER, user("two")])
        context = await thread.context(2_000)
    request = context.render("anthropic")
    assert "verbosity: concise" in str(request.system[-1])
    assert "cache_control" in request.system[-1]
    assert ["No.", "two"] == marked(context)[1:]


# What is a provider's own.


async def test_a_provider_gets_back_what_it_alone_knows() -> None:
    """Citations, its own tools' blocks, signatures of calls; no other provider sees them, and cache marks stay ours."""
    cited = e.LlmTextResponse(
        content="Oslo.",
        native=json.dumps({"anthropic": {"message": [{"citations": [{"url": "u"}], "cache_control": {}}]}}),
    )
    context = await shown(user(), cited, user("Sure?"))
    assert {"type": "text", "text": "Oslo.", "citations": [{"url": "u"}]} == blocks(context)[1][1]
    assert {"role": "assistant", "content": "Oslo."} == chat(context)[1]
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    native = json.dumps({"openai.chat": {"message": {"tool_calls": [extra]}}})
    context = await shown(user(), e.LlmToolCall(calls=CALL.calls, native=native), RESULT)
    calls = chat(context)[1]["tool_calls"]
    assert isinstance(calls, list)
    assert extra["extra_content"] == calls[0]["extra_content"]
    assert "text / tool_use / tool_result" == kinds(context)
