"""Legal holds: while one is in force, nothing of a thread, a user or a tenant is destroyed, whoever asks.

A hold is an act of the store, and so is its release: both stay on record, with who asked for them and why.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from memory_engine.administration.acts import is_allowed, plan_of
from memory_engine.core.arguments import checked_text
from memory_engine.core.clock import to_datetime
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import LegalHold, ThreadNotFound
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.store.acts import Act
from memory_engine.store.protocol import Store, ThreadFilter

HOLD, RELEASE = "hold", "release"


class HoldScope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reach of a hold: a thread, or all threads of a user (of a tenant, or of none), or all of a tenant."""

    thread_id: str = ""
    user_id: str = ""
    tenant_id: str = ""

    def covers(self, record: ThreadRecord) -> bool:
        """Whether it covers a thread."""
        if self.thread_id:
            return record.id == self.thread_id
        return record.tenant_id == self.tenant_id and self.user_id in ("", record.user_id)

    def __str__(self) -> str:
        if self.thread_id:
            return f"thread {self.thread_id!r}"
        tenant = f"tenant {self.tenant_id!r}"
        if not self.user_id:
            return tenant
        return f"user {self.user_id!r}" + (f" of {tenant}" if self.tenant_id else "")


class StandingHold(msgspec.Struct, frozen=True, kw_only=True):
    """A current hold. `id` is that of the act that set it, `at` its time in ISO 8601."""

    id: str
    scope: HoldScope
    by: str = ""
    reason: str = ""
    at: str = ""


class _Released(msgspec.Struct, frozen=True):
    holds: tuple[str, ...]


async def hold(thread: ThreadHandle, *, by: str, reason: str) -> StandingHold:
    """Set a hold, and return it. Several can coexist. Raises `ThreadNotFound`."""
    thread.check_present("a hold")
    checked_text("by", by)
    checked_text("reason", reason)
    thread.kernel.check_writable("a hold")
    scope = _scope_of(thread)
    if scope.thread_id and not await thread.kernel.store.threads(ThreadFilter(id=thread.id)):
        raise ThreadNotFound(thread.id)
    return _hold_of(await _record_act(thread.kernel, HOLD, scope, by, reason))


async def release(thread: ThreadHandle, *, by: str, reason: str) -> Sequence[StandingHold]:
    """End all holds set on exactly this, and return them."""
    thread.check_present("a release")
    checked_text("by", by)
    checked_text("reason", reason)
    thread.kernel.check_writable("a release")
    ended = [one for one in await holds(thread.kernel.store) if one.scope == _scope_of(thread)]
    if ended:
        told = _Released(tuple(one.id for one in ended))
        await _record_act(thread.kernel, RELEASE, told, by, reason)
    return ended


async def holds(store: Store) -> list[StandingHold]:
    """The current holds, oldest first.

    A role of a server that reaches some tenants only holds nothing of others, and ends no holds but its own.
    """
    acts = await in_force(store, await store.acts())
    ended: set[str] = set()
    for act in acts:
        if act.kind == RELEASE:
            ended.update(msgspec.json.decode(act.plan, type=_Released).holds)
    return [_hold_of(act) for act in acts if act.kind == HOLD and act.id not in ended]


async def in_force(store: Store, acts: Sequence[Act]) -> list[Act]:
    """The holds and releases among acts that whoever asked for them may have."""
    holding = {act.id: act for act in acts if act.kind == HOLD and await _may_hold(store, act)}
    return [
        act
        for act in acts
        if (act.kind == HOLD and act.id in holding) or (act.kind == RELEASE and _may_release(act, holding))
    ]


async def _may_hold(store: Store, act: Act) -> bool:
    if act.tenants is None:
        return True
    scope = plan_of(act, HoldScope)
    if scope is None or not scope.thread_id:
        return scope is not None and scope.tenant_id in act.tenants
    return await is_allowed(store, act, [scope.thread_id])


def _may_release(act: Act, holding: Mapping[str, Act]) -> bool:
    if act.tenants is None:
        return True
    released = plan_of(act, _Released)
    return released is not None and all(holding[one].role == act.role for one in released.holds if one in holding)


async def check_not_held(store: Store, thread_ids: Iterable[str]) -> None:
    """Raise `LegalHold` if one of these threads is held."""
    standing = await holds(store)
    for thread_id in thread_ids if standing else ():
        for record, _ in await store.threads(ThreadFilter(id=thread_id)):
            for one in standing:
                if one.scope.covers(record):
                    raise LegalHold(thread_id, one.id, str(one.scope), one.by, one.reason)


def _scope_of(thread: ThreadHandle) -> HoldScope:
    """All threads of a user or a tenant, or this one."""
    match thread:
        case ScopeHandle(kind="user"):
            return HoldScope(user_id=thread.scope_id, tenant_id=thread.tenant_id)
        case ScopeHandle(kind="tenant"):
            return HoldScope(tenant_id=thread.scope_id)
    return HoldScope(thread_id=thread.id)


def _hold_of(act: Act) -> StandingHold:
    scope = msgspec.json.decode(act.plan, type=HoldScope)
    return StandingHold(
        id=act.id, scope=scope, by=act.by, reason=act.reason, at=to_datetime(act.asked_at_us).isoformat()
    )


async def _record_act(kernel: Kernel, kind: str, plan: msgspec.Struct, by: str, reason: str) -> Act:
    now = kernel.now_us()
    told = msgspec.json.encode(plan).decode()
    act = Act(id=kernel.new_id(), kind=kind, plan=told, by=by, reason=reason, asked_at_us=now, done_at_us=now)
    await kernel.store.put_act(act)
    return act
