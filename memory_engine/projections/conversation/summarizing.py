"""Texts made shorter: by a model, and where there is none or it fails, by cutting."""

import logging
from collections.abc import Sequence

from attrs import frozen

from memory_engine.context.rendering import Message
from memory_engine.errors import ModelError
from memory_engine.llm.asking import ask
from memory_engine.llm.base import LanguageModel
from memory_engine.projections.conversation.limits import ConversationLimits
from memory_engine.projections.conversation.prompts import short_answer, shorter_summary
from memory_engine.projections.conversation.texts import cut, fewer_lines, head_and_tail, utf8_bytes
from memory_engine.usage import Usage

_log = logging.getLogger("memory_engine.conversation")

TEMPERATURE = 0.3
_TOKENS_MIN = 512
"""What an answer may take at least: some models think before they write."""


@frozen(kw_only=True)
class Shortened:
    """A shorter text, who made it (`"model"` or `"cut"`), and why a model was of no use."""

    text: str
    method: str
    model: str = ""
    usage: Usage | None = None
    failure: str = ""


class Summarizer:
    """Never raises for a model's sake: whatever goes wrong there, the text is cut and the failure is told."""

    def __init__(self, model: LanguageModel | None, limits: ConversationLimits) -> None:
        self._model = model
        self._limits = limits

    async def answer(self, question: str, answer: str) -> Shortened | None:
        """The short form of an answer that is over its limit; `None` for one that is not."""
        limits = self._limits
        if utf8_bytes(answer) <= limits.answer_bytes_max:
            return None
        target = limits.answer_bytes_target
        asked = head_and_tail(question, limits.model_input_bytes_max // 4)
        said = head_and_tail(answer, limits.model_input_bytes_max)
        return await self._shorten(short_answer(asked, said, target), target, cut(answer, target))

    async def summary(self, text: str, findings: Sequence[str], fallback: str) -> Shortened:
        """A summary that is over its limit, compressed; `findings` guide the model.

        `fallback` is the text to shorten without one: it holds of the findings what has room.
        """
        limits = self._limits
        target = limits.summary_bytes_target
        told = fewer_lines(text, limits.model_input_bytes_max)
        noted = fewer_lines("\n".join(findings), limits.model_input_bytes_max // 4)
        return await self._shorten(shorter_summary(told, noted, target), target, fewer_lines(fallback, target))

    async def _shorten(self, messages: Sequence[Message], target: int, fallback: str) -> Shortened:
        """What the model makes of it, cut where it overdid, or the fallback."""
        if self._model is None:
            return Shortened(text=fallback, method="cut")
        try:
            completion = await ask(
                self._model,
                messages,
                temperature=TEMPERATURE,
                max_tokens=max(_TOKENS_MIN, target),
                timeout_s=self._limits.model_timeout_s,
            )
        except ModelError as error:
            return self._failed(fallback, error.reason, error.usage)
        text = completion.text.strip()
        if not text:
            return self._failed(fallback, "invalid_response", completion.usage)
        return Shortened(text=cut(text, target), method="model", model=completion.model, usage=completion.usage)

    def _failed(self, fallback: str, failure: str, usage: Usage | None) -> Shortened:
        _log.warning("a text was cut because the model failed: %s", failure)
        return Shortened(text=fallback, method="cut", usage=usage if usage != Usage() else None, failure=failure)
