"""`LiteLLM`: any provider's model, through the litellm package (extra `llm`)."""

import asyncio
import functools
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from memory_engine.errors import ModelError
from memory_engine.llm.base import Completion, Message
from memory_engine.llm.failures import model_error, retry_after_s
from memory_engine.llm.litellm_module import close_clients, load_litellm, noting_clients, require_litellm
from memory_engine.usage import Usage


@frozen(kw_only=True)
class LiteLLMOptions:
    """How to wait between tries, and what else to send.

    Try n comes after `backoff_s` * 2**(n-1) seconds, at most `backoff_max_s`, of which a
    random half is taken off (`jitter`: a number from 0 to 1), or later where the provider's
    Retry-After says so. `parameters` go to litellm with every request: `api_version`,
    `reasoning_effort`, ...
    """

    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    parameters: Mapping[str, object] = field(factory=dict)


class LiteLLM:
    """A model by its litellm name (`"openai/gpt-4o-mini"`, `"anthropic/..."`, `"ollama/..."`).

    Without `api_key`, litellm takes the provider's environment variable. `retries` is how
    often a failure that may pass is tried again; litellm's own retries are off. litellm is
    imported at the first call, in a worker thread. Raises `MissingExtra` where it is not
    installed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        retries: int = 2,
        options: LiteLLMOptions = LiteLLMOptions(),
    ) -> None:
        require_litellm()
        self._model = model
        self._api_base = api_base
        self._api_key = api_key
        self._retries = retries
        self._options = options
        self._litellm: Any = None

    @property
    def name(self) -> str:
        """The name given."""
        return self._model

    def __repr__(self) -> str:
        return f"LiteLLM({self._model!r})"

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """The answer (see `LanguageModel.complete`). A parameter that the model does not know is left out.

        The first call of a process imports litellm before its time begins to run.
        """
        if self._litellm is None:
            self._litellm = await load_litellm()
        request = {
            **self._options.parameters,
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
            "timeout": timeout_s,  # not what is left of it: litellm keeps one client for each value
            "max_retries": 0,
            "drop_params": True,
            "api_base": self._api_base,
            "api_key": self._api_key,
        }
        try:
            async with asyncio.timeout(timeout_s):
                return await self._tries(request, asyncio.get_running_loop().time() + timeout_s)
        except TimeoutError:
            raise ModelError(self._model, "timeout", f"no answer within {timeout_s:g} s", True) from None

    async def aclose(self) -> None:
        """Close the connections of this loop's calls, unless another `LiteLLM` still uses them."""
        if self._litellm is not None:
            await close_clients(self._litellm, self)

    async def _tries(self, request: Mapping[str, Any], deadline: float) -> Completion:
        """Try until there is an answer, a failure that will not pass, or no time for another try."""
        spent: list[Usage] = []
        for n in itertools.count():
            try:
                return await self._try(request, spent)
            except ModelError as error:
                wait_s = self._wait_s(n, error)
                last = not error.retryable or n >= self._retries
                if last or asyncio.get_running_loop().time() + wait_s >= deadline:
                    raise _with_usage(error, spent) from error.__cause__
                await self._options.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _try(self, request: Mapping[str, Any], spent: list[Usage]) -> Completion:
        try:
            with noting_clients(self._litellm, self):
                response = await self._litellm.acompletion(**request)
        except Exception as error:  # the boundary to libraries whose errors share no base: all become typed
            raise model_error(self._model, error, secret=self._api_key) from error
        spent.append(usage_of(response))
        text = text_of(self._model, response)
        return Completion(
            text=text,
            model=str(getattr(response, "model", None) or self._model),
            response_id=str(getattr(response, "id", None) or ""),
            usage=_total(spent),
        )

    def _wait_s(self, n: int, error: ModelError) -> float:
        options = self._options
        backoff_s = min(options.backoff_s * 2.0**n, options.backoff_max_s) * (1 - options.jitter() / 2)
        return max(backoff_s, retry_after_s(error.__cause__))


def _total(spent: Sequence[Usage]) -> Usage:
    """What all answers took together."""
    return functools.reduce(Usage.plus, spent, Usage())


def _with_usage(error: ModelError, spent: Sequence[Usage]) -> ModelError:
    return ModelError(error.model, error.reason, error.error, error.retryable, _total(spent))


def text_of(model: str, response: Any) -> str:
    """The answer's text. Raises `ModelError` where it was refused, cut off, or is empty."""
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise ModelError(model, "invalid_response", "the answer holds no choices", True)
    message, finish_reason = choices[0].message, choices[0].finish_reason
    refusal = (getattr(message, "provider_specific_fields", None) or {}).get("refusal")
    text = message.content
    if finish_reason in ("content_filter", "refusal") or (refusal and not text):
        raise ModelError(model, "refused", str(refusal or "the provider's filter stopped the answer")[:500])
    if finish_reason == "length":
        raise ModelError(model, "truncated", "the answer met its limit of tokens; raise it")
    if not isinstance(text, str) or not text.strip():
        raise ModelError(model, "invalid_response", "the answer is empty", True)
    return text


def usage_of(response: Any) -> Usage:
    """What the provider counted; what it did not say is 0."""
    usage = getattr(response, "usage", None)
    hidden = getattr(response, "_hidden_params", None) or {}
    return Usage(
        input_tokens=int(getattr(usage, "prompt_tokens", None) or 0),
        output_tokens=int(getattr(usage, "completion_tokens", None) or 0),
        cost_usd=float(hidden.get("response_cost") or 0.0),
    )
