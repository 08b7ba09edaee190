"""The protocol of language models, and a user's own model held to it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from memory_engine.core.cancellation import TookTooLong, in_time
from memory_engine.errors import ModelError
from memory_engine.errors.effects import Usage

Message = Mapping[str, object]
"""A chat-completions message, as `Context.messages` holds them."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole, non-empty answer.

    `model` is the model that gave it, by its provider's name, and `response_id` the provider's id for it. `usage`
    counts every answered attempt, also those whose answers could not be used.
    """

    text: str
    model: str
    response_id: str = ""
    usage: Usage = Usage()


class LanguageModel(Protocol):
    """Answers messages, in one call at a time or many; you may use it again after `aclose`.

    It may have an attribute `context_window`: the tokens that a prompt and its answer may take together (0: not known).
    """

    @property
    def name(self) -> str:
        """The user's name for the model."""
        ...

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Return the answer, of at most `max_tokens` tokens, within `timeout_s` seconds including retries.

        Raises `ModelError` unless the answer is whole and not empty, so also for a refusal and for an answer that
        reached `max_tokens`. Ends promptly when cancelled.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. Running calls may fail."""
        ...


def context_window_of(model: LanguageModel) -> int:
    """The tokens of a model's window, if the model says so, else 0."""
    window: object = getattr(model, "context_window", 0)
    return window if isinstance(window, int) and window > 0 else 0


class MemoryModel(msgspec.Struct, frozen=True):
    """The model that views ask for shorter texts, if there is one."""

    model: LanguageModel | None


_log = logging.getLogger("memory_engine.llm")

PATIENCE = 2
"""A model that exceeds its time is abandoned after this many times as long. (The first call of a process imports
its library before its time begins.)"""


async def ask(
    model: LanguageModel, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
) -> Completion:
    """A whole answer, in a text that the log can hold.

    Raises `ModelError` for everything else: another error of the model, an answer that is not a `Completion` or holds
    a lone surrogate, and one that does not come within twice `timeout_s`.
    """
    try:
        asking = model.complete(messages, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s)
        completion: object = await in_time(asking, timeout_s * PATIENCE)
    except ModelError:
        raise
    except TimeoutError as error:
        raise ModelError(model.name, "timeout", "it did not keep its time") from error
    except Exception as error:  # the boundary to the user's model: callers go on without it, whatever it raises
        _log.warning("model %r raised what it may not raise", model.name, exc_info=True)
        raise ModelError(model.name, type(error).__name__, f"{type(error).__name__}: {error}") from error
    if not isinstance(completion, Completion):
        raise ModelError(model.name, "invalid_response", f"a {type(completion).__name__} is not a Completion")
    if not _is_text(completion.text):
        raise ModelError(model.name, "invalid_response", "its answer is not a text", usage=completion.usage)
    return completion


class _Closing(Protocol):
    @property
    def name(self) -> str: ...

    async def aclose(self) -> None: ...


async def close(model: _Closing, timeout_s: float) -> None:
    """Close a model, embedder or re-ranker. One that does not end in this time is left to itself."""
    try:
        await in_time(model.aclose(), timeout_s)
    except TookTooLong:
        _log.warning("model %r did not close within %g s", model.name, timeout_s)


def _is_text(text: object) -> bool:
    """Whether the log could hold it: a lone surrogate is not a character."""
    try:
        return isinstance(text, str) and text.encode() is not None
    except UnicodeEncodeError:
        return False
