"""What the engine asks of a language model."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from memory_engine.usage import Usage

Message = Mapping[str, object]
"""A chat-completions message, as `Context.messages` holds them."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole, non-empty answer.

    `model` is the model that gave it, as its provider names it, and `response_id` the
    provider's id for it. `usage` counts every attempt that was answered, also those whose
    answers could not be used.
    """

    text: str
    model: str
    response_id: str = ""
    usage: Usage = Usage()


class LanguageModel(Protocol):
    """Answers messages. One call at a time or many; may be used again after `aclose`."""

    @property
    def name(self) -> str:
        """What the user calls the model."""
        ...

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """The answer, of at most `max_tokens` tokens, within `timeout_s` seconds, retries included.

        Raises `ModelError` for everything that is not a whole, non-empty answer: a refusal
        and an answer that met `max_tokens` too. Ends promptly when cancelled.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections. Calls under way may fail."""
        ...


class MemoryModel(msgspec.Struct, frozen=True):
    """The model that views ask for shorter texts, if there is one."""

    model: LanguageModel | None
