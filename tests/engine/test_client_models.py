"""Models over the clients of OpenAI's and Anthropic's SDKs, against a real HTTP server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import ModelError
from memory_engine.errors.effects import Usage
from memory_engine.llm import AnthropicModel, CallOptions, Completion, LanguageModel, OpenAIModel
from memory_engine.llm.base import Message
from memory_engine.testing.openai_server import (
    MessagesRequest,
    OpenAIServer,
    Reply,
    answer,
    disconnect,
    echo,
    empty,
    failing,
    filtered,
    invalid_json,
    rate_limited,
    refusal,
    truncated,
)
from tests.engine.test_litellm_model import KEY, Waits
from tests.leaping import leap

PROVIDERS = ("openai", "anthropic")


@asynccontextmanager
async def calling(
    provider: str, server: OpenAIServer, *, retries: int = 0, waits: Waits | None = None
) -> AsyncIterator[LanguageModel]:
    """A model over a client of a running server."""
    options = CallOptions(sleep=waits or Waits(), jitter=lambda: 0.0)
    if provider == "openai":
        import openai

        async with openai.AsyncOpenAI(base_url=server.base_url, api_key=KEY) as client:
            yield OpenAIModel(client, "test", retries=retries, options=options)
    else:
        import anthropic

        base_url = server.base_url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=base_url, api_key=KEY) as claude:
            yield AnthropicModel(claude, "test", retries=retries, options=options)


async def ask(model: LanguageModel, text: str = "Hello", *, timeout_s: float = 30.0) -> Completion:
    """One short question."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return await model.complete(messages, temperature=0.3, max_tokens=64, timeout_s=timeout_s)


@pytest.mark.parametrize(("provider", "id"), [("openai", "chatcmpl-scripted"), ("anthropic", "msg-scripted")])
async def test_an_answer_comes_with_its_model_and_usage(provider: str, id: str) -> None:
    """Text, model, the provider's id and its count of tokens are handed on."""
    async with OpenAIServer(answer("Hi.", usage=(12, 3))) as server, calling(provider, server) as model:
        usage = Usage(input_tokens=12, output_tokens=3)
        assert Completion(text="Hi.", model="test", response_id=id, usage=usage) == await ask(model)
        assert "test" == model.name


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_request_says_what_was_asked(provider: str) -> None:
    """Messages, instructions and limits arrive as given, with the key in its header."""
    async with OpenAIServer(echo()) as server, calling(provider, server) as model:
        assert "Grüße, 世界 \x00" == (await ask(model, "Grüße, 世界 \x00")).text
    (request,) = server.requests
    assert ("test", 0.3, 64) == (request.model, request.temperature, request.max_tokens)
    said = [(message.role, message.text) for message in request.messages]
    if isinstance(request, MessagesRequest):
        assert "Be brief." == request.system
        assert any(KEY in value for value in request.headers.values())
        assert [("user", "Grüße, 世界 \x00")] == said
    else:
        assert f"Bearer {KEY}" == request.headers["authorization"]
        assert [("system", "Be brief."), ("user", "Grüße, 世界 \x00")] == said


async def test_claude_gets_a_conversation_by_its_rules() -> None:
    """Later instructions are a note of the user, parts are text, and there is always a message to answer."""
    conversations: list[list[Message]] = [
        [
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None},
            {"role": "system", "content": "Now in French."},
        ],
        [{"role": "system", "content": "Be brief."}],
    ]
    async with OpenAIServer(answer("Hi.")) as server, calling("anthropic", server) as model:
        for messages in conversations:
            await model.complete(messages, temperature=0, max_tokens=9, timeout_s=9)
    first, second = ([(one.role, one.text) for one in request.messages] for request in server.requests)
    assert [("user", "one\ntwo"), ("assistant", ""), ("user", "Now in French.")] == first
    assert [("user", "Go on.")] == second


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_parameter_that_the_model_does_not_take_is_left_out(provider: str) -> None:
    """After it was refused once; models that reason take the limit by another name."""
    script = [
        failing(400, "`temperature` is deprecated for this model."),
        *([failing(400, "Unsupported parameter: 'max_tokens'", code="unsupported_parameter")] * (provider == "openai")),
        answer("Hi."),
    ]
    async with OpenAIServer(*script) as server, calling(provider, server) as model:
        for _ in range(2):
            assert "Hi." == (await ask(model)).text
    last = server.requests[-1]
    assert (None, None if provider == "openai" else 64) == (last.temperature, last.max_tokens)
    assert len(script) + 1 == len(server.requests)


