"""The fold of a tenant's patterns: its proposals, its shares, and those it must take back.

It also defines patterns as readers, reviewers and questions about their origin see them.
"""

from collections.abc import Callable
from typing import cast

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget, ThreadCleared
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, seq_key
from memory_engine.views.patterns.events import (
    Finding,
    MembershipTerms,
    PatternApproved,
    PatternProposed,
    PatternRejected,
    PatternRevoked,
    PatternsJoined,
    PatternsLeft,
)
from memory_engine.views.promotion.events import AgentMdRemoved


class Membership(MembershipTerms, frozen=True, tag="member", kw_only=True):
    """A tenant's membership in an industry, by the event at `seq`."""

    seq: int


class ProposalRow(msgspec.Struct, frozen=True, tag="proposal"):
    """A redacted line that waits for a person: the wording of the event at `source`.

    `text` would leave, `found` are the parts taken out of the original, `cautions` what the redactor could not judge.
    """

    id: int
    industry: str
    line: int
    source: int
    text: str
    found: tuple[Finding, ...]
    cautions: tuple[str, ...]


class Approval(msgspec.Struct, frozen=True):
    """A person's approval of a text: the event at `seq`, and the proposal and the line that it came from."""

    seq: int
    event_id: str
    proposal: int
    line: int
    source: int
    by: str


class ShareRow(msgspec.Struct, frozen=True, tag="share"):
    """A text that a tenant shares, and the approvals on which that rests. Without any it must be withdrawn.

    `seqs` are those of all approvals, former ones included.
    """

    share: str
    industry: str
    text: str
    approvals: tuple[Approval, ...]
    seqs: tuple[int, ...]


class OrphanRow(msgspec.Struct, frozen=True, tag="orphan"):
    """An orphan: a share that lost its approvals and must be withdrawn. `reason` says why."""

    share: str
    reason: str


PatternRow = Membership | ProposalRow | ShareRow | OrphanRow

_IsGone = Callable[[ProposalRow | Approval], bool]

_MEMBER, _PROPOSAL, _SHARE = "member/", "proposal/", "share/"
ORPHAN = "~orphan/"
"""The keys of orphans come last: a thread's last row shows whether there are any."""


class PatternsFold:
    """A tenant's side: memberships, proposals under review, shares, and shares that must go."""

    name = "patterns"
    survives_clear = True
    version = 1
    mode: ProjectionMode = "inline"
    row = cast("type[PatternRow]", PatternRow)
    events: tuple[type[Event], ...] = (
        PatternsJoined, PatternsLeft, PatternProposed, PatternApproved, PatternRejected, PatternRevoked,
        AgentMdRemoved, MemoryForget, ThreadCleared,
    )  # fmt: skip
    lazy = False

    def apply(self, rows: Rows[PatternRow], event: RecordedEvent) -> None:
        """Join, leave, propose, decide; drop rows that lost their line."""
        match event.event:
            case PatternsJoined(industry=industry) as joined:
                if rows.get(_MEMBER + industry) is None:
                    rows.put(_MEMBER + industry, Membership(industry, joined.secret, joined.min_tenants, seq=event.seq))
            case PatternsLeft(industry=industry):
                _leave(rows, industry)
            case PatternProposed() as proposed:
                _propose(rows, proposed, event.seq)
            case PatternApproved() as approved:
                _approve(rows, approved, event)
            case PatternRejected(proposal=proposal):
                rows.drop(_proposal_key(proposal))
            case PatternRevoked(share=share):
                rows.drop(_SHARE + share)
                rows.drop(ORPHAN + share)
            case AgentMdRemoved(lines=lines):
                gone = frozenset(lines)
                _let_go(rows, lambda approval: str(approval.line) in gone, "its line was removed")
            case MemoryForget(seqs=seqs) if seqs:
                _drop_forgotten_patterns(rows, frozenset(seqs))
            case ThreadCleared():  # what was shared is still to be withdrawn
                for membership in memberships(rows):
                    _leave(rows, membership.industry)
                _let_go(rows, lambda _: True, "the tenant's thread was cleared")


def _propose(rows: Rows[PatternRow], proposed: PatternProposed, seq: int) -> None:
    if rows.get(_MEMBER + proposed.industry) is not None:
        row = ProposalRow(
            seq, proposed.industry, proposed.line, proposed.source, proposed.text, proposed.found, proposed.cautions
        )
        rows.put(_proposal_key(seq), row)


