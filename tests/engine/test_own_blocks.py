"""Blocks that only their provider reads: they go back in order, count, are found, and stay out once forgotten."""

import json
from pathlib import Path
from typing import cast

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Thread
from memory_engine import events as e
from memory_engine.formats.native import Json, own_tokens

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
ASK: Json = {"role": "user", "content": "Which kettle is the cheapest?"}
SEALED: Json = {"type": "thinking", "thinking": "", "signature": "EsYBCkgIARAB" * 20}
SEARCH: list[Json] = [
    {"type": "server_tool_use", "id": "srvtoolu_9", "name": "web_search", "input": {"query": "kettle prices"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_9", "content": [
        {"type": "web_search_result", "url": "https://kettles.example/zephyr", "title": "The Zephyr kettle, 19 euros",
         "encrypted_content": "Eo8CCioIARgC" * 30, "page_age": None}]},
]  # fmt: skip
HOSTED: list[Json] = [
    {"type": "web_search_call", "id": "ws_7", "status": "completed",
     "action": {"type": "search", "query": "zephyr kettle prices"}},
    {"type": "mcp_call", "id": "mcp_7", "name": "stock", "arguments": '{"sku": "zephyr"}', "server_label": "shop",
     "output": "zephyr: 4 left"},
    {"type": "code_interpreter_call", "id": "ci_7", "code": "print('zephyr')", "container_id": "cntr_1",
     "status": "completed", "outputs": [{"type": "logs", "logs": "zephyr"}]},
    {"type": "file_search_call", "id": "fs_7", "queries": ["zephyr"], "status": "completed", "results": None},
]  # fmt: skip
COMPACTION: Json = {"type": "compaction", "id": "cmp_7", "encrypted_content": "gAAAAABq" * 40}


def call(n: int) -> Json:
    """A call of a tool."""
    return {"type": "tool_use", "id": f"toolu_k{n}", "name": "price", "input": {"of": n}}


def thought(n: int) -> Json:
    """Sealed thinking."""
    return {"type": "thinking", "thinking": f"Now shop {n}.", "signature": f"c2lnbg{n}"}


def results(*numbers: int) -> Json:
    """What these calls gave."""
    return {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": f"toolu_k{n}", "content": f"{n} euros"} for n in numbers
    ]}  # fmt: skip


def message(blocks: list[Json], stop_reason: str = "end_turn", id: str = "msg_k") -> Json:
    """A response of Anthropic."""
    around = {"id": id, "type": "message", "role": "assistant", "model": "claude", "stop_reason": stop_reason}
    return {**around, "content": blocks, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 9}}


def response(items: list[Json], id: str = "resp_k", **around: object) -> Json:
    """A response of OpenAI."""
    made = {"id": id, "object": "response", "created_at": 1, "model": "gpt", "status": "completed", "output": items}
    return made | around


async def sent_to_anthropic(thread: Thread, max_tokens: int | None = None) -> list[Json]:
    """The messages of the next request."""
    return cast("list[Json]", (await thread.context(max_tokens)).render("anthropic", cache=False).messages)


async def sent_to_responses(thread: Thread) -> list[Json]:
    """The items of the next request."""
    return cast("list[Json]", (await thread.context()).render("openai.responses").input)


@pytest.mark.parametrize(
    "blocks",
    [
        [SEALED, call(1)],
        [SEALED, call(1), SEALED | {"signature": "b3RoZXI"}, call(2)],
        [thought(1), call(1), thought(2), call(2)],
        [thought(1), {"type": "text", "text": "First."}, call(1), {"type": "text", "text": "Then."}, call(2)],
        [{"type": "redacted_thinking", "data": "EmwKAhgB"}, call(1), *SEARCH, thought(2), call(2)],
    ],
)
@pytest.mark.parametrize("max_tokens", [None, 900])
async def test_a_response_goes_back_in_one_message(blocks: list[Json], max_tokens: int | None) -> None:
    """Its blocks keep their order, sealed ones without a text stay, and all results begin the next message."""
    inputs = [cast("dict[str, int]", one["input"]) for one in blocks if one["type"] == "tool_use"]
    numbers = [one["of"] for one in inputs]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(message(blocks, "tool_use"))
        await thread.record(results(*numbers))
        sent = await sent_to_anthropic(thread, max_tokens)
        context = await thread.context(max_tokens)
    assert blocks == sent[1]["content"]
    assert ["user", "assistant", "user"] == [one["role"] for one in sent]
    assert context.thinking_tokens > 0
    assert () == context.render("anthropic").left_out


