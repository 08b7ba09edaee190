"""`engine.tenant(id).patterns`: promoted lines that leave a tenant redacted, once a person approves."""

import hmac
from collections.abc import Iterable, Sequence

from msgspec.structs import astuple

from memory_engine.core.arguments import checked_count, checked_text
from memory_engine.core.events.base import Event
from memory_engine.core.ids import check_identifier
from memory_engine.errors import (
    IdempotencyConflict,
    InvalidPattern,
    NotJoined,
    UnknownLine,
    UnknownPattern,
)
from memory_engine.projections.base import ReadableRows
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.store.protocol import ThreadFilter
from memory_engine.views.patterns.events import (
    PatternApproved,
    PatternProposed,
    PatternRejected,
    PatternsJoined,
    PatternsLeft,
)
from memory_engine.views.patterns.fold import (
    PATTERNS,
    Membership,
    Pattern,
    PatternHit,
    PatternOrigin,
    PatternRow,
    Proposal,
    ProposalRow,
    ShareRow,
    Trace,
    memberships,
    proposals,
    shares,
)
from memory_engine.views.patterns.pool import (
    INDUSTRY,
    POOL,
    found_in,
    pattern_id,
    pooled_as,
    revocation,
    seen_in,
    visible_pattern,
)
from memory_engine.views.patterns.redaction import (
    EmbeddedRedactor,
    Redacted,
    Redactor,
    Redactors,
    redact_for,
    says_anything,
)
from memory_engine.views.promotion.agent_md import AGENT_MD, AgentMd, PromotedLine
from memory_engine.views.promotion.wording import same_text

SHARE_CHARS = 32


