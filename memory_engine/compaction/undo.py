"""Undoing compactions, and repeating them from their originals.

The chunks that an undo restores, their versions and their places are a pure function of two states and the events
between them.
"""

from collections.abc import Iterator, Mapping

from attrs import frozen

from memory_engine.compaction.assignment import Again, checked_compactor
from memory_engine.compaction.base import Compactor
from memory_engine.compaction.history import (
    Aftermath,
    Compaction,
    LogOriginals,
    Steps,
    read_aftermath,
    shown_steps,
    summary_root,
    with_fate,
)
from memory_engine.compaction.plan import Plan, plan_manual
from memory_engine.compaction.protocol import CompactionReport
from memory_engine.compaction.service import CompactionService
from memory_engine.core.arguments import checked_text
from memory_engine.core.chunks import Chunk, ChunkType, Retention
from memory_engine.core.events.compaction import CompactionUndone, RestoredChunk
from memory_engine.core.lazy import regex
from memory_engine.core.lineage import Fate
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.core.state import State
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors import CompactionNotLive
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.reader import LogReader
from memory_engine.store.walk import spans_back


@frozen
class _RestorePlace:
    """Place directly before or after another chunk; the first place if neither is given."""

    before: str = ""
    after: str = ""


def restored_chunks(before: State, aftermath: Aftermath, taken: Mapping[str, str]) -> tuple[RestoredChunk, ...]:
    """Return the chunks to restore, each after its anchor.

    `before` is the state before the compaction. `taken` maps the id of each chunk that the compaction took to the id of
    the summary that represents it now (`""`: it was dropped). Chunks that were forgotten since, or removed with their
    session, are left out.
    """
    return tuple(_Restoring(before, aftermath, taken).all())


class _Restoring:
    """A single pass over the state before a compaction."""

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
        """Yield the chunks to restore among the children of a container, whose id in the current state is `now`.

        They keep their original order: each goes after a sibling that is still in this container. The first chunk that
        a summary represents goes before the summary.
        """
        place = _RestorePlace()
        passed: set[str] = set()
        for chunk in self._before.children(container) if container else self._before.chunks():
            if chunk.id not in self._taken:
                standing = self._aftermath.standing(chunk.id)
                placed = self._now.placed_at(standing)
                if placed is not None and placed.container == now:
                    place = _RestorePlace(after=standing)
                continue
            summary = self._taken[chunk.id]
            if summary and summary not in passed:
                passed.add(summary)
                place = _RestorePlace(before=summary)
            found = self._kept(chunk)
            if found is not None:
                yield self._restored(found, now, place)
                yield from self._children(chunk.id)
                place = _RestorePlace(after=chunk.id)

    def _children(self, container: str) -> Iterator[RestoredChunk]:
        """Yield the contents of a restored chunk, in order, at any depth."""
        place = _RestorePlace()
        for chunk in self._before.children(container):
            found = self._kept(chunk)
            if found is not None:
                yield self._restored(found, container, place)
                yield from self._children(chunk.id)
                place = _RestorePlace(after=chunk.id)

    def _kept(self, chunk: Chunk) -> Chunk | None:
        """Return the chunk after later forgettings; `None` if nothing is left."""
        if chunk.retention is Retention.EPHEMERAL and self._aftermath.sessions_ended:
            return None
        return self._aftermath.forgettings.kept(chunk, since=self._before.seq)

    def _restored(self, chunk: Chunk, container: str, place: _RestorePlace) -> RestoredChunk:
        is_taken = chunk.name and self._now.named(chunk.name) is not None
        return to_restore(chunk, container, before=place.before, after=place.after, name="" if is_taken else chunk.name)


def to_restore(
    chunk: Chunk, container: str = "", *, before: str = "", after: str = "", name: str | None = None
) -> RestoredChunk:
    """Return the event form of a chunk to restore, at this place and under this name (default: the chunk's own)."""
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
        name=chunk.name if name is None else name,
        final=chunk.final,
        response_id=chunk.response_id,
        status=chunk.status,
        native=chunk.native,
        native_tokens=chunk.native_tokens,
        is_container=chunk.is_container,
        container=container,
        before=before,
        after=after,
    )


def versions(chunk: Chunk) -> tuple[str, ...]:
    """Return the parent ids of a new version of a chunk: its id and its parents' ids; for a summary, only its id."""
    return (chunk.id,) if chunk.type == ChunkType.COMPACTED else (chunk.id, *chunk.parent_ids)


_CHUNK_ID = regex(r"[0-9]{1,18}\.[0-9]{1,18}")