def _approve(rows: Rows[PatternRow], approved: PatternApproved, event: RecordedEvent) -> None:
    """Keep the approval of a share. A share approved just as its line went, or its tenant left, is withdrawn."""
    proposal = rows.get(_proposal_key(approved.proposal))
    former = rows.get(_SHARE + approved.share)
    approvals = former.approvals if isinstance(former, ShareRow) else ()
    seqs = former.seqs if isinstance(former, ShareRow) else ()
    if isinstance(proposal, ProposalRow):
        rows.drop(_proposal_key(approved.proposal))
        line, source = proposal.line, proposal.source
        approvals = (*approvals, Approval(event.seq, event.id, approved.proposal, line, source, approved.by))
    row = ShareRow(approved.share, approved.industry, approved.text, approvals, (*seqs, event.seq))
    _put_share(rows, row, "it was approved too late")


def _put_share(rows: Rows[PatternRow], row: ShareRow, reason: str) -> None:
    rows.put(_SHARE + row.share, row)
    if row.approvals:
        rows.drop(ORPHAN + row.share)
    else:
        rows.put(ORPHAN + row.share, OrphanRow(row.share, reason))


def _leave(rows: Rows[PatternRow], industry: str) -> None:
    rows.drop(_MEMBER + industry)
    for proposal in proposals(rows):
        if proposal.industry == industry:
            rows.drop(_proposal_key(proposal.id))
    for share in shares(rows):
        if share.industry == industry:
            _put_share(rows, msgspec.structs.replace(share, approvals=()), "the tenant left")


def _drop_forgotten_patterns(rows: Rows[PatternRow], seqs: frozenset[int]) -> None:
    for membership in memberships(rows):
        if membership.seq in seqs:
            _leave(rows, membership.industry)

    def is_gone(one: ProposalRow | Approval) -> bool:
        own = (one.id,) if isinstance(one, ProposalRow) else (one.seq, one.proposal)
        return not seqs.isdisjoint((one.source, *own))

    _let_go(rows, is_gone, "its line was forgotten")


def _let_go(rows: Rows[PatternRow], is_gone: _IsGone, reason: str) -> None:
    for proposal in proposals(rows):
        if is_gone(proposal):
            rows.drop(_proposal_key(proposal.id))
    for share in shares(rows):
        kept = tuple(approval for approval in share.approvals if not is_gone(approval))
        if len(kept) < len(share.approvals):
            _put_share(rows, msgspec.structs.replace(share, approvals=kept), reason)


def _proposal_key(seq: int) -> str:
    return f"{_PROPOSAL}{seq_key(seq)}"


def memberships(rows: ReadableRows[PatternRow]) -> list[Membership]:
    """The industries that the tenant is in, by name."""
    return [row for _, row in rows.items() if isinstance(row, Membership)]


def proposals(rows: ReadableRows[PatternRow]) -> list[ProposalRow]:
    """The proposals that wait for a person, oldest first."""
    return [row for _, row in rows.items() if isinstance(row, ProposalRow)]


def shares(rows: ReadableRows[PatternRow]) -> list[ShareRow]:
    """The tenant's shares, those about to be withdrawn included."""
    return [row for _, row in rows.items() if isinstance(row, ShareRow)]


def orphans(rows: ReadableRows[PatternRow]) -> list[tuple[ShareRow, str]]:
    """The orphans: shares to withdraw, and why."""
    found = ((rows.get(_SHARE + row.share), row.reason) for _, row in rows.items() if isinstance(row, OrphanRow))
    return [(share, reason) for share, reason in found if isinstance(share, ShareRow)]


PATTERNS = PatternsFold()


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A redacted text that `tenants` tenants of an industry share; it does not reveal which ones.

    `id` is made of the text. `own`: the reading tenant shares it too. A pattern that was read counts as
    recalled: nothing is promoted from it a second time.
    """

    id: str
    industry: str
    text: str
    tenants: int
    own: bool = False
    recalled: bool = True


class PatternHit(msgspec.Struct, frozen=True):
    """A pattern that was found, its score from 0 to 1 within its search, and the reason for the score."""

    pattern: Pattern
    score: float
    why: str = ""
    recalled: bool = True


class Proposal(ProposalRow, frozen=True, kw_only=True, tag=False):
    """A promoted line that waits for a person. `original` is the line in the tenant's `agent.md`."""

    original: str


class PatternOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Why a tenant shares a pattern: the line, the events that it was promoted by and drawn from, who approved it."""

    line: int
    text: str
    promotion: str
    source_thread: str
    sources: tuple[str, ...]
    approval: str
    approved_by: str


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a pattern: how many tenants share it, and the `origins` in the tenant that asks."""

    id: str
    industry: str
    text: str
    tenants: int
    origins: tuple[PatternOrigin, ...] = ()

    def __str__(self) -> str:
        many = "1 tenant" if self.tenants == 1 else f"{self.tenants} tenants"
        said = f"industry pattern of {self.industry!r}, shared by {many}"
        own = (f"line {one.line} of agent.md ({one.text!r}), approved by {one.approved_by}" for one in self.origins)
        return "; ".join((said, *own))


PATTERN = "pattern"
"""The kind of these passages."""
