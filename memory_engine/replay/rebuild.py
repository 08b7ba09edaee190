"""Rebuild: make again what derives from the log, beside the old, and swap them in one commit. No reducer runs."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from attrs import define, field
from msgspec.structs import replace

from memory_engine.attempt import passage_step
from memory_engine.errors import ContentionError, HeadMoved, ReadOnly, UnknownView
from memory_engine.log import decode_row, fold, live_chunk
from memory_engine.persistence import CommitUnit, Head, LiveChunk, ProjectionChange, Store
from memory_engine.projections.base import Projection, event_types
from memory_engine.projections.refolding import Refolding
from memory_engine.reading import LogReader
from memory_engine.recall.passages import Extractors, PassageChange, PassageStep
from memory_engine.recall.storing import LookUp
from memory_engine.records import StoredEvent
from memory_engine.replay.checking.kept import dropped
from memory_engine.replay.verify import Progress
from memory_engine.state import State, StateDraft

if TYPE_CHECKING:
    from memory_engine.engine import Engine
    from memory_engine.runtime import ThreadRuntime


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was made again of a thread: rows by view, and passages of the search index (`None`: it was left alone)."""

    thread_id: str
    events: int
    chunks: int | None
    views: Mapping[str, int]
    passages: int | None

    def as_data(self) -> dict[str, object]:
        """Plain JSON values."""
        return msgspec.structs.asdict(self)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made again. `extractors` for the index of passages."""

    projections: Sequence[Projection[object]]
    state: bool = True
    extractors: Extractors | None = None

    @property
    def types(self) -> frozenset[str] | None:
        """The types of the events that count; `None` for all."""
        if self.state or self.extractors is not None:
            return None
        of_each = [event_types(projection) for projection in self.projections]
        return None if None in of_each else frozenset().union(*(types for types in of_each if types is not None))


@define
class _Remaking:
    """What derives from a thread's log up to `seq`, made again in memory."""

    store: Store
    reader: LogReader
    thread_id: str
    wanted: _Wanted
    seq: int = 0
    draft: StateDraft = field(factory=lambda: State().draft())
    seen: dict[str, int] = field(factory=dict)
    steps: list[PassageStep] = field(factory=list)
    refolding: Refolding = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.refolding = Refolding(self.wanted.projections, self.reader, self.thread_id)

    async def advance(self, upto: int, progress: Progress | None = None) -> None:
        """Read on. Raises `IntegrityError`, and `ReducerError` where a projection or an extractor fails."""
        async for page in self.reader.pages(self.thread_id, after=self.seq, upto=upto, types=self.wanted.types):
            if self.wanted.state:
                fold(self.draft, page, self.thread_id)
            for stored in page:
                self.seen[stored.type] = stored.seq
                self.refolding.apply(stored)
                self._index(stored)
            if progress is not None:
                progress(page[-1].seq)
        self.seq = upto

    def _index(self, stored: StoredEvent) -> None:
        if self.wanted.extractors is None:
            return
        event, _ = decode_row(self.thread_id, stored, self.reader.registry)
        step = passage_step(self.wanted.extractors, self.thread_id, event, stored)
        if step is not None:
            self.steps.append(step)

    async def put(self, head: Head) -> Head:
        """Put all in the place of the old, in one commit; the head with its counters and marks set right.

        Raises `HeadMoved` if somebody has written to the thread since.
        """
        rebuilt, live = head, {}
        if self.wanted.state:
            tally, registry = self.draft.tally, self.reader.registry
            marks = {name: seq for name, seq in self.seen.items() if name in head.marks or registry.tracks(name)}
            rebuilt = replace(head, chunks=tally.chunks, tokens=tally.tokens, marks=marks)
            live = await self._live()
        unit = CommitUnit(
            thread_id=self.thread_id,
            expected=head,
            head=rebuilt,
            live=live,
            projections=[*[await self._rows(projection) for projection in self.wanted.projections], self._dropped()],
            passages=PassageChange(0, head.seq, self.steps, afresh=True) if self.wanted.extractors else None,
        )
        await self.store.commit(unit)
        return rebuilt

    async def _live(self) -> dict[str, LiveChunk | None]:
        """The rows of the state; those that are not of it go."""
        stale = (row.chunk_id for row in (await self.store.load(self.thread_id)).live)
        live: dict[str, LiveChunk | None] = dict.fromkeys(stale)
        live.update((placed.chunk.id, live_chunk(placed)) for placed in self.draft.placed())
        return live

    async def _rows(self, projection: Projection[object]) -> ProjectionChange:
        _, former = await self.store.rows(projection.name, projection.version, self.thread_id)
        rows: dict[str, bytes | None] = dict.fromkeys(former)
        rows.update(self.refolding.rows[projection.name].encoded())
        return ProjectionChange(projection.name, projection.version, rows, self.seq)

    def _dropped(self) -> ProjectionChange:
        """Snapshots are made again when they are needed."""
        names = frozenset(projection.name for projection in self.wanted.projections)
        return dropped(self.seq, None if self.wanted.state else names)

    def report(self, passages: int | None) -> RebuildReport:
        rows = self.refolding.rows
        return RebuildReport(
            thread_id=self.thread_id,
            events=self.seq,
            chunks=self.draft.tally.chunks if self.wanted.state else None,
            views={projection.name: len(rows[projection.name]) for projection in self.wanted.projections},
            passages=passages,
        )