async def undo_compaction(thread: ThreadHandle, compaction: str, *, reason: str) -> Receipt:
    """Restore the chunks that a compaction took, at the place of its summaries.

    `compaction` is its id, the id of one of its summaries, or empty for the latest that is not undone. Waits for a
    running compaction. Forgotten text is not restored. Raises `CompactionNotLive`, what `dispatch` raises, and
    `EventTooLarge` if the originals together exceed the maximum size of an event.
    """
    kernel = thread.kernel
    kernel.check_writable("a compaction")  # before a model is asked
    runtime = kernel[OpenThreads].get(thread.id) or await kernel[OpenThreads].open(thread.id)

    async def make() -> NewEvent:
        found = await _Found.of(kernel, _ThreadNow.of(runtime), compaction, undone=False)
        event = await found.undo(reason)
        event_id = f"undo:{event.compaction_id[:256]}:{event.completed}"
        if await kernel.store.find(thread.id, [event_id]):  # a what-if has replaced it with something else
            event_id = f"{event_id}:{event.seen}"
        return NewEvent(event, id=event_id)

    return await kernel[CompactionService].commit(runtime, make)


async def redo_compaction(thread: ThreadHandle, compaction: str, *, compactor: Compactor | None) -> CompactionReport:
    """Compact the originals of a compaction again, resolved through summaries of summaries, without a size limit.

    If the compaction is live, each of its summaries is replaced if the new one is shorter than the originals. If it was
    undone, the restored chunks are compacted. If `compactor` is given, only this one is used. Forgotten text is never
    compacted.

    Raises `CompactionNotLive`, `NothingToCompact`, `CompactorFailed` and `InvalidCompactor`.
    """
    if compactor is not None:
        checked_compactor(compactor)
    kernel = thread.kernel
    runtime = kernel[OpenThreads].get(thread.id) or await kernel[OpenThreads].open(thread.id)

    async def again() -> Again:
        found = await _Found.of(kernel, _ThreadNow.of(runtime), compaction, undone=True)
        return await found.again()

    return await kernel[CompactionService].redo(runtime, again, compactor)


async def undoing(thread: ThreadHandle, compaction: str, *, reason: str = "") -> CompactionUndone:
    """Return the event that would undo a compaction now. Nothing is written.

    Raises `CompactionNotLive` under the same conditions as `undo_compaction`.
    """
    kernel = thread.kernel
    head = await kernel.reader.head(thread.id)
    standing = _ThreadNow(thread.id, await kernel.reader.state_at(thread.id, head.seq), None)
    return await (await _Found.of(kernel, standing, compaction, undone=False)).undo(reason)


@frozen
class _ThreadNow:
    """Current state of a thread; `policy` is its own policy, if it has one."""

    id: str
    state: State
    policy: CompactionPolicy | None

    @classmethod
    def of(cls, runtime: ThreadRuntime) -> "_ThreadNow":
        return cls(runtime.id, runtime.state, runtime.record.policy)