async def test_reasoning_between_calls_stays_between_them() -> None:
    """In a response of OpenAI, too: each reasoning item stands right before the call that it led to."""
    items: list[Json] = []
    for n in (1, 2):
        items += [
            {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": f"gAAAA{n}"},
            {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "price", "arguments": "{}"},
        ]
    outputs: list[Json] = [{"type": "function_call_output", "call_id": f"c{n}", "output": "9"} for n in (1, 2)]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(response(items))
        await thread.record(outputs, format="openai.responses")
        sent = await sent_to_responses(thread)
    assert [*items, *outputs] == sent[1:]


@pytest.mark.parametrize("item", [*HOSTED, COMPACTION])
async def test_items_of_hosted_tools_go_back_and_count(item: Json) -> None:
    """Without reasoning before them, from every turn, not the newest alone; and a budget knows of them."""
    said: Json = {"type": "message", "id": "m_7", "role": "assistant", "status": "completed",
                  "content": [{"type": "output_text", "text": "The Zephyr.", "annotations": []}]}  # fmt: skip
    counts = []
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        for output in ([said], [item, said], [item]):
            thread = await engine.create_thread()
            await thread.record(ASK)
            await thread.record(response(output))
            await thread.record(ASK)
            assert output == (await sent_to_responses(thread))[1 : 1 + len(output)]
            counts.append((await thread.context()).tokens)
            await thread.record(response([said], "resp_later"))
            await thread.record(ASK)
            assert output == (await sent_to_responses(thread))[1 : 1 + len(output)]
    without, with_item, _ = counts
    assert with_item > without + 10


async def test_what_hosted_tools_found_is_found() -> None:
    """By its readable text: titles, addresses, outputs; never by what is sealed."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(message([*SEARCH, {"type": "text", "text": "It depends."}]))
        await thread.record(ASK)
        await thread.record(response(HOSTED))
        texts = [hit.text for hit in await thread.search("zephyr")]
    assert any("The Zephyr kettle, 19 euros" in text for text in texts)
    assert any("4 left" in text for text in texts)
    assert not any("Eo8CCioIARgC" in text for text in texts)


async def test_a_budget_knows_what_hosted_tools_brought() -> None:
    """A long result of the provider's own is not sent over the budget."""
    found = [SEARCH[0], SEARCH[1] | {"content": [
        {"type": "web_search_result", "url": f"https://kettles.example/{n}", "title": f"Kettle number {n} of many",
         "encrypted_content": "Eo8C" * 50, "page_age": None} for n in range(60)
    ]}]  # fmt: skip
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(message([*found, {"type": "text", "text": "Many."}]))
        for n in range(2):
            await thread.record(ASK)
            await thread.record(message([{"type": "text", "text": f"Answer {n}."}], id=f"msg_{n}"))
        await thread.record(ASK)
        whole, small = await thread.context(), await thread.context(600)
    assert whole.tokens > 3_000
    assert "Kettle number" in json.dumps(whole.render("anthropic").messages)
    assert "Kettle number" not in json.dumps(small.render("anthropic").messages)


async def test_the_thinking_of_an_answer_goes_back_once() -> None:
    """The newest response is whole; thinking of the answers before it has done its work."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        for n in (1, 2):
            await thread.record(ASK)
            await thread.record(message([thought(n), {"type": "text", "text": f"{n}."}], id=f"msg_{n}"))
        await thread.record(ASK)
        sent = await sent_to_anthropic(thread)
    assert [["text"], ["thinking", "text"]] == [
        [one["type"] for one in cast("list[Json]", each["content"])] for each in sent if each["role"] == "assistant"
    ]


@pytest.mark.parametrize("form", ["openai.chat", "openai.responses", "anthropic"])
async def test_what_cannot_go_back_is_reported(form: str) -> None:
    """Another provider's blocks, thinking that nobody sealed, thinking that a limit cut off."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(response([COMPACTION], "resp_1"))
        await thread.record(message([*SEARCH, {"type": "text", "text": "So."}, thought(1)], "max_tokens"))
        await thread.record(ASK)
        context = await thread.context()
    made = {"openai.chat": context.render("openai.chat").left_out,
            "openai.responses": context.render("openai.responses").left_out,
            "anthropic": context.render("anthropic").left_out}[form]  # fmt: skip
    search = ["server_tool_use", "web_search_tool_result"]
    expected = {"openai.chat": ["compaction", *search, "thinking"], "openai.responses": [*search, "thinking"],
                "anthropic": ["compaction", "thinking"]}[form]  # fmt: skip
    assert expected == [one.type for one in made]
    assert all(one.why and one.chunk_id for one in made)


async def test_forgotten_blocks_never_go_back() -> None:
    """The rest of the response does; an erased event leaves nothing of its blocks either."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        blocks = [thought(1), call(1), thought(2), call(2)]
        receipts = await thread.record(message(blocks, "tool_use"))
        await thread.record(results(1, 2))
        await thread.dispatch(e.MemoryForget(chunk_ids=(receipts[2].chunks[0].id,)))
        sent = await sent_to_anthropic(thread)
    assert [thought(1), call(1), call(2)] == sent[1]["content"]


async def test_lone_surrogates_go_back_as_they_came() -> None:
    """The log holds no such text; what the provider gets is equal code point by code point."""
    blocks: list[Json] = [
        {"type": "text", "text": "half \ud83d of a sign"},
        {"type": "tool_use", "id": "toolu_k1", "name": "price", "input": {"of": 1, "\udc00": ["\ud800"]}},
    ]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        receipts = await thread.record(message(blocks, "tool_use"))
        await thread.record(results(1))
        sent = await sent_to_anthropic(thread)
        assert (await thread.replay.verify()).ok
    assert blocks == sent[1]["content"]
    assert "half \ufffd of a sign" == receipts[0].chunks[0].text


async def test_a_call_of_the_provider_s_own_kind_is_answered_in_kind() -> None:
    """A shell's call stays one, with an output of its kind, although the result is a text."""
    asked: Json = {"type": "shell_call", "id": "sh_1", "call_id": "call_s", "status": "completed",
                   "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}}  # fmt: skip
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(response([asked]))
        await thread.dispatch(e.ToolResult(call_id="call_s", content="a.py"))
        sent = await sent_to_responses(thread)
    ended = {"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    assert [asked, {"type": "shell_call_output", "call_id": "call_s", "output": [ended]}] == sent[1:]


async def test_a_paused_response_goes_on() -> None:
    """Anthropic's own tools may pause a turn: it goes back as the last message, and its rest joins it."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(message([thought(1), SEARCH[0]], "pause_turn"))
        assert [thought(1), SEARCH[0]] == (await sent_to_anthropic(thread))[-1]["content"]
        rest: list[Json] = [SEARCH[1], {"type": "text", "text": "The Zephyr."}]
        await thread.record(message(rest, id="msg_rest"))
        await thread.record(ASK)
        sent = await sent_to_anthropic(thread)
    assert [SEARCH[0], *rest] == sent[1]["content"]
    assert ["user", "assistant", "user"] == [one["role"] for one in sent]


async def test_messages_without_their_response_keep_all_calls() -> None:
    """Blocks recorded as a bare message are shown to another provider, too."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        blocks = [{"type": "text", "text": "One."}, call(1), {"type": "text", "text": "Two."}, call(2)]
        await thread.record({"role": "assistant", "content": blocks}, format="anthropic")
        await thread.record(results(1, 2))
        context = await thread.context()
        asked = cast("list[Json]", context.render("openai.chat").messages)[1]
        assert blocks == (await sent_to_anthropic(thread))[1]["content"]
    assert 2 == len(cast("list[Json]", asked["tool_calls"]))


async def test_thinking_alone_in_a_bare_message_stays_out() -> None:
    """Anthropic refuses a message that ends with thinking, and nothing says that it ended so itself."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record({"role": "assistant", "content": [call(1), thought(1)]}, format="anthropic")
        await thread.record(results(1))
        request = (await thread.context()).render("anthropic", cache=False)
    assert [call(1)] == cast("list[Json]", request.messages)[1]["content"]
    assert ["thinking"] == [one.type for one in request.left_out]


async def test_a_block_with_a_mark_of_the_prompt_cache_counts_as_sent() -> None:
    """A request that ends a stable part with a block of the provider's own does not list it as left out."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record([ASK, message(SEARCH, "pause_turn"), {"role": "user", "content": "And the lightest?"}])
        request = (await thread.context()).render("anthropic")
    blocks = [block for one in request.messages for block in cast("list[Json]", one["content"])]
    marked = [block for block in blocks if "cache_control" in block]
    assert "web_search_tool_result" in {block["type"] for block in marked}
    assert () == request.left_out


LONG = "The zephyr kettle has a lid of copper, number {n} of many. "
BROUGHT: dict[str, Json] = {
    "openai.responses": response(
        [{"type": "mcp_call", "id": f"mcp_{n}", "name": "stock", "arguments": "{}", "server_label": "shop",
          "output": LONG.format(n=n) * 20} for n in range(15)]
    ),
    "langchain": {"type": "ai", "data": {"id": "run-1", "content": [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "kettles"}},
        *({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": LONG.format(n=n) * 20}
          for n in range(15)),
    ]}},
}  # fmt: skip


@pytest.mark.parametrize("form", BROUGHT)
async def test_a_response_of_nothing_but_hosted_blocks_counts(form: str) -> None:
    """What is shown as its tokens is what a budget reckons with: it is left out where it does not fit."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        before = await thread.context()
        (receipt,) = await thread.record(BROUGHT[form])
        await thread.record({"role": "user", "content": "And the second?"})
        whole, small = await thread.context(), await thread.context(1_000)
    assert whole.tokens - before.tokens > 3_000
    assert whole.tokens == whole.spent.total
    assert receipt.chunks[0].id in whole.included
    assert receipt.chunks[0].id in small.excluded
    assert small.tokens <= 1_000


HOSTED_V1 = Path(__file__).resolve().parents[1] / "golden" / "hosted-v1.jsonl.gz"
"""A log of the versions of messages whose chunks counted no tokens of the provider's own blocks."""
HELD_V1 = {
    "10.0": ("user_message", 4),
    "7.0": ("agent_response", 5),
    "3.0": ("user_message", 6),
    "10.1": ("agent_action", 5),
    "10.2": ("action_result", 2),
    "10.3": ("agent_response", 6),
}
"""Its chunks after a mark and an undone compaction: their types and tokens."""


def deep(levels: int) -> object:
    """A value of so many lists within each other."""
    value: object = "so deep"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("item", [*HOSTED, COMPACTION], ids=lambda item: str(item["type"]))
async def test_the_chunk_of_a_hosted_item_counts_it(item: Json) -> None:
    """About as a context does, whether it comes in a response with words or alone."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        alone, beside = await engine.create_thread(), await engine.create_thread()
        said: Json = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
        said["content"] = [{"type": "output_text", "text": "Four."}]
        await alone.record(response([item]))
        await beside.record(response([item, said]))
        (chunk,), (other,) = (await alone.state()).chunks(), (await beside.state()).chunks()
        assert chunk.native_tokens == chunk.tokens == other.tokens - 2
        assert chunk.tokens <= (await alone.context()).tokens <= 2.5 * chunk.tokens


async def test_hosted_blocks_bring_a_compaction_when_due() -> None:
    """A thread of searches fills its window as one of words does."""
    policy = CompactionPolicy(threshold=4, tokens_min=2_000)
    found = [SEARCH[0], SEARCH[1] | {"content": "prices " * 400}]
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread()
        for n in range(12):
            await thread.record(ASK)
            await thread.record(message([*found, {"type": "text", "text": "Four."}], id=f"msg_{n}"))
        await thread.settle()
        assert [] != [one async for one in thread.events() if isinstance(one.event, e.CompactionCompleted)]
        assert (await thread.verify()).ok


async def test_a_log_of_before_reads_and_reduces_as_it_was() -> None:
    """Its chunks count nothing of their blocks, also where they were marked or given back; what comes now counts."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        await engine.import_log(HOSTED_V1, thread_id="hosted", scopes="as exported")
        thread = engine.thread("hosted")
        assert (await thread.verify()).ok
        everything = (await thread.state()).everything()
        assert {chunk.id: (str(chunk.type), chunk.tokens) for chunk in everything} == HELD_V1
        found = [event async for event in thread.events() if getattr(event.event, "uncounted", False)]
        assert [1, 2, 4] == [one.seq for one in found]
        await thread.record(message([*SEARCH, {"type": "text", "text": "Still."}], id="msg_new"))
        newest = next((await thread.state()).newest())
        assert newest.tokens > 100 < newest.native_tokens
        assert (await thread.verify()).ok


async def test_a_response_of_before_that_comes_again_gives_its_first_receipts() -> None:
    """Whole, and as a part of what was recorded: it is known though it would be another version now."""
    asked = {"query": "opening hours of the mill"}
    search = [
        {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": asked},
        {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": [
            {"type": "web_search_result", "url": "https://mill.example/hours", "encrypted_content": "Qk" * 600}]},
    ]  # fmt: skip
    around = {"id": "m1", "type": "message", "model": "m", "role": "assistant", "stop_reason": "end_turn"}
    blocks = [*search, {"type": "text", "text": "From nine to five."}]
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        await engine.import_log(HOSTED_V1, thread_id="hosted", scopes="as exported")
        thread = engine.thread("hosted")
        last = await thread.last_seq()
        for usage in ({"input_tokens": 9, "output_tokens": 9}, {"input_tokens": 9, "output_tokens": 12}):
            (receipt,) = await thread.record(around | {"content": blocks, "usage": usage}, format="anthropic")
            assert (2, last) == (receipt.seq, await thread.last_seq())


async def test_a_chunk_keeps_its_count_through_marks_and_an_undone_compaction() -> None:
    """Copies of it count the same blocks."""
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.record(ASK)
        await thread.record(message([*SEARCH, {"type": "text", "text": "Nineteen euros."}]))
        await thread.record(ASK)
        before = {chunk.type: chunk.tokens for chunk in (await thread.state()).everything()}
        await thread.compact()
        await thread.undo_compaction()
        await thread.mark_critical(next(c.id for c in (await thread.state()).chunks() if c.type == "agent_response"))
        assert before == {chunk.type: chunk.tokens for chunk in (await thread.state()).everything()}
        assert (await thread.verify()).ok


@pytest.mark.parametrize("levels", [10, 190, 400, 900])
async def test_blocks_nested_deep_are_counted(levels: int) -> None:
    """The count takes any value that can be recorded, and is the same however deep the caller's own calls are."""
    kept = json.dumps({"anthropic": {"message": [{"$whole": {"type": "of_tomorrow", "value": deep(levels)}}]}})
    assert levels * 2 // 4 < own_tokens(kept) < levels + 60
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(e.LlmTextResponse(content="", native=kept))
        assert (await thread.verify()).ok


def test_the_recorded_count_of_own_blocks_does_not_change() -> None:
    """Chunks hold it: these figures are of logs that exist."""
    kept = [json.dumps({"openai.responses": {"message": [{"$whole": item}]}}) for item in (*HOSTED, COMPACTION)]
    assert [30, 32, 41, 25, 34] == list(map(own_tokens, kept))


def test_brackets_within_texts_nest_nothing() -> None:
    """A listing of code counts as any text does."""
    code = json.dumps({"anthropic": {"message": [{"$whole": {"type": "x", "code": '{"\\' * 300}}]}})
    plain = json.dumps({"anthropic": {"message": [{"$whole": {"type": "x", "code": "abc" * 300}}]}})
    assert own_tokens(plain) == own_tokens(code)
