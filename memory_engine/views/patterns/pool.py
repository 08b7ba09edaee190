"""An industry's pool: texts, and the shares of each by all tenants.

An industry's thread is read on behalf of many tenants and belongs to none. It keeps out everything
that could lead back to the tenant of an event: other types of events, causes and correlations, the moment (it keeps
the day).

A share may lose the line it rested on: it was removed or forgotten, or its tenant left. The fold finds such orphans
in the commit of the event that took the line away; the relay has them revoked before it delivers, so that no order of
events, and no crash in between, leaves one standing.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import cast

import msgspec

from memory_engine.core.clock import DAY_US
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ExecutionPause, ExecutionResume, MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.errors import InvalidEvent, ThreadClosed, ThreadNotFound
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows
from memory_engine.recall.service import search_thread
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import ThreadKind
from memory_engine.runtime.queue import Prepared
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.store import rewinds
from memory_engine.store.attested import Imported, imported_of
from memory_engine.store.protocol import RowSpan, Store
from memory_engine.views.patterns.events import PatternPublished, PatternRevoked, PatternWithdrawn, SharedText
from memory_engine.views.patterns.fold import ORPHAN, PATTERN, PATTERNS, Pattern, PatternHit, ShareRow, orphans, shares
from memory_engine.views.promotion.wording import same_text


class PooledShare(SharedText, frozen=True, kw_only=True):
    """One tenant's share of a text, in its wording, by the event at `seq`."""

    seq: int


class PooledPattern(msgspec.Struct, frozen=True, tag="pattern"):
    """A text, and the shares of it, one for each tenant."""

    shares: tuple[PooledShare, ...]

    def shown(self) -> tuple[PooledShare, ...]:
        """The shares that may be seen: there are at least as many as their tenants ask for."""
        return tuple(share for share in self.shares if share.min_tenants <= len(self.shares))


class PooledName(msgspec.Struct, frozen=True, tag="share"):
    """The key of the text that a share belongs to."""

    pattern: str


PoolRow = PooledPattern | PooledName

_PATTERN, _SHARE = "pattern/", "share/"


class PoolFold:
    """An industry's side: texts by a digest of their words, each with its shares."""

    name = "pattern_pool"
    version = 1
    mode: ProjectionMode = "inline"
    row = cast("type[PoolRow]", PoolRow)
    events: tuple[type[Event], ...] = (PatternPublished, PatternWithdrawn, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[PoolRow], event: RecordedEvent) -> None:
        """Publish, withdraw, forget."""
        match event.event:
            case PatternPublished() as published:
                _withdraw(rows, published.share)
                key = pattern_id(published.text)
                share = PooledShare(published.share, published.text, published.min_tenants, seq=event.seq)
                pattern = rows.get(_PATTERN + key)
                former = pattern.shares if isinstance(pattern, PooledPattern) else ()
                rows.put(_PATTERN + key, PooledPattern((*former, share)))
                rows.put(_SHARE + published.share, PooledName(key))
            case PatternWithdrawn(share=gone):
                _withdraw(rows, gone)
            case MemoryForget(seqs=seqs) if seqs:
                held = (row.shares for _, row in rows.items() if isinstance(row, PooledPattern))
                for forgotten in [share.share for shares in held for share in shares if share.seq in seqs]:
                    _withdraw(rows, forgotten)


def _withdraw(rows: Rows[PoolRow], share: str) -> None:
    name = rows.get(_SHARE + share)
    if not isinstance(name, PooledName):
        return
    rows.drop(_SHARE + share)
    pattern = rows.get(_PATTERN + name.pattern)
    kept = tuple(one for one in pattern.shares if one.share != share) if isinstance(pattern, PooledPattern) else ()
    if kept:
        rows.put(_PATTERN + name.pattern, PooledPattern(kept))
    else:
        rows.drop(_PATTERN + name.pattern)


def pattern_id(text: str) -> str:
    """The name of a text for all who share it. It is made of the text alone, so it reveals nothing else."""
    return sha256(same_text(text).encode()).hexdigest()[:32]


def pooled(rows: ReadableRows[PoolRow]) -> list[tuple[str, PooledPattern]]:
    """The patterns of a pool, in the order in which they came."""
    found = [(key.removeprefix(_PATTERN), row) for key, row in rows.items() if isinstance(row, PooledPattern)]
    return sorted(found, key=lambda item: item[1].shares[0].seq)


def pooled_as(rows: ReadableRows[PoolRow], share: str) -> tuple[str, PooledPattern] | None:
    """The pattern that a share belongs to."""
    name = rows.get(_SHARE + share)
    pattern = rows.get(_PATTERN + name.pattern) if isinstance(name, PooledName) else None
    return (name.pattern, pattern) if isinstance(name, PooledName) and isinstance(pattern, PooledPattern) else None


POOL = PoolFold()


SEARCH_WIDENED = 4
"""A search that finds patterns twice, or hidden ones, looks for this many times more hits."""
SEARCH_HITS_MAX = 1_000


def visible_pattern(key: str, row: PooledPattern, industry: str, *, own: Collection[str]) -> Pattern | None:
    """A pattern as a tenant with the shares `own` sees it; `None` where it waits for others to say the same."""
    seen = row.shown()
    if not seen:
        return None
    is_own = any(share.share in own for share in row.shares)
    return Pattern(id=key, industry=industry, text=seen[0].text, tenants=len(seen), own=is_own)


