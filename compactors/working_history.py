"""The compactor that asks a model: history as XML in, progress summary as Markdown out."""

from collections.abc import Sequence

from memory_engine.chunks import Chunk
from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.compactors.history_xml import entries_of, fitted, render_input
from memory_engine.compactors.prompts import working_history
from memory_engine.compactors.summary_markdown import read_summary
from memory_engine.errors import CompactorFailed
from memory_engine.llm.base import LanguageModel

WORDS_PER_TOKEN = 0.6
"""About 0.75 in English prose; names, paths and numbers take more tokens."""


class WorkingHistoryCompactor:
    """Summarises by one call to a model: what was done, tried and learnt, how things stand, what comes next.

    `compact_max_tokens` limits the answer; an answer that meets it is refused, never cut.
    An entry longer than `entry_tokens_max` is sent as its head and tail, and all entries
    are shortened further where they would take more than `input_tokens_max` together
    (estimated tokens).
    """

    name = "working_history"
    calls_model = True

    def __init__(
        self,
        model: LanguageModel,
        *,
        compact_temperature: float = 0.3,
        compact_max_tokens: int = 2000,
        entry_tokens_max: int = 4000,
        input_tokens_max: int = 96_000,
    ) -> None:
        self._model = model
        self._temperature = compact_temperature
        self._max_tokens = compact_max_tokens
        self._entry_tokens_max = entry_tokens_max
        self._input_tokens_max = input_tokens_max

    def __repr__(self) -> str:
        return f"WorkingHistoryCompactor({self._model!r})"

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Anything."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """The model's summary, its lines citing the chunks that they come from.

        Raises `ModelError` where the model gives no whole answer within `context.deadline_s`,
        and `CompactorFailed` for an answer that is no progress summary (`invalid_output`) and
        for more entries than the input has room for (`input_too_long`).
        """
        entries = fitted(entries_of(chunks, context), self._entry_tokens_max, self._input_tokens_max)
        if entries is None:
            raise CompactorFailed(self.name, "input_too_long", f"{len(chunks)} chunks; compact fewer at a time")
        words = int(min(context.budget_tokens, self._max_tokens) * WORDS_PER_TOKEN)
        completion = await self._model.complete(
            [
                {"role": "system", "content": working_history(max(words, 20))},
                {
                    "role": "user",
                    "content": render_input(entries, context, part_tokens_max=self._entry_tokens_max),
                },
            ],
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            timeout_s=context.deadline_s,
        )
        lines = read_summary(completion.text, [entry.sources for entry in entries])
        if not lines:
            beginning = " ".join(completion.text.split())[:120]
            why = f"no progress summary: {beginning!r}"
            raise CompactorFailed(self.name, "invalid_output", why, completion.usage)
        return CompactionResult(lines=lines, model=completion.model, usage=completion.usage)
