"""The compactor that asks a model: history as numbered XML in, progress summary as Markdown out.

A model writes about the work. People's words, open calls and to-dos, failures and values that are used again are
kept by the engine, whatever the model answers.
"""

import math
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from attrs import define, field

from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.compaction.failures import INCOMPLETE
from memory_engine.compactors.history_prompt import (
    ENTRY_TOKENS_MIN,
    FRAME_TOKENS,
    HistoryEntry,
    fitted,
    grouped_entries,
    render_input,
    told_again,
    working_history,
)
from memory_engine.compactors.model_window import ModelWindow
from memory_engine.compactors.said_lines import said_lines
from memory_engine.compactors.summary_check import derived_numbers, grounded, missing, tokens_min, tokens_of
from memory_engine.compactors.summary_reading import Claim, as_line, read_claims
from memory_engine.compactors.summary_values import KnownValues
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.tokens import recorded_tokens
from memory_engine.errors import CompactorFailed, ModelError
from memory_engine.errors.effects import Usage
from memory_engine.llm.base import Completion, LanguageModel, Message, context_window_of, masked_model

AGAIN_S_MIN = 0.1
"""Seconds that a model is given at least to answer again: the compaction's own deadline ends it then."""
ANSWER_SHARE = 0.8
"""The share of the tokens that an answer may take which a summary is to fill: an answer that is cut off is lost."""
SAID_SHARE = 0.5
"""The share of a summary that people's words may take, where no brief holds them."""
ADDED_SHARE = 1 / 3
"""The share of a summary that added lines may take."""
PART_SHARE = 0.1
"""The share of a prompt that each part of the context (the goal, the request, …) may take."""
PARTS_MAX = 64
"""Parts that a history is split into at most, by refusals too."""
INVENTED_MAX = 20
"""Invented values that a model is asked about at most."""
TOO_LONG = "context_window"
"""The reason of a model that was asked for more than its window takes."""


_Examined = list[tuple[SummaryLine, list[str]]]
"""Lines of an answer, each with those of its values that are in no input of the model."""