FAILURES: dict[str, tuple[Callable[[], Reply], str, bool]] = {
    "refusal": (lambda: refusal("Not this."), "refused", False),
    "filter": (filtered, "refused", False),
    "cut off": (lambda: truncated("half an ans"), "truncated", False),
    "empty": (empty, "invalid_response", True),
    "blank": (lambda: answer(" \n"), "invalid_response", True),
    "no answer": (lambda: Reply(body=b"{}"), "invalid_response", True),
    "no JSON": (invalid_json, "invalid_response", True),
    "other JSON": (lambda: Reply(body=b"[1]"), "invalid_response", True),
    "disconnect": (disconnect, "unavailable", True),
    "400": (lambda: failing(400), "bad_request", False),
    "401": (lambda: failing(401), "authentication", False),
    "403": (lambda: failing(403), "authentication", False),
    "404": (lambda: failing(404), "bad_request", False),
    "413": (lambda: failing(413), "context_window", False),
    "429": (rate_limited, "rate_limited", True),
    "500": (lambda: failing(500), "unavailable", True),
    "529": (lambda: failing(503, "Overloaded"), "unavailable", True),
    "too long": (lambda: failing(400, "prompt is too long: 9 tokens > 8 maximum"), "context_window", False),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("reply", "reason", "retryable"), FAILURES.values(), ids=FAILURES.keys())
async def test_what_is_no_answer_is_a_model_error(
    provider: str, reply: Callable[[], Reply], reason: str, retryable: bool
) -> None:
    """Every way in which a provider gives no usable answer has its reason, and says whether to try again."""
    async with OpenAIServer(reply()) as server, calling(provider, server) as model:
        with pytest.raises(ModelError) as raised:
            await ask(model)
    assert ("test", reason, retryable) == (raised.value.model, raised.value.reason, raised.value.retryable)
    assert 1 == len(server.requests)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_passing_failure_is_tried_again(provider: str) -> None:
    """By us, not by the client too: three requests, the waits in between, and the tokens of all answers."""
    waits = Waits()
    script = (rate_limited("7"), answer("", usage=(100, 1)), answer("Hi.", usage=(100, 2)))
    async with OpenAIServer(*script) as server, calling(provider, server, retries=2, waits=waits) as model:
        assert Usage(input_tokens=200, output_tokens=3) == (await ask(model)).usage
    assert (3, [7.0, 1.0]) == (len(server.requests), waits.seconds)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_slow_answer_is_a_timeout(provider: str) -> None:
    """The time is up for the whole call."""
    async with OpenAIServer(answer("late").held(asyncio.Event())) as server, calling(provider, server) as model:
        task = asyncio.create_task(ask(model, timeout_s=60.0))
        await server.received(1)
        with leap(60), pytest.raises(ModelError) as caught:
            await task
    assert ("timeout", True) == (caught.value.reason, caught.value.retryable)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_cancelling_ends_the_call_at_once(provider: str) -> None:
    """A cancelled call gives up its request; the next one works, also after closing: the client is the caller's."""
    script = (answer("late").held(asyncio.Event()), answer("Hi."))
    async with OpenAIServer(*script) as server, calling(provider, server) as model:
        task = asyncio.create_task(ask(model))
        await server.received(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.aclose()
        assert "Hi." == (await ask(model)).text


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_error_keeps_the_key_to_itself(provider: str) -> None:
    """What will be recorded does not hold it."""
    async with OpenAIServer(failing(401, f"Incorrect API key {KEY}")) as server, calling(provider, server) as model:
        with pytest.raises(ModelError) as raised:
            await ask(model)
    assert KEY not in str(raised.value)


def test_a_blocking_client_is_refused() -> None:
    """At once, before anything waits for it."""
    import anthropic
    import openai

    with openai.OpenAI(api_key=KEY) as client, pytest.raises(TypeError, match="Async"):
        OpenAIModel(client, "test")
    with anthropic.Anthropic(api_key=KEY) as claude, pytest.raises(TypeError, match="Async"):
        AnthropicModel(claude, "test")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_engine_compacts_with_it(provider: str) -> None:
    """Given to `open`, it makes the summaries; closing the engine leaves the client open."""
    summary = "### Key Information\n- Twelve times: a point of many words.\n"
    async with OpenAIServer(answer(summary)) as server, calling(provider, server) as model:
        async with memory_engine.open(":memory:", compact_model=model) as engine:
            thread = await engine.create_thread("t")
            await thread.dispatch_all([UserMessage(content="A point of " + "many words " * 40) for _ in range(12)])
            report = await thread.compact()
        assert "test" == report.model
        assert "Twelve times" in (await ask(model)).text
