"""A model of the user's own, held to the protocol."""

import asyncio
import logging
from collections.abc import Sequence

from memory_engine.errors import ModelError
from memory_engine.llm.base import Completion, LanguageModel, Message

_log = logging.getLogger("memory_engine.llm")

PATIENCE = 2
"""A model that does not keep its time is left after so many times as long. (The first call of a process imports
its library before its time begins.)"""


async def ask(
    model: LanguageModel, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
) -> Completion:
    """A whole answer, in a text that the log can hold.

    Raises `ModelError` for everything else, whatever the model does: what else it raises, an answer that is no
    `Completion` or holds a lone surrogate, and one that does not come within twice `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s * PATIENCE):
            completion: object = await model.complete(
                messages, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s
            )
    except ModelError:
        raise
    except TimeoutError as error:
        raise ModelError(model.name, "timeout", "it did not keep its time") from error
    except Exception as error:  # the boundary to the user's model: callers do without it, whatever it raises
        _log.warning("model %r raised what it may not raise", model.name, exc_info=True)
        raise ModelError(model.name, type(error).__name__, f"{type(error).__name__}: {error}") from error
    if not isinstance(completion, Completion):
        raise ModelError(model.name, "invalid_response", f"a {type(completion).__name__} is no Completion")
    if not _is_text(completion.text):
        raise ModelError(model.name, "invalid_response", "its answer is no text", usage=completion.usage)
    return completion


def _is_text(text: object) -> bool:
    """Whether the log could hold it: a lone surrogate is no character."""
    try:
        return isinstance(text, str) and text.encode() is not None
    except UnicodeEncodeError:
        return False
