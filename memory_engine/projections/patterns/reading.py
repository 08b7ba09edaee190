"""Reading an industry's pool on behalf of one of its tenants."""

from collections.abc import Collection

from memory_engine.projections.patterns.passages import PATTERN
from memory_engine.projections.patterns.pooling import POOL, PooledPattern, pooled, pooled_as
from memory_engine.projections.patterns.values import Pattern, PatternHit
from memory_engine.recall.asked import search_thread
from memory_engine.scoped import ScopeHandle

SEARCH_WIDENED = 4
"""A search that finds patterns twice, or hidden ones, looks for so many times more hits."""
SEARCH_HITS_MAX = 1_000


def shown(key: str, row: PooledPattern, industry: str, *, own: Collection[str]) -> Pattern | None:
    """A pattern as a tenant with the shares `own` sees it; `None` where it waits for others to say the same."""
    seen = row.shown()
    if not seen:
        return None
    is_own = any(share.share in own for share in row.shares)
    return Pattern(id=key, industry=industry, text=seen[0].text, tenants=len(seen), own=is_own)


async def seen_in(industry: ScopeHandle, own: Collection[str]) -> list[Pattern]:
    """The patterns of an industry, oldest first."""
    seen = (shown(key, row, industry.scope_id, own=own) for key, row in pooled(await industry.rows(POOL)))
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
            seen = shown(*held, industry.scope_id, own=own) if held is not None else None
            if seen is not None:
                hits.setdefault(seen.id, PatternHit(seen, hit.score, hit.why))
        if len(hits) >= limit or len(found) < wanted or wanted >= SEARCH_HITS_MAX:
            return list(hits.values())[:limit]
