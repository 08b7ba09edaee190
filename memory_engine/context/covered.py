"""The originals behind the summaries of a state, read back from the log for the window to show.

Chunks never change, so what was read for a summary is kept as long as the summary exists. The newest originals are read
first, and only as many as a budget has room for.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import cast

import msgspec
from msgspec.structs import replace

from memory_engine.context.flow import TRAILING, Costed, cost
from memory_engine.context.invariants import Bonds
from memory_engine.context.rendering import Message
from memory_engine.core.chunks import Chunk, ChunkType, is_of_request
from memory_engine.store.reader import LogReader

PAGE = 64
"""Number of chunks read at once."""
SPARE = 1.25
"""Factor of the room's tokens to read: chunks carry estimates, which may be higher than the counter's result."""


class Covered(msgspec.Struct):
    """The newest originals behind some summaries, in order, as far as they have been read."""

    summaries: tuple[str, ...]
    _waiting: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    """Heap of the ids still to read, newest first."""
    _chunks: dict[tuple[int, int], Chunk] = msgspec.field(default_factory=dict)
    tokens: int = 0
    """Recorded tokens of the chunks that have been read."""
    _atoms: list[Costed] = msgspec.field(default_factory=list)
    _made_of: tuple[int, tuple[tuple[int, int], ...]] | None = None

    @classmethod
    def of(cls, summaries: Sequence[Chunk]) -> "Covered":
        """Create an instance for these summaries with nothing read yet."""
        covered = cls(tuple(summary.id for summary in summaries))
        for summary in summaries:
            covered._open(summary)
        return covered

    async def read(self, reader: LogReader, thread_id: str, room: int) -> None:
        """Read until the originals fill `room` tokens, or all have been read."""
        while self._waiting and self.tokens < room * SPARE:
            page = [heappop(self._waiting)[2] for _ in range(min(PAGE, len(self._waiting)))]
            self._take((await reader.shown(thread_id, page)).values())

    @classmethod
    def known(cls, chunks: Iterable[Chunk]) -> "Covered":
        """Create an instance from all originals, for callers that already have them."""
        covered = cls(())
        covered._take(chunks)
        return covered

    @property
    def chunks(self) -> list[Chunk]:
        """Chunks that have been read, in order."""
        return [self._chunks[place] for place in sorted(self._chunks)]

    def atoms(
        self,
        flowing: Sequence[Chunk],
        messages: Callable[[Chunk], Iterable[Message]],
        size: Callable[[Message], int],
    ) -> list[Costed]:
        """Return the atoms of the chunks read so far, in order, positioned among the chunks of a state."""
        places = sorted(self._chunks)
        if not places:
            return []
        anchors = tuple(_anchors(flowing, places[-1][0]))
        made_of = len(places), anchors
        if made_of != self._made_of:
            # a fraction between two positions of a state, which sorts like the other positions
            positions = cast("list[int]", _positions([seq for seq, _ in places], anchors))
            atoms = Bonds().read(self._chunks[place] for place in places).atoms()
            self._atoms = [_reposition(cost(atom, messages, size), positions) for atom in atoms]
            self._made_of = made_of
        return self._atoms

    def _take(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if chunk.type == ChunkType.COMPACTED:
                self._open(chunk)
            elif chunk.category not in TRAILING:
                self._chunks[_chunk_order(chunk.id)] = chunk
                self.tokens += chunk.tokens

    def _open(self, summary: Chunk) -> None:
        for chunk_id in summary.parent_ids:
            seq, n = _chunk_order(chunk_id)
            heappush(self._waiting, (-seq, -n, chunk_id))


def _reposition(one: Costed, positions: Sequence[int]) -> Costed:
    """Return an atom whose positions are replaced by the elements of `positions` at those indexes."""
    atom = replace(one.atom, positions=tuple(positions[n] for n in one.atom.positions))
    pieces = tuple(replace(piece, position=positions[piece.position]) for piece in one.pieces)
    return replace(one, atom=atom, pieces=pieces, spoken=positions[one.spoken] if one.spoken >= 0 else -1)


def _chunk_order(chunk_id: str) -> tuple[int, int]:
    seq, _, n = chunk_id.partition(".")
    return int(seq), int(n) if n.isdecimal() else 0


def _anchors(flowing: Sequence[Chunk], last: int) -> Iterable[tuple[int, int]]:
    """Yield the seqs and positions of a state's chunks that are not newer than the newest covered one."""
    for position, chunk in enumerate(flowing):
        if chunk.type == ChunkType.COMPACTED or is_of_request(chunk):
            continue
        if chunk.said_at > last:
            return
        yield chunk.said_at, position


def _positions(seqs: Sequence[int], anchors: Sequence[tuple[int, int]]) -> list[float]:
    """Return a position for each covered chunk: after the last older chunk of the state, before the next one."""
    said = [seq for seq, _ in anchors]
    step = 1 / (len(seqs) + 1)
    behind = [bisect_right(said, seq) for seq in seqs]
    return [(anchors[at - 1][1] if at else -1) + (n + 1) * step for n, at in enumerate(behind)]
