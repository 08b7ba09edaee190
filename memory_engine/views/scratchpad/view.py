"""The scratchpad: a conversation's findings in sentences, always in context; the least recently used are dropped.

In the state it is a container, with its snippets in order of use.
"""

from collections.abc import Iterable

import msgspec
from attrs import frozen

from memory_engine.core.arguments import checked_name, checked_text
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType, Retention
from memory_engine.core.operations import Add, Delete, Operation, Reorder
from memory_engine.core.records import Receipt
from memory_engine.core.reduction import ReduceContext, Reduction
from memory_engine.core.state import State, StateView
from memory_engine.errors import IdempotencyConflict, InvalidEvent
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.scratchpad.events import ScratchpadRemoved, ScratchpadWritten

SCRATCHPAD = "scratchpad"


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `id` is its chunk's id, `seq` that of the event that wrote it; `flow` says which flow found it.

    `recalled`: it came from memory (a playbook), not from this conversation.
    """

    id: str
    text: str
    flow: str
    seq: int
    recalled: bool


class Scratchpad:
    """Reads come from memory. The snippets live in the thread's state, in the order of their last use."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def write(self, text: str, *, flow: str = "", recalled: bool = False, event_id: str = "") -> Snippet:
        """Add a snippet: one or a few sentences that a flow found out. Raises `InvalidEvent` for an empty one.

        Above the cap (`EngineConfig.scratchpad_snippets_max`, 64) the least recently used snippet is dropped. With your
        own `event_id`, writing again returns the first snippet; another text under it raises `IdempotencyConflict`.
        """
        checked_text("event_id", event_id)
        if not str(text).strip():  # dispatch refuses anything that is not a text
            raise InvalidEvent(ScratchpadWritten.event_type, "content", "a snippet says something; this one is empty")
        reads = self._reads()
        read, before = tuple(reads), dict(reads)
        cap = self._thread.kernel.config.scratchpad_snippets_max
        event = ScratchpadWritten(content=text, flow=flow, read=read, cap=cap, recalled=recalled)
        try:
            receipt: Receipt = await self._thread.dispatch(event, event_id=event_id)
        except IdempotencyConflict:
            written = await self._written(event, event_id)
            if written is None:
                raise
            return written
        for chunk_id in before:
            reads.pop(chunk_id, None)
        chunk = receipt.chunks[-1]
        return Snippet(id=chunk.id, text=chunk.text, flow=chunk.label, seq=receipt.seq, recalled=recalled)

    async def _written(self, event: ScratchpadWritten, event_id: str) -> Snippet | None:
        """The snippet of an earlier attempt, if that said the same: the reads before it may differ."""
        kernel = self._thread.kernel
        for stored in await kernel.store.find(self._thread.id, [event_id]):
            recorded = kernel.reader.decode(self._thread.id, stored)
            first = recorded.event
            if isinstance(first, ScratchpadWritten) and (first.content, first.flow, first.recalled) == (
                event.content,
                event.flow,
                event.recalled,
            ):
                chunk = recorded.chunks[-1]
                return Snippet(
                    id=chunk.id, text=chunk.text, flow=chunk.label, seq=recorded.seq, recalled=first.recalled
                )
        return None

    async def read(self, *, flow: str | None = None, at: int | None = None) -> tuple[Snippet, ...]:
        """The snippets, oldest first: all, or those of a flow. Reading some but not others counts as using them.

        `at`: as of an earlier seq; that does not count as use.
        """
        checked_name("flow", flow)
        if at is not None:
            return _chosen(snippets_of(await self._thread.state(at=at)), flow)
        found = self._current(await self._thread.state())
        if flow is not None:
            found = _chosen(found, flow)
            self._use(found)
        return found

    async def get(self, snippet_id: str) -> Snippet | None:
        """One snippet by id; this counts as using it."""
        checked_text("snippet_id", snippet_id)
        found = tuple(s for s in self._current(await self._thread.state()) if s.id == snippet_id)
        self._use(found)
        return found[0] if found else None

    async def remove(self, *snippet_ids: str) -> None:
        """Remove snippets."""
        if snippet_ids:
            await self._thread.dispatch(ScratchpadRemoved(chunk_ids=snippet_ids))

    async def clear(self) -> None:
        """Remove all snippets."""
        await self._thread.dispatch(ScratchpadRemoved(all=True))

    def _reads(self) -> dict[str, None]:
        """The snippets read since the last write, in order. The next write logs them, and evicts by them."""
        return self._thread.kernel.caches.made(self._thread.id, "scratchpad reads", _no_reads)

    def _use(self, used: Iterable[Snippet]) -> None:
        reads = self._reads()
        for snippet in used:
            reads.pop(snippet.id, None)
            reads[snippet.id] = None

    def _current(self, state: State) -> tuple[Snippet, ...]:
        """The snippets of the state at hand, made once for each state."""
        caches = self._thread.kernel.caches
        cached = caches.get(self._thread.id, SCRATCHPAD, _Cached)
        if cached is None or cached.state is not state:
            cached = _Cached(state, snippets_of(state))
            caches.put(self._thread.id, SCRATCHPAD, cached)
        return cached.snippets


