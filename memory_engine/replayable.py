"""Looking back: what every thread's handle, and every engine, can do with a log that is there."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from memory_engine.moments import Moment
from memory_engine.replay.verify import Progress, VerifyReport

if TYPE_CHECKING:
    from memory_engine.compaction.base import Compactor
    from memory_engine.compaction.running import CompactionReport
    from memory_engine.context.builder import Context
    from memory_engine.engine import Engine
    from memory_engine.past import Past
    from memory_engine.records import Receipt, RecordedEvent
    from memory_engine.replay.anchors import Anchor
    from memory_engine.replay.bisecting import Bisection
    from memory_engine.replay.diff import Diff
    from memory_engine.replay.exporting import ExportReport
    from memory_engine.replay.importing import ImportReport
    from memory_engine.replay.ledger import CacheLedger
    from memory_engine.replay.redaction import Redaction
    from memory_engine.replay.what_if import Change, WhatIfReport
    from memory_engine.replay.why import Why
    from memory_engine.thread import Thread


class Replayable:
    """A handle whose thread can be looked at as it was, explained, and run again in a fork."""

    id: str
    _engine: "Engine"
    _last: int | None = None
    """The seq that stands for the head where one looks at the past."""

    @property
    def _thread(self) -> "Thread":
        return self._engine.thread(self.id)

    async def at(self, moment: Moment) -> "Past":
        """The thread as it was: state, context and every view, read-only.

        A moment is a seq (0: before the first event), an event's id, or a time with a zone: then it is after the last
        event that was recorded no later. Raises `SeqNotInLog`, `EventNotFound`.
        """
        from memory_engine.past import Past

        return await Past.of(self._engine, self.id, moment)

    async def diff(self, a: Moment, b: Moment | None = None) -> "Diff":
        """What changed from one moment to another (default: the head): chunks, fields, context, views."""
        from memory_engine.replay.diff import diff

        return await diff(await self.at(a), await self._at_or_head(b))

    async def bisect(
        self,
        predicate: "Callable[[Past], bool | Awaitable[bool]]",
        *,
        after: Moment = 0,
        upto: Moment | None = None,
        progress: Progress | None = None,
    ) -> "Bisection":
        """The first event after which `predicate` holds, by halving: it must not hold at `after`, and hold at `upto`.

        It is asked about 17 times in 100,000 events. Raises `NothingToBisect` where it holds at once, or not at all.
        """
        from memory_engine.replay.bisecting import bisect

        return await bisect(await self.at(after), await self._at_or_head(upto), predicate, progress)

    async def why(self, what: "str | Context") -> "Why":
        """What is behind a chunk (by id) or behind each block of a context: a tree that ends at events.

        Raises `UnknownChunk`.
        """
        from memory_engine.replay.why import why

        return await why(self._thread, what)

    async def cache_ledger(
        self,
        *,
        after: Moment = 0,
        upto: Moment | None = None,
        max_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> "CacheLedger":
        """Which events changed what a provider's prompt cache held: at which byte, for how many tokens.

        The context of each model call after `after` up to `upto` (default: the head) is compared with that of the call
        before; `max_tokens` is the budget they were asked for with.
        """
        from memory_engine.replay.ledger import cache_ledger

        return await cache_ledger(await self.at(after), await self._at_or_head(upto), max_tokens, progress)

    async def what_if(self, change: "Change", *, fork_id: str = "", progress: Progress | None = None) -> "WhatIfReport":
        """Run the log again into a fork under other reducers, compactors, thresholds or edits; this thread stays as is.

        No model is called unless the change says so. Raises `InvalidChange`, `ModelNotAllowed`, `ThreadExists`, and
        `ReducerError` naming the event that the changed reducers refuse.
        """
        from memory_engine.replay.what_if import what_if

        if self._last is not None and change.upto is None:
            change = evolve(change, upto=self._last)
        return await what_if(self._thread, change, fork_id=fork_id, progress=progress)

    async def undo_compaction(self, compaction: str = "", *, reason: str = "") -> "Receipt":
        """Put the originals back where a compaction's summaries stand: by its id, a summary's id, or the latest.

        What was forgotten since stays forgotten. Raises `CompactionNotLive` where later ones cover it.
        """
        from memory_engine.compaction.undoing import undo_compaction

        return await undo_compaction(self._thread, compaction, reason=reason)

    async def redo_compaction(
        self, compaction: str = "", *, compactor: "Compactor | None" = None
    ) -> "CompactionReport":
        """Compact the originals of a compaction again, never its summary; undone or not.

        With `compactor`, by that one alone. Raises `CompactionNotLive`, and what `compact` raises.
        """
        from memory_engine.compaction.undoing import redo_compaction

        return await redo_compaction(self._thread, compaction, compactor=compactor)

    async def export(
        self,
        path: str | Path,
        *,
        upto: Moment | None = None,
        redaction: "Redaction | None" = None,
        progress: Progress | None = None,
    ) -> "ExportReport":
        """Write the log to one file of JSON lines (gzip if it ends in `.gz`): events, operations, hashes.

        With a `redaction` the file holds what it leaves, and the chain verifies as redacted. Raises `FileExistsError`.
        """
        from memory_engine.replay.exporting import export

        until = self._last if upto is None else upto
        return await export(self._thread, Path(path), upto=until, redaction=redaction, progress=progress)

    async def anchor(self, at: Moment | None = None) -> "Anchor":
        """The hash of the log at a moment (default: the head), to be kept elsewhere and compared later."""
        from memory_engine.replay.anchors import anchor

        return await anchor(await self._at_or_head(at))

    async def to_pytest(self, first: Moment, last: Moment | None = None, *, name: str = "") -> str:
        """The source of a test that runs the events from `first` to `last` on the state before them, and compares."""
        from memory_engine.replay.to_pytest import to_pytest

        return await to_pytest(await self.at(first), await self._at_or_head(last), name=name)

    async def _at_or_head(self, moment: Moment | None) -> "Past":
        if moment is None:
            moment = (await self._engine.store.head(self.id)).seq if self._last is None else self._last
        return await self.at(moment)


class ReplayableStore:
    """An engine whose logs can be checked, carried elsewhere, and read across threads."""

    async def verify(
        self, thread_ids: Collection[str] | None = None, progress: Progress | None = None
    ) -> list[VerifyReport]:
        """Verify the given threads, or all (see `Thread.verify`)."""
        engine = self._engine
        if thread_ids is None:
            thread_ids = [info.id for info in await engine.threads()]
        reports = []
        done = 0
        for thread_id in thread_ids:
            report = await engine.thread(thread_id).verify(None if progress is None else _from(progress, done))
            done += report.events
            reports.append(report)
        return reports

    async def import_log(
        self, path: str | Path, *, thread_id: str = "", progress: Progress | None = None
    ) -> "ImportReport":
        """Make a thread of a file that `Thread.export` wrote: the same events, operations and hashes.

        `thread_id` (default: as it was) may be a thread that holds a beginning of this very log: it goes on from there.
        The whole file is checked first. Raises `ImportRefused` with the line and the reason, `ThreadExists`.
        """
        from memory_engine.replay.importing import import_log

        return await import_log(self._engine, Path(path), thread_id=thread_id, progress=progress)

    async def anchors(self) -> "list[Anchor]":
        """An anchor of each thread's head, in the order in which the threads were made."""
        return [await self._engine.thread(info.id).anchor() for info in await self._engine.threads()]

    async def check_anchors(self, anchors: "Sequence[Anchor]") -> "list[Anchor]":
        """Those of the anchors that the logs here do not bear out: another hash at that seq, or no such thread."""
        from memory_engine.replay.anchors import check_anchors

        return await check_anchors(self._engine, anchors)

    async def correlated(self, correlation_id: str, *, limit: int | None = None) -> "list[RecordedEvent]":
        """The events that bear a correlation id, of all threads, in the order in which they were recorded.

        `limit` keeps the latest N. Events that forks share come once, from the thread that recorded them.
        """
        engine = self._engine
        found = await engine.store.correlated(correlation_id, limit=limit)
        return [engine.reader.decode(thread_id, stored) for thread_id, stored in found]

    @property
    def _engine(self) -> "Engine":
        return self  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # the one class that takes it


def _from(progress: Progress, done: int) -> Progress:
    return lambda count: progress(done + count)
