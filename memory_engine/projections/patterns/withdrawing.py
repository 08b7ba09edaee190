"""Shares that lost what they rested on: their line was removed or forgotten, or their tenant left.

The fold finds them in the commit of the event that took it away; the relay has them revoked before it delivers, so
that no order of events, and no crash in between, leaves one standing.
"""

from collections.abc import Sequence
from contextlib import suppress

from memory_engine.errors import ThreadClosed, ThreadNotFound
from memory_engine.events import PatternRevoked, PatternWithdrawn
from memory_engine.handle import ThreadHandle
from memory_engine.persistence import Store
from memory_engine.pools import INDUSTRY
from memory_engine.projections.patterns.folding import ORPHAN, PATTERNS, ShareRow, orphans, shares
from memory_engine.relay import Relay
from memory_engine.replay.files.imported import Imported, imported_of
from memory_engine.scoped import ScopeHandle

TENANTS = "tenant:"
"""How the ids of tenants' threads begin: no other thread's shares are looked for."""


async def withdraw_orphans(tenant: ThreadHandle) -> None:
    """Revoke what rests on nothing any more. Once: a second call finds none."""
    if not tenant.id.startswith(TENANTS):
        return
    found = orphans(await tenant.rows(PATTERNS))
    elsewhere = await imported_of(tenant.kernel.store, tenant.id) if found else Imported()
    for share, reason in found:
        if share.seqs[-1] in elsewhere:
            continue  # it was published where its approval was recorded, and is to be withdrawn there
        with suppress(ThreadClosed):
            await tenant.dispatch(revocation(share, reason=reason), event_id=f"bereft:{share.share}:{share.seqs[-1]}")


def revocation(share: ShareRow, *, by: str = "", reason: str = "") -> PatternRevoked:
    """The end of a share."""
    return PatternRevoked(industry=share.industry, share=share.share, approvals=share.seqs, by=by, reason=reason)


async def bereft(store: Store) -> Sequence[str]:
    """The ids of the threads with shares to revoke: the process died before it could."""
    found = []
    for thread_id in await store.holders(PATTERNS.name, PATTERNS.version):
        with suppress(ThreadNotFound):  # it was deleted meanwhile
            last = await store.last_rows(PATTERNS.name, PATTERNS.version, thread_id, 1)
            if any(key.startswith(ORPHAN) for key, _ in last):
                found.append(thread_id)
    return found


async def withdraw_all(tenant: ThreadHandle) -> None:
    """Take back whatever a tenant shares, before its thread is destroyed."""
    if not tenant.id.startswith(TENANTS):
        return
    shared = shares(await tenant.rows(PATTERNS))
    if not shared:
        return
    try:
        await tenant.dispatch_all([revocation(share, reason="the tenant is deleted") for share in shared])
        await tenant.kernel[Relay].deliver(tenant.id)
    except ThreadClosed:  # it is archived and records nothing more: the industries are told all the same
        for share in shared:
            pool = ScopeHandle(tenant.kernel, INDUSTRY, share.industry)
            await pool.dispatch(PatternWithdrawn(share=share.share), event_id=f"ended:{share.share}")
