"""The text of a provider's answer, its tokens, and the failures that look like answers."""

import functools
from collections.abc import Sequence
from typing import Any

from memory_engine.errors import ModelError
from memory_engine.errors.effects import Usage

CUT_OFF = "the answer met its limit of tokens; raise it"
STOPPED = "the provider's filter stopped the answer"
REFUSAL_CHARS_MAX = 500


def chat_text(model: str, response: Any) -> str:
    """The text of a chat completion. Raises `ModelError` where it was refused, cut off, or is empty."""
    choices = getattr(response, "choices", None) or []
    if not choices:
        raise ModelError(model, "invalid_response", "the answer holds no choices", True)
    message, finish_reason = choices[0].message, choices[0].finish_reason
    more = getattr(message, "provider_specific_fields", None) or {}
    refusal = getattr(message, "refusal", None) or more.get("refusal")
    text = message.content
    if finish_reason in ("content_filter", "refusal") or (refusal and not text):
        raise ModelError(model, "refused", str(refusal or STOPPED)[:REFUSAL_CHARS_MAX])
    return _complete_answer(model, text, is_cut=finish_reason == "length")


def chat_usage(response: Any) -> Usage:
    """The tokens that the provider counted; a missing count is 0. litellm knows what many models cost."""
    usage = getattr(response, "usage", None)
    hidden = getattr(response, "_hidden_params", None) or {}
    return Usage(
        input_tokens=int(getattr(usage, "prompt_tokens", None) or 0),
        output_tokens=int(getattr(usage, "completion_tokens", None) or 0),
        cost_usd=float(hidden.get("response_cost") or 0.0),
    )


def message_text(model: str, response: Any) -> str:
    """The same of a message of Anthropic's."""
    blocks = getattr(response, "content", None)
    if not isinstance(blocks, list):
        raise ModelError(model, "invalid_response", "the answer holds no content", True)
    reason = getattr(response, "stop_reason", None)
    if reason == "refusal":
        raise ModelError(model, "refused", STOPPED)
    if reason == "model_context_window_exceeded":
        raise ModelError(model, "context_window", "the answer met the end of the model's context window")
    texts = (getattr(block, "text", None) for block in blocks if getattr(block, "type", "") == "text")
    return _complete_answer(model, "".join(filter(None, texts)), is_cut=reason == "max_tokens")


def message_usage(response: Any) -> Usage:
    """The same of a message of Anthropic's. Tokens from and to the prompt cache are input too."""
    usage = getattr(response, "usage", None)
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Usage(
        input_tokens=sum(int(getattr(usage, name, None) or 0) for name in names),
        output_tokens=int(getattr(usage, "output_tokens", None) or 0),
    )


def total(spent: Sequence[Usage]) -> Usage:
    """The tokens of all answers together."""
    return functools.reduce(Usage.plus, spent, Usage())


def with_usage(error: ModelError, spent: Sequence[Usage]) -> ModelError:
    """The error, with the tokens of all answers that could not be used."""
    return ModelError(error.model, error.reason, error.error, error.retryable, total(spent))


def _complete_answer(model: str, text: object, *, is_cut: bool) -> str:
    if is_cut:
        raise ModelError(model, "truncated", CUT_OFF)
    if not isinstance(text, str) or not text.strip():
        raise ModelError(model, "invalid_response", "the answer is empty", True)
    return text
