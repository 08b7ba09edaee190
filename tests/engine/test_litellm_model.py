"""The adapter to litellm against a real HTTP server: answers, failures, retries, and what it leaves."""

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from memory_engine.errors import MissingExtra, ModelError
from memory_engine.errors.effects import Usage
from memory_engine.llm import Completion, LanguageModel, LiteLLM, LiteLLMOptions
from memory_engine.llm.failures import BY_CLASS, ERROR_CHARS_MAX, model_error, retry_after_s, verdict_on
from memory_engine.llm.litellm import load_litellm
from memory_engine.testing.openai_server import (
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
from tests.leaping import leap

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-do-not-tell"


class Waits:
    """Stands for sleeping: remembers how long, and comes back at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Do not wait."""
        self.seconds.append(seconds)


@asynccontextmanager
async def calling(server: OpenAIServer, *, retries: int = 0, waits: Waits | None = None) -> AsyncIterator[LiteLLM]:
    """An adapter to a running server; it is closed at the end."""
    options = LiteLLMOptions(sleep=waits or Waits(), jitter=lambda: 0.0)
    model = LiteLLM("openai/test", api_base=server.base_url, api_key=KEY, retries=retries, options=options)
    try:
        yield model
    finally:
        await model.aclose()


async def ask(model: LanguageModel, text: str = "Hello", *, timeout_s: float = 30.0) -> Completion:
    """One short question."""
    messages = [{"role": "user", "content": text}]
    return await model.complete(messages, temperature=0.3, max_tokens=64, timeout_s=timeout_s)


async def failure(server: OpenAIServer, *, timeout_s: float = 30.0) -> ModelError:
    """How a question without retries fails."""
    async with server, calling(server) as model:
        with pytest.raises(ModelError) as raised:
            await ask(model, timeout_s=timeout_s)
    return raised.value


# answers


async def test_an_answer_comes_with_its_model_and_usage() -> None:
    """Text, model, the provider's id and its count of tokens are handed on."""
    async with OpenAIServer(answer("Hi.", usage=(12, 3))) as server, calling(server) as model:
        expected = Completion(
            text="Hi.",
            model="test",
            response_id="chatcmpl-scripted",
            usage=Usage(input_tokens=12, output_tokens=3),
        )
        assert expected == await ask(model)


async def test_the_request_says_what_was_asked() -> None:
    """Messages and limits arrive as given, with the key in its header."""
    async with OpenAIServer(echo()) as server, calling(server) as model:
        assert "Grüße, 世界 \x00" == (await ask(model, "Grüße, 世界 \x00")).text
    (request,) = server.requests
    assert ("test", 0.3, 64) == (request.model, request.temperature, request.max_tokens)
    assert [("user", "Grüße, 世界 \x00")] == [(message.role, message.text) for message in request.messages]
    assert f"Bearer {KEY}" == request.headers["authorization"]


async def test_a_known_price_is_counted() -> None:
    """Where litellm knows the model's price, the usage holds the cost."""
    async with OpenAIServer(answer("Hi.", usage=(1_000_000, 0))) as server:
        model = LiteLLM("openai/gpt-4o-mini", api_base=server.base_url, api_key=KEY)
        assert pytest.approx(0.15) == (await ask(model)).usage.cost_usd
        await model.aclose()


async def test_further_parameters_are_sent() -> None:
    """What the options hold goes to litellm, but never in place of what a call says."""
    options = LiteLLMOptions(parameters={"extra_headers": {"x-team": "memory"}, "temperature": 2.0})
    async with OpenAIServer(echo()) as server:
        model = LiteLLM("openai/test", api_base=server.base_url, api_key=KEY, options=options)
        await ask(model)
        await model.aclose()
    assert "memory" == server.requests[0].headers["x-team"]
    assert 0.3 == server.requests[0].temperature


# failures

FAILURES: dict[str, tuple[Callable[[], Reply], str, bool]] = {
    "refusal": (lambda: refusal("Not this."), "refused", False),
    "filter": (filtered, "refused", False),
    "policy": (lambda: failing(400, "no", code="content_policy_violation"), "refused", False),
    "cut off": (lambda: truncated("half an ans"), "truncated", False),
    "empty": (empty, "invalid_response", True),
    "blank": (lambda: answer(" \n"), "invalid_response", True),
    "null": (lambda: answer(None), "invalid_response", True),
    "no choices": (lambda: Reply(body=b'{"choices": []}'), "invalid_response", True),
    "no JSON": (invalid_json, "invalid_response", True),
    "other JSON": (lambda: Reply(body=b"[1]"), "unavailable", True),
    "disconnect": (disconnect, "unavailable", True),
    "400": (lambda: failing(400), "bad_request", False),
    "401": (lambda: failing(401), "authentication", False),
    "402": (lambda: failing(402), "authentication", False),
    "403": (lambda: failing(403), "authentication", False),
    "404": (lambda: failing(404), "bad_request", False),
    "408": (lambda: failing(408), "timeout", True),
    "409": (lambda: failing(409), "unavailable", True),
    "422": (lambda: failing(422), "bad_request", False),
    "429": (rate_limited, "rate_limited", True),
    "500": (lambda: failing(500), "unavailable", True),
    "502": (lambda: failing(502), "unavailable", True),
    "503": (lambda: failing(503), "unavailable", True),
    "too long": (
        lambda: failing(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded"),
        "context_window",
        False,
    ),
}


@pytest.mark.parametrize(("reply", "reason", "retryable"), FAILURES.values(), ids=FAILURES.keys())
async def test_what_is_no_answer_is_a_model_error(reply: Callable[[], Reply], reason: str, retryable: bool) -> None:
    """Every way in which a provider gives no usable answer has its reason, and says whether to try again."""
    error = await failure(OpenAIServer(reply()))
    assert ("openai/test", reason, retryable) == (error.model, error.reason, error.retryable)
    assert error.error


async def test_a_slow_answer_is_a_timeout() -> None:
    """The time is up for the whole call, and one request was sent."""
    never = asyncio.Event()
    async with OpenAIServer(answer("late").held(never)) as server, calling(server) as model:
        task = asyncio.create_task(ask(model, timeout_s=60.0))
        await server.received(1)
        with leap(60), pytest.raises(ModelError) as caught:
            await task
    assert ("timeout", True) == (caught.value.reason, caught.value.retryable)
    assert 1 == len(server.requests)


async def test_nobody_there_is_unavailable() -> None:
    """A refused connection is a failure that may pass."""
    async with OpenAIServer() as server:
        address = server.base_url
    model = LiteLLM("openai/test", api_base=address, api_key=KEY, retries=0)
    with pytest.raises(ModelError, match="unavailable"):
        await ask(model)
    await model.aclose()


async def test_missing_credentials_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key anywhere the call fails at once, as a matter of authentication."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    waits = Waits()
    model = LiteLLM("openai/test", options=LiteLLMOptions(sleep=waits))
    with pytest.raises(ModelError, match="authentication"):
        await ask(model)
    assert [] == waits.seconds
    await model.aclose()


async def test_an_unknown_provider_is_a_bad_request() -> None:
    """A model's name that litellm cannot place fails as a request that nobody can answer."""
    model = LiteLLM("no-such-model")
    with pytest.raises(ModelError, match="bad_request"):
        await ask(model)


async def test_text_that_cannot_be_sent_is_a_bad_request() -> None:
    """A lone surrogate has no UTF-8."""
    async with OpenAIServer() as server, calling(server) as model:
        with pytest.raises(ModelError, match="bad_request"):
            await ask(model, "\ud800")
    assert [] == server.requests


async def test_an_error_keeps_the_key_and_the_request_to_itself() -> None:
    """What will be recorded holds no key, and no more than a few words of what the provider said."""
    error = await failure(OpenAIServer(failing(401, f"Incorrect API key {KEY}: " + "x" * 5000)))
    assert KEY not in str(error)
    assert ERROR_CHARS_MAX >= len(error.error)


async def test_every_exception_of_the_libraries_is_in_the_table() -> None:
    """No exception of litellm or openai that a call can raise falls through to the end of the table."""
    litellm = await load_litellm()
    import openai

    classes = [
        value
        for module in (litellm.exceptions, openai)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    assert len(classes) > 40
    by_status_or_cause = {"APIError", "APIStatusError", "OpenAIError", "MockException"}
    of_other_calls = {"WebSocket", "Webhook", "LengthFinish", "ContentFilterFinish", "_AmbiguousModule"}
    missing = [
        cls.__name__
        for cls in classes
        if not any(base.__name__ in BY_CLASS for base in cls.__mro__)
        and cls.__name__ not in by_status_or_cause
        and not any(word in cls.__name__ for word in of_other_calls)
    ]
    assert [] == missing


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (TimeoutError(), ("timeout", True)),
        (ConnectionResetError(), ("unavailable", True)),
        (IndexError(), ("invalid_response", False)),
    ],
)
def test_errors_of_python_itself_have_a_verdict(error: Exception, verdict: tuple[str, bool]) -> None:
    """What the libraries let through is mapped too; what nobody foresaw is final."""
    assert verdict == verdict_on(error)
    assert type(error).__name__ == model_error("m", error).error


# retries


async def test_a_passing_failure_is_tried_again() -> None:
    """Two failures, then an answer: three requests, and longer and longer waits between them."""
    waits = Waits()
    script = (failing(500), disconnect(), answer("Hi."))
    async with OpenAIServer(*script) as server, calling(server, retries=2, waits=waits) as model:
        assert "Hi." == (await ask(model)).text
    assert 3 == len(server.requests)
    assert [0.5, 1.0] == waits.seconds


async def test_a_final_failure_is_not_tried_again() -> None:
    """What another try cannot mend costs one request."""
    waits = Waits()
    async with OpenAIServer(failing(401)) as server, calling(server, retries=5, waits=waits) as model:
        with pytest.raises(ModelError, match="authentication"):
            await ask(model)
    assert (1, []) == (len(server.requests), waits.seconds)


async def test_retries_end() -> None:
    """After the last try the failure is the caller's."""
    async with OpenAIServer(failing(503)) as server, calling(server, retries=2) as model:
        with pytest.raises(ModelError, match="unavailable"):
            await ask(model)
    assert 3 == len(server.requests)


async def test_waits_grow_to_a_limit_and_are_scattered() -> None:
    """The back-off doubles up to its limit, and jitter takes off as much as a half."""
    waits = Waits()
    options = LiteLLMOptions(backoff_s=1.0, backoff_max_s=3.0, sleep=waits, jitter=lambda: 1.0)
    async with OpenAIServer(failing(500)) as server:
        model = LiteLLM("openai/test", api_base=server.base_url, api_key=KEY, retries=4, options=options)
        with pytest.raises(ModelError):
            await ask(model)
        await model.aclose()
    assert [0.5, 1.0, 1.5, 1.5] == waits.seconds


async def test_retry_after_is_honoured() -> None:
    """The provider's word on when to come back is kept where it asks for longer than the back-off."""
    waits = Waits()
    script = (rate_limited("7"), rate_limited("0"), answer("Hi."))
    async with OpenAIServer(*script) as server, calling(server, retries=2, waits=waits) as model:
        assert "Hi." == (await ask(model)).text
    assert [7.0, 1.0] == waits.seconds


async def test_a_wait_beyond_the_time_left_is_not_begun() -> None:
    """Where the provider asks for more time than there is, the caller hears of it at once."""
    waits = Waits()
    async with OpenAIServer(rate_limited("3600")) as server, calling(server, retries=2, waits=waits) as model:
        with pytest.raises(ModelError, match="rate_limited"):
            await ask(model)
    assert (1, []) == (len(server.requests), waits.seconds)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("2.5", 2.5, 2.5),
        ("in two hours", 7000, 7200),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("-1", 0, 0),
        ("nan", 0, 0),
        ("inf", 0, 0),
        ("soon", 0, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, low: float, high: float) -> None:
    """Both forms of the header are read; nonsense asks for nothing."""
    if value == "in two hours":  # from now, not from when the tests were collected
        value = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)

    class Failure(Exception):
        headers = {"retry-after": value}  # noqa: RUF012 - as httpx has it

    assert low <= retry_after_s(Failure()) <= high


