"""The fold of an industry's pool: texts, and the shares of each, whosever they are."""

from hashlib import sha256
from typing import cast

import msgspec

from memory_engine.events import Event, MemoryForget, PatternPublished, PatternWithdrawn
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows
from memory_engine.projections.promotion.wording import same_text
from memory_engine.records import RecordedEvent


class PooledShare(msgspec.Struct, frozen=True):
    """One tenant's share of a text, in its wording, by the event at `seq`."""

    share: str
    text: str
    min_tenants: int
    seq: int


class PooledPattern(msgspec.Struct, frozen=True, tag="pattern"):
    """A text, and the shares of it, one for each tenant."""

    shares: tuple[PooledShare, ...]

    def shown(self) -> tuple[PooledShare, ...]:
        """The shares that may be seen: those whose tenants are content with so many."""
        return tuple(share for share in self.shares if share.min_tenants <= len(self.shares))


class PooledName(msgspec.Struct, frozen=True, tag="share"):
    """Under which text a share is found."""

    pattern: str


PoolRow = PooledPattern | PooledName

_PATTERN, _SHARE = "pattern/", "share/"


class PoolFold:
    """An industry's side: texts by what they say, each with its shares."""

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
                share = PooledShare(published.share, published.text, published.min_tenants, event.seq)
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
    """What all who share a text know it by: it is made of what the text says, and tells nobody more."""
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
