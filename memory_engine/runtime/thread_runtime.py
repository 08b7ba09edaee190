"""One thread at work: takes requests from its queue, reduces them, commits, hands out receipts.

There is no task for a thread. `pump` runs whenever something may have become possible (a
request came, a commit ended, a block was lifted); a commit's future calls back. So no
sender's cancellation can stop the work of another, and there is no await between reading
the state and submitting what was computed from it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar, cast

import msgspec

from memory_engine.core.aside import aside
from memory_engine.core.events.memory import ThreadUpdated
from memory_engine.core.records import Receipt
from memory_engine.core.slices import in_slices, let_others
from memory_engine.core.state import State
from memory_engine.core.threads import ARCHIVED, DELETED, PAUSED, LoadedThread, ThreadRecord
from memory_engine.errors import (
    ContentionError,
    EngineClosed,
    EventIdTaken,
    HeadMoved,
    MemoryEngineError,
    ReadOnly,
    StorageBusy,
    ThreadClosed,
)
from memory_engine.projections.base import Projection, Rows
from memory_engine.projections.inline import InlineProjections
from memory_engine.runtime.commit import Commit, RecordedLog, Reduced
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.notes import Notes
from memory_engine.runtime.queue import MANY, BlockingReason, Request, ThreadQueue
from memory_engine.store import snapshots
from memory_engine.store.passages import LookUp, PassageChange

T = TypeVar("T")
V = TypeVar("V")

TAIL_MAX = 64
"""Events of other processes that are applied one by one; with more, the state is read from the store."""
PAUSE_POLL_S = 0.2
"""Seconds between looks of a waiting event at whether another process has ended the pause."""

_UPDATED = ThreadUpdated.event_type

Committed = Callable[["ThreadRuntime", Sequence[Reduced]], None]
"""Called with the events of a thread that became durable; the queue's next event is taken after it."""


