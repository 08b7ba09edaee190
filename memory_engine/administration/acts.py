"""Whose rows an act may reach, and how often it is tried.

A server lets each role ask for an act, and the owner's engine may be the one that carries it out. So an act reaches
what whoever asked for it may reach, looked up when it is carried out. One that fails is tried again by later processes,
a few times: a log that cannot be read would make each of them read it again, and fail.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from memory_engine.errors import (
    ActFailed,
    ActRefused,
    ContentionError,
    EngineClosed,
    EngineForked,
    ErasureUnfinished,
    LegalHold,
    MemoryEngineError,
    QueueFull,
    ReadOnly,
    StorageBusy,
    StorageFailed,
    ThreadHasForks,
)
from memory_engine.store.acts import Act, ActFailures
from memory_engine.store.protocol import Store, ThreadFilter

T = TypeVar("T")
HELD_UP = (LegalHold, ThreadHasForks)
"""An act waits for a release, or for the deletion of a fork, however long that takes."""
NOT_ITS_OWN = (
    *HELD_UP,
    ErasureUnfinished,
    ContentionError,
    EngineClosed,
    EngineForked,
    QueueFull,
    ReadOnly,
    StorageBusy,
    StorageFailed,
)
"""Errors that say nothing against an act: others are in its way, or the store can do no such thing here and now."""


def plan_of(act: Act, kind: type[T]) -> T | None:
    """The plan of an act; `None` for one that cannot be read, as a role of a server can write any.

    Raises `msgspec.MsgspecError` if the server, or a file, limits no one: there it is damaged.
    """
    try:
        return msgspec.json.decode(act.plan, type=kind)
    except msgspec.MsgspecError:
        if act.tenants is None:
            raise
        return None


async def is_allowed(store: Store, act: Act, thread_ids: Iterable[str]) -> bool:
    """Whether the caller of an act may reach these threads, those that exist."""
    return not await _beyond(store, act, thread_ids)


async def check_allowed(store: Store, act: Act, thread_ids: Iterable[str]) -> None:
    """Raise `ActRefused` for an act on a thread of a tenant that whoever asked for it may not reach."""
    if thread_id := await _beyond(store, act, thread_ids):
        raise ActRefused(act.id, act.role, thread_id)


async def _beyond(store: Store, act: Act, thread_ids: Iterable[str]) -> str:
    if act.tenants is not None:
        for thread_id in thread_ids:
            for record, _ in await store.threads(ThreadFilter(id=thread_id)):
                if record.tenant_id not in act.tenants:
                    return thread_id
    return ""


async def note_done(store: Store, act: Act, done_at_us: int, outcome: str) -> None:
    """Keep with an act that it is done, and its outcome; if another process has finished it, keep that one's."""
    if any(pending.id == act.id for pending in await store.acts(pending=True)):
        await store.put_act(msgspec.structs.replace(act, done_at_us=done_at_us, outcome=outcome))


async def note_failure(store: Store, act_id: str, error: Exception) -> None:
    """Keep with an act that a try has failed, and why; nothing if another process has finished it."""
    for act in await store.acts(pending=True):
        if act.id == act_id:
            told = ActFailures(act.failures + 1, f"{type(error).__name__}: {error}")
            await store.put_act(msgspec.structs.replace(act, outcome=msgspec.json.encode(told).decode()))


async def failure_now(store: Store, act_id: str, error: Exception) -> MemoryEngineError:
    """The error for an act of which a try has just failed, with what it failed for as its cause."""
    for act in await store.acts():
        if act.id == act_id:
            failure = failure_of(act)
            failure.__cause__ = error
            return failure
    raise error


def failure_of(act: Act) -> ActFailed:
    """The error for an act of which a try has failed."""
    return ActFailed(act.id, act.kind, act.failures, act.error, act.state == "failed")
