"""What a context is made of: the chunks of a state, of one with an index, or an arrangement in place of those."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from attrs import frozen

from memory_engine.context.flow import TRAILING
from memory_engine.context.flow_index import FlowIndex
from memory_engine.core.chunks import Chunk
from memory_engine.core.state import State


class ChunkSource(Protocol):
    """The chunks that a context is made of: a state, or an arrangement of chunks in its place."""

    @property
    def seq(self) -> int:
        """The last event that it holds."""
        ...

    def chunks(self) -> Iterable[Chunk]:
        """The chunks, in order."""
        ...

    def children(self, chunk_id: str) -> Iterable[Chunk]:
        """The chunks in a container, in order."""
        ...

    def in_order(self, chunk_ids: Iterable[str]) -> Sequence[str]:
        """Those of the ids whose chunks are here, in order."""
        ...


@frozen
class Arranged:
    """Chunks in place of those that flow in a state; those that stand last are the state's own."""

    state: State
    flowing: Sequence[Chunk]

    @property
    def seq(self) -> int:
        """The last event that the state holds."""
        return self.state.seq

    def chunks(self) -> Iterator[Chunk]:
        """The chunks, in order."""
        yield from self.flowing
        yield from (chunk for chunk in self.state.chunks() if chunk.category in TRAILING)

    def children(self, chunk_id: str) -> Iterable[Chunk]:
        """The chunks in a container, in order."""
        return self.state.children(chunk_id)

    def in_order(self, chunk_ids: Iterable[str]) -> Sequence[str]:
        """Those of the ids whose chunks are here, in order."""
        wanted = set(chunk_ids)
        return [chunk.id for chunk in self.chunks() if chunk.id in wanted]


@frozen
class Indexed:
    """A state with the index of its thread: of the state only what is new, or shown, is read."""

    state: State
    index: FlowIndex

    @property
    def seq(self) -> int:
        """The last event that the state holds."""
        return self.state.seq

    def chunks(self) -> Iterable[Chunk]:
        """The chunks, in order."""
        return self.state.chunks()

    def children(self, chunk_id: str) -> Iterable[Chunk]:
        """The chunks in a container, in order."""
        return self.state.children(chunk_id)

    def in_order(self, chunk_ids: Iterable[str]) -> Sequence[str]:
        """Those of the ids whose chunks are here, in order."""
        return self.state.in_order(chunk_ids)