async def test_usage_counts_answers_that_could_not_be_used() -> None:
    """An empty answer was paid for, too."""
    script = [answer("", usage=(100, 1)), answer("Hi.", usage=(100, 2))]
    async with OpenAIServer(*script) as server, calling(server, retries=1) as model:
        assert Usage(input_tokens=200, output_tokens=3) == (await ask(model)).usage


# cancellation and closing


async def test_cancelling_ends_the_call_at_once() -> None:
    """A cancelled call gives up its request; the next one works."""
    never = asyncio.Event()
    async with OpenAIServer(answer("late").held(never), answer("Hi.")) as server, calling(server) as model:
        task = asyncio.create_task(ask(model))
        await server.received(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "Hi." == (await ask(model)).text


async def test_a_model_works_again_after_it_was_closed() -> None:
    """Closing lets go of connections, not of the model; closing twice, or unused, is fine."""
    async with OpenAIServer(echo()) as server, calling(server) as model:
        await model.aclose()
        for _ in range(2):
            assert "Hello" == (await ask(model)).text
            await model.aclose()
        await model.aclose()


async def test_closing_one_model_leaves_the_calls_of_another() -> None:
    """Two models of one process share litellm's connections; the last one closes them."""
    go = asyncio.Event()
    server = OpenAIServer(answer("a"), answer("b").held(go))
    async with server, calling(server) as one, calling(server) as other:
        await ask(one)
        task = asyncio.create_task(ask(other))
        await server.received(2)
        await one.aclose()
        go.set()
        assert "b" == (await task).text


async def test_closing_leaves_calls_of_the_users_own() -> None:
    """A call that the user's code makes through litellm, on a client of ours, is not cut off."""
    litellm = await load_litellm()
    go = asyncio.Event()
    async with (
        OpenAIServer(answer("ours"), answer("theirs").held(go), echo()) as server,
        calling(server) as model,
    ):
        await ask(model, timeout_s=30.0)
        messages = [{"role": "user", "content": "x"}]
        common = {"api_base": server.base_url, "api_key": KEY, "timeout": 30.0, "max_retries": 0}
        task = asyncio.create_task(litellm.acompletion(model="openai/test", messages=messages, **common))
        await server.received(2)
        await model.aclose()
        go.set()
        assert "theirs" == (await task).choices[0].message.content
        clients = litellm.in_memory_llm_clients_cache.cache_dict
        for key in [key for key in clients if key.endswith(str(id(asyncio.get_running_loop())))]:
            await clients.pop(key).close()


async def test_nothing_is_left_open() -> None:
    """After closing there is no client of ours in litellm's cache, and no unclosed socket to warn of."""
    litellm = await load_litellm()
    cache = litellm.in_memory_llm_clients_cache.cache_dict
    before = set(cache)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with OpenAIServer(failing(500), echo()) as server, calling(server, retries=1) as model:
            await asyncio.gather(*(ask(model) for _ in range(4)))
            assert set(cache) > before
        gc.collect()
    assert set() == set(cache) - before
    assert [] == [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)]


