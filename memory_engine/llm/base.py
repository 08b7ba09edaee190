"""The protocol of language models, the mask before each, and a user's own model held to it."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, cast

import msgspec
from msgspec.structs import replace

from memory_engine.core.aside import aside
from memory_engine.core.cancellation import TookTooLong, in_time
from memory_engine.errors import ModelError
from memory_engine.errors.effects import Usage
from memory_engine.language.masking import (
    CHARS_AN_ITEM,
    SECRETS,
    Mask,
    Placeholders,
    mapped,
    texts_in,
)
from memory_engine.llm.failures import safe_to_record, unforeseen

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


class MaskedModel:
    """A language model that sees no secrets: it gets placeholders, and its answer the values back.

    `mask=None` hides nothing: wrap a model this way if it must see its texts unmasked.
    """

    def __init__(self, model: LanguageModel, mask: Mask | None = SECRETS) -> None:
        self._model = model
        self._mask = mask

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def context_window(self) -> int:
        """The tokens that the model takes, if it says so, else 0."""
        return context_window_of(self._model)

    def __repr__(self) -> str:
        return f"MaskedModel({self._model!r})"

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Return the model's answer (see `LanguageModel.complete`) with the values in it."""
        texts = [text for message in messages for text in texts_in(dict(message))]
        size = sum(map(len, texts)) // CHARS_AN_ITEM if self._mask is not None else 0
        hidden = await aside(partial(Placeholders, self._mask, texts), items=size)
        if hidden:
            messages = [cast("Mapping[str, object]", mapped(dict(message), hidden.hide)) for message in messages]
        found: object = await self._model.complete(
            messages, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s
        )
        if hidden and isinstance(found, Completion) and _is_text(found.text):
            return replace(found, text=hidden.restore(found.text))
        return cast("Completion", found)  # `ask` checks what a model of one's own returns

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()


def masked_model(model: LanguageModel, mask: Mask | None = SECRETS) -> LanguageModel:
    """Return the model behind a mask; one that is behind one already stays behind its own."""
    return model if isinstance(model, MaskedModel) else MaskedModel(model, mask)


_log = logging.getLogger("memory_engine.llm")

PATIENCE = 2
"""A model that exceeds its time is abandoned after this many times as long. (The first call of a process imports
its library before its time begins.)"""


async def ask(
    model: LanguageModel, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
) -> Completion:
    """A whole answer, in a text that the log can hold. A model that is behind no mask is asked through the default one.

    Raises `ModelError` for everything else: another error of the model, an answer that is not a `Completion` or holds
    a lone surrogate, and one that does not come within twice `timeout_s`.
    """
    model = masked_model(model)
    try:
        asking = model.complete(messages, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s)
        completion: object = await in_time(asking, timeout_s * PATIENCE)
    except ModelError as error:
        raise safe_to_record(error) from error.__cause__
    except TimeoutError as error:
        raise ModelError(model.name, "timeout", "it did not keep its time") from error
    except Exception as error:  # the boundary to the user's model: callers go on without it, whatever it raises
        _log.warning("model %r raised what it may not raise", model.name, exc_info=True)
        raise unforeseen(model.name, error) from error
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
