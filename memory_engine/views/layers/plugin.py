"""The plug-in of memory in layers."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from memory_engine.context.ownership import Viewer
from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.core.lazy import lazy_module
from memory_engine.core.state import Mark
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import MEMORY, SUMMARY, pieces
from memory_engine.runtime.scoped import ScopeHandle
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
from memory_engine.views.layers.viewers import is_doubtful, rows_for

if TYPE_CHECKING:
    from memory_engine.views.layers import origin
else:
    origin = lazy_module("memory_engine.views.layers.origin")

LOOKED_AT_MAX = 500
"""Entries of unknown origin, the newest, that a block looks up: each costs about a millisecond, once a process. Of
imported ones, a block shows no more: their texts are made for each context."""

_HEARD = "What this user has said of themselves:"
_WITH_IMPORTED = "What this user has said of themselves, and what other systems remembered of them:"

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


@PLUGIN.context_block("user_memory")
async def user_block(situation: Situation) -> StandingBlock | None:
    """The user's statements about themselves in their other conversations, the latest last.

    Memories of other systems are shown with their origin. Entries that an application appended are found by a question
    (`recall_from`).
    """
    user = await situation.user()
    if user is None:
        return None
    known = await _known(user)
    heard = [row for row in known if row.source_thread not in ("", situation.thread.id)]
    imported = list(islice((row for row in reversed(known) if _is_imported(row)), LOOKED_AT_MAX))
    lines = _new_lines(situation, user, sorted([*imported, *heard], key=lambda row: row.seq))
    return StandingBlock(name="user_memory", heading=_WITH_IMPORTED if imported else _HEARD, lines=lines)


@PLUGIN.context_block("agent_memory")
async def agent_block(situation: Situation) -> StandingBlock | None:
    """The agent's knowledge in a conversation, and its rules, the latest last.

    Nothing that another user said, whenever it was filed there.
    """
    agent = await situation.agent()
    if agent is None:
        return None
    viewer = Viewer(situation.user_id, situation.thread.id)
    known = await _known(agent)
    doubtful = [row for row in known if is_doubtful(row)]
    old = {row.seq for row in doubtful[:-LOOKED_AT_MAX]}
    rows = await rows_for(agent, (row for row in known if row.seq not in old), viewer)
    lines = _new_lines(situation, agent, rows)
    return StandingBlock(name="agent_memory", heading="What you know and go by:", lines=lines)


async def _known(memory: ScopeHandle) -> list[EntryRow]:
    """Facts and rules, the latest last."""
    rows = await memory.rows(LAYERS)
    keys = [*keys_of(rows, "semantic"), *keys_of(rows, "procedural")]
    return sorted((row for key in keys if (row := rows.get(key)) is not None), key=lambda row: row.seq)


def _new_lines(situation: Situation, memory: ScopeHandle, rows: Iterable[EntryRow]) -> tuple[StandingLine, ...]:
    """Recalled memory in the conversation is not shown a second time."""
    recalled = "\n".join(chunk.text for chunk in situation.state.marked(Mark.RECALLED))
    new = (row for row in rows if row.content not in recalled)
    return tuple(StandingLine(f"- {_layer_line(row)}", memory.id, row.seq) for row in new)


def _is_imported(row: EntryRow) -> bool:
    return not row.source_thread and '"imported"' in row.metadata and bool(_origin_note(row))


def _origin_note(row: EntryRow) -> str:
    """Where an entry comes from. Metadata is decoded only where it may say so: a context reads every fact."""
    return origin.origin_note(origin.metadata_in(row.metadata)) if '"origin"' in row.metadata else ""


def _layer_line(row: EntryRow) -> str:
    if note := _origin_note(row):
        named = row.key if row.key != row.event_id and '"imported"' not in row.metadata else ""
        name = row.condition or origin.imported_name(origin.metadata_in(row.metadata)) or named
        return " ".join(f"{name}: {row.content} ({note})".split() if name else f"{row.content} ({note})".split())
    name = row.condition if row.layer == "procedural" else row.key if row.key != row.event_id else ""
    return " ".join(f"{name}: {row.content}".split() if name else row.content.split())


@PLUGIN.passages(MemoryAppended)
def _memory_passages(event: MemoryAppended, seq: int) -> Extracted:
    own = event.key or event.entry_id if event.layer == "semantic" else ""
    key = f"{MEMORY}:{event.layer}:{own or seq}"
    said = f"{event.condition} → {event.content}" if event.condition else event.content
    about = _about(own, event.metadata)
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


def _about(own: str, metadata: Mapping[str, object]) -> str:
    """The words above a passage; for an imported entry, its name and where it comes from."""
    if note := origin.origin_note(metadata):
        name = origin.imported_name(metadata) if metadata.get("origin") == origin.IMPORTED else own.replace("_", " ")
        return ", ".join(filter(None, (name, note)))
    return " ".join(filter(None, (own.replace("_", " "), *_metadata_texts(metadata))))


def _metadata_texts(metadata: Mapping[str, object]) -> Iterator[str]:
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
