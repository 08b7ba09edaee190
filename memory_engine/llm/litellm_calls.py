"""Requests through litellm that are no conversation: vectors of texts, relevance of texts."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import frozen

from memory_engine.errors import ModelError
from memory_engine.llm.failures import model_error, retry_after_s
from memory_engine.llm.litellm_model import LiteLLMOptions
from memory_engine.llm.litellm_module import close_clients, load_litellm, noting_clients, require_litellm

T = TypeVar("T")


class _Given(int):
    """A number that is true even where it is 0: in the place of one that is not, litellm's embedding puts two."""

    def __bool__(self) -> bool:
        return True


NO_RETRIES = _Given(0)


@frozen(kw_only=True)
class RequestOptions(LiteLLMOptions):
    """How requests are made, beside what `LiteLLMOptions` says of tries and parameters.

    `retries` is how often a failure that may pass is tried again, within `timeout_s` seconds a
    request. One request takes at most `batch` texts, and of each the first `chars_max`
    characters: models take so many tokens, and one text too long fails all that go with it.
    """

    retries: int = 2
    timeout_s: float = 30.0
    batch: int = 128
    chars_max: int = 6_000


class LiteLLMCalls:
    """Calls to one model. Raises `MissingExtra` where litellm is not installed; imports it at the first call."""

    def __init__(self, model: str, api_base: str | None, api_key: str | None, options: RequestOptions) -> None:
        require_litellm()
        self.model = model
        self.options = options
        self._api_base = api_base
        self._api_key = api_key
        self._litellm: Any = None

    async def call(self, function: str, arguments: Mapping[str, object], read: Callable[[Any], T]) -> T:
        """What `read` makes of the answer of one of litellm's functions. `read` raises `ModelError` for a bad one.

        Raises `ModelError` when all tries are used up, or the time.
        """
        if self._litellm is None:
            self._litellm = await load_litellm()
        options = self.options
        request = {
            **options.parameters,
            **arguments,
            "model": self.model,
            "timeout": options.timeout_s,
            "max_retries": NO_RETRIES,
            "drop_params": True,
            "api_base": self._api_base,
            "api_key": self._api_key,
        }
        deadline = asyncio.get_running_loop().time() + options.timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                return await self._tries(lambda: self._try(function, request, read), deadline)
        except TimeoutError:
            raise ModelError(self.model, "timeout", f"no answer within {options.timeout_s:g} s", True) from None

    async def aclose(self) -> None:
        """Close the connections of this loop's calls, unless another adapter to litellm still uses them."""
        if self._litellm is not None:
            await close_clients(self._litellm, self)

    async def _tries(self, attempt: Callable[[], Awaitable[T]], deadline: float) -> T:
        options = self.options
        for n in itertools.count():
            try:
                return await attempt()
            except ModelError as error:
                backoff_s = min(options.backoff_s * 2.0**n, options.backoff_max_s) * (1 - options.jitter() / 2)
                wait_s = max(backoff_s, retry_after_s(error.__cause__))
                last = not error.retryable or n >= options.retries
                if last or asyncio.get_running_loop().time() + wait_s >= deadline:
                    raise
                await options.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _try(self, function: str, request: Mapping[str, object], read: Callable[[Any], T]) -> T:
        try:
            with noting_clients(self._litellm, self):
                response = await getattr(self._litellm, function)(**request)
        except Exception as error:  # the boundary to libraries whose errors share no base: all become typed
            raise model_error(self.model, error, secret=self._api_key) from error
        return read(response)


def sendable(texts: Sequence[str], chars_max: int) -> list[str]:
    """The texts, cut to so many characters, without what no encoding holds (lone surrogates)."""
    return [text[:chars_max].encode(errors="replace").decode() for text in texts]


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """The items in their order, at most `size` together."""
    return [items[at : at + size] for at in range(0, len(items), size)]