@define
class _HistoryPart:
    """A piece of the history that one prompt takes: entries in groups that belong together."""

    groups: list[list[HistoryEntry]]
    entry_tokens_max: int

    @property
    def entries(self) -> list[HistoryEntry]:
        return [entry for group in self.groups for entry in group]

    def halves(self) -> "list[_HistoryPart]":
        """Two parts, cut between groups; a single group is cut between entries, a single entry at its middle."""
        groups = self.groups if len(self.groups) > 1 else [[entry] for entry in self.entries]
        if len(groups) > 1:
            middle = len(groups) // 2
            return [
                _HistoryPart(groups[:middle], self.entry_tokens_max),
                _HistoryPart(groups[middle:], self.entry_tokens_max),
            ]
        if self.entry_tokens_max <= ENTRY_TOKENS_MIN:
            return []
        return [_HistoryPart(groups, max(self.entry_tokens_max // 2, ENTRY_TOKENS_MIN))]


@define
class _Summarising:
    """One compaction under way: what it knows, what it has spent, and what the model has written so far."""

    context: CompactionContext
    known: KnownValues
    tokens: int
    """Tokens that the model's lines may take together."""
    history: int
    """Tokens of the history."""
    least: int
    """Tokens below which the model's lines cannot replace the history."""
    begun_s: float = field(factory=time.monotonic)
    usage: Usage = Usage()
    model: str = ""
    lines: list[SummaryLine] = field(factory=list)

    @property
    def left_s(self) -> float:
        return max(self.context.deadline_s - (time.monotonic() - self.begun_s), AGAIN_S_MIN)

    def share(self, entries: Sequence[HistoryEntry]) -> float:
        """The share of the history that entries are."""
        return min(sum(recorded_tokens(entry.text) for entry in entries) / max(self.history, 1), 1.0)


class WorkingHistoryCompactor:
    """Summarises by a call to a model: actions, attempts and lessons, the state of things and the next steps.

    The answer is checked. Numbers, dates and identifiers that are in no entry are asked about once, then their lines
    go. People's words that the brief does not hold, open calls and to-dos, failures, and identifiers that later calls
    took are added as lines where the model left them out. Each line cites the entries that it may come from, so that a
    forgotten entry takes no other lines along. An answer is refused only if it is no summary.

    `compact_max_tokens` limits an answer; one that meets it is refused, never cut. An entry longer than
    `entry_tokens_max` is sent as its head and tail. A history that takes more than `input_tokens_max`, or than the
    model's window, is summarised in parts: the window is `context_window`, or what the model has as an attribute of
    this name, or is learned from its refusals.
    """

    name = "working_history"
    categories = (Category.WORKING_FLOW,)
    calls_model = True

    def __init__(  # noqa: PLR0913 - settings of a model's calls, by keyword
        self,
        model: LanguageModel,
        *,
        compact_temperature: float = 0.3,
        compact_max_tokens: int = 2000,
        entry_tokens_max: int = 4000,
        input_tokens_max: int = 96_000,
        context_window: int = 0,
    ) -> None:
        self._model = masked_model(model)
        self._temperature = compact_temperature
        self._max_tokens = compact_max_tokens
        self._entry_tokens_max = entry_tokens_max
        self._input_tokens_max = input_tokens_max
        self._told_window = context_window
        self._window = ModelWindow(context_window)

    def __repr__(self) -> str:
        return f"WorkingHistoryCompactor({self._model!r})"

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Return `True`: it takes any chunks."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """The model's lines and the engine's own, each citing the chunks that it comes from.

        Raises `ModelError` where the model gives no whole answer within `context.deadline_s`, and `CompactorFailed`
        for an answer that is no progress summary (`invalid_output`), for one that says next to nothing, twice
        (`incomplete`), and for instructions that leave no room in the model's window (`input_too_long`).
        """
        told = [chunk for chunk in chunks if chunk.status != RECALLED]
        groups = grouped_entries(chunks, context)
        self._window.window = self._told_window or context_window_of(self._model) or self._window.window
        said = await said_lines(told, context, int(context.budget_tokens * SAID_SHARE))
        work = await self._begun(told, groups, context, said)
        await self._summarise_all(deque(self._parts(groups, work)), work)
        room = min(int(context.budget_tokens * ADDED_SHARE), work.history - tokens_of([*work.lines, *said]) - 1)
        lines = [*work.lines, *said]
        return CompactionResult(lines=(*lines, *missing(lines, told, room)), model=work.model, usage=work.usage)

    async def _begun(
        self,
        chunks: Sequence[Chunk],
        groups: Sequence[Sequence[HistoryEntry]],
        context: CompactionContext,
        said: Sequence[SummaryLine],
    ) -> _Summarising:
        import anyio.to_thread  # loads a back end with it, and most engines that open never compact

        entries = [entry for group in groups for entry in group]
        seen = (
            context.task_goal, context.progress_summary, context.system_context, context.current_request,
            *context.brief, *context.todos, context.instructions, context.focus,
        )  # fmt: skip
        read = partial(
            KnownValues.of,
            [entry.text for entry in entries],
            seen,
            list(context.recorded_at.values()),
            derived_numbers(chunks),
        )
        most = min(context.budget_tokens, self._window.answer_tokens(self._max_tokens) * ANSWER_SHARE)
        tokens = max(int(min(context.budget_tokens - tokens_of(said), most)), int(most * SAID_SHARE), 20)
        return _Summarising(
            context=context,
            known=await anyio.to_thread.run_sync(read),
            tokens=tokens,
            history=sum(recorded_tokens(entry.text) for entry in entries),
            least=tokens_min(chunks, context.budget_tokens),
        )

    async def _summarise_all(self, waiting: deque[_HistoryPart], work: _Summarising) -> None:
        """Summarise part after part; one that the model finds too long is split, and those that wait with it."""
        done = 0
        while waiting:
            part = waiting.popleft()
            try:
                await self._summarise(part, work)
                done += 1
            except ModelError as error:
                work.usage = work.usage.plus(error.usage)
                split = self._split(part, waiting, work) if error.reason == TOO_LONG else []
                if not split or done + len(split) > PARTS_MAX:
                    raise ModelError(error.model, error.reason, error.error, error.retryable, work.usage) from error
                waiting = deque(split)

    def _split(self, part: _HistoryPart, waiting: Sequence[_HistoryPart], work: _Summarising) -> list[_HistoryPart]:
        """A part that was too long, and all behind it, in smaller parts; nothing where it cannot get smaller."""
        try:
            regrouped = self._parts([group for one in (part, *waiting) for group in one.groups], work)
        except CompactorFailed:  # the refusal says more
            return []
        if len(regrouped[0].groups) < len(part.groups):
            return regrouped
        halves = part.halves()
        return [*halves, *waiting] if halves else []

    def _parts(self, groups: Sequence[list[HistoryEntry]], work: _Summarising) -> list[_HistoryPart]:
        """The history in parts that each fit a prompt, cut between groups, and inside one that is too long alone."""
        room = self._room(work)

        def size(group: Sequence[HistoryEntry]) -> int:
            counted = (min(work.context.count(entry.text), self._entry_tokens_max) for entry in group)
            return sum(counted) + FRAME_TOKENS * len(group)

        pieces = [piece for one in groups for piece in ([one] if size(one) <= room else [[entry] for entry in one])]
        parts: list[_HistoryPart] = []
        taken = room + 1
        for piece in pieces:
            taken += size(piece)
            if taken > room:
                parts.append(_HistoryPart([], self._entry_tokens_max))
                taken = size(piece)
            parts[-1].groups.append(piece)
        return parts

    def _prompt_tokens(self) -> int:
        return self._window.prompt_tokens(self._input_tokens_max, self._window.answer_tokens(self._max_tokens))

    def _room(self, work: _Summarising) -> int:
        """The tokens that entries may take in a prompt. Raises `CompactorFailed` where there are next to none."""
        context = work.context
        fixed = context.count(working_history(work.tokens, 100))
        fixed += context.count(render_input((), context, part_tokens_max=self._part_tokens(), count=context.count))
        room = self._prompt_tokens() - fixed
        if room < ENTRY_TOKENS_MIN + FRAME_TOKENS:
            why = f"the instructions take {fixed} of the {self._prompt_tokens()} tokens that its model takes"
            raise CompactorFailed(self.name, "input_too_long", why, work.usage)
        return room

    def _part_tokens(self) -> int:
        return max(min(self._entry_tokens_max, int(self._prompt_tokens() * PART_SHARE)), ENTRY_TOKENS_MIN)

    async def _summarise(self, part: _HistoryPart, work: _Summarising) -> None:
        """Add the model's lines for a part to the work.

        Raises `ModelError` (`context_window` for a part that is too long, of which the window has learned).
        """
        context, entries = work.context, part.entries
        short = fitted(entries, part.entry_tokens_max, self._room(work), context.count)
        if short is None:
            raise ModelError(self._model.name, TOO_LONG, f"{len(entries)} entries are too many for one prompt")
        share = work.share(entries)
        tokens = max(int(work.tokens * share), 20)
        percent = min(100 * work.tokens // max(work.history, 1), 100)
        has_calls = any(entry.type in _OF_CALLS for entry in entries)
        system = working_history(tokens, max(percent, 1), has_calls=has_calls)
        given = render_input(short, context, part_tokens_max=self._part_tokens(), count=context.count)
        messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": given}]
        completion = await self._ask(messages, work)
        claims = self._claims(completion.text, len(entries), work)
        found = await self._examined(claims, entries, work)
        least = math.floor(work.least * share)
        faults = _faults(found, least)
        if _tokens(found) >= sum(recorded_tokens(entry.text) for entry in entries):
            faults = []  # no shorter than the history: the compaction leaves it out, so do not ask again
        if faults:
            again = [*messages, *told_again(completion.text, faults, tokens)]
            found = await self._asked_again(again, found, entries, work)
        kept = _verified_lines(found)
        if not kept or _tokens(found) < least:
            raise CompactorFailed(self.name, INCOMPLETE, " ".join(faults), work.usage)
        work.lines += kept

    async def _asked_again(
        self, messages: Sequence[Message], first: _Examined, entries: Sequence[HistoryEntry], work: _Summarising
    ) -> _Examined:
        """The second answer, or the first one where that leaves more to keep. Where the model fails, the first."""
        try:
            completion = await self._ask(messages, work)
        except ModelError as error:
            work.usage = work.usage.plus(error.usage)
            return first
        second = await self._examined(read_claims(completion.text, len(entries)), entries, work)
        less = min(tokens_of(_verified_lines(first)), work.least)
        return second if tokens_of(_verified_lines(second)) > less else first

    async def _ask(self, messages: Sequence[Message], work: _Summarising) -> Completion:
        counted = sum(work.context.count(str(message["content"])) for message in messages)
        try:
            completion = await self._model.complete(
                messages,
                temperature=self._temperature,
                max_tokens=self._window.answer_tokens(self._max_tokens),
                timeout_s=work.left_s,
            )
        except ModelError as error:
            if error.reason == TOO_LONG:
                self._window.refused(counted)
            raise
        self._window.answered(counted, completion.usage.input_tokens)
        work.usage = work.usage.plus(completion.usage)
        work.model = completion.model
        return completion

    def _claims(self, answer: str, entries: int, work: _Summarising) -> list[Claim]:
        """The lines of an answer. Raises `CompactorFailed` for what is no summary."""
        claims = read_claims(answer, entries)
        if not claims:
            beginning = " ".join(answer.split())[:120]
            raise CompactorFailed(self.name, "invalid_output", f"no progress summary: {beginning!r}", work.usage)
        return claims

    async def _examined(
        self, claims: Sequence[Claim], entries: Sequence[HistoryEntry], work: _Summarising
    ) -> _Examined:
        """The lines of claims, each with the sources of all entries that it may come from, and what it made up."""
        import anyio.to_thread

        def examined() -> _Examined:
            found = grounded(claims, [entry.text for entry in entries])
            lines = [as_line(claim, [entry.sources for entry in entries]) for claim in found]
            return [
                (line, work.known.unknown_in(line.text, len(claim.cites)))
                for line, claim in zip(lines, claims, strict=True)
            ]

        return await anyio.to_thread.run_sync(examined)


_OF_CALLS = frozenset({ChunkType.AGENT_ACTION, ChunkType.ACTION_RESULT, ChunkType.ERROR})


def _verified_lines(examined: _Examined) -> list[SummaryLine]:
    """The lines that made nothing up."""
    return [line for line, invented in examined if not invented]


def _tokens(examined: _Examined) -> int:
    return tokens_of([line for line, _ in examined])


def _faults(examined: _Examined, least: int) -> list[str]:
    """Questions to a model about its answer, each as a sentence; empty if it is accepted."""
    invented = list(dict.fromkeys(value for _, values in examined for value in values))
    faults: list[str] = []
    if invented:
        named = ", ".join(invented[:INVENTED_MAX])
        faults.append(f"These stand in no entry: {named}. Leave them out, or write them as the entries do.")
    tokens = _tokens(examined)
    if tokens < least:
        faults.append(f"It takes about {tokens} tokens: too few to stand for all that happened.")
    return faults
