"""The plan of a compaction: which chunks it takes.

A plan takes whole, closed atoms, DISPOSABLE chunks first. It never takes CRITICAL chunks, chunks that are too new, or
the message that is being worked on.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from memory_engine.compaction.thresholds import exceeds, is_due, is_overdue
from memory_engine.context.invariants import Atom, atoms_of
from memory_engine.core.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.core.lazy import lazy_module
from memory_engine.core.origins import HEARD, SPOKEN
from memory_engine.core.state import State, Tally
from memory_engine.core.threads import CompactionPolicy

if TYPE_CHECKING:
    from memory_engine.formats import origin
else:
    origin = lazy_module("memory_engine.formats.origin")

SINGLE_TOKENS_MIN = 64
"""Minimum tokens of a COMPRESSIBLE chunk to compact alone: a summary of a smaller one would not be shorter."""
SUMMARY_TOKENS_MIN = 400
"""Tokens that a summary may always use, however small its share of the history is."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Chunk ids to drop, to replace one by one, and to replace together (in order).

    `outside` are chunks outside the working flow that a compactor takes by its declared categories.
    """

    drops: tuple[str, ...] = ()
    singles: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def chunk_ids(self) -> tuple[str, ...]:
        """Ids of all chunks that the plan touches."""
        return (*self.drops, *self.singles, *self.batch, *self.outside)

    def __bool__(self) -> bool:
        return bool(self.chunk_ids)


def plan_auto(state: State, policy: CompactionPolicy, incompressible: Collection[str] = ()) -> Plan:
    """Return the plan for a passed threshold; empty if no cut makes progress.

    Chunks that may not be taken count towards no limit: open atoms, the message being worked on, and COMPRESSIBLE
    chunks that a compactor could not shorten (`incompressible`). If dropping DISPOSABLE chunks is enough to get below
    the thresholds, the plan does nothing more. If the number of chunks triggers the compaction, the plan summarizes
    nothing that is no larger than a summary may be.
    """
    flow = working_flow(state)
    free = _free(flow)
    left = _countable(state.tally, flow, free, incompressible)
    if not (is_due(left, policy) or is_overdue(left, policy)):
        return Plan()
    kept = {chunk.id for chunk in flow[-policy.keep_recent :]} if policy.keep_recent else set()
    atoms = [a for a in free if not kept.intersection(c.id for c in a.chunks)]
    disposable = [chunk for atom in atoms if _is_disposable_atom(atom) for chunk in atom.chunks]
    if disposable and not is_due(left.without(disposable), policy):
        return Plan(drops=tuple(chunk.id for chunk in disposable))
    many = bool(policy.tokens_min) and not exceeds(left, policy.soft_tokens)
    bounds = _Bounds(tokens_over=SUMMARY_TOKENS_MIN if many else 0, incompressible=incompressible)
    return _plan(state, atoms, policy, bounds)


def countable(state: State, incompressible: Collection[str] = ()) -> Tally:
    """Return the counters of a state, whose compactable tokens exclude chunks that no compaction may take now."""
    flow = working_flow(state)
    return _countable(state.tally, flow, _free(flow), incompressible)


def _countable(tally: Tally, flow: Sequence[Chunk], free: Sequence[Atom], incompressible: Collection[str]) -> Tally:
    """Return the counters for a flow and its free atoms. Only the tokens change: the threshold counts all chunks."""
    takeable = {chunk.id for atom in free if _is_takeable(atom, incompressible) for chunk in atom.chunks}
    held = sum(chunk.tokens for chunk in flow if chunk.is_compactable and chunk.id not in takeable)
    return replace(tally, compactable_tokens=tally.compactable_tokens - held)


def _is_takeable(atom: Atom, incompressible: Collection[str]) -> bool:
    return all(chunk.is_compactable for chunk in atom.chunks) and atom.chunks[0].id not in incompressible


def plan_manual(state: State, policy: CompactionPolicy, chunk_ids: Collection[str] | None) -> Plan:
    """Return the plan for all compactable chunks, or for the given ones whose atoms may be taken (with their partners).

    A batch of a single chunk is taken only if `chunk_ids` is given.
    """
    atoms = _free(working_flow(state))
    if chunk_ids is None:
        return _plan(state, atoms, policy, _Bounds())
    wanted = set(chunk_ids)
    named = [atom for atom in atoms if wanted.intersection(chunk.id for chunk in atom.chunks)]
    return _plan(state, named, policy, _Bounds(batch_min=1))


def working_flow(state: State) -> list[Chunk]:
    """Return the working flow without containers that hold a CRITICAL chunk: these stay with their contents."""
    return [c for c in state.chunks() if c.category is Category.WORKING_FLOW and not _holds_critical(state, c)]


def _holds_critical(state: State, chunk: Chunk) -> bool:
    return chunk.is_container and any(
        child.retention is Retention.CRITICAL or _holds_critical(state, child) for child in state.children(chunk.id)
    )


def _free(flow: Sequence[Chunk]) -> list[Atom]:
    """Return the closed atoms, without the messages that are being worked on."""
    held = {chunk.id for chunk in worked_on(flow)}
    return [atom for atom in atoms_of(flow) if not atom.open and held.isdisjoint(chunk.id for chunk in atom.chunks)]


def worked_on(flow: Sequence[Chunk]) -> list[Chunk]:
    """Return the messages being worked on: the last of a person, and the client's last since then.

    Return an empty list if a final answer follows. A text is final if the agent makes no call in its response or after
    it, and no tool answers it. A text at the end of the flow may be continued: by its response, if the response has an
    id, or in a loop whose actions are texts. Thinking at the end is continued: its response has more to come, also if
    a text of it came before.
    """
    held: list[Chunk] = []
    answered = acts_in_text = False
    calling: set[str] = set()
    for chunk in flow:
        if chunk.type in SPOKEN:
            held, answered, acts_in_text = [chunk], False, False
        elif chunk.type in HEARD:
            asked = [] if answered else [one for one in held if one.type in SPOKEN]
            held, answered = [*asked, chunk], False
        elif chunk.calls:
            answered = False
            calling.update({chunk.response_id} - {""})
        elif chunk.type == ChunkType.OBSERVATION:
            answered, acts_in_text = False, True
        elif chunk.type == ChunkType.AGENT_RESPONSE:
            answered = chunk.response_id not in calling
    is_over = not flow or not (_is_begun(flow[-1]) or (acts_in_text and flow[-1].type == ChunkType.AGENT_RESPONSE))
    return [] if answered and is_over else held


def _is_begun(last: Chunk) -> bool:
    """Return True if the last chunk of a flow is thinking, or a text after which the loop may continue."""
    if last.type == ChunkType.THINKING:
        return True
    if last.type != ChunkType.AGENT_RESPONSE:
        return False
    form = None if last.response_id else origin.form_of(last.text)
    return bool(last.response_id) or (form is not None and form.sure)


class _Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a plan: minimum chunks of a batch, and tokens that the content of each summary must exceed."""

    batch_min: int = 2
    tokens_over: int = 0
    incompressible: Collection[str] = ()


