"""From a state to the messages of the next model call, within a token budget.

Order: the chunks as they stand in the state, then the chunks that change in place (scratchpad, task, to-do list,
environment). So the bytes before the newest chunk stay the same from turn to turn, and a provider's prompt cache
holds, until a compaction or a forget changes the state itself. Passages recalled for a question stand behind
everything that stays, directly before the newest turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

import msgspec
from attrs import evolve, field, frozen
from msgspec.structs import replace

from memory_engine.context.budget import (
    ContextPolicy,
    Costed,
    Flow,
    choose_newest,
    cost,
    divide_by_policy,
    last_spoken,
    least,
    tokens_of,
    whole,
)
from memory_engine.context.invariants import atoms_of
from memory_engine.context.rendering import (
    Message,
    RenderedChunk,
    Renderer,
    assemble,
    message_tokens,
    render,
    render_held,
    render_xml,
)
from memory_engine.context.thinking import carried_thinking, running_thinking, thinking_tokens
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType, Retention
from memory_engine.core.lazy import lazy_module
from memory_engine.core.state import State, StateView
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import ContextBudgetError
from memory_engine.recall.hits import Hit

if TYPE_CHECKING:
    from memory_engine.context.forms import anthropic, openai_chat, openai_responses, turns
else:
    anthropic = lazy_module("memory_engine.context.forms.anthropic")
    openai_chat = lazy_module("memory_engine.context.forms.openai_chat")
    openai_responses = lazy_module("memory_engine.context.forms.openai_responses")
    turns = lazy_module("memory_engine.context.forms.turns")

TRAILING = frozenset({Category.SCRATCHPAD, Category.TASK, Category.ENVIRONMENT})
"""Types of chunks that change in place, and so stand last."""
FRAME = 3
"""Tokens that a list of messages takes beyond those of its messages."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of each part of a context; together they are all of it (or a little more, if a result precedes its call).

    `pinned` counts the chunks that are always in: instructions, CRITICAL chunks, scratchpad, task, to-do list,
    environment.
    """

    pinned: int = 0
    summary: int = 0
    recent: int = 0
    recalled: int = 0


@frozen(kw_only=True)
class Context:
    """The input of a model call. `tokens` counts `messages`, exactly if `tokens_exact`.

    `included` and `excluded` are chunk ids in the order of the state; `shortened` are
    those included whose text was cut to fit. `spent` says which part took how much.

    `recalled` are the passages that a `query` brought, as they are shown, oldest first, and `recalled_text` the
    text of their block; `recall_failure` says why an embedder or a re-ranker took no part although there is one.
    In `chunks` the block is one chunk with the status RECALLED, which is in no state.

    `messages` are chat-completions messages; `render` gives the same context as the request of a provider.
    `thinking_tokens` are those of the running tool loop's thinking, which `messages` and `tokens` leave out.
    """

    thread_id: str
    seq: int
    messages: list[Message]
    tokens: int
    tokens_exact: bool
    tokenizer: str
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    shortened: tuple[str, ...] = ()
    chunks: tuple[Chunk, ...] = field(default=(), repr=False)
    spent: Spent = Spent()
    recalled: tuple[Hit, ...] = ()
    recalled_text: str = field(default="", repr=False)
    recall_failure: str = ""
    pieces: tuple[RenderedChunk, ...] = field(default=(), repr=False)
    """The chunks in order, each with its messages; the last `trailing` change in place."""
    trailing: int = 0
    thinking: tuple[str, ...] = ()
    """The ids of the thinking that a provider gets back, if it is its own."""
    thinking_tokens: int = 0

    @overload
    def render(self, form: Literal["openai.chat"], *, reasoning_content: bool = False) -> "openai_chat.ChatInput": ...

    @overload
    def render(self, form: Literal["openai.responses"]) -> "openai_responses.ResponsesInput": ...

    @overload
    def render(self, form: Literal["anthropic"], *, cache: bool = True) -> "anthropic.AnthropicInput": ...

    def render(
        self,
        form: Literal["openai.chat", "openai.responses", "anthropic"],
        *,
        reasoning_content: bool = False,
        cache: bool = True,
    ) -> "openai_chat.ChatInput | openai_responses.ResponsesInput | anthropic.AnthropicInput":
        """This context in a provider's form, as its SDK takes it, by the provider's rules whatever was said.

        `reasoning_content` (openai.chat) gives the thinking of a running tool loop back under that name, as DeepSeek,
        Qwen and vLLM want it; OpenAI's own chat completions take none. `cache` (anthropic) sets breakpoints for the
        prompt cache. Raises `ValueError` for another form.
        """
        carried = self.thinking
        if form == "openai.chat" and reasoning_content:
            carried = tuple(chunk.id for chunk in running_thinking([piece.chunk for piece in self.pieces]))
        said = turns.turns_of(self.pieces, self.trailing, frozenset(carried))
        match form:
            case "openai.chat":
                return openai_chat.chat_input(said, self.tokens, reasoning_content=reasoning_content)
            case "openai.responses":
                return openai_responses.responses_input(said, self.tokens + self.thinking_tokens)
            case "anthropic":
                return anthropic.anthropic_input(said, self.tokens + self.thinking_tokens, cache=cache)
        raise ValueError(f"a form is 'openai.chat', 'openai.responses' or 'anthropic', not {form!r}")

    def xml(self) -> str:
        """The same chunks in the XML form, each with its id."""
        return render_xml(self.chunks)


class ContextDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A context without its recalled block. The block may take `room` tokens; `before` is its place in `pieces`."""

    state: State
    thread_id: str
    pieces: tuple[RenderedChunk, ...]
    spent: Spent
    room: int
    before: int
    builder: "ContextBuilder"
    thinking: tuple[Chunk, ...] = ()

    def block(self, text: str) -> RenderedChunk:
        """The recalled passages as a chunk, marked as recalled."""
        chunk = Chunk(
            id=f"{self.state.seq}.recalled",
            type=ChunkType.RECALLED,
            content=text,
            retention=Retention.DISPOSABLE,
            status=RECALLED,
        )
        return RenderedChunk(chunk, tuple(self.builder.messages(chunk)), 0)

    def tokens(self, block: RenderedChunk) -> int:
        """The tokens of a block."""
        return self.builder.tokens(block.messages)

    def finished(self, block: RenderedChunk | None = None) -> Context:
        """The context, with this block if there is one."""
        counter = self.builder.counter
        if block is None:
            made = _finish(self.state, self.thread_id, self.pieces, self.spent, counter)
        else:
            pieces = (*self.pieces[: self.before], block, *self.pieces[self.before :])
            spent = replace(self.spent, recalled=self.tokens(block))
            made = evolve(_finish(self.state, self.thread_id, pieces, spent, counter), recalled_text=block.chunk.text)
        return _with_thinking(made, self.thinking, counter)


