"""What watches an engine at work: told of each operation and how long it takes. Without one, nothing is asked."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from memory_engine.llm.base import Completion, LanguageModel, Message


class Span(Protocol):
    """An operation under way. What is raised while it is entered has failed it."""

    def __enter__(self) -> "Span": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def say(self, said: Mapping[str, object]) -> None:
        """Say something of it that was not known when it began."""
        ...


class Probe(Protocol):
    """Watches an engine.

    Operations: `create_memory` (a dispatch, committed), `compaction`, `search_memory`, `context`, `chat` (a model's
    answer). What is said of them are ids, names and numbers; `query`, `asked` and `answer` are content.
    """

    def span(self, operation: str, said: Mapping[str, object]) -> Span:
        """An operation that begins now."""
        ...

    def correlation_id(self) -> str:
        """The correlation id of an event that is given none; empty for none."""
        ...


class _Unprobed:
    def __enter__(self) -> "_Unprobed":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return None

    def say(self, said: Mapping[str, object]) -> None:
        """Nobody listens."""


UNPROBED = _Unprobed()
"""The span of an engine without a probe."""


class ProbedModel:
    """A model, each answer of which is a span."""

    def __init__(self, model: "LanguageModel", probe: Probe) -> None:
        self._model = model
        self._probe = probe

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def context_window(self) -> int:
        """The tokens that the model takes, if it says so, else 0."""
        window: object = getattr(self._model, "context_window", 0)
        return window if isinstance(window, int) else 0

    async def complete(
        self, messages: "Sequence[Message]", *, temperature: float, max_tokens: int, timeout_s: float
    ) -> "Completion":
        """The model's answer."""
        asked = {"model": self.name, "temperature": temperature, "max_tokens": max_tokens, "asked": messages}
        with self._probe.span("chat", asked) as span:
            found = await self._model.complete(
                messages, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s
            )
            usage = {"input_tokens": found.usage.input_tokens, "output_tokens": found.usage.output_tokens}
            span.say({"answered_by": found.model, "response_id": found.response_id, "answer": found.text, **usage})
            return found

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()
