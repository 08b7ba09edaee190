"""Trying a model's call again: how long to wait between tries, and when to give up."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from attrs import field, frozen

from memory_engine.errors import ModelError
from memory_engine.llm.failures import retry_after_s

T = TypeVar("T")


@frozen(kw_only=True)
class CallOptions:
    """The waits between tries, and further parameters to send.

    Try n comes after `backoff_s` * 2**(n-1) seconds, at most `backoff_max_s`, of which a
    random half is taken off (`jitter`: a number from 0 to 1), or later where the provider's
    Retry-After says so. `parameters` go to the provider with every request: `reasoning_effort`, ...
    """

    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    parameters: Mapping[str, object] = field(factory=dict)

    def wait_s(self, n: int, error: ModelError) -> float:
        """The wait after try n (from 0), which failed like this."""
        backoff_s = min(self.backoff_s * 2.0**n, self.backoff_max_s) * (1 - self.jitter() / 2)
        return max(backoff_s, retry_after_s(error.__cause__))


async def tried(
    model: str, attempt: Callable[[], Awaitable[T]], *, retries: int, timeout_s: float, options: CallOptions
) -> T:
    """The result of `attempt`, tried until there is one, a failure that will not pass, or no time for another try.

    Raises `ModelError`: the last failure, or that there was no answer within `timeout_s` seconds in all.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    try:
        async with asyncio.timeout_at(deadline):
            for n in itertools.count():
                try:
                    return await attempt()
                except ModelError as error:
                    wait_s = options.wait_s(n, error)
                    last = not error.retryable or n >= retries
                    if last or asyncio.get_running_loop().time() + wait_s >= deadline:
                        raise
                    await options.sleep(wait_s)
    except TimeoutError:
        raise ModelError(model, "timeout", f"no answer within {timeout_s:g} s", True) from None
    raise AssertionError("unreachable")