class Layout(msgspec.Struct, frozen=True):
    """The rendered chunks of a state: atoms, and the pieces that always stand after them.

    `fixed` are the tokens of those pieces, and of the `thinking` that a provider gets back.
    """

    flow: Flow
    trailing: Sequence[RenderedChunk]
    fixed: int
    thinking: tuple[Chunk, ...] = ()

    @classmethod
    def of(cls, flow: Flow, trailing: Sequence[RenderedChunk], counter: TokenCounter) -> "Layout":
        """Lay out atoms and the pieces that stand after them."""
        fixed = FRAME + sum(message_tokens(m, counter) for piece in trailing for m in piece.messages)
        return cls(flow, trailing, fixed)

    def carrying(self, thinking: tuple[Chunk, ...], max_tokens: int | None, counter: TokenCounter) -> "Layout":
        """The same with room for thinking, if the newest turn fits beside it."""
        held = replace(self, fixed=self.fixed + thinking_tokens(thinking, counter), thinking=thinking)
        if not thinking or max_tokens is None or choose_newest(self.flow, max_tokens - held.fixed, counter):
            return held
        return self

    def within(self, max_tokens: int | None, thread_id: str, counter: TokenCounter) -> list[Costed]:
        """The atoms that a budget leaves room for, in order. Raises `ContextBudgetError`."""
        if max_tokens is None:
            return self.flow.atoms()
        chosen = choose_newest(self.flow, max_tokens - self.fixed, counter)
        if chosen is None:
            raise self.overrun(thread_id, max_tokens)
        return chosen

    def overrun(self, thread_id: str, max_tokens: int) -> ContextBudgetError:
        """The error for a budget that not even the fixed chunks fit, with the tokens needed at least."""
        return ContextBudgetError(thread_id, max(self.fixed + least(self.flow), max_tokens + 1), max_tokens)

    def pieces(self, chosen: Sequence[Costed]) -> tuple[RenderedChunk, ...]:
        """The pieces of these atoms, in the order of the state, and those that stand after them."""
        return (*in_order(chosen), *self.trailing)

    def spent(self, chosen: Sequence[Costed], counter: TokenCounter) -> Spent:
        """The tokens of each part: of these atoms, and of the pieces after them."""
        flow = Flow.of(chosen)
        return Spent(
            pinned=self.fixed - thinking_tokens(self.thinking, counter) + flow.fixed_tokens,
            summary=tokens_of(flow.summaries),
            recent=tokens_of(flow.turns),
        )