class Patterns:
    """A tenant's part in the patterns of industries. Nothing leaves before a named person approves it.

    You can propose only promoted lines of the tenant's `agent.md`. When a line is removed or forgotten, its share is
    withdrawn automatically.
    """

    def __init__(self, tenant: ScopeHandle, redactor: Redactor | None = None) -> None:
        self._tenant = tenant
        self._kernel = tenant.kernel
        self._redactor = redactor or tenant.kernel.made(Redactors).redactor or EmbeddedRedactor()

    # membership

    async def join(self, industry: str, *, by: str = "", min_tenants: int = 1) -> None:
        """Opt in: read an industry's patterns from now on, and be able to share some. Joining again changes nothing.

        Others see this tenant's shares once `min_tenants` tenants share the same words; to change that, leave and join
        again. Raises `InvalidIdentifier`, `InvalidPattern`.
        """
        check_identifier("industry", industry)
        if type(min_tenants) is not int or min_tenants < 1:
            raise InvalidPattern("min_tenants", min_tenants, "a pattern is shared by 1 tenant at least")
        held = {one.industry: one for one in memberships(await self._rows())}
        if industry not in held:
            ids = self._kernel.ids
            secret = (ids.salt() + ids.salt()).hex()
            event = PatternsJoined(industry=industry, secret=secret, min_tenants=min_tenants, by=by)
            await self._tenant.dispatch(event)
        elif held[industry].min_tenants != min_tenants:
            raise InvalidPattern("min_tenants", min_tenants, "the tenant is in; leave and join again to change it")

    async def leave(self, industry: str, *, by: str = "", reason: str = "") -> None:
        """Opt out: withdraws the tenant's shares there, drops proposals, ends reading. Raises `NotJoined`."""
        rows = await self._rows()
        self._membership(rows, industry)
        events: list[Event] = [revocation(share, by=by, reason=reason) for share in _of(rows, industry)]
        await self._tenant.dispatch_all([*events, PatternsLeft(industry=industry, by=by, reason=reason)])
        await self._kernel[Relay].deliver(self._tenant.id)

    async def joined(self) -> tuple[str, ...]:
        """The industries that the tenant is in, by name."""
        return tuple(one.industry for one in memberships(await self._rows()))

    # from a line to a pattern

    async def propose(self, line: int | str, *, industry: str = "", by: str = "") -> Proposal:
        """Redact a promoted line, by its id or its text, and submit it for review. Nothing leaves yet.

        You may omit `industry` if the tenant is in only one. For a line already proposed, returns the waiting proposal.
        Raises `UnknownLine`, `NotJoined`, and `InvalidPattern` if nothing is left of the line.
        """
        rows = await self._rows()
        name = self._membership(rows, industry).industry
        found = await self._line(line)
        first = found.promotions[0]
        for waiting in proposals(rows):
            if (waiting.industry, waiting.line, waiting.source) == (name, found.id, first.seq):
                return _proposal(waiting, first.text)
        redacted = await self._redacted(first.text)
        event = PatternProposed(
            industry=name,
            line=found.id,
            source=first.seq,
            text=redacted.text,
            found=redacted.found,
            cautions=redacted.cautions,
            by=by,
        )
        receipt = await self._tenant.dispatch(event)
        return Proposal(
            id=receipt.seq,
            industry=name,
            line=found.id,
            source=first.seq,
            text=redacted.text,
            found=tuple(redacted.found),
            cautions=tuple(redacted.cautions),
            original=first.text,
        )

    async def review(self, industry: str = "") -> tuple[Proposal, ...]:
        """The proposals that wait for review: each line with the text that would leave, oldest first."""
        checked_text("industry", industry)
        texts = await self._texts()
        waiting = proposals(await self._rows())
        return tuple(_proposal(row, texts.get(row.source, "")) for row in waiting if industry in ("", row.industry))

    async def approve(self, proposal_id: int, text: str | None = None, *, by: str) -> str:
        """Release a proposal, unchanged or as a person rewrote it (`text`, which is redacted too).

        Returns the pattern's id on arrival; it arrives once, even if the process dies meanwhile. `by` says who
        approves. Raises `UnknownPattern` unless this proposal waits, `InvalidPattern` if nothing is left.
        """
        rows = await self._rows()
        proposal = self._proposed(rows, proposal_id)
        member = self._membership(rows, proposal.industry)
        redacted = await self._redacted(proposal.text if text is None else text)
        event = PatternApproved(
            proposal=proposal.id,
            industry=proposal.industry,
            share=_share_name(member, redacted.text),
            text=redacted.text,
            by=_someone(by),
            min_tenants=member.min_tenants,
        )
        await self._decide(event, proposal.id)
        await self._kernel[Relay].deliver(self._tenant.id)
        return pattern_id(redacted.text)

    async def reject(self, proposal_id: int, *, by: str, reason: str = "") -> None:
        """Reject a proposal. The line may be proposed again. Raises `UnknownPattern`."""
        proposal = self._proposed(await self._rows(), proposal_id)
        await self._decide(PatternRejected(proposal=proposal.id, by=_someone(by), reason=reason), proposal.id)

    async def revoke(self, pattern: str, *, by: str, reason: str = "", industry: str = "") -> None:
        """Withdraw what this tenant shares under a pattern's id, in one industry or all. Raises `UnknownPattern`."""
        shared = _of(await self._rows(), industry, pattern)
        if not shared:
            raise UnknownPattern(self._tenant.scope_id, f"pattern {pattern!r}")
        await self._tenant.dispatch_all([revocation(share, by=_someone(by), reason=reason) for share in shared])
        await self._kernel[Relay].deliver(self._tenant.id)

    async def shared(self, industry: str = "") -> tuple[Pattern, ...]:
        """This tenant's shares, in one industry or all, also those that wait for others to say the same."""
        checked_text("industry", industry)
        rows = await self._rows()
        found = []
        for share in _of(rows, industry):
            pool = await self._industry(share.industry).rows(POOL)
            held = pooled_as(pool, share.share)
            pattern = (
                visible_pattern(*held, share.industry, own=frozenset((share.share,))) if held is not None else None
            )
            found.append(pattern or _own_pattern(share))
        return tuple(found)

    # reading

    async def list(self, industry: str = "") -> tuple[Pattern, ...]:
        """The patterns of an industry, or of all that the tenant is in, oldest first. Raises `NotJoined`."""
        checked_text("industry", industry)
        rows = await self._rows()
        own = frozenset(share.share for share in shares(rows))
        found: list[Pattern] = []
        for name in self._readable(rows, industry):
            found += await seen_in(self._industry(name), own)
        return tuple(found)

    async def search(self, query: str, *, limit: int = 10, industry: str = "") -> tuple[PatternHit, ...]:
        """The patterns most relevant to a question, best first, each once. Raises `NotJoined`, `InvalidSearch`."""
        checked_text("industry", industry)
        checked_text("query", query)
        checked_count("limit", limit)
        rows = await self._rows()
        own = frozenset(share.share for share in shares(rows))
        best: dict[tuple[str, str], PatternHit] = {}
        for name in self._readable(rows, industry):
            for hit in await found_in(self._industry(name), query, limit, own):
                best.setdefault((name, hit.pattern.id), hit)
        return tuple(sorted(best.values(), key=lambda hit: -hit.score)[:limit])

    async def trace(self, pattern: str) -> tuple[Trace, ...]:
        """Where a pattern comes from, per industry where it is visible: for other tenants, only their number.

        For this one, the lines, and the events that lead back from them. Raises `UnknownPattern`.
        """
        rows = await self._rows()
        lines = {line.id: line for line in await AgentMd(self._tenant).lines()}
        seen = {one.industry: one for one in (*await self.shared(), *await self.list()) if one.id == pattern}
        if not seen:
            raise UnknownPattern(self._tenant.scope_id, f"pattern {pattern!r}")
        traces = []
        for name, one in seen.items():
            origins = [origin for share in _of(rows, name, pattern) for origin in _origins(share, lines)]
            traces.append(Trace(id=pattern, industry=name, text=one.text, tenants=one.tenants, origins=tuple(origins)))
        return tuple(traces)

    # helpers

    def _industry(self, name: str) -> ScopeHandle:
        return ScopeHandle(self._kernel, INDUSTRY, name)

    async def _rows(self) -> ReadableRows[PatternRow]:
        return await self._tenant.rows(PATTERNS)

    async def _line(self, line: int | str) -> PromotedLine:
        lines = await AgentMd(self._tenant).lines()
        for one in lines:
            if one.id == line or (isinstance(line, str) and same_text(one.text) == same_text(line)):
                return one
        if isinstance(line, str):
            raise InvalidPattern("line", line, "agent.md has no promoted line that says this")
        raise UnknownLine(line)

    async def _texts(self) -> dict[int, str]:
        """The wordings of promoted lines, by the seq of the event that brought them."""
        rows = await self._tenant.rows(AGENT_MD)
        lines = [row for _, row in rows.items() if isinstance(row, PromotedLine)]
        return {source.seq: source.text for line in lines for source in line.promotions}

    async def _redacted(self, text: str) -> Redacted:
        known = {self._tenant.scope_id}
        for record, _ in await self._kernel.store.threads(ThreadFilter(tenant_id=self._tenant.scope_id)):
            known.update((record.user_id, record.agent_id))
        redacted = redact_for(" ".join(text.split()), self._redactor, known - {""})
        if not says_anything(redacted.text):
            raise InvalidPattern("text", redacted.text, "nothing is left to share when it is redacted")
        return redacted

    async def _decide(self, event: Event, proposal_id: int) -> None:
        """Decide on a proposal: once, also where several people decide at the same time."""
        try:
            await self._tenant.dispatch(event, event_id=f"pattern-decision:{proposal_id}")
        except IdempotencyConflict:
            raise UnknownPattern(self._tenant.scope_id, f"proposal {proposal_id}") from None

    def _proposed(self, rows: ReadableRows[PatternRow], proposal_id: int) -> ProposalRow:
        for row in proposals(rows):
            if row.id == proposal_id:
                return row
        raise UnknownPattern(self._tenant.scope_id, f"proposal {proposal_id}")

    def _membership(self, rows: ReadableRows[PatternRow], industry: str) -> Membership:
        held = memberships(rows)
        if not industry and len(held) > 1:
            names = ", ".join(one.industry for one in held)
            raise InvalidPattern("industry", industry, f"the tenant is in several: name one of {names}")
        for one in held:
            if industry in ("", one.industry):
                return one
        raise NotJoined(self._tenant.scope_id, industry)

    def _readable(self, rows: ReadableRows[PatternRow], industry: str) -> Sequence[str]:
        return [self._membership(rows, industry).industry] if industry else [one.industry for one in memberships(rows)]


