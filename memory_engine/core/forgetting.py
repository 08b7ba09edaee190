"""The effect of a forgetting on chunks: it reaches them by id or by event, their later versions, and summary lines."""

from collections.abc import Iterator, Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from memory_engine.core.chunks import REDACTED, Category, Chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.state import Placed, State, StateView
from memory_engine.core.tokens import estimate_chunk

WITHHELD = "(withheld: a source of this summary was forgotten)"


class Targets:
    """The chunks that one event forgets."""

    def __init__(self, event: MemoryForget) -> None:
        self._ids = frozenset(event.chunk_ids)
        self._event_seqs = event.seqs
        self._seqs = frozenset(map(str, event.seqs))
        self._summaries = frozenset(event.summaries)
        self._lines = frozenset(event.lines)

    def match(self, chunk_id: str) -> bool:
        """Whether the chunk of this id is among them."""
        # compared as text: a compactor may have given a source that is not a chunk id at all
        return chunk_id in self._ids or chunk_id.partition(".")[0] in self._seqs

    def may_reach(self, view: StateView) -> list[str]:
        """The ids of the chunks at the top that are worth a look, in order."""
        return view.in_order((*self._ids, *view.made_by(self._event_seqs), *view.derived()))

    def brought(self, chunk: Chunk) -> bool:
        """Whether the chunk, or an older version of it, is among them."""
        return self.match(chunk.id) or any(map(self.match, chunk.parent_ids))

    def shortened(self, summary: Chunk) -> Chunk | None:
        """A summary without its forgotten lines, under its old id; `None` where none of it is forgotten."""
        kept = self._lines_kept(summary)
        if kept == summary.lines and not self._concern(summary):
            return None
        return replace(summary, lines=kept, status=REDACTED)

    def _concern(self, summary: Chunk) -> bool:
        """Whether a summary covers something forgotten, directly or through another summary."""
        return summary.id in self._summaries or any(map(self._reach, summary.parent_ids))

    def _reach(self, chunk_id: str) -> bool:
        return chunk_id in self._summaries or self.match(chunk_id)

    def _lines_kept(self, chunk: Chunk) -> tuple[SummaryLine, ...]:
        """The lines that cite nothing forgotten. A line without citations may hold anything that is covered."""
        cited = [line for line in chunk.lines if not any(map(self._reach, line.sources))]
        if self._concern(chunk):
            cited = [line for line in cited if line.sources and line_digest(line) not in self._lines]
        return tuple(cited) or (SummaryLine(section="current_state", text=WITHHELD),)


def line_digest(line: SummaryLine) -> str:
    """The name by which a forgetting knows a line of a summary: it reveals nothing of the line."""
    return sha256(f"{line.section} {line.text} {' '.join(line.sources)}".encode("utf-8", "replace")).hexdigest()[:32]


def remainders(view: StateView, targets: Targets) -> Iterator[tuple[Chunk, Chunk | None]]:
    """The chunks of a state that a forgetting reaches, in order, each with its remainder (`None`: nothing).

    A container comes before its children, which go with it and are not named.
    """
    for chunk in filter(None, map(view.get, targets.may_reach(view))):
        shared = chunk.category is Category.SCRATCHPAD  # it came with the first snippet, and holds those of others
        if not shared and (targets.match(chunk.id) or (not chunk.lines and targets.brought(chunk))):
            yield chunk, None
        elif chunk.lines:
            kept = targets.shortened(chunk)
            if kept is not None:
                yield chunk, kept
        else:
            yield from ((child, None) for child in view.children(chunk.id) if targets.brought(child))


class Forgettings(msgspec.Struct, frozen=True):
    """Each forgetting of a log with its seq, in order."""

    each: Sequence[tuple[int, Targets]] = ()

    def after(self, seq: int) -> "Forgettings":
        """Those after a seq."""
        return Forgettings([one for one in self.each if one[0] > seq])

    def kept(self, chunk: Chunk, *, since: int) -> Chunk | None:
        """The remainder of a chunk that stood in the state at `since`: `None` if it is forgotten.

        Of a summary it is the lines without forgotten sources.
        """
        if chunk.is_container and chunk.category is Category.SCRATCHPAD:
            return chunk  # see `remainders`
        for seq, targets in self.each:
            if seq <= since:
                continue
            if targets.match(chunk.id) or (not chunk.lines and targets.brought(chunk)):
                return None
            if chunk.lines:
                chunk = targets.shortened(chunk) or chunk
        return chunk

    def hidden_in(self, state: State) -> State:
        """A state without what was forgotten after it. Chunks keep their ids and places, also shortened ones."""
        later = self.after(state.seq).each
        if not later:
            return state
        draft = state.draft()
        for _, targets in later:
            for chunk, kept in list(remainders(draft, targets)):
                placed = draft.placed_at(chunk.id)
                assert placed is not None
                draft.remove(placed)
                if kept is not None:
                    shorter = replace(kept, tokens=estimate_chunk(kept))
                    draft.insert(Placed(shorter, placed.key, placed.container))
        return draft.freeze(state.seq)
