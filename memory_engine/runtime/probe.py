"""Observers of an engine at work, called with each operation and its duration. Without one, nothing is measured."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, cast

from memory_engine.language.masking import Mask, mapped

if TYPE_CHECKING:
    from memory_engine.llm.base import Completion, LanguageModel, Message


class Span(Protocol):
    """An operation under way. An error raised while it is entered has failed it."""

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
    answer). They are described by ids, names and numbers; `query`, `asked` and `answer` are content.
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


class MaskedProbe:
    """A probe that gets no secrets, nor an error whose text has any."""

    def __init__(self, probe: Probe, mask: Mask) -> None:
        self._probe = probe
        self._mask = mask

    def span(self, operation: str, said: Mapping[str, object]) -> Span:
        """Begin an operation of the other's."""
        return _MaskedSpan(self._probe.span(operation, self.masked(said)), self)

    def correlation_id(self) -> str:
        """Return the other's."""
        return self._probe.correlation_id()

    def masked(self, said: Mapping[str, object]) -> Mapping[str, object]:
        """Return what is said with each text in it masked."""
        return {name: mapped(value, self.text) for name, value in said.items()}

    def text(self, text: str) -> str:
        """Return what of a text may leave."""
        return self._mask(text, "telemetry")


class _MaskedSpan:
    __slots__ = ("_probe", "_span")

    def __init__(self, span: Span, probe: MaskedProbe) -> None:
        self._span = span
        self._probe = probe

    def __enter__(self) -> "_MaskedSpan":
        self._span.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._span.__exit__(kind, None if error is None else _masked_error(error, self._probe), trace)

    def say(self, said: Mapping[str, object]) -> None:
        """Pass facts on to the wrapped span, masked."""
        self._span.say(self._probe.masked(said))


def _masked_error(error: BaseException, probe: MaskedProbe) -> BaseException:
    """Return the error, or one of a class of the same name where its text, or that of a cause, has a secret."""
    said, chain, current = str(error), list[str](), error.__cause__ or error.__context__
    while current is not None and len(chain) < CAUSES_MAX:
        chain.append(str(current))
        current = current.__cause__ or current.__context__
    masked = probe.text(said)
    if masked == said and all(probe.text(one) == one for one in chain):
        return error
    stand_in = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})
    return cast("BaseException", stand_in(masked))


CAUSES_MAX = 10


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
