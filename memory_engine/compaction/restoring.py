"""What an undone compaction puts back: which chunks, as what, and where. Pure: of two states and what came between."""

from collections.abc import Iterator, Mapping

from attrs import frozen

from memory_engine.chunks import Chunk, ChunkType, Retention
from memory_engine.compaction.history import Aftermath
from memory_engine.events.compaction import RestoredChunk
from memory_engine.state import State


@frozen
class _Place:
    """Directly before or after another chunk; first of all where neither is given."""

    before: str = ""
    after: str = ""


def restored_chunks(before: State, aftermath: Aftermath, taken: Mapping[str, str]) -> tuple[RestoredChunk, ...]:
    """The chunks that come back, each after the one that it is placed by.

    `before` is the state that the compaction found. `taken` are the ids of what it took, each with that of the summary
    that stands for it now (`""`: it was dropped). Left out is what was forgotten since, and what went with its session.
    """
    return tuple(_Restoring(before, aftermath, taken).all())


class _Restoring:
    """One walk over the state that a compaction found."""

    def __init__(self, before: State, aftermath: Aftermath, taken: Mapping[str, str]) -> None:
        self._before = before
        self._now = aftermath.state
        self._aftermath = aftermath
        self._taken = taken

    def all(self) -> Iterator[RestoredChunk]:
        for container in dict.fromkeys(self._container(chunk_id) for chunk_id in self._taken):
            if not container:
                yield from self._within("", "")
                continue
            standing = self._aftermath.fate(container).chunk_id
            chunk = self._now.get(standing)
            if chunk is not None and chunk.is_container:
                yield from self._within(container, standing)

    def _container(self, chunk_id: str) -> str:
        placed = self._before.placed_at(chunk_id)
        return placed.container if placed is not None else ""

    def _within(self, container: str, now: str) -> Iterator[RestoredChunk]:
        """The chunks that come back among the siblings of a container, which is `now` in the state.

        In the old order: after what stands there still. The first that a summary stands for goes before the summary.
        """
        place = _Place()
        passed: set[str] = set()
        for chunk in self._before.children(container) if container else self._before.chunks():
            if chunk.id not in self._taken:
                standing = self._aftermath.standing(chunk.id)
                placed = self._now.placed_at(standing)
                if placed is not None and placed.container == now:
                    place = _Place(after=standing)
                continue
            summary = self._taken[chunk.id]
            if summary and summary not in passed:
                passed.add(summary)
                place = _Place(before=summary)
            found = self._kept(chunk)
            if found is not None:
                yield self._restored(found, now, place)
                yield from self._children(chunk.id)
                place = _Place(after=chunk.id)

    def _children(self, container: str) -> Iterator[RestoredChunk]:
        """What stood inside a chunk that comes back, in order, however deep."""
        place = _Place()
        for chunk in self._before.children(container):
            found = self._kept(chunk)
            if found is not None:
                yield self._restored(found, container, place)
                yield from self._children(chunk.id)
                place = _Place(after=chunk.id)

    def _kept(self, chunk: Chunk) -> Chunk | None:
        """What is left of a chunk by now; `None` for nothing."""
        if chunk.retention is Retention.EPHEMERAL and self._aftermath.sessions_ended:
            return None
        return self._aftermath.forgettings.kept(chunk, since=self._before.seq)

    def _restored(self, chunk: Chunk, container: str, place: _Place) -> RestoredChunk:
        return RestoredChunk(
            original=chunk.id,
            type=chunk.type,
            retention=chunk.retention.value,
            category=chunk.category.value,
            parent_ids=versions(chunk),
            content=chunk.content,
            calls=chunk.calls,
            lines=chunk.lines,
            call_id=chunk.call_id,
            label=chunk.label,
            name="" if chunk.name and self._now.named(chunk.name) is not None else chunk.name,
            final=chunk.final,
            response_id=chunk.response_id,
            status=chunk.status,
            is_container=chunk.is_container,
            container=container,
            before=place.before,
            after=place.after,
        )


def versions(chunk: Chunk) -> tuple[str, ...]:
    """A chunk and those it came from, which a new version of it leads back to. A summary leads on by itself."""
    return (chunk.id,) if chunk.type == ChunkType.COMPACTED else (chunk.id, *chunk.parent_ids)