@frozen(eq=False)
class _Cached:
    state: State
    snippets: tuple[Snippet, ...]


def _no_reads() -> dict[str, None]:
    return {}


def snippets_of(view: StateView) -> tuple[Snippet, ...]:
    """The snippets in a state, oldest first."""
    container = view.named(SCRATCHPAD)
    if container is None:
        return ()
    found = [
        Snippet(id=c.id, text=c.text, flow=c.label, seq=_written_at(c), recalled=c.status == RECALLED)
        for c in view.children(container.id)
    ]
    return tuple(sorted(found, key=lambda snippet: snippet.seq))


def _written_at(chunk: Chunk) -> int:
    """The seq of the event that wrote a snippet, also of one that was marked critical since."""
    return min((int(parent_id.partition(".")[0]) for parent_id in chunk.parent_ids), default=chunk.seq)


def _chosen(found: Iterable[Snippet], flow: str | None) -> tuple[Snippet, ...]:
    return tuple(snippet for snippet in found if flow is None or snippet.flow == flow)


def reduce_scratchpad_written(view: StateView, event: ScratchpadWritten, ctx: ReduceContext) -> Reduction:
    """Snippets that were read move to the end, the new one follows, and the least recently used are dropped."""
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    container = view.named(SCRATCHPAD)
    order = dict.fromkeys(child.id for child in view.children(container.id)) if container is not None else {}
    if container is None:
        container = _protected_chunk(
            Chunk(id=ctx.new_id(), type=ChunkType.SCRATCHPAD, name=SCRATCHPAD, is_container=True)
        )
        chunks.append(container)
        operations.append(Add(container.id))
    for chunk_id in event.read:
        if chunk_id in order:
            del order[chunk_id]
            order[chunk_id] = None
            operations.append(Reorder(chunk_id))
    snippet = _protected_chunk(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.SNIPPET,
            content=event.content,
            label=event.flow,
            status=RECALLED if event.recalled else "",
        )
    )
    chunks.append(snippet)
    operations.append(Add(snippet.id, container=container.id))
    excess = len(order) + 1 - max(1, event.cap)
    operations += [Delete(chunk_id) for chunk_id in list(order)[: max(0, excess)]]
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def reduce_scratchpad_removed(view: StateView, event: ScratchpadRemoved, _ctx: ReduceContext) -> Reduction:
    """Removes snippets; those already gone are skipped."""
    container = view.named(SCRATCHPAD)
    if container is None:
        return Reduction()
    there = [child.id for child in view.children(container.id)]
    gone = there if event.all else [chunk_id for chunk_id in there if chunk_id in event.chunk_ids]
    return Reduction(operations=tuple(Delete(chunk_id) for chunk_id in gone))


def _protected_chunk(chunk: Chunk) -> Chunk:
    """The chunk as one that no compaction takes: only use, or its absence, removes a snippet."""
    return Chunk(
        id=chunk.id,
        type=chunk.type,
        content=chunk.content,
        retention=Retention.COMPRESSIBLE,
        category=Category.SCRATCHPAD,
        name=chunk.name,
        label=chunk.label,
        status=chunk.status,
        is_container=chunk.is_container,
    )