def _plan(state: State, atoms: Sequence[Atom], policy: CompactionPolicy, bounds: _Bounds) -> Plan:
    """Return the plan for atoms. An atom is taken whole: its DISPOSABLE chunks are dropped only with the rest of it."""
    drops: list[str] = []
    singles: list[str] = []
    batch: list[Chunk] = []
    drops_with_batch: list[str] = []
    for atom in atoms:
        if not all(chunk.is_compactable for chunk in atom.chunks):
            continue
        if _is_disposable_atom(atom):
            drops += [chunk.id for chunk in atom.chunks]
        elif len(atom.chunks) == 1 and atom.chunks[0].retention is Retention.COMPRESSIBLE:
            single = atom.chunks[0]
            if (
                single.tokens >= max(SINGLE_TOKENS_MIN, bounds.tokens_over + 1)
                and single.id not in bounds.incompressible
            ):
                singles.append(single.id)
        else:
            batch += [chunk for chunk in atom.chunks if not _is_disposable_chunk(chunk)]
            drops_with_batch += [chunk.id for chunk in atom.chunks if _is_disposable_chunk(chunk)]
    is_large = sum(chunk.tokens for chunk in batch) > bounds.tokens_over
    if is_large and len(batch) + len(drops_with_batch) >= bounds.batch_min:
        drops += drops_with_batch
        order = {chunk.id: n for n, chunk in enumerate(state.chunks())}
        batch = sorted([*_summaries_to_merge(state, policy), *batch], key=lambda chunk: order[chunk.id])
    else:
        batch = []
    return Plan(drops=tuple(drops), singles=tuple(singles), batch=tuple(chunk.id for chunk in batch))


def _is_disposable_atom(atom: Atom) -> bool:
    return all(map(_is_disposable_chunk, atom.chunks))


def _is_disposable_chunk(chunk: Chunk) -> bool:
    """Return True if no summary needs to mention the chunk. Calls and results are mentioned at any retention."""
    return chunk.retention is Retention.DISPOSABLE and not (chunk.calls or chunk.call_id)


def _summaries_to_merge(state: State, policy: CompactionPolicy) -> list[Chunk]:
    """Return the summaries to merge once their total exceeds the limit; until then they and the prefix stay."""
    summaries = [c for c in state.chunks() if c.type == ChunkType.COMPACTED and c.retention is Retention.COMPRESSIBLE]
    return summaries if sum(chunk.tokens for chunk in summaries) > policy.summary_tokens_max else []