@frozen
class ContextBuilder:
    """Builds the context of a state, with the renderers of chunk types and a counter of tokens."""

    renderers: Mapping[str, Renderer] = field(repr=False)
    counter: TokenCounter = field(repr=False)

    def messages(self, chunk: Chunk) -> Iterable[Message]:
        """The messages of one chunk."""
        return render(chunk, self.renderers)

    def tokens(self, messages: Iterable[Message]) -> int:
        """The tokens of messages."""
        return sum(message_tokens(message, self.counter) for message in messages)

    def build(self, state: State, thread_id: str, max_tokens: int | None = None) -> Context:
        """Choose whole atoms for the budget (`None`: all of them) and render them.

        CRITICAL chunks are always in; then the newest atom (its texts cut if they must be), the
        summaries, and the newest turns that fit. Raises `ContextBudgetError` where CRITICAL
        chunks and the newest atom cannot fit at all.
        """
        layout = self._layout(state, max_tokens)
        chosen = layout.within(max_tokens, thread_id, self.counter)
        spent = layout.spent(chosen, self.counter)
        made = _finish(state, thread_id, layout.pieces(chosen), spent, self.counter)
        return _with_thinking(made, layout.thinking, self.counter)

    def draft(self, state: State, thread_id: str, max_tokens: int | None, policy: ContextPolicy) -> ContextDraft:
        """Choose whole atoms by a policy that does not see the question, and find the place of the recalled block.

        Raises `ContextBudgetError` as `build` does, and `ValueError` for a policy that gives negative numbers.
        """
        layout = self._layout(state, max_tokens)
        if max_tokens is None:
            divided = whole(layout.flow, policy)
        else:
            fitting = divide_by_policy(layout.flow, max_tokens - layout.fixed, policy, self.counter)
            if fitting is None:
                raise layout.overrun(thread_id, max_tokens)
            divided = fitting
        pieces = layout.pieces(divided.chosen)
        spoken = last_spoken(layout.flow)
        flowing = pieces[: len(pieces) - len(layout.trailing)]
        return ContextDraft(
            state=state,
            thread_id=thread_id,
            pieces=pieces,
            spent=layout.spent(divided.chosen, self.counter),
            room=divided.recalled,
            before=next((n for n, piece in enumerate(flowing) if piece.position == spoken), len(pieces)),
            builder=self,
            thinking=layout.thinking,
        )

    def trailing(self, state: StateView) -> list[RenderedChunk]:
        """The pieces that stand after all atoms, in the order of the state."""
        return [
            RenderedChunk(chunk, tuple(render_held(chunk, state.children(chunk.id), self.renderers)), 0)
            for chunk in state.chunks()
            if chunk.category in TRAILING
        ]

    def _layout(self, state: State, max_tokens: int | None) -> Layout:
        top = [chunk for chunk in state.chunks() if chunk.category not in TRAILING]
        flow = Flow.of(cost(atom, self.messages, self.counter) for atom in atoms_of(top))
        thinking = carried_thinking(top, max_tokens, self.counter)
        return Layout.of(flow, self.trailing(state), self.counter).carrying(thinking, max_tokens, self.counter)


def in_order(chosen: Sequence[Costed]) -> list[RenderedChunk]:
    """The pieces of atoms, in the order of the state."""
    return sorted((piece for c in chosen for piece in c.pieces), key=lambda piece: piece.position)


def _finish(
    state: State, thread_id: str, pieces: Sequence[RenderedChunk], spent: Spent, counter: TokenCounter
) -> Context:
    messages = assemble(pieces)
    shown = {piece.chunk.id for piece in pieces}
    included = tuple(chunk.id for chunk in state.chunks() if chunk.id in shown)
    return Context(
        thread_id=thread_id,
        seq=state.seq,
        messages=messages,
        tokens=FRAME + sum(message_tokens(m, counter) for m in messages),
        tokens_exact=counter.exact,
        tokenizer=counter.name,
        included=included,
        excluded=tuple(chunk.id for chunk in state.chunks() if chunk.id not in shown),
        shortened=tuple(piece.chunk.id for piece in pieces if piece.shortened),
        chunks=tuple(chunk for piece in pieces for chunk in (piece.chunk, *state.children(piece.chunk.id))),
        spent=spent,
        pieces=tuple(pieces),
        trailing=next(
            (n for n, piece in enumerate(reversed(pieces)) if piece.chunk.category not in TRAILING), len(pieces)
        ),
    )


def _with_thinking(context: Context, thinking: Sequence[Chunk], counter: TokenCounter) -> Context:
    """The context with the thinking that is in it and goes back to its provider."""
    included = set(context.included)
    carried = [chunk for chunk in thinking if chunk.id in included]
    ids = tuple(chunk.id for chunk in carried)
    return evolve(context, thinking=ids, thinking_tokens=thinking_tokens(carried, counter)) if carried else context
