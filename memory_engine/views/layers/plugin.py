"""The plug-in of memory in layers."""

from collections.abc import Iterator, Mapping

from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.core.state import Mark
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import MEMORY, SUMMARY, pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.layers.events import (
    MemoryAppended,
    MemoryCleared,
    MemoryCompacted,
    MemoryGranted,
    MemoryRecalled,
    MemoryRemoved,
    MemoryRevoked,
    MemoryShared,
    ResultsOffloaded,
)
from memory_engine.views.layers.fold import EPISODIC, LAYERS, EntryRow, keys_of
from memory_engine.views.layers.grants import GRANTS
from memory_engine.views.layers.offloads import reduce_memory_recalled, reduce_results_offloaded

PLUGIN = Plugin("layers")
PLUGIN.events += [MemoryAppended, MemoryRemoved, MemoryCompacted, MemoryCleared]
PLUGIN.events += [MemoryGranted, MemoryRevoked, MemoryShared]
PLUGIN.events += [MemoryRecalled, ResultsOffloaded]
PLUGIN.reducer(MemoryRecalled)(reduce_memory_recalled)
PLUGIN.reducer(ResultsOffloaded)(reduce_results_offloaded)
PLUGIN.silent(MemoryRecalled, MemoryRevoked, MemoryShared)
PLUGIN.projection(EPISODIC)
PLUGIN.projection(LAYERS)
PLUGIN.projection(GRANTS)


@PLUGIN.context_block("agent_memory")
async def _block(situation: Situation) -> StandingBlock | None:
    """What the agent of a conversation knows, and the rules it goes by, the latest last.

    What was put into the conversation as recalled memory is not said a second time.
    """
    agent = await situation.agent()
    if agent is None:
        return None
    rows = await agent.rows(LAYERS)
    keys = [*keys_of(rows, "semantic"), *keys_of(rows, "procedural")]
    entries = sorted((row for key in keys if (row := rows.get(key)) is not None), key=lambda row: row.seq)
    recalled = "\n".join(chunk.text for chunk in situation.state.marked(Mark.RECALLED))
    new = (row for row in entries if row.content not in recalled)
    lines = (StandingLine(f"- {_told(row)}", agent.id, row.seq) for row in new)
    return StandingBlock(name="agent_memory", heading="What you know and go by:", lines=tuple(lines))


def _told(row: EntryRow) -> str:
    name = row.condition if row.layer == "procedural" else row.key if row.key != row.event_id else ""
    return " ".join(f"{name}: {row.content}".split() if name else row.content.split())


@PLUGIN.passages(MemoryAppended)
def _entry(event: MemoryAppended, seq: int) -> Extracted:
    own = event.key or event.entry_id if event.layer == "semantic" else ""
    key = f"{MEMORY}:{event.layer}:{own or seq}"
    said = f"{event.condition} → {event.content}" if event.condition else event.content
    about = " ".join(filter(None, (own.replace("_", " "), *_values(event.metadata))))
    texts = tuple(
        Text(piece, MEMORY, key=key, origins=event.drawn_from, about=about, at_us=event.timestamp_us)
        for piece in pieces(said)
    )
    return Extracted(texts, keys=(key,) if own else ())


@PLUGIN.passages(MemoryCompacted)
def _entries_summarized(event: MemoryCompacted, _seq: int) -> Extracted:
    key = f"{SUMMARY}:{event.layer}:"
    texts = (Text(piece, SUMMARY, key=key, origins=line.seqs) for line in event.lines for piece in pieces(line.text))
    return Extracted(tuple(texts), keys=(key,))


def _values(metadata: Mapping[str, object]) -> Iterator[str]:
    for value in metadata.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from (part for part in value if isinstance(part, str))


@PLUGIN.passages(MemoryRemoved)
def _entries_removed(event: MemoryRemoved, _seq: int) -> Extracted:
    return Extracted(seqs=event.seqs, origins=event.seqs)


@PLUGIN.passages(MemoryCleared)
def _cleared(event: MemoryCleared, _seq: int) -> Extracted:
    return Extracted(prefixes=tuple(f"{kind}:{layer}:" for layer in event.layers for kind in (MEMORY, SUMMARY)))