def _of(rows: ReadableRows[PatternRow], industry: str, pattern: str = "") -> Sequence[ShareRow]:
    found = (share for share in shares(rows) if industry in ("", share.industry))
    return [share for share in found if not pattern or pattern_id(share.text) == pattern]


def _proposal(row: ProposalRow, original: str) -> Proposal:
    return Proposal(*astuple(row), original=original)


def _share_name(member: Membership, text: str) -> str:
    """The name of one tenant's share of one text: always the same; without the secret it does not reveal whose."""
    said = f"{member.industry}\0{same_text(text)}".encode()
    return hmac.digest(bytes.fromhex(member.secret), said, "sha256").hex()[:SHARE_CHARS]


def _own_pattern(share: ShareRow) -> Pattern:
    return Pattern(id=pattern_id(share.text), industry=share.industry, text=share.text, tenants=1, own=True)


def _origins(share: ShareRow, lines: dict[int, PromotedLine]) -> Iterable[PatternOrigin]:
    for approval in share.approvals:
        line = lines.get(approval.line)
        for source in line.promotions if line is not None else ():
            if source.seq == approval.source:
                yield PatternOrigin(
                    line=approval.line,
                    text=source.text,
                    promotion=source.event_id,
                    source_thread=source.source_thread,
                    sources=source.sources,
                    approval=approval.event_id,
                    approved_by=approval.by,
                )


def _someone(by: str) -> str:
    if not by.strip():
        raise InvalidPattern("by", by, "a decision needs a name: say who made it")
    return by
