"""Erasing: the bytes of events, and of all that came of them, are destroyed in one administrative act.

First it is found out what there is to destroy: the events, in the thread that recorded them and in every fork that
shares them, and the events that their facts became in the threads of users, tenants, agents and industries. That plan
is kept with the store. Then each thread forgets, its rows get stand-ins for their texts, and one more event says which
rows these are and what replaced them; its chain still verifies. At last the bytes that SQLite has left behind are
zeroed. A process that dies on the way leaves an act that the next one finishes.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress

import msgspec
from attrs import define, field, frozen

from memory_engine.administration.acts import (
    HELD_UP,
    NOT_ITS_OWN,
    check_allowed,
    failure_now,
    failure_of,
    note_done,
    note_failure,
)
from memory_engine.administration.deleting import UNREADABLE, delete_thread, is_there, record_of
from memory_engine.administration.holds import check_not_held
from memory_engine.administration.proof import ActPart, ErasedPieces, ErasureProof, wiped_and_proved
from memory_engine.administration.stand_ins import StandIns
from memory_engine.administration.under_way import ActsUnderWay
from memory_engine.compaction.service import CompactionService
from memory_engine.core.arguments import checked_flag, checked_list, checked_text
from memory_engine.core.chain import next_head, read_back
from memory_engine.core.codec import encode_reduction
from memory_engine.core.events.memory import EventsErased, MemoryForget
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import NewEvent, StoredEvent
from memory_engine.core.reduction import NOTHING
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import (
    EventIdTaken,
    EventNotFound,
    HeadMoved,
    InvalidArgument,
    MemoryEngineError,
    SeqNotInLog,
    ThreadHasForks,
    ThreadNotFound,
)
from memory_engine.projections.outbox import derived_id
from memory_engine.replay.anchors import DELETE
from memory_engine.replay.export.redaction import Hidden
from memory_engine.replay.export.redactor import learn
from memory_engine.runtime import recalled
from memory_engine.runtime.commit import linked_row
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.life import forgetting, forks_of
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.acts import Act
from memory_engine.store.attested import lineage
from memory_engine.store.protocol import CommitUnit

_ROWS_MAX = 2_000
"""Rows that one event names."""


class ErasurePlan(msgspec.Struct, frozen=True):
    """The ids of the events to erase, by thread, origins of forks before the forks; and the threads to delete whole.

    Of the threads to delete, forks come first. Each has its creation time (microseconds since 1970): a user who comes
    back gets a thread with the same id, which an earlier act must leave alone. `made` are those of the threads of the
    events, whose ids may come back there too; plans of older releases lack them.
    """

    events: Mapping[str, Sequence[str]] = {}
    threads: Mapping[str, int] = {}
    made: Mapping[str, int] = {}

    def means(self, record: ThreadRecord) -> bool:
        """Whether a thread is the one whose events it names, and not a later one of the same id."""
        return record.created_at_us == self.made.get(record.id, record.created_at_us)


@frozen(kw_only=True)
class ErasureReport(JsonForm):
    """The outcome of an act: how many events of which threads lost their texts, and the deleted threads.

    `proof` says what was searched for afterwards in every file of the store, and where it was found.
    """

    act: str
    by: str
    reason: str
    erased: Mapping[str, int]
    deleted: tuple[str, ...]
    is_done: bool
    proof: ErasureProof | None = None


async def erase(  # noqa: PLR0913 - an act and what is said with it
    thread: ThreadHandle,
    *,
    event_ids: Sequence[str] = (),
    seqs: Sequence[int] = (),
    by: str = "",
    reason: str = "",
    dry_run: bool = False,
    prove: bool = False,
) -> ErasureReport:
    """Destroy events of a thread and everything derived from them; see `Admin.erase`."""
    thread.check_present("erasing")
    named = checked_list("event_ids", event_ids, str, each="ids of events")
    places = checked_list("seqs", seqs, int, each="seqs")
    if not named and not places:
        raise InvalidArgument("event_ids", event_ids, "name the events to erase, by their ids or their seqs")
    rows = await thread.kernel.reader.rows_at(thread.id, places)
    for seq in places:
        if seq not in rows:
            raise SeqNotInLog(thread.id, seq, await thread.last_seq())
    ids = tuple(dict.fromkeys((*named, *(stored.id for stored in rows.values()))))
    wholly = checked_flag("prove", prove)
    return await erase_events(thread.kernel, {thread.id: ids}, by=by, reason=reason, dry_run=dry_run, prove=wholly)


async def erase_events(  # noqa: PLR0913 - an act and what is said with it
    kernel: Kernel,
    events: Mapping[str, Sequence[str]],
    *,
    by: str = "",
    reason: str = "",
    dry_run: bool = False,
    prove: bool = True,
) -> ErasureReport:
    """Destroy events of several threads in one act: ids by thread. Without `prove` a large file is read in part."""
    kernel.check_writable("erasing")
    for thread_id, event_ids in events.items():
        found = {stored.id for stored in await kernel.store.find(thread_id, list(event_ids))}
        missing = [event_id for event_id in event_ids if event_id not in found]
        if missing:
            raise EventNotFound(thread_id, missing[0])
    planner = _Planner(kernel, only_looks=checked_flag("dry_run", dry_run))
    for thread_id, event_ids in events.items():
        await planner.add_events(thread_id, event_ids)
    return await _begun(kernel, "erase", planner.plan(), by, reason, dry_run=dry_run, prove=prove)


async def delete(
    kernel: Kernel, thread_ids: Sequence[str], *, by: str = "", reason: str = "", dry_run: bool = False
) -> ErasureReport:
    """Destroy whole threads and everything derived from them; see `Admin.delete`. Raises `ThreadHasForks`."""
    kernel.check_writable("deleting")
    await check_not_held(kernel.store, thread_ids)  # before shares are withdrawn
    planner = _Planner(kernel, only_looks=checked_flag("dry_run", dry_run))
    for thread_id in thread_ids:
        await planner.add_thread(thread_id)
    plan = planner.plan()
    for thread_id in plan.threads:
        forks = [fork for fork in await kernel.store.forks(thread_id) if fork not in plan.threads]
        if forks:
            raise ThreadHasForks(thread_id, tuple(forks))
    return await _begun(kernel, DELETE, plan, by, reason, dry_run=dry_run)


async def finish_acts(kernel: Kernel, *, retry_failed: bool = False) -> list[ErasureReport]:
    """Continue the acts that were begun and not finished; see `StoreAdmin.finish_acts`."""
    checked_flag("retry_failed", retry_failed)
    done: list[ErasureReport] = []
    errors: list[MemoryEngineError] = []
    held: list[MemoryEngineError] = []
    under_way = _under_way(kernel)
    begun = under_way.now()
    pending = {act.id: act for act in await kernel.store.acts(pending=True)}
    for act_id in {**begun, **pending}:
        known = begun.get(act_id)
        if known is None and pending[act_id].state == "failed" and not retry_failed:
            errors.append(failure_of(pending[act_id]))
            continue
        try:
            done.append(await (under_way.waited_for(known) if known else _carried_out(kernel, pending[act_id])))
        except HELD_UP as error:  # the others do not wait for it
            held.append(error)
        except NOT_ITS_OWN:
            raise
        except Exception as error:  # whatever it is: it is kept with the act, and raised when the others are done
            errors.append(await failure_now(kernel.store, act_id, error))
    for first in (*errors, *held):
        raise first
    return done


async def _begun(  # noqa: PLR0913 - an act and what is said with it
    kernel: Kernel, kind: str, plan: ErasurePlan, by: str, reason: str, *, dry_run: bool, prove: bool = True
) -> ErasureReport:
    await check_not_held(kernel.store, (*plan.events, *plan.threads))
    act = Act(
        id=kernel.new_id(),
        kind=kind,
        plan=msgspec.json.encode(plan).decode(),
        by=checked_text("by", by),
        reason=checked_text("reason", reason),
        asked_at_us=kernel.now_us(),
    )
    if dry_run:
        erased = {thread_id: len(ids) for thread_id, ids in plan.events.items()}
        return ErasureReport(act="", by=by, reason=reason, erased=erased, deleted=tuple(plan.threads), is_done=False)
    part = None if prove else ActPart.of(kernel, plan.events)
    return await _carried_out(kernel, act, is_new=True, part=part)


def _under_way(kernel: Kernel) -> ActsUnderWay[ErasureReport]:
    acts: ActsUnderWay[ErasureReport] = kernel.made(ActsUnderWay, lambda: ActsUnderWay(kernel))
    return acts


async def _carried_out(kernel: Kernel, act: Act, *, is_new: bool = False, part: ActPart | None = None) -> ErasureReport:
    """Carry an act out, or wait for the caller who does already. Raises the errors of `_finished_act`.

    Of an act that was begun before, no one knows which pages it has written: it gets no `part`.
    """

    async def work() -> ErasureReport:
        if is_new:
            await kernel.store.put_act(act)
        try:
            return await _finished_act(kernel, act, part)
        except NOT_ITS_OWN:
            raise
        except Exception as error:  # whatever it is: it is kept with the act, and goes on to whoever waits
            await note_failure(kernel.store, act.id, error)
            raise

    return await _under_way(kernel).outcome(act.id, work)


async def _finished_act(kernel: Kernel, act: Act, part: ActPart | None) -> ErasureReport:
    """Do the remaining work of an act.

    Raises `ErasureUnfinished` where its bytes cannot be destroyed, `LegalHold` and `ThreadHasForks` where a hold or a
    fork came since it was asked for: the act waits until that is released, or deleted. Raises `ActRefused` for one that
    names what whoever asked for it may not reach.
    """
    plan = msgspec.json.decode(act.plan, type=ErasurePlan)
    await check_allowed(kernel.store, act, (*plan.events, *plan.threads))
    await check_not_held(kernel.store, (*plan.events, *plan.threads))
    pieces = ErasedPieces(kernel.events)
    erased: dict[str, int] = {}
    with nullcontext() if part is None else part.noting():
        for thread_id, event_ids in [*plan.events.items()][::-1]:  # a fork learns from its origin what to look for
            if thread_id not in plan.threads:
                erased[thread_id] = await _ThreadErasing(kernel, act, thread_id, pieces, plan).run(event_ids)
        for thread_id, created_at_us in plan.threads.items():
            await delete_thread(kernel, thread_id, created_at_us, pieces)
    proof = await wiped_and_proved(kernel, act.id, pieces, part)
    report = ErasureReport(
        act=act.id,
        by=act.by,
        reason=act.reason,
        erased=erased,
        deleted=tuple(plan.threads),
        is_done=True,
        proof=proof,
    )
    outcome = msgspec.json.encode(report.as_data()).decode()
    await note_done(kernel.store, act, kernel.now_us(), outcome)
    return report


@define
class _Planner:
    """Finds out what an act has to destroy."""

    _kernel: Kernel
    _only_looks: bool = field(default=False, alias="only_looks", kw_only=True)
    _events: dict[str, dict[str, None]] = field(factory=dict)
    _threads: dict[str, int] = field(factory=dict)
    _made: dict[str, int] = field(factory=dict)

    def plan(self) -> ErasurePlan:
        """The plan so far."""
        events = {thread_id: tuple(ids) for thread_id, ids in self._events.items() if thread_id not in self._threads}
        return ErasurePlan(events, self._threads, {thread_id: self._made[thread_id] for thread_id in events})

    async def add_thread(self, thread_id: str) -> None:
        """A whole thread, and the events that its facts became in other threads."""
        if thread_id in self._threads:
            return
        record = await record_of(self._kernel, thread_id)
        own = {thread_id: record.created_at_us}
        self._threads = own | self._threads if record.forked_from is not None else self._threads | own
        arrived: Mapping[str, Sequence[str]] = {}
        with suppress(*UNREADABLE):  # a log that cannot be read can be deleted
            for prepare in () if self._only_looks else self._kernel[OpenThreads].before_delete:
                await prepare(thread_id)
            await self._kernel[Relay].reach(thread_id, ())  # what is on its way arrives first
            arrived = await self._kernel[Relay].arrivals(thread_id, None)
        for target, event_ids in arrived.items():
            await self.add_events(target, event_ids)

    async def add_events(self, thread_id: str, event_ids: Iterable[str]) -> None:
        """Events of a thread, wherever they are shared, and the events that their facts became elsewhere."""
        rows = await self._kernel.store.find(thread_id, list(event_ids))
        origins = await lineage(self._kernel.store, thread_id)
        for stored in rows:
            owner = next((record.id for record, _, last in origins if stored.seq <= last), "")
            if not owner:  # it was deleted after the look above
                raise ThreadNotFound(thread_id)
            await self._add_shared(owner, stored)

    async def _add_shared(self, thread_id: str, stored: StoredEvent) -> None:
        ids = self._events.setdefault(thread_id, {})
        if stored.id in ids:
            return
        ids[stored.id] = None
        record = await record_of(self._kernel, thread_id)
        self._made[thread_id] = record.created_at_us
        for fork_id, upto in await forks_of(self._kernel, thread_id):
            if stored.seq <= upto:
                await self._add_shared(fork_id, stored)
        if self._kernel.kind(record.kind).pooled:
            return
        thread = ThreadHandle(self._kernel, thread_id)
        forgotten = await forgetting(thread, event_ids=[stored.id])
        brought = await self._kernel.reader.ids_at(thread_id, forgotten.origins())
        for target, arrived in (await self._kernel[Relay].arrivals(thread_id, brought)).items():
            await self.add_events(target, arrived)
        for target, copies in (await recalled.elsewhere(self._kernel, thread_id, brought)).items():
            await self.add_events(target, copies)


@define
class _ThreadErasing:
    """One thread forgets events and gets stand-ins for their texts."""

    _kernel: Kernel
    _act: Act
    _thread_id: str
    _pieces: ErasedPieces
    _plan: ErasurePlan

    async def run(self, event_ids: Sequence[str]) -> int:
        """Erase them, unless an earlier attempt has; how many events lost their texts.

        A thread that is deleted before or meanwhile has nothing left to erase. A later thread of its id is not meant.
        """
        try:
            record = await record_of(self._kernel, self._thread_id)
        except ThreadNotFound:
            return 0
        if not self._plan.means(record):  # another thread bears the id now
            return 0
        try:
            return await self._run(record, event_ids)
        except MemoryEngineError:
            if await self._is_meant(record):
                raise
            return 0

    async def _is_meant(self, record: ThreadRecord) -> bool:
        return await is_there(self._kernel, self._thread_id, record.created_at_us)

    async def _run(self, record: ThreadRecord, event_ids: Sequence[str]) -> int:
        kernel = self._kernel
        thread = ThreadHandle(kernel, self._thread_id)
        if (done := await self._done()) is not None:
            return done
        event_ids = [stored.id for stored in await kernel.store.find(self._thread_id, list(event_ids))]
        if not event_ids:  # a backup whose moment was before them
            return 0
        hidden = Hidden(thread_id=self._thread_id)
        if kernel.kind(record.kind).pooled:  # what was withdrawn there shows nowhere; its rows know no forgetting
            hidden.seqs.update(stored.seq for stored in await kernel.store.find(self._thread_id, event_ids))
        else:
            hidden.forget(await self._forgotten(record, thread, event_ids))
        runtime = await kernel[OpenThreads].taken(self._thread_id)
        await kernel[CompactionService].settle(runtime)

        await learn(hidden, kernel)
        stand_ins = await self._stand_ins(record, hidden)

        async def replace() -> int:
            count = await self._replaced(record, stand_ins)
            await runtime.reload()
            return count

        count = None
        while count is None:
            if stand_ins.are_outdated:
                stand_ins = await self._stand_ins(record, hidden)
            try:
                count = await runtime.exclusively(replace)
            except (HeadMoved, EventIdTaken):  # another process has written meanwhile, or goes on with this act too
                count = await self._done()
        return count

    async def _stand_ins(self, record: ThreadRecord, hidden: Hidden) -> "StandIns":
        """The stand-ins for the present log. The thread takes events meanwhile."""
        stand_ins = await StandIns.of(self._kernel, record, hidden)
        await stand_ins.advance((await self._kernel.store.head(self._thread_id)).seq)
        return stand_ins

    async def _done(self) -> int | None:
        """How many events an earlier attempt has erased; `None` where there was none."""
        count, n = None, 0
        while found := await self._kernel.store.find(self._thread_id, [self._event_id("erased", n)]):
            event = read_back(self._thread_id, found[0], self._kernel.events).event
            count = (count or 0) + (len(event.rows) if isinstance(event, EventsErased) else 0)
            n += 1
        return count

    async def _forgotten(self, record: ThreadRecord, thread: ThreadHandle, event_ids: Sequence[str]) -> MemoryForget:
        """Let the thread forget the events first, so that no state, view or search shows their stand-ins."""
        kernel, event_id = self._kernel, self._event_id("forgotten", 0)
        found = await kernel.store.find(thread.id, [event_id])
        if found:
            event = read_back(thread.id, found[0], kernel.events).event
            assert isinstance(event, MemoryForget)
            return event
        event = await forgetting(thread, event_ids=event_ids, reason=self._act.reason)
        request = kernel.request([NewEvent(event, id=event_id)], system=True)
        request.administrative = True
        runtime = await thread.runtime()

        def check(_state: State) -> None:
            if runtime.record.created_at_us != record.created_at_us:  # its seqs would be those of other events
                raise ThreadNotFound(self._thread_id)

        request.check = check
        await runtime.submit(request)
        return event

    async def _replaced(self, record: ThreadRecord, stand_ins: "StandIns") -> int:
        """Write the stand-ins, and the event that says so, in one commit."""
        kernel = self._kernel
        head = await kernel.store.head(self._thread_id)
        await stand_ins.advance(head.seq)
        if stand_ins.are_outdated:
            raise HeadMoved
        if not await self._is_meant(record):  # after the head was read, which the commit compares
            raise ThreadNotFound(self._thread_id)
        named = stand_ins.named
        events = [
            EventsErased(
                rows=tuple(named[at : at + _ROWS_MAX]), act=self._act.id, by=self._act.by, reason=self._act.reason
            )
            for at in range(0, max(1, len(named)), _ROWS_MAX)
        ]
        rows: list[StoredEvent] = []
        moved = head
        for n, event in enumerate(events):
            prepared = kernel.preparer.one(NewEvent(event, id=self._event_id("erased", n)))
            at_us = kernel.kind(record.kind).recorded_us(kernel.now_us())
            rows.append(linked_row(prepared, encode_reduction(NOTHING, event), moved, at_us))
            moved = next_head(moved, rows[-1], stand_ins.log.state.tally, tracked=True)
        unit = CommitUnit(thread_id=self._thread_id, expected=head, head=moved, events=rows)
        await kernel.store.erase(unit, stand_ins.replaced)
        self._pieces.add(stand_ins.pieces)
        return len(named)

    def _event_id(self, what: str, n: int) -> str:
        return derived_id(what, self._act.id, self._thread_id, str(n))
