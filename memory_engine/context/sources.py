"""Sources of a context's chunks: a state, a state with an index, or an arrangement of chunks in place of a state's."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from memory_engine.context.flow import TRAILING
from memory_engine.context.flow_index import FlowIndex
from memory_engine.core.chunks import Chunk
from memory_engine.core.state import State


class ChunkSource(Protocol):
    """The chunks that a context is made of: a state, or an arrangement of chunks in its place."""

    @property
    def seq(self) -> int:
        """Seq of the last event that the source contains."""
        ...

    def chunks(self) -> Iterable[Chunk]:
        """Return the chunks, in order."""
        ...

    def children(self, chunk_id: str) -> Iterable[Chunk]:
        """Return the chunks in a container, in order."""
        ...

    def in_order(self, chunk_ids: Iterable[str]) -> Sequence[str]:
        """Return the ids whose chunks are in the source, in order."""
        ...


class Arranged(msgspec.Struct, frozen=True):
    """Chunks that replace the flow of a state; the trailing chunks are the state's own."""

    state: State
    flowing: Sequence[Chunk]

    @property
    def seq(self) -> int:
        """Seq of the last event that the state contains."""
        return self.state.seq

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, in order."""
        yield from self.flowing
        yield from (chunk for chunk in self.state.chunks() if chunk.category in TRAILING)

    def children(self, chunk_id: str) -> Iterable[Chunk]:
        """Return the chunks in a container, in order."""
        return self.state.children(chunk_id)

    def in_order(self, chunk_ids: Iterable[str]) -> Sequence[str]:
        """Return the ids whose chunks are in the source, in order."""
        wanted = set(chunk_ids)
        return [chunk.id for chunk in self.chunks() if chunk.id in wanted]


class Indexed(msgspec.Struct, frozen=True):
    """A state with the index of its thread: only new and shown chunks of the state are read."""

    state: State
    index: FlowIndex

    @property
    def seq(self) -> int:
        """Seq of the last event that the state contains."""
        return self.state.seq

    def chunks(self) -> Iterable[Chunk]:
        """Return the chunks, in order."""
        return self.state.chunks()

    def children(self, chunk_id: str) -> Iterable[Chunk]:
        """Return the chunks in a container, in order."""
        return self.state.children(chunk_id)

    def in_order(self, chunk_ids: Iterable[str]) -> Sequence[str]:
        """Return the ids whose chunks are in the source, in order."""
        return self.state.in_order(chunk_ids)
