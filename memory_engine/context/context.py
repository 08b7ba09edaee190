"""The input of a model call: the included and excluded chunks, and the messages in the forms of providers."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

import msgspec
from attrs import evolve, field, frozen

from memory_engine.context.rendering import Message, RenderedChunk, render_xml
from memory_engine.context.standing import StandingBlock
from memory_engine.context.thinking import is_response, newest_thinking, running_thinking
from memory_engine.core.chunks import Chunk
from memory_engine.core.lazy import lazy_module, lazy_modules

if TYPE_CHECKING:
    from memory_engine.context import turns
    from memory_engine.context.brief_block import Weighed
    from memory_engine.context.choice import HeldWindow
    from memory_engine.formats import anthropic, gemini, langchain, left_out, openai_chat, openai_responses, providers
    from memory_engine.formats import turns as forms
    from memory_engine.recall.hits import Hit

    _Request = (
        openai_chat.ChatInput
        | openai_responses.ResponsesInput
        | anthropic.AnthropicInput
        | gemini.GeminiInput
        | langchain.LangChainInput
    )
else:
    turns = lazy_module("memory_engine.context.turns")
    forms, left_out, providers = lazy_modules("memory_engine.formats", "turns left_out providers")


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of each part of a context.

    The sum is the context's total, or slightly more if a result precedes its call. `pinned` counts the chunks that are
    always included: instructions, CRITICAL chunks, scratchpad, task, to-do list, environment. `standing` counts the
    blocks that views contribute.

    All counts are multiplied by `correction`, a factor learned from what providers report for this thread; `usages` is
    the number of reports behind it, three at most. The correction shows the error of the uncorrected count: 0.85 means
    that it was 18 % too high.
    """

    pinned: int = 0
    standing: int = 0
    summary: int = 0
    recent: int = 0
    recalled: int = 0
    correction: float = 1.0
    usages: int = 0

    @property
    def total(self) -> int:
        """Tokens of all parts."""
        return self.pinned + self.standing + self.summary + self.recent + self.recalled


class LeftOut:
    """The ids of a state's chunks that a context leaves out, computed on first access."""

    def __init__(self, chunks: Callable[[], Iterable[Chunk]], shown: frozenset[str]) -> None:
        self._chunks = chunks
        self._shown = shown

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Ids in the order of the state."""
        return tuple(chunk.id for chunk in self._chunks() if chunk.id not in self._shown)

    def __eq__(self, other: object) -> bool:
        return self.ids == other.ids if isinstance(other, LeftOut) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # compared, not used as a key

    def __reduce__(self) -> tuple[type["_ListedIds"], tuple[tuple[str, ...]]]:
        return _ListedIds, (self.ids,)


class _ListedIds(LeftOut):
    """Ids that have already been computed, so that no state is needed."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        super().__init__(tuple, frozenset())
        self.ids = ids


