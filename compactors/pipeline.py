"""Compactors one after the other: each stage takes the summary of the one before."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from memory_engine.compaction.assignment import checked_compactor
from memory_engine.compaction.base import CompactionContext, CompactionResult, Compactor, calls_model, categories_of
from memory_engine.compaction.protocol import check_result
from memory_engine.core.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.tokens import estimate_chunk


class Pipeline:
    """One compactor made of several.

    The first stage gets the chunks; each later one gets the lines of the summary before it,
    a chunk of the type `compacted` for each line. Where a later stage cites such a line, the
    pipeline puts the line's own sources in its place: a result cites original chunks only. A
    stage that cannot take the lines (`can_compact`) is left out. Models and usage add up.

        Pipeline(WorkingHistoryCompactor(model), Redactor())

    Raises `ValueError` without a stage, `InvalidCompactor` for one that is not a compactor. It takes chunks of the
    categories that the first stage declares. `compact` raises what a stage raises, or
    `CompactorFailed` naming the stage whose result cannot be used.
    """

    def __init__(self, *stages: Compactor, name: str = "") -> None:
        if not stages:
            raise ValueError("a pipeline needs a stage; give it a compactor")
        self._stages = tuple(map(checked_compactor, stages))
        self.name = name or " > ".join(stage.name for stage in stages)

    @property
    def calls_model(self) -> bool:
        """Whether any stage asks a model."""
        return any(map(calls_model, self._stages))

    @property
    def categories(self) -> frozenset[str]:
        """The categories of chunks that the first stage takes."""
        return categories_of(self._stages[0])

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Whether the first stage can take the chunks: the others get only its summary."""
        return self._stages[0].can_compact(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """The last stage's summary, with the models and the usage of all."""
        result = await _ask(self._stages[0], chunks, context)
        models, usage = [result.model], result.usage
        for stage in self._stages[1:]:
            given = [_as_chunk(n, line) for n, line in enumerate(result.lines)]
            if not stage.can_compact(given):
                continue
            cited = {chunk.id: line.sources for chunk, line in zip(given, result.lines, strict=True)}
            times = {c.id: _earliest(context.recorded_at, cited[c.id]) for c in given}
            step = replace(context, earlier=(), recorded_at={id_: at for id_, at in times.items() if at})
            result = await _ask(stage, given, step)
            result = replace(result, lines=tuple(_led_back(line, cited) for line in result.lines))
            models.append(result.model)
            usage = usage.plus(result.usage)
        return replace(result, model="+".join(dict.fromkeys(filter(None, models))), usage=usage)


async def _ask(stage: Compactor, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
    result = await stage.compact(chunks, context)
    check_result(stage.name, result)
    return result


def _as_chunk(n: int, line: SummaryLine) -> Chunk:
    """A line as a chunk; no event has the seq 0, so its id is unique."""
    chunk = Chunk(
        id=f"0.{n}",
        type=ChunkType.COMPACTED,
        lines=(line,),
        retention=Retention.COMPRESSIBLE,
        category=Category.MEMORY,
        parent_ids=line.sources,
    )
    return replace(chunk, tokens=estimate_chunk(chunk))


def _earliest(recorded_at: Mapping[str, str], sources: Sequence[str]) -> str:
    return min((recorded_at[source] for source in sources if source in recorded_at), default="")


def _led_back(line: SummaryLine, cited: Mapping[str, Sequence[str]]) -> SummaryLine:
    """The line with the sources of the lines it cites. If one of these has no sources, nor has the result."""
    found: list[str] = []
    for source in line.sources:
        origins = cited.get(source, (source,))
        if not origins:
            return replace(line, sources=())
        found += origins
    return replace(line, sources=tuple(dict.fromkeys(found)))
