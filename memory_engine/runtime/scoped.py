"""Scopes: threads of users, tenants and agents, found by their owner's id, made by their first event."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote

from memory_engine.core.arguments import checked_count, checked_list
from memory_engine.core.codec import encode_event
from memory_engine.core.events.base import Event
from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.memory import InitialChunk, ThreadSeeded
from memory_engine.core.ids import check_identifier
from memory_engine.core.lazy import lazy_module
from memory_engine.core.records import EventLike, NewEvent, Receipt
from memory_engine.core.reduction import ReduceContext, reduce_into
from memory_engine.core.state import State
from memory_engine.core.threads import CompactionPolicy, Head, ThreadRecord, as_metadata, check_record, is_scope_id
from memory_engine.errors import (
    Conflict,
    EventTooLarge,
    InvalidIdentifier,
    InvalidSearch,
    ScopeRequired,
    ThreadDiffers,
    ThreadExists,
    ThreadNotFound,
    WrongThreadKind,
)
from memory_engine.projections.outbox import check_destinations
from memory_engine.runtime.handle import ThreadHandle, event_list
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter

if TYPE_CHECKING:
    from memory_engine.core import plain_events
else:
    plain_events = lazy_module("memory_engine.core.plain_events")

T = TypeVar("T")

_SEEN = "this scope is there"


class ScopeHandle(ThreadHandle):
    """A thread that its first event creates; until then its views are empty."""

    def __init__(self, kernel: Kernel, kind: str, scope_id: str, tenant_id: str = "") -> None:
        check_identifier(f"{kind} id", scope_id)
        if tenant_id != "":
            check_identifier("tenant id", tenant_id)
        super().__init__(kernel, scope_thread_id(kind, scope_id, tenant_id))
        self.kind = kind
        self.scope_id = scope_id
        self.tenant_id = tenant_id

    def __repr__(self) -> str:
        tenant = f", tenant_id={self.tenant_id!r}" if self.tenant_id else ""
        return f"{type(self).__name__}({self.scope_id!r}{tenant})"

    async def dispatch(  # noqa: PLR0913 - what an envelope holds, by keyword
        self,
        event: EventLike,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
        expected_seq: int | None = None,
    ) -> Receipt:
        """Append one event, creating the thread if this is its first. See `ThreadHandle.dispatch`."""
        if isinstance(event, Mapping):
            plain = plain_events.event_of(event, self.kernel.events)
            event, occurred_at = plain.event, plain.occurred_at if occurred_at is None else occurred_at
        new = (
            event
            if isinstance(event, NewEvent)
            else NewEvent(event, event_id, occurred_at, causation_id, correlation_id)
        )
        send = partial(
            super().dispatch,
            event,
            event_id=event_id,
            occurred_at=occurred_at,
            causation_id=causation_id,
            correlation_id=correlation_id,
            expected_seq=expected_seq,
        )
        return await self._made((new,), send, expected_seq)

    async def dispatch_all(
        self, events: Sequence[EventLike], *, expected_seq: int | None = None
    ) -> tuple[Receipt, ...]:
        """Append events in order, all or none, creating the thread if these are its first."""
        given = event_list(events, self.kernel.events)
        return await self._made(given, partial(super().dispatch_all, given, expected_seq=expected_seq), expected_seq)

    async def _made(
        self, events: Sequence[Event | NewEvent], send: Callable[[], Awaitable[T]], expected_seq: int | None
    ) -> T:
        """Send events to the thread, made before if it is not there, and again if another process has deleted it."""
        seen = 0 if expected_seq is None else checked_count("expected_seq", expected_seq)
        if events and seen and not await self._is_there():
            raise Conflict(self.id, seen, 0)
        if events:
            await self._make(*events)
        try:
            return await send()
        except ThreadNotFound:
            self.kernel[OpenThreads].drop(self.id)
            if not events:
                raise
            await self._make(*events)
            return await send()

    async def exists(self) -> bool:
        """Whether anything was dispatched here, including facts on their way from other threads.

        Raises `WrongThreadKind` for a thread created under this id by hand.
        """
        for arrive in self.kernel[OpenThreads].before_scopes:
            await arrive()
        return await self._is_there()

    @property
    def _tenant(self) -> str:
        return self.scope_id if self.kind == "tenant" else self.tenant_id

    async def _is_there(self) -> bool:
        if self.kernel.caches.get(self.id, _SEEN, bool):
            return True
        found = await self.kernel.store.threads(ThreadFilter(id=self.id))
        if not found:
            return False
        record = found[0][0]
        if (record.kind, record.tenant_id) != (self.kind, self._tenant):
            raise WrongThreadKind(self.id, record.kind, self.kind)
        self.kernel.caches.put(self.id, _SEEN, True)
        return True

    async def _make(self, *events: Event | NewEvent) -> None:
        """Make the thread, unless its first events will be refused."""
        if await self._is_there():
            return
        self.kernel.request(events)
        bare = [event.event if isinstance(event, NewEvent) else event for event in events]
        kind = self.kernel.kind(self.kind)
        for event in bare:
            check_destinations(event, self._tenant)
            if kind.check is not None:
                kind.check(event)
        try_first(self.kernel, self.id, bare[0])
        record = ThreadRecord(
            id=self.id,
            kind=self.kind,
            user_id=self.scope_id if self.kind == "user" else "",
            agent_id=self.scope_id if self.kind == "agent" else "",
            tenant_id=self._tenant,
            created_at_us=kind.recorded_us(self.kernel.now_us()),
        )
        try:
            await create_thread(self.kernel, record)
        except ThreadExists:  # another task or process was first
            if not await self._is_there():
                raise ThreadNotFound(self.id) from None  # it was deleted at this moment: send again
        self.kernel.caches.put(self.id, _SEEN, True)


def scope_of(kernel: Kernel, destination: Destination) -> ScopeHandle:
    """The thread for a fact. Raises `InvalidIdentifier`."""
    tenant_id = destination.tenant_id if destination.kind in ("user", "agent") else ""
    return ScopeHandle(kernel, destination.kind, destination.id, tenant_id)


class ThreadScopes(NamedTuple):
    """The kind of a thread, and its owners."""

    kind: str
    user_id: str
    tenant_id: str
    agent_id: str
    parent_id: str


async def is_there(kernel: Kernel, thread_id: str, wanted: Mapping[str, str]) -> bool:
    """Whether there is a thread of this id. Raises `ThreadDiffers` unless it has each of the wanted scopes.

    Asks the store each time: another process may have deleted the thread, and its id may be another owner's by now.
    """
    for record, _ in await kernel.store.threads(ThreadFilter(id=thread_id)):
        pairs = ((name, getattr(record, name), value) for name, value in wanted.items())
        differences = tuple(one for one in pairs if one[1] != one[2])
        if differences:
            raise ThreadDiffers(thread_id, differences)
        return True
    return False


def check_scoped(kernel: Kernel, what: str, user_id: str | None, tenant_id: str) -> None:
    """Raise `ScopeRequired` for neither a user nor a tenant, if the engine requires one."""
    if kernel.config.scopes_required and not (user_id or tenant_id):
        raise ScopeRequired(what)


def new_record(
    kernel: Kernel,
    thread_id: str,
    scopes: ThreadScopes,
    metadata: Mapping[str, str] | None,
    policy: CompactionPolicy | None,
) -> ThreadRecord:
    """The record of a thread to create. Raises `ScopeRequired`, `InvalidIdentifier`, and for what it cannot hold."""
    check_scoped(kernel, f"thread {thread_id!r} was not opened", scopes.user_id, scopes.tenant_id)
    check_not_scope(thread_id)
    check_identifier("kind", scopes.kind)
    record = ThreadRecord(
        id=thread_id,
        kind=scopes.kind,
        user_id=scopes.user_id,
        tenant_id=scopes.tenant_id,
        agent_id=scopes.agent_id,
        parent_id=scopes.parent_id,
        metadata=as_metadata(metadata),
        policy=policy,
        created_at_us=kernel.kind(scopes.kind).recorded_us(kernel.now_us()),
    )
    check_record(record)
    return record


def seeded(initial_chunks: Sequence[InitialChunk]) -> ThreadSeeded | None:
    """The first event of a thread with these chunks; `None` without any. Raises `InvalidArgument`."""
    chunks = checked_list("initial_chunks", initial_chunks, InitialChunk, each="InitialChunk")
    return ThreadSeeded(chunks=chunks) if chunks else None


async def open_thread(kernel: Kernel, record: ThreadRecord, first: Event | None) -> None:
    """Create a thread with these scopes unless it exists. Raises `ThreadDiffers`, and what `create_thread` raises."""
    scopes = {name: str(getattr(record, name)) for name in ThreadScopes._fields}
    while not await is_there(kernel, record.id, scopes):
        with suppress(ThreadExists):  # another task or process was first
            await create_thread(kernel, record, first)
            return


async def create_thread(kernel: Kernel, record: ThreadRecord, first: Event | None = None) -> None:
    """Create a thread, with its first event if given.

    Both are one commit. Raises `ThreadExists`, `InvalidIdentifier`, `InvalidPolicy`, `ReadOnly`, and the errors of
    dispatching; then no thread is created.
    """
    kernel.check_writable("a thread")
    check_record(record)
    if first is None:
        await kernel.store.create(record, Head(), ())
        kernel[OpenThreads].adopt(record)
    else:
        await kernel[OpenThreads].make(record, kernel.request([first]))


def try_first(kernel: Kernel, thread_id: str, event: Event) -> None:
    """Reduce an event as the first of a thread, so that a refusal comes before the id is taken."""
    payload, recorded = encode_event(event, kernel.events)
    if len(payload) > kernel.config.event_bytes_max:
        raise EventTooLarge(recorded.event_type, len(payload), kernel.config.event_bytes_max)
    reducers = kernel.reducers.of_type(recorded.event_type)
    reduce_into(State().draft(), reducers, recorded, ReduceContext(1, "", kernel.now_us()), thread_id)


def check_not_scope(thread_id: object, record: ThreadRecord | None = None) -> None:
    """Raise `InvalidIdentifier` for an id reserved for a scope, unless `record` is that scope's."""
    if not isinstance(thread_id, str):
        return  # another check says that it is not an id
    kind = thread_id.partition(":")[0]
    if not is_scope_id(thread_id) or (record is not None and kind == record.kind and thread_id == _own_id(record)):
        return
    why = f"such ids are kept for threads that `engine.{kind}(…)` makes; take another"
    raise InvalidIdentifier("thread id", thread_id, why)


def check_one_tenant(tenant_id: object) -> None:
    """Raise `InvalidSearch` for `None`, which elsewhere means any: no search spans several tenants."""
    if not isinstance(tenant_id, str):
        raise InvalidSearch("tenant_id", tenant_id, "threads of no tenant go by an empty text; name one tenant")


def _own_id(record: ThreadRecord) -> str:
    """The id of the scope whose record this is. An industry's name is in its id alone."""
    owners = {"user": record.user_id, "agent": record.agent_id, "tenant": record.tenant_id}
    if record.kind not in owners:
        return record.id
    return scope_thread_id(record.kind, owners[record.kind], "" if record.kind == "tenant" else record.tenant_id)


def scope_thread_id(kind: str, scope_id: str, tenant_id: str = "") -> str:
    """The id of the thread: different for any two different (kind, tenant, id)."""
    mine = quote(scope_id, safe=_SAFE)
    return f"{kind}:{quote(tenant_id, safe=_SAFE)}/{mine}" if tenant_id else f"{kind}:{mine}"


_SAFE = "".join(chr(n) for n in range(33, 127) if chr(n) not in "%/")
"""Characters kept unescaped, so that ids are readable. Separator and escape are not among them."""
