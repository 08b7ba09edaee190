"""The other threads that a thread may recall from: those of its own tenant and user, and its own agent's memory."""

from collections.abc import Sequence

from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import InvalidSearch, ThreadNotFound, WrongThreadKind
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.store.protocol import ThreadFilter


async def searchable(thread: ThreadHandle, others: Sequence[ThreadHandle], *, at: int | None) -> tuple[str, ...]:
    """Return the ids of the other threads, without scopes that nothing has been dispatched to.

    Raises `InvalidSearch` for a thread that this one may not recall from, for a value that is not a handle, and for
    threads combined with `at`; also `ThreadNotFound` and `WrongThreadKind`.
    """
    if not isinstance(others, Sequence):
        raise InvalidSearch("recall_from", others, "it is a list of handles: [engine.user(...), engine.thread(...)]")
    if not others:
        return ()
    if at is not None:
        raise InvalidSearch("at", at, "it is a seq of this thread, and the threads of `recall_from` have their own")
    kernel = thread.kernel
    await kernel[Relay].recover()
    own = await _scope_record(kernel, thread)
    ids = []
    for other in others:
        record = await _scope_record(kernel, other)
        if own is not None and record is not None and other.id != thread.id:
            _check_same_owner(own, record)
            ids.append(other.id)
    return tuple(dict.fromkeys(ids))


async def _scope_record(kernel: Kernel, thread: ThreadHandle) -> ThreadRecord | None:
    """Return the stored record of a thread, or `None` for a scope that nothing has been dispatched to."""
    if not isinstance(thread, ThreadHandle):
        raise InvalidSearch("recall_from", thread, "it is not a handle: engine.user(...), engine.thread(...)")
    if thread.kernel is not kernel:
        raise InvalidSearch("recall_from", thread.id, "it is another engine's")
    found = await kernel.store.threads(ThreadFilter(id=thread.id))
    kind = thread.kind if isinstance(thread, ScopeHandle) else ""
    if found and kind not in ("", found[0][0].kind):
        raise WrongThreadKind(thread.id, found[0][0].kind, kind)
    if not found and not kind:
        raise ThreadNotFound(thread.id)
    return found[0][0] if found else None


def _check_same_owner(own: ThreadRecord, other: ThreadRecord) -> None:
    """Raise `InvalidSearch` for a thread of another tenant or user, and for the memory of another agent."""
    why = ""
    if other.tenant_id != own.tenant_id:
        why = f"it is not of this thread's tenant {own.tenant_id!r}" if own.tenant_id else "this thread has no tenant"
    elif other.user_id and other.user_id != own.user_id:
        why = "it is another user's"
    elif other.kind == "agent" and other.agent_id != own.agent_id:
        why = "it is another agent's memory; what that shares is read with `agent.shared(...)`"
    if why:
        raise InvalidSearch("recall_from", other.id, why)