class ThreadRuntime:
    """A thread in memory: head, state and queue. The engine makes one for each open thread.

    With `makes`, a record, the store does not have the thread yet: its first commit makes it. `window` is the budget in
    tokens that the thread's loop asks its contexts for, as recorded (`None`: no loop has asked yet). With less than
    `due_tokens` in its compactable chunks no compaction can be due; 0 where that is not known.
    """

    def __init__(  # noqa: PLR0913 - what a thread at work is made of
        self,
        kernel: Kernel,
        loaded: LoadedThread,
        state: State,
        projections: InlineProjections,
        committed: Committed,
        *,
        makes: ThreadRecord | None = None,
    ) -> None:
        self._kernel = kernel
        self.makes = makes
        self._store = kernel.store
        self.log = RecordedLog(kernel.reader, kernel.store, loaded.record.id)
        self._on_commit = committed
        self.record, self.id = loaded.record, loaded.record.id
        self.kind = kernel.kind(loaded.record.kind)
        self.head, self.state = loaded.head, state
        self.projections, self.indexed = projections, loaded.indexed
        self.queue = ThreadQueue(self.id, kernel.config.queue_capacity)
        self.busy = self._pumping = False
        self.failed: MemoryEngineError | None = None
        self.compaction_backoff = self.compaction_failures = 0
        self.incompressible: set[str] = set()
        self.notes = Notes()
        self.window: int | None = None
        self.due_tokens = 0
        self._idle: list[asyncio.Future[None]] = []
        self._woken: list[asyncio.Future[None]] = []
        self._watching = self._is_stale = self.is_written = False
        self._looked_s = asyncio.get_running_loop().time()
        self._follow_status()

    async def submit(self, request: Request) -> tuple[Receipt, ...]:
        """Queue a request and wait for its receipts; a cancelled sender's request is dropped if it still waits."""
        if self.record.forked_from is not None and request.has_callers_ids:
            # the store refuses an id twice in one log, not in the past that it shares
            await self.log.find(self.head, request)
            if request.future.done():
                return await request.future
        try:
            is_over = self._kernel.pace.is_loops_turn()
            if not self.busy and self.queue.is_clear and not is_over:
                self._take_up([request])
            else:
                if not self.queue.put_nowait(request):
                    await self.queue.put(request, self._kernel.config.queue_timeout_s)
                if is_over:
                    asyncio.get_running_loop().call_soon(self.pump)
                else:
                    self.pump()
            return await request.future
        except asyncio.CancelledError:
            self.queue.discard(request)
            raise

    async def idle(self) -> None:
        """Wait until no commit of this thread is under way."""
        while self.busy:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def pump(self) -> None:
        """Reduce the waiting requests and hand them to the store. Does nothing while a commit is under way."""
        if self._pumping:
            return  # a commit that ended within `_take_up`: the loop below goes on
        self._pumping = True
        try:
            while not self.busy and (requests := self.queue.take(self._kernel.config.batch_events_max)):
                self._take_up(requests)
        finally:
            self._pumping = False
        if not self.busy and self.head.status == PAUSED and len(self.queue) and not self._watching:
            self._watching = True
            self._kernel.tasks.spawn(self._watch_pause(), until_close=True)

    def _take_up(self, requests: Sequence[Request]) -> None:
        """Reduce requests onto the current state, in one commit; requests that cannot join it go back."""
        turning = self._turning(requests)
        if turning is not None:
            self.busy = True
            self._kernel.tasks.spawn(turning)
            return
        commit: Commit | None = None
        for n, request in enumerate(requests):
            if commit is not None and commit.defers(request):
                self.queue.put_back(requests[n:])
                break
            commit = self._joined(commit, request)
        if commit is not None:
            self._commit(commit)

    def _turning(self, requests: Sequence[Request]) -> Coroutine[object, object, None] | None:
        """The awaitable to wait for before these requests are reduced, or instead of that; `None` for most."""
        missing: list[Projection[object]] = []
        is_based_elsewhere = False
        for request in requests:
            is_based_elsewhere |= request.based_on not in (None, self.head.seq)
            for prepared in request.events:
                if self.projections.concerned[prepared.event.event_type]:
                    missing += self.projections.missing(prepared.event.event_type)
        if self.notes.waiting:
            missing += self.notes.missing(self.projections)
        if missing:
            return self._bring_in(requests, missing)
        if self.head.status == ARCHIVED and not all(request.looked or request.administrative for request in requests):
            for request in requests:
                request.looked = True
            self.queue.put_back(requests)
            return self.look_again()  # another process may have opened it again
        if is_based_elsewhere:
            return self._compare(requests)
        if len(requests[0].events) > MANY:
            self.queue.put_back(requests[1:])
            return self._take_up_slowly(requests[0])
        return None

    def unblock(self, reason: BlockingReason) -> None:
        """Lift a block and go on with the waiting requests."""
        self.queue.unblock(reason)
        self.pump()

    def end(self, status: str) -> None:
        """Follow a status that was written: an archived or deleted thread refuses the waiting requests."""
        self.head = msgspec.structs.replace(self.head, status=status)
        self._follow_status()
        self.pump()

    def _joined(self, commit: Commit | None, request: Request) -> Commit | None:
        """The commit with a request, behind the notes that wait; without these where they cannot be reduced.

        If the request fails, its sender gets the error, and the commit does not change.
        """
        takes_notes = self.notes.waiting and not (commit and commit.notes)
        notes = self.notes.due(commit.head if commit else self.head, request) if takes_notes else []
        try:
            self._check_open(request)
            try:
                further = Commit.begun(self._kernel, self, commit).take(self._kernel, self, request, notes)
            except MemoryEngineError:
                if not notes:
                    raise
                further = Commit.begun(self._kernel, self, commit).take(self._kernel, self, request, [])
                self.notes.drop(notes)
        except MemoryEngineError as error:
            self._refuse(request, error)
            return commit
        if commit is None:
            return further
        commit.join(further)
        return commit

    def _refuse(self, request: Request, error: Exception) -> None:
        """Fail a request that cannot be reduced, unless it is recorded already."""
        if request.has_callers_ids and isinstance(error, MemoryEngineError):
            self._kernel.tasks.spawn(self.log.find_or_fail(self.head, request, error))
        else:
            request.fail(error)

    def _check_open(self, request: Request) -> None:
        if self._kernel.tasks.closed:
            raise EngineClosed
        if self._kernel.config.read_only:
            raise ReadOnly("an event")
        if self.failed is not None:
            raise self.failed
        if self.head.status == DELETED or (self.head.status == ARCHIVED and not request.administrative):
            raise ThreadClosed(self.id, self.head.status)

    def check_whole(self) -> None:
        """Raise the `IntegrityError` of a thread that `verify` has found broken."""
        if self.failed is not None:
            raise self.failed

    async def _take_up_slowly(self, request: Request) -> None:
        """Reduce very many events in a commit of their own, with others on the loop between; no commit crosses it."""
        from memory_engine.runtime.reducing import reduced_in_pieces  # few engines ever need it

        commit = None
        try:
            self._check_open(request)
            commit = Commit.begun(self._kernel, self)
            notes = self.notes.due(commit.head, request) if self.notes.waiting else ()
            await in_slices(reduced_in_pieces(commit, self._kernel, self, request, notes), let_others)
            self._check_open(request)
        except Exception as error:  # passed on: no one waits for ever
            if commit is not None:
                commit.void(request)
            self.projections.discard()
            self._refuse(request, error)
            self._rest()
            self._go_on()
        else:
            self._commit(commit)

    def _commit(self, commit: Commit) -> None:
        self.busy = True
        before, head = self.head, commit.head
        if commit.is_viewed:
            commit.projections = self.projections.changes(head.seq)
        if self.indexed:
            commit.passages = PassageChange(before.seq, head.seq, commit.passage_steps)
        if head.marks is not before.marks or head.seq // snapshots.EVERY > before.seq // snapshots.EVERY:
            snapshots.add_to_commit(commit, before, commit.state)
        future = self._store.commit(commit)
        if future.done():
            self._ended(commit, future, at_once=True)
        else:
            future.add_done_callback(partial(self._ended, commit))

    def _ended(self, commit: Commit, done: "asyncio.Future[None]", *, at_once: bool = False) -> None:
        self._kernel.pace.committed(at_once=at_once)
        error = EngineClosed() if done.cancelled() else done.exception()
        if error is not None:
            self._failed(commit, error)
            return
        self._rest()  # before the senders wake: one that sends again at once would overtake all who wait
        self.makes, self.is_written = None, True
        if commit.record is not None:
            self.record, self.due_tokens = commit.record, 0
        if commit.is_viewed:
            self.projections.keep()
        was, self.head, self.state = self.head.status, commit.head, commit.state
        if self.head.status != was:
            self._follow_status()
        if commit.notes:
            self.notes.recorded(commit.notes)
        for request, reduced, state in commit.requests:
            self.log.make_receipts(commit.head, request, reduced, state)
            request.resolve()
        self._on_commit(self, commit.reduced)
        self._go_on()

    def _failed(self, commit: Commit, error: BaseException) -> None:
        if isinstance(error, HeadMoved | EventIdTaken):
            for request, _, _ in commit.requests:
                commit.void(request)
            self._kernel.tasks.spawn(self._retry(commit, error))
            return
        self._rest()
        self.projections.discard()
        for request, _, _ in commit.requests:
            request.fail(error)
        self._go_on()

    def _rest(self) -> None:
        """Wake those who waited for the end of a commit: they go in the loop's next round, before the next commit."""
        self.busy = False
        if self._idle:
            self._woken, self._idle = self._idle, []
            for waiter in self._woken:
                if not waiter.done():
                    waiter.set_result(None)

    def _go_on(self) -> None:
        """Take the waiting requests, after those whom `_rest` has woken."""
        if self._woken:
            self._woken = []
            asyncio.get_running_loop().call_soon(self.pump)
        elif not self.queue.is_clear:
            self.pump()

    async def _retry(self, commit: Commit, error: MemoryEngineError) -> None:
        """Read the thread again, then reduce again: another writer was first, or an id was used before."""
        again: list[Request] = []
        try:
            for request, _, _ in commit.requests:
                request.tries += 1
                if isinstance(error, EventIdTaken) or request.tries > 1:
                    await self.log.find(self.head, request)
                if request.tries > self._kernel.config.commit_tries_max:
                    request.fail(ContentionError(self.id, request.tries))
                if not request.future.done():
                    again.append(request)
            is_taken = isinstance(error, EventIdTaken) and not self._is_stale
            if not is_taken or await self._kernel.store.head(self.id) != self.head:
                await self.catch_up()
        except asyncio.CancelledError:  # the loop is torn down around an open engine: they wait as before
            again = [request for request, _, _ in commit.requests if not request.future.done()]
            raise
        except Exception as failure:  # every error is passed on, so that no one waits for ever
            for request, _, _ in commit.requests:
                request.fail(failure)
            again = []
        finally:
            self.projections.discard()
            self.queue.put_back(again)
            self._rest()
            self._go_on()

    async def _bring_in(self, requests: Sequence[Request], views: Sequence[Projection[object]]) -> None:
        """Bring in the views that these requests change, then go on with them."""
        again = list(requests)
        try:
            for view in views:
                try:
                    await self.projections.bring(view)
                except Exception as error:  # passed on: no one waits for ever, and only callers that need the view fail
                    for request in again:
                        if any(view in self.projections.missing(one.event.event_type) for one in request.events):
                            request.fail(error)
                    again = [request for request in again if not request.future.done()]
                    self.notes.drop_missing(view, self.projections)
        finally:
            self.queue.put_back(again)
            self._rest()
            self._go_on()

    async def _compare(self, requests: Sequence[Request]) -> None:
        """Look what the thread holds after the seq that requests expect, then go on with those that still fit."""
        expecting = [request for request in requests if request.based_on is not None]
        try:
            is_behind = any((one.based_on or 0) > self.head.seq for one in expecting)  # they have read on elsewhere
            if is_behind and await self._kernel.store.head(self.id) != self.head:
                await self.catch_up()
            for request in expecting:
                await self.log.rebase(self.head, request)
        except Exception as error:  # passed on: no one waits for ever
            for request in expecting:
                request.fail(error)
        finally:
            self.queue.put_back([request for request in requests if not request.future.done()])
            self._rest()
            self._go_on()

    async def rows(self, projection: Projection[V]) -> Rows[V]:
        """The rows of an inline projection, as of the last commit. Raises `ReducerError` where it fails."""
        while True:
            rows = self.projections.readable(projection)
            if rows is not None and not rows.is_changed:
                return rows
            await self.idle()
            if self.projections.readable(projection) is None:
                await self._bring(projection, readable=True)

    async def current(self, projection: Projection[V]) -> None:
        """Bring the stored rows of an inline projection up to the last commit, without reading a lazy one's."""
        await self.idle()
        if not self.projections.has(projection):
            await self._bring(projection, readable=False)

    async def follow(self) -> None:
        """Read other processes' commits, unless this was done less than `follow_s` ago.

        Raises the errors of reading the thread; a busy file is read later.
        """
        now = asyncio.get_running_loop().time()
        if self._is_stale:
            await self.exclusively(self.reload)
        if self.busy or now < self._looked_s + self._kernel.config.follow_s:
            return
        self._looked_s = now
        with suppress(StorageBusy):
            head = await self._kernel.store.head(self.id)
            if head.seq > self.head.seq or head.epoch != self.head.epoch:
                await self.exclusively(self.catch_up)

    def outdate(self) -> None:
        """Show nothing more before the store was read: something in it was deleted or erased."""
        self._is_stale = True

    async def exclusively(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work that no commit of this thread may cross."""
        await self.idle()
        self.busy = True
        try:
            return await work()
        finally:
            self._rest()
            self._go_on()

    async def _bring(self, projection: Projection[V], *, readable: bool) -> None:
        view = cast("Projection[object]", projection)
        await self.exclusively(lambda: self.projections.bring(view, readable=readable))

    async def reload(self) -> None:
        """Take head and state from the store: another process has written."""
        self._looked_s = asyncio.get_running_loop().time()
        self._is_stale = False
        loaded = await self._kernel.reader.load(self.id)
        state = await self._kernel.reader.state_of(loaded)
        await aside(loaded.let_go, items=len(loaded.live))
        if loaded.head.epoch != self.head.epoch:  # it may be another: who was deleted has come back
            self._kernel.caches.drop(self.id)
            self.notes = Notes()
        self.state, self.record, self.head, self.indexed = state, loaded.record, loaded.head, loaded.indexed
        self.due_tokens = 0
        await self.projections.load()
        self._follow_status()

    async def catch_up(self) -> None:
        """Apply what other processes have committed; where that is much, take head and state from the store."""
        reader, head = self._kernel.reader, await self._kernel.store.head(self.id)
        is_near = head.epoch == self.head.epoch and 0 < head.seq - self.head.seq <= TAIL_MAX
        is_near = is_near and head.marks.get(_UPDATED) == self.head.marks.get(_UPDATED)
        state = await reader.advanced(self.id, self.state, self.head, head) if is_near and not self._is_stale else None
        if state is None:
            await self.reload()
            return
        self._looked_s = asyncio.get_running_loop().time()
        if not self.indexed:
            self.indexed = (await self._kernel.store.passages.look_up(self.id, LookUp(limit=0))).seq >= 0
        self.state, self.head = state, head
        await self.projections.load()
        self._follow_status()

    async def _watch_pause(self) -> None:
        """While a request waits for a pause to end, check whether another process has ended it."""
        try:
            while self.head.status == PAUSED and len(self.queue):
                await asyncio.sleep(PAUSE_POLL_S)
                if not self.busy:
                    await self.look_again()
        finally:
            self._watching = False

    async def look_again(self) -> None:
        """Follow the store's head if it has moved; waiting requests fail if the thread cannot be read or written."""
        self.busy = True
        try:
            if self._kernel.tasks.closing:
                raise EngineClosed
            self._kernel.store.check_writable()
            with suppress(StorageBusy):
                if await self._kernel.store.head(self.id) != self.head:
                    await self.catch_up()
        except MemoryEngineError as error:
            self.queue.fail(error)
        finally:
            self._rest()
            self._go_on()

    def _follow_status(self) -> None:
        """Take over the pause that the log holds, whichever process recorded it."""
        follow = self.queue.block if self.head.status == PAUSED else self.queue.unblock
        follow(BlockingReason.PAUSED)
