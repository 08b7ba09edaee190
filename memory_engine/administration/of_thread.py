"""The verbs of a thread that look back, and those that administer it: `thread.replay` and `thread.admin`."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, cast

from attrs import evolve

from memory_engine.compaction.service import CompactionService
from memory_engine.context.context import Context
from memory_engine.core.arguments import PathLike, checked_call, checked_file, checked_flag
from memory_engine.core.aside import imported
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.memory import ExecutionResume, SessionEnded, ThreadCleared
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.records import Receipt, RecordedEvent
from memory_engine.core.threads import CompactionPolicy, ThreadInfo, as_metadata
from memory_engine.recall.service import Recall
from memory_engine.runtime import life
from memory_engine.runtime.handle import PastHandle, ThreadHandle
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.reader import MomentLike

if TYPE_CHECKING:
    from memory_engine.administration import erasing, holds
    from memory_engine.recall.index import IndexProgress
    from memory_engine.replay import anchors, bisect, diff, ledger, quarantine, rebuild, to_pytest, verify, why
    from memory_engine.replay import rereduce as rereduction
    from memory_engine.replay import what_if as trials
    from memory_engine.replay.divergence import VerifyReport
    from memory_engine.replay.export import export
    from memory_engine.replay.export.redaction import Redaction
    from memory_engine.replay.quarantine import Quarantine, QuarantineReport
    from memory_engine.replay.verify import VerifyProgress
else:
    erasing, holds = lazy_modules("memory_engine.administration", "erasing holds")
    anchors, bisect, diff, ledger, quarantine, rebuild, rereduction, to_pytest, trials, verify, why = lazy_modules(
        "memory_engine.replay", "anchors bisect diff ledger quarantine rebuild rereduce to_pytest what_if verify why"
    )
    export = lazy_module("memory_engine.replay.export.export")

P = TypeVar("P")


class Replay(Generic[P]):
    """Looks back at a thread: checks its log, explains it, runs it again, writes it out, derives its rows again."""

    def __init__(self, thread: ThreadHandle, past: Callable[[PastHandle], P] | None = None) -> None:
        """`past` makes what a predicate is given of a handle: the public face, or by default the handle itself."""
        self._thread = thread
        self._past = past

    async def chunk(self, chunk_id: str) -> Chunk:
        """A chunk by id, even one that a compaction covers. Raises `UnknownChunk`, `ForgottenChunk`."""
        return await self._thread.chunk(chunk_id)

    async def latest(self, limit: int) -> list[RecordedEvent]:
        """The latest `limit` events, oldest first."""
        return await self._thread.latest(limit)

    async def verify(self, progress: "VerifyProgress | None" = None) -> "VerifyReport":
        """Replay the log: hashes, operations, state and projections must come out the same. Writes nothing.

        If the log itself is broken (a gap, a hash, texts exchanged), that is noted: the thread takes no more events and
        shows no present, in any process, until a `verify` finds it intact again.
        """
        await imported(verify)
        report = await verify.Verifier.of(self._thread.kernel).verify(
            self._thread.id, checked_call("progress", progress)
        )
        if report.ok or report.broken is not None:
            await self._thread.kernel[OpenThreads].note(self._thread.id, report.broken)
        return report

    async def diff(self, a: MomentLike, b: MomentLike | None = None) -> "diff.Diff":
        """What changed from one moment to another (default: the head): chunks, fields, context, views."""
        await imported(diff)
        return await diff.diff(await self._thread.at(a), await self._at_or_last(b))

    async def why(self, what: str | Context, *, chunks_max: int | None = None) -> "why.Why":
        """Explain a chunk (by id) or each block of a context: a tree that ends at events.

        Levels are read as you open them: at most 500 chunks, or `chunks_max`; where `cut` says so, ask for the others
        by id. Raises `UnknownChunk`.
        """
        await imported(why)
        return await why.why(self._thread, what, chunks_max=chunks_max)

    async def bisect(
        self,
        predicate: "Callable[[P], bool | Awaitable[bool]]",
        *,
        after: MomentLike = 0,
        upto: MomentLike | None = None,
        progress: "VerifyProgress | None" = None,
    ) -> "bisect.Bisection":
        """The first event after which `predicate` holds, by bisection: it must be false at `after`, true at `upto`.

        It is called about 17 times in 100,000 events. Raises `NothingToBisect` if it holds at once, or never.
        """
        first, last = await self._thread.at(after), await self._at_or_last(upto)
        past = self._past or (lambda handle: cast("P", handle))
        return await bisect.bisect(first, last, lambda handle: predicate(past(handle)), progress)

    async def ledger(
        self,
        *,
        after: MomentLike = 0,
        upto: MomentLike | None = None,
        max_tokens: int | None = None,
        progress: "VerifyProgress | None" = None,
    ) -> "ledger.CacheLedger":
        """Which events changed what a provider's prompt cache held: at which byte, for how many tokens.

        Compares the context of each model call after `after` up to `upto` (default: the head) with that of the call
        before; `max_tokens` is the token budget of these contexts.
        """
        await imported(ledger)
        return await ledger.cache_ledger(
            await self._thread.at(after), await self._at_or_last(upto), max_tokens, progress
        )

    async def what_if(
        self, change: "trials.Change", *, fork_id: str = "", progress: "VerifyProgress | None" = None
    ) -> "trials.WhatIfReport":
        """Replay the log into a fork with other reducers, compactors, thresholds or edits; this thread stays unchanged.

        Calls no model unless the change says so. Raises `InvalidChange`, `ModelNotAllowed`, `ThreadExists`, and
        `ReducerError` naming the event that the changed reducers refuse.
        """
        await imported(trials)
        if self._thread.as_of is not None and change.upto is None:
            change = evolve(change, upto=self._thread.as_of)
        return await trials.what_if(
            ThreadHandle(self._thread.kernel, self._thread.id), change, fork_id=fork_id, progress=progress
        )

    async def to_pytest(self, first: MomentLike, last: MomentLike | None = None, *, name: str = "") -> str:
        """The source of a test that runs the events `first` to `last` on the state before them, and compares."""
        await imported(to_pytest)
        return await to_pytest.to_pytest(await self._thread.at(first), await self._at_or_last(last), name=name)

    async def anchor(self, at: MomentLike | None = None) -> "anchors.Anchor":
        """The hash of the log at a moment (default: the head), to keep elsewhere and compare later."""
        return await anchors.anchor(await self._at_or_last(at))

    async def export(
        self,
        path: PathLike,
        *,
        upto: MomentLike | None = None,
        redaction: "Redaction | None" = None,
        progress: "VerifyProgress | None" = None,
    ) -> "export.ExportReport":
        """Write the log to one file of JSON lines (gzip if the name ends in `.gz`): events, operations, hashes.

        A `redaction` leaves its texts out, and the chain verifies as redacted. Raises `FileExistsError`, `FileFailed`.
        """
        await imported(export)
        until = self._thread.as_of if upto is None else upto
        return await export.export(
            self._thread, checked_file("path", path), upto=until, redaction=redaction, progress=progress
        )

    async def rebuild(
        self,
        views: Collection[str] | None = None,
        *,
        search: bool | None = None,
        progress: "VerifyProgress | None" = None,
    ) -> ThreadInfo:
        """Derive all rows from the log again, next to the old ones, and replace those in one commit.

        The state's rows, every view and the search index; with `views` only the rows of those, and the index if
        `search` says so. Only what differs is written. If this raises or the process dies, the old rows stay.
        `progress` counts events read.

        Raises `UnknownView`, `IntegrityError` if the recorded operations are inconsistent, and `ContentionError` if
        other processes write without pause.
        """
        self._thread.check_present("rebuild")
        if search is not None:
            checked_flag("search", search)
        await imported(rebuild)
        await rebuild.rebuild(self._thread.kernel, self._thread.id, views, search=search, progress=progress)
        return await self._thread.info()

    async def rereduce(self, from_seq: int, *, dry_run: bool = False, reason: str = "") -> "rereduction.RereduceReport":
        """Repair a thread whose reducers were missing or wrong: reduce its events from `from_seq` on with today's.

        The state becomes what these return, by one event that `verify` knows and `undo_rereduce` takes back; what was
        recorded stays. `dry_run` only reports the differences. Use `rebuild` for views and the search index.

        Raises `CannotRereduce` if nothing differs, and for an event that today's reducers refuse, whose class is
        unknown or whose texts were taken out; `SeqNotInLog`, `ReadOnly`, `PastIsReadOnly`, the errors of `dispatch`.
        """
        self._thread.check_present("mending")
        await imported(rereduction)
        return await rereduction.rereduce(self._thread, from_seq, dry_run=dry_run, reason=reason)

    async def undo_rereduce(self, *, reason: str = "") -> Receipt:
        """Take back the latest `rereduce` in force: what it added is removed, what it removed comes back.

        Forgotten content remains forgotten. Raises `CannotRereduce` if there is none, or if a compaction covers
        what it added.
        """
        self._thread.check_present("undoing")
        return await rereduction.undo_rereduce(self._thread, reason=reason)

    async def _at_or_last(self, moment: MomentLike | None) -> "PastHandle":
        return await self._thread.at(await self._thread.last_seq() if moment is None else moment)


class Admin:
    """Acts on a thread as a whole: pausing, changing, archiving, erasing, holding. Each but `unarchive` is recorded."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def archive(self) -> None:
        """Take no more events, waiting ones included. The log stays readable, and `unarchive` opens it again."""
        if self._thread.as_of is None:
            await self._thread.kernel[CompactionService].settle(await self._thread.runtime())
        await life.archive(self._thread)

    async def unarchive(self) -> None:
        """Take events again, paused if it was paused before. Does nothing for a thread that is not archived.

        Raises `ContentionError` if other processes write without pause, `ThreadNotFound`.
        """
        await life.unarchive(self._thread)

    async def erase(  # noqa: PLR0913 - an act and what is said with it, by keyword
        self,
        event_ids: Sequence[str] = (),
        *,
        seqs: Sequence[int] = (),
        by: str = "",
        reason: str = "",
        dry_run: bool = False,
        prove: bool = False,
    ) -> "erasing.ErasureReport":
        """Destroy the bytes of events, by id or seq, and all derived from them: see docs/how-to/forget-and-erase.md.

        The thread forgets them; then stand-ins replace their texts in the log, in forks, and in the events of their
        facts in other threads, and the file's free space is zeroed. One more event names the erased ones, so that the
        chain verifies. If a process dies on the way, the next one finishes the act. `dry_run` only counts.

        A database over 64 MiB is not read whole: pages that the act wrote and free ones are zeroed and searched, and a
        sample of the rest; the proof's `ok` is `None` then. `prove` has all of it zeroed and searched. Raises
        `EventNotFound`, `SeqNotInLog`, `InvalidArgument` if no event is named, `LegalHold`, and `ErasureUnfinished` if
        a process reads old pages of the file.
        """
        await imported(erasing)
        return await erasing.erase(
            self._thread, event_ids=event_ids, seqs=seqs, by=by, reason=reason, dry_run=dry_run, prove=prove
        )

    async def delete(self, *, by: str = "", reason: str = "") -> "erasing.ErasureReport":
        """Destroy the log, the state, and what its facts became in other threads: an act like `erase`.

        Its id is free: `create_thread` and `open_thread` create another thread with it, which shares nothing with the
        first; for a user, a tenant or an agent the next event does. A tenant's shares with industries are withdrawn
        first. Raises `ThreadHasForks`, `LegalHold`, `ErasureUnfinished`.
        """
        self._thread.check_present("deleting")
        await imported(erasing)
        return await erasing.delete(self._thread.kernel, [self._thread.id], by=by, reason=reason)

    async def hold(self, *, reason: str = "", by: str = "") -> "holds.StandingHold":
        """Protect this thread from destruction until `release`: attempts raise `LegalHold`.

        For a user or a tenant, all their threads are held. `forget` still works: it destroys nothing.
        """
        return await holds.hold(self._thread, by=by, reason=reason)

    async def release(self, *, reason: str = "", by: str = "") -> "Sequence[holds.StandingHold]":
        """End the holds set here, and return them; one on the thread's user or tenant ends there."""
        return await holds.release(self._thread, by=by, reason=reason)

    async def quarantine(
        self, source: str, *, release: bool = False, dry_run: bool = False, by: str = "", reason: str = ""
    ) -> "QuarantineReport":
        """Hide what rests on a source, here and in other threads, by a recorded act; with `release` it comes back.

        `source` is `tool:NAME`, `document:ID`, `agent:ID`, `event:SEQ_OR_ID`, `origin:NAME` (see `min_trust`) or
        `everything`. What comes from it later is hidden, too. Nothing is forgotten: a release shows all that no other
        quarantine hides. `by` says who does it; `dry_run` only reports what would change. Waits for a running
        compaction. A second call continues one that was cut short.

        Raises `CannotQuarantine` if nothing would change, `InvalidArgument`, `SeqNotInLog`, `EventNotFound`,
        `EventTooLarge` if the chunks that come exceed the maximum size of an event, and what `dispatch` raises. The
        error of another thread is raised at the end, when all is recorded here.
        """
        self._thread.check_present("a quarantine")
        await imported(quarantine)
        return await quarantine.quarantine(self._thread, source, release=release, dry_run=dry_run, by=by, reason=reason)

    async def quarantines(self) -> "tuple[Quarantine, ...]":
        """The quarantines in force, in the order in which they began."""
        await imported(quarantine)
        return await quarantine.quarantines(self._thread)

    async def is_blocked(self) -> bool:
        """Whether events are waiting."""
        return await self.blocking_reason() is not None

    async def blocking_reason(self) -> BlockingReason | None:
        """Why events are waiting, or `None`."""
        return (await self._thread.runtime()).queue.blocking_reason if self._thread.as_of is None else None

    async def pause(self, reason: str = "") -> Receipt:
        """Make events wait from now on, across processes and restarts, until `resume`."""
        return await life.pause(self._thread, reason)

    async def resume(self, reason: str = "") -> Receipt:
        """Continue after `pause`: take the events that waited, in order."""
        return await self._thread.dispatch(ExecutionResume(content=reason))

    async def clear(self, reason: str = "") -> Receipt:
        """Start over: from now on state, context, search and every view are those of a new thread.

        The log keeps what came before: read it with `at`, which also shows what a context was made of then; `why` says
        what cleared a chunk. Initial chunks and the session's instructions go too; give them again. What this thread
        gave to others (promoted facts, shared memory) stays there: use `forget` for that. Metadata, scopes and policy
        stay. A running compaction ends first, as for every event. Raises what `dispatch` raises.
        """
        return await self._thread.dispatch(ThreadCleared(reason=reason))

    async def end_session(self, reason: str = "") -> Receipt:
        """End the session: EPHEMERAL chunks are removed."""
        return await self._thread.dispatch(SessionEnded(content=reason))

    async def update(
        self,
        *,
        metadata: Mapping[str, str | None] | None = None,
        policy: "CompactionPolicy | Literal['default'] | None" = None,
    ) -> Receipt:
        """Change the thread's metadata or its compaction policy, by a recorded event.

        Metadata keys that you give are set, those with `None` are removed, and all others stay, so concurrent changes
        to different keys all apply. A policy is replaced whole; `"default"` restores the engine's. Raises
        `InvalidIdentifier`, `InvalidArgument`, `InvalidPolicy`, and what `dispatch` raises.
        """
        return await life.update(self._thread, as_metadata(metadata), policy)

    async def prepare_search(self, progress: "IndexProgress | None" = None) -> None:
        """Bring the index and, if there is an embedder, all vectors up to date before a first search.

        `progress` is called with how much is done and the total. Raises `ModelError`.
        """
        checked_call("progress", progress)
        if await self._thread.exists():
            await self._thread.kernel[Recall].prepare(self._thread.id, progress)