def test_importing_the_package_does_not_import_litellm(tmp_path: Path) -> None:
    """Making a model imports nothing heavy; the first call does, leaving the user's environment as it is."""
    program = """
import asyncio, os, sys
import memory_engine.wiring
from memory_engine.llm import LiteLLM
from memory_engine.testing.openai_server import OpenAIServer

async def main():
    async with OpenAIServer() as server:
        model = LiteLLM("openai/test", api_base=server.base_url, api_key="k")
        assert not {"litellm", "openai", "tiktoken"} & set(sys.modules)
        task = asyncio.create_task(
            model.complete([{"role": "user", "content": "hi"}], temperature=0, max_tokens=9, timeout_s=60)
        )
        turns = 0
        while not task.done():
            await asyncio.sleep(0.02)
            turns += "litellm" in sys.modules and sys.modules["litellm"].__spec__._initializing
        assert turns  # the loop went on while it was imported
        print((await task).text)
        await model.aclose()

asyncio.run(main())
for name in ("LITELLM_MODE", "LITELLM_LOCAL_MODEL_COST_MAP", "TIKTOKEN_CACHE_DIR", "FROM_DOTENV"):
    print(os.environ.get(name))
"""
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",
        "TIKTOKEN_CACHE_DIR": "/theirs",
    }
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=environment,
        text=True,
    )
    assert ("hi\nPRODUCTION\ntrue\n/theirs\nNone\n", "") == (run.stdout, run.stderr)


def test_without_litellm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model cannot be made where litellm is not installed, and the error says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"'\.\[llm\]'"):
        LiteLLM("openai/test")
