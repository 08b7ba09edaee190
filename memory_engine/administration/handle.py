"""What is done to a thread as a whole: it is checked, mended, held, and destroyed."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from memory_engine.core.arguments import checked_call, checked_flag
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import Receipt
from memory_engine.core.threads import ThreadInfo
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import OpenThreads

if TYPE_CHECKING:
    from memory_engine.administration import erasing, holds
    from memory_engine.replay import rebuild, verify
    from memory_engine.replay import rereduce as rereduction
    from memory_engine.replay.verify import VerifyProgress
else:
    erasing = lazy_module("memory_engine.administration.erasing")
    holds = lazy_module("memory_engine.administration.holds")
    rebuild = lazy_module("memory_engine.replay.rebuild")
    rereduction = lazy_module("memory_engine.replay.rereduce")
    verify = lazy_module("memory_engine.replay.verify")


async def verify_threads(
    kernel: Kernel, thread_ids: Sequence[str], progress: "VerifyProgress | None"
) -> "list[verify.VerifyReport]":
    """Verify threads one after the other; `progress` hears of the events of all of them."""
    reports: list[verify.VerifyReport] = []
    for thread_id in thread_ids:
        before = sum(report.events for report in reports)
        counted = None if progress is None else verify.counted_from(progress, before)
        reports.append(await Administered(kernel, thread_id).verify(counted))
    return reports


class Administered(ThreadHandle):
    """The acts on a thread. `Thread` is the handle that has them."""

    async def verify(self, progress: "VerifyProgress | None" = None) -> "verify.VerifyReport":
        """Replay the log: hashes, operations, state and projections must come out the same. Writes nothing.

        Where the log itself is broken (a gap, a hash, texts exchanged), that is noted: the thread takes no more events
        and shows no present, in any process, until a `verify` finds it whole again.
        """
        report = await verify.Verifier.of(self.kernel).verify(self.id, checked_call("progress", progress))
        if report.ok or report.broken is not None:
            await self.kernel[OpenThreads].note(self.id, report.broken)
        return report

    async def rereduce(self, from_seq: int, *, dry_run: bool = False, reason: str = "") -> "rereduction.RereduceReport":
        """Mend a thread whose reducers were missing or wrong: reduce its events from `from_seq` on as today's do.

        The state becomes what these give, by one event that `verify` knows of and `undo_rereduce` takes back; what was
        recorded stays. `dry_run` only reports the differences. `rebuild` makes views and the search index anew.

        Raises `CannotRereduce` where nothing differs, and for an event that today's reducers refuse, whose class is
        not known or whose texts were taken out; `SeqNotInLog`, `ReadOnly`, `PastIsReadOnly`, the errors of `dispatch`.
        """
        self.check_present("mending")
        return await rereduction.rereduce(self, from_seq, dry_run=dry_run, reason=reason)

    async def undo_rereduce(self, *, reason: str = "") -> Receipt:
        """Take back the latest `rereduce` that stands: what it brought goes, what it removed comes back.

        What was forgotten since stays forgotten. Raises `CannotRereduce` where there is none, or a compaction covers
        what it brought.
        """
        self.check_present("undoing")
        return await rereduction.undo_rereduce(self, reason=reason)

    async def rebuild(
        self,
        views: Collection[str] | None = None,
        *,
        search: bool | None = None,
        progress: "VerifyProgress | None" = None,
    ) -> ThreadInfo:
        """Derive all rows from the log again, beside the old ones, and replace those in one commit.

        The state's rows, every view and the search index; with `views` only the rows of those, and the index where
        `search` says so. If this raises or the process dies, the old rows stand. `progress` is told of events read.

        Raises `UnknownView`, `IntegrityError` where the recorded operations do not hold together, and
        `ContentionError` where other processes write without pause.
        """
        self.check_present("rebuild")
        if search is not None:
            checked_flag("search", search)
        await rebuild.rebuild(self.kernel, self.id, views, search=search, progress=progress)
        return await self.info()

    async def erase(
        self,
        event_ids: Sequence[str] = (),
        *,
        seqs: Sequence[int] = (),
        by: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> "erasing.ErasureReport":
        """Destroy the bytes of events, by id or by seq, and of all that came of them: see docs/erasing.md.

        The thread forgets them; then stand-ins take the place of their texts in the log, in forks, and in what their
        facts became in other threads, and the file's free space is zeroed. One more event names what was erased, so
        that the chain verifies. A process that dies on the way leaves the rest to the next. `dry_run` only counts.
        Raises `EventNotFound`, `SeqNotInLog`, `InvalidArgument` where no event is named, `LegalHold`, and
        `ErasureUnfinished` where a process reads old pages of the file.
        """
        return await erasing.erase(self, event_ids=event_ids, seqs=seqs, by=by, reason=reason, dry_run=dry_run)

    async def delete(self, *, by: str = "", reason: str = "") -> "erasing.ErasureReport":
        """Destroy the log, the state, and what its facts became in other threads: an act like `erase`.

        Its id is free: `create_thread` and `open_thread` make another thread of it, which nothing of the first is taken
        for; of a user, a tenant or an agent the next event does. A tenant's shares with industries are withdrawn
        first. Raises `ThreadHasForks`, `LegalHold`, `ErasureUnfinished`.
        """
        self.check_present("deleting")
        return await erasing.delete(self.kernel, [self.id], by=by, reason=reason)

    async def hold(self, *, reason: str = "", by: str = "") -> "holds.StandingHold":
        """Let nothing of this thread be destroyed until it is released: `LegalHold` refuses it.

        Of a user or a tenant all threads are held. `forget` goes on working: it destroys nothing.
        """
        return await holds.hold(self, by=by, reason=reason)

    async def release(self, *, reason: str = "", by: str = "") -> "Sequence[holds.StandingHold]":
        """End the holds that were set here, and return them; one on the thread's user or tenant ends there."""
        return await holds.release(self, by=by, reason=reason)