@frozen
class _Found:
    """The compaction that the caller named, with the current state of the thread."""

    kernel: Kernel
    thread: _ThreadNow
    compaction: Compaction
    steps: Steps
    aftermath: Aftermath

    @classmethod
    async def of(cls, kernel: Kernel, thread: _ThreadNow, named: str, *, undone: bool) -> "_Found":
        """Find a compaction by its id or a summary's id, or take the latest; `undone` also allows an undone one."""
        found, steps = await _find_compaction(kernel.reader, thread, named, undone=undone)
        aftermath = await read_aftermath(kernel.reader, thread.id, thread.state, after=found.seq)
        return cls(kernel, thread, with_fate(found, steps, aftermath), steps, aftermath)

    def refused(self, why: str) -> CompactionNotLive:
        """Return the error that says why the operation is not possible."""
        return CompactionNotLive(self.thread.id, self.compaction.compaction_id, why)

    async def undo(self, reason: str) -> CompactionUndone:
        """Return the event that undoes the compaction. Raises `CompactionNotLive`."""
        compaction = self.compaction
        if compaction.status == "undone":
            raise self.refused(f"event {compaction.by} has undone it already")
        if compaction.status == "covered":
            raise self.refused(f"{self._later(compaction.by)} covers its summary: undo that first")
        taken: dict[str, str] = {}
        for replaced in compaction.replaced:
            standing = [fate.chunk_id for fate in map(self.aftermath.fate, replaced.summaries) if fate.chunk_id]
            if standing or not replaced.summaries:
                taken.update(dict.fromkeys(replaced.covers, standing[0] if standing else ""))
        if not taken:
            raise self.refused(f"its summary is gone{_since(compaction.by)}: what it covered stays away too")
        before = await self.kernel.reader.state_at(self.thread.id, compaction.seq - 1)
        return CompactionUndone(
            compaction_id=compaction.compaction_id,
            completed=compaction.seq,
            summaries=compaction.summaries,
            restored=restored_chunks(before, self.aftermath, taken),
            reason=reason,
            seen=self.thread.state.seq,
        )

    async def again(self) -> Again:
        """Return the chunks to compact in order to repeat the compaction. Raises `CompactionNotLive`."""
        compaction = self.compaction
        if compaction.status == "undone":
            return await self._undone_again()
        if compaction.status == "covered":
            raise self.refused(f"{self._later(compaction.by)} covers its summary: redo that, or undo it first")
        if not compaction.covered:
            raise self.refused("it dropped chunks and made no summary: undo it, to have them back")
        if compaction.status == "gone":
            raise self.refused(f"its summary is gone{_since(compaction.by)}")
        covered = {
            fate.chunk_id: replaced.covers
            for replaced in compaction.replaced
            for fate in map(self.aftermath.fate, replaced.summaries)
            if fate.status == "live"
        }
        afresh = await self._originals(covered)
        if not afresh:
            raise self.refused("everything that it covered was forgotten")
        critical = [one for one in afresh if self._is_critical(one)]
        if critical:
            raise self.refused(f"its summary {critical[0]} was marked CRITICAL: it is not compacted any more")
        return Again(Plan(singles=tuple(afresh)), afresh)

    async def _undone_again(self) -> Again:
        """Return the restored chunks that still exist; summaries among them are replaced by their originals."""
        fates = [self.aftermath.fate(chunk_id) for chunk_id in self.steps.restored[self.compaction.seq]]
        state = self.thread.state
        standing = {fate.chunk_id: chunk for fate in fates if (chunk := state.get(fate.chunk_id)) is not None}
        if not standing:
            raise self.refused(self._why_gone(fates))
        plan = plan_manual(state, self.thread.policy or self.kernel.config.compaction, list(standing))
        summaries = {
            chunk.id: chunk.parent_ids
            for chunk in standing.values()
            if chunk.lines and chunk.parent_ids and not self._is_critical(chunk.id)
        }
        afresh = await self._originals(summaries)
        if not plan.batch:
            return Again(Plan(drops=plan.drops, singles=(*plan.singles, *afresh)), afresh)
        together = {*plan.batch, *afresh}
        batch = tuple(chunk.id for chunk in state.chunks() if chunk.id in together)
        return Again(Plan(drops=plan.drops, singles=plan.singles, batch=batch), afresh)

    async def _originals(self, covered: dict[str, tuple[str, ...]]) -> dict[str, list[Chunk]]:
        """Return, by summary, the originals that were not forgotten. Summaries without any are left out."""
        forgettings = (await self.kernel.reader.forgotten(self.thread.id)).forgettings
        log = LogOriginals(self.kernel.reader, self.thread.id)
        found = {summary: await log.afresh(covers, forgettings) for summary, covers in covered.items()}
        return {summary: originals for summary, originals in found.items() if originals}

    def _is_critical(self, chunk_id: str) -> bool:
        chunk = self.thread.state.get(chunk_id)
        return chunk is not None and chunk.retention is Retention.CRITICAL

    def _why_gone(self, fates: list[Fate]) -> str:
        covered = [fate.seq for fate in fates if fate.status == "covered"]
        if covered:
            return f"it was undone, and {self._later(max(covered))} covers what came back: redo that"
        return "it was undone, and nothing of what came back stands any more"

    def _later(self, seq: int) -> str:
        """Return a description of the compaction whose result is at a seq."""
        names = [
            f"the later compaction {one.compaction_id!r} (event {seq})" for one in self.steps.finished if one.seq == seq
        ]
        return names[0] if names else f"event {seq}"


def _since(seq: int) -> str:
    return f" since event {seq}" if seq else ""


async def _find_compaction(
    reader: LogReader, thread: _ThreadNow, named: str, *, undone: bool
) -> tuple[Compaction, Steps]:
    """Return the named compaction and the steps since it, reading the log backwards only as far as needed.

    Raises `CompactionNotLive` if the compaction never completed or is unknown.
    """
    checked_text("compaction", named)
    root = await summary_root(reader, thread.id, named) if _CHUNK_ID.fullmatch(named) else ""
    upto, steps, found = thread.state.seq, Steps(), list[Compaction]()
    for after in spans_back(upto):
        steps = await shown_steps(reader, thread.id, upto, after)
        found = _compactions_named(steps.finished, named, root)
        standing = [one for one in found if undone or one.seq not in steps.undone]
        if standing:
            return standing[-1], steps
    if named and found:
        return found[-1], steps
    raise CompactionNotLive(thread.id, named, _why_none(steps, named))


def _compactions_named(finished: list[Compaction], named: str, root: str) -> list[Compaction]:
    """Return compactions with this id, else the one that made the summary `root`; without a name, all of them."""
    found = [one for one in finished if not named or one.compaction_id == named]
    return found or [one for one in finished if root and any(root in replaced.summaries for replaced in one.replaced)]


def _why_none(steps: Steps, named: str) -> str:
    """Return why no compaction in the whole log has this name."""
    if not named:
        return "no compaction of this thread stands"
    if named in steps.tries:
        tried = steps.tries[named]
        why = f"it came to nothing ({tried.reason}): nothing was replaced"
        return "it is not finished" if tried.status == "running" else why
    if _CHUNK_ID.fullmatch(named):
        return "the log holds no summary of this id"
    return "the log holds none of this id, and it is not the id of a summary"