async def rebuild_thread(
    store: Store,
    reader: LogReader,
    thread_id: str,
    projections: Sequence[Projection[object]] = (),
) -> Head:
    """Write the live rows and every given projection's rows anew, in one pass over the log and one commit.

    Returns the head with its counters and marks set right. Raises `HeadMoved` if somebody writes
    to the thread meanwhile, `IntegrityError` where the recorded operations do not hold together.
    """
    head = await store.head(thread_id)
    remaking = _Remaking(store, reader, thread_id, _Wanted(projections=projections))
    await remaking.advance(head.seq)
    return await remaking.put(head)


async def rebuild(
    engine: "Engine",
    thread_id: str,
    views: Collection[str] | None = None,
    *,
    search: bool | None = None,
    progress: Progress | None = None,
) -> RebuildReport:
    """See `Thread.rebuild`."""
    if engine.config.read_only:
        raise ReadOnly("a rebuild")
    projections = chosen(engine.parts.projections, views)
    await engine.thread(thread_id).settle()
    runtime = engine.directory.get(thread_id) or await engine.directory.open(thread_id)
    with_index = (views is None if search is None else search) and await engine.recall.indexing.is_indexed(thread_id)
    wanted = _Wanted(projections=projections, state=views is None, extractors=engine.extractors if with_index else None)
    remaking = _Remaking(engine.store, engine.reader, thread_id, wanted)
    await remaking.advance((await engine.store.head(thread_id)).seq, progress)
    await _swap(engine, runtime, remaking)
    if not with_index:
        return remaking.report(None)
    engine.caches.drop(thread_id)
    engine.recall.embedding.touched(thread_id)
    await engine.recall.fold(thread_id)
    return remaking.report((await engine.store.passages.look_up(thread_id, LookUp())).passages)


def chosen(projections: Sequence[Projection[object]], names: Collection[str] | None) -> Sequence[Projection[object]]:
    """The projections of these names, or all. Raises `UnknownView`."""
    known = {projection.name: projection for projection in projections}
    for name in names or ():
        if name not in known:
            raise UnknownView(name, tuple(known))
    return projections if names is None else [known[name] for name in dict.fromkeys(names)]


async def _swap(engine: "Engine", runtime: "ThreadRuntime", remaking: _Remaking) -> None:
    """Read what has come meanwhile and commit, while no event of the thread does."""

    async def swap() -> None:
        head = await engine.store.head(runtime.id)
        await remaking.advance(head.seq)
        await remaking.put(head)
        if not runtime.queue.is_clear:
            await runtime.reload()  # who waits goes on with what was made

    for _ in range(engine.config.commit_tries_max):
        try:
            await runtime.exclusively(swap)
        except HeadMoved:  # another process has written meanwhile
            await runtime.exclusively(runtime.reload)
            continue
        if not engine.directory.let_go(runtime):
            await runtime.exclusively(runtime.reload)
        return
    raise ContentionError(runtime.id, engine.config.commit_tries_max)