@frozen(kw_only=True)
class Context:
    """The input of a model call.

    `tokens` counts `messages`, and the blocks that only their provider reads (those of its own tools), exactly if
    `tokens_exact`; `tokenizer` names the counter. `included` and `excluded` are chunk ids in the order of the
    state; `shortened` are the included ones whose text was cut to fit. `spent` divides the tokens by part.

    `recalled` are the passages that a `query` recalled, as shown, oldest first, and `recalled_text` the text of their
    block; `recall_failure` says why a configured embedder or re-ranker was not used. In `chunks` the block is one chunk
    with the status RECALLED, which belongs to no state. The same holds for each of the `standing` blocks: the user's
    preferences, the tenant's `agent.md` and so on, as shown.

    `stood` are the statements of the brief that a context must show, in order of rank: binding ones, those of the
    request being worked on, and pins. `unsaid` are those of them that it shows nowhere. Both are empty if the policy
    excludes the brief. `untrusted` counts what the policy's `min_trust` left out.

    `messages` are chat-completions messages; `render` gives the same context as a provider's request. `thinking_tokens`
    counts the running tool loop's thinking, which `messages` and `tokens` leave out.
    """

    thread_id: str
    seq: int
    messages: list[Message]
    tokens: int
    tokens_exact: bool
    tokenizer: str
    included: tuple[str, ...]
    _left_out: LeftOut = field(repr=False, alias="left_out")
    shortened: tuple[str, ...] = ()
    chunks: tuple[Chunk, ...] = field(default=(), repr=False)
    spent: Spent = Spent()
    recalled: "tuple[Hit, ...]" = ()
    recalled_text: str = field(default="", repr=False)
    recall_failure: str = ""
    standing: tuple[StandingBlock, ...] = ()
    stood: tuple["Weighed", ...] = field(default=(), repr=False)
    unsaid: tuple["Weighed", ...] = ()
    untrusted: int = 0
    pieces: tuple[RenderedChunk, ...] = field(default=(), repr=False, eq=False)
    """Chunks with their own messages, in context order, from which `messages` are built. The last `trailing` pieces
    change in place."""
    trailing: int = 0
    thinking: tuple[str, ...] = ()
    """Ids of the thinking chunks that are sent back to the provider that produced them."""
    thinking_tokens: int = 0
    kept: "HeldWindow | None" = field(default=None, repr=False, eq=False)
    """State from which the next context of the same loop continues."""

    @property
    def excluded(self) -> tuple[str, ...]:
        """Ids of the chunks left out, in the order of the state."""
        return self._left_out.ids

    def _repr_html_(self) -> str:
        """Return the messages as a table for a notebook."""
        from memory_engine.core.notebook import table

        how = "" if self.tokens_exact else "about "
        caption = f"Context of {self.thread_id} at event {self.seq}: {how}{self.tokens:,} tokens"
        rows = ((one.get("role"), one.get("content") or one.get("tool_calls")) for one in self.messages)
        return table(caption, ("role", "content"), rows)

    @overload
    def render(self, form: Literal["openai.chat"], *, reasoning_content: bool = False) -> "openai_chat.ChatInput": ...

    @overload
    def render(self, form: Literal["openai.responses"]) -> "openai_responses.ResponsesInput": ...

    @overload
    def render(self, form: Literal["gemini"]) -> "gemini.GeminiInput": ...

    @overload
    def render(self, form: Literal["langchain"]) -> "langchain.LangChainInput": ...

    @overload
    def render(self, form: Literal["anthropic"], *, cache: bool = True) -> "anthropic.AnthropicInput": ...

    def render(
        self,
        form: Literal["openai.chat", "openai.responses", "anthropic", "gemini", "langchain"],
        *,
        reasoning_content: bool = False,
        cache: bool = True,
    ) -> "_Request":
        """Return this context as the request of a provider's SDK, valid under the provider's rules for any content.

        `reasoning_content` (openai.chat) returns the thinking of a running tool loop under that name, as DeepSeek, Qwen
        and vLLM expect; OpenAI's own chat completions accept none. `cache` (anthropic) sets breakpoints for the prompt
        cache. `left_out` of the request lists what providers sent and it does not hold. `langchain` gives messages for
        `model.invoke`. Raises `ValueError` for an unknown form, `MissingExtra` for `langchain` without LangChain.
        """
        if form not in providers.PROVIDERS:
            raise ValueError(f"a form is one of {', '.join(map(repr, providers.PROVIDERS))}, not {form!r}")
        carried = self.thinking
        if form == "openai.chat" and reasoning_content:
            carried = tuple(chunk.id for chunk in running_thinking([piece.chunk for piece in self.pieces]))
        said = turns.turns_of(self.pieces, self.trailing, frozenset(carried), form)
        options = forms.RenderOptions(
            tokens=self.tokens,
            thinking_tokens=self.thinking_tokens,
            cache=cache,
            reasoning_content=reasoning_content,
        )
        provider = providers.PROVIDERS[form]
        request: _Request = provider.render(said, options)
        chunks = [piece.chunk for piece in self.pieces]
        responded = (n for n in range(len(chunks) - 1, -1, -1) if is_response(chunks[n]))
        newest = newest_thinking(chunks, next(responded, -1))
        return evolve(request, left_out=left_out.not_sent(chunks, newest, provider.blocks_of(request), form))

    def xml(self) -> str:
        """Return the same chunks in the XML form, each with its id."""
        return render_xml(self.chunks)