async def seen_in(industry: ScopeHandle, own: Collection[str]) -> list[Pattern]:
    """The patterns of an industry, oldest first."""
    seen = (visible_pattern(key, row, industry.scope_id, own=own) for key, row in pooled(await industry.rows(POOL)))
    return [pattern for pattern in seen if pattern is not None]


async def found_in(industry: ScopeHandle, query: str, limit: int, own: Collection[str]) -> list[PatternHit]:
    """The patterns of an industry that say most about a question, best first, each once."""
    wanted = limit
    while True:
        wanted = min(wanted * SEARCH_WIDENED, max(limit, SEARCH_HITS_MAX))
        found = await search_thread(industry, query, limit=wanted, kinds=(PATTERN,))
        rows = await industry.rows(POOL)
        hits: dict[str, PatternHit] = {}
        for hit in found:
            held = pooled_as(rows, hit.key)
            seen = visible_pattern(*held, industry.scope_id, own=own) if held is not None else None
            if seen is not None:
                hits.setdefault(seen.id, PatternHit(seen, hit.score, hit.why))
        if len(hits) >= limit or len(found) < wanted or wanted >= SEARCH_HITS_MAX:
            return list(hits.values())[:limit]


INDUSTRY = "industry"
"""The kind of these threads."""

_TAKEN = frozenset({PatternPublished, PatternWithdrawn, MemoryForget, ExecutionPause, ExecutionResume})


def check_pooled(event: Event, *links: object) -> None:
    """Raise `InvalidEvent` for an event that industries' threads refuse. Any `links` (causes, moments) are refused."""
    if type(event) not in _TAKEN:
        raise InvalidEvent(event.event_type, "its thread", "an industry's thread takes patterns and nothing else")
    if any(links):
        raise InvalidEvent(event.event_type, "its envelope", "an industry's thread keeps no cause, no moment")


def prepared_for_pool(prepared: Prepared) -> Prepared:
    """An event as an industry's thread keeps it: without the causes that the block around its sender set.

    Raises `InvalidEvent` as `check_pooled` does, also for causes that the sender itself gave.
    """
    check_pooled(prepared.event, prepared.links_are_callers, prepared.occurred_at_us is not None)
    return msgspec.structs.replace(prepared, causation_id="", correlation_id="")


INDUSTRIES = ThreadKind(name=INDUSTRY, check=check_pooled, admit=prepared_for_pool, grain_us=DAY_US, pooled=True)
"""The rules of industries' threads: they take patterns and nothing else, and keep only the day of a moment."""


TENANTS = "tenant:"
"""The prefix of the ids of tenants' threads: only these have shares."""


async def withdraw_orphans(tenant: ThreadHandle) -> None:
    """Revoke the orphans. Idempotent: a second call finds none."""
    if not tenant.id.startswith(TENANTS):
        return
    rows = await tenant.rows(PATTERNS)
    found = [*orphans(rows), *await _bereft_by_rewinds(tenant, shares(rows))]
    elsewhere = await imported_of(tenant.kernel.store, tenant.id) if found else Imported()
    for share, reason in found:
        if share.seqs[-1] in elsewhere:
            continue  # the thread that recorded the approval published it, and must withdraw it
        with suppress(ThreadClosed):
            await tenant.dispatch(revocation(share, reason=reason), event_id=f"bereft:{share.share}:{share.seqs[-1]}")


async def _bereft_by_rewinds(tenant: ThreadHandle, held: Sequence[ShareRow]) -> list[tuple[ShareRow, str]]:
    """The shares whose lines were all taken back where they came from."""
    if not held:
        return []
    shown = await rewinds.shown_at(tenant.kernel.reader, tenant.id, await tenant.last_seq())
    gone = (share for share in held if share.approvals and not any(shown.has(one.source) for one in share.approvals))
    return [(share, "its line was taken back") for share in gone]


def revocation(share: ShareRow, *, by: str = "", reason: str = "") -> PatternRevoked:
    """The end of a share."""
    return PatternRevoked(industry=share.industry, share=share.share, approvals=share.seqs, by=by, reason=reason)


async def bereft(store: Store) -> Sequence[str]:
    """The ids of the threads with shares to revoke: the process died before it could."""
    found = []
    for thread_id in await store.holders(PATTERNS.name, PATTERNS.version):
        with suppress(ThreadNotFound):  # it was deleted meanwhile
            span = RowSpan(limit=1, latest=True)
            last = await store.rows_between(PATTERNS.name, PATTERNS.version, thread_id, span)
            if any(key.startswith(ORPHAN) for key, _ in last):
                found.append(thread_id)
    return found


async def withdraw_all(tenant: ThreadHandle) -> None:
    """Take back everything that a tenant shares, before its thread is destroyed."""
    if not tenant.id.startswith(TENANTS):
        return
    shared = shares(await tenant.rows(PATTERNS))
    if not shared:
        return
    try:
        await tenant.dispatch_all([revocation(share, reason="the tenant is deleted") for share in shared])
        await tenant.kernel[Relay].deliver(tenant.id)
    except ThreadClosed:  # it is archived and records nothing more, but the industries must still be notified
        for share in shared:
            pool = ScopeHandle(tenant.kernel, INDUSTRY, share.industry)
            await pool.dispatch(PatternWithdrawn(share=share.share), event_id=f"ended:{share.share}")
