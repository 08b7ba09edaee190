"""The cache ledger: how much a provider's prompt cache could keep from call to call, and which event broke it."""

from collections.abc import Iterator, Sequence

from attrs import field, frozen

from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.series import ContextSeries, MeasuredMessages
from memory_engine.core.arguments import checked_call, checked_type
from memory_engine.core.chain import decode_row
from memory_engine.core.excerpts import counted, number, one_line
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.replay.cache_breaks import BESIDE, CacheBreak, LedgerRow, LedgerWalk, PromptCall, Runs
from memory_engine.replay.verify import VerifyProgress
from memory_engine.reports import WIDTH, Column, Drawable, Line, Paper, line, table_lines
from memory_engine.runtime.handle import PastHandle
from memory_engine.store.walk import spans_back

__all__ = ["CacheBreak", "CacheLedger", "CacheTotals", "PromptCall", "cache_ledger"]

WINDOW = 512
"""Rows to read at once to find the call before the first."""


@frozen(kw_only=True)
class CacheTotals(JsonForm):
    """The totals of a ledger's calls. `kept_share` is the share of all tokens that was kept, 0 to 1."""

    calls: int
    tokens: int
    kept_tokens: int
    fresh_tokens: int
    lost_tokens: int
    kept_share: float


@frozen(kw_only=True)
class CacheLedger(Drawable):
    """The model calls in a range of a log, and the breaks between each and the one before, both in order."""

    json_names = "calls breaks totals"

    thread_id: str
    after: int
    upto: int
    max_tokens: int | None
    calls: tuple[PromptCall, ...] = field(repr=False)
    breaks: tuple[CacheBreak, ...] = field(repr=False)

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """The totals, the last breaks that were not expected, and the others summed up."""
        totals = self.totals
        sent = f"{counted(totals.calls, 'model call')}, {counted(totals.tokens, 'token')} sent"
        kept = f"{number(totals.kept_tokens)} kept ({totals.kept_share:.1%}), {number(totals.fresh_tokens)} fresh"
        yield line(f"{one_line(self.thread_id, (paper.room or WIDTH) // 2)}: {sent}: {kept}", "bold")
        broken = [one for one in self.breaks if not one.trailing]
        if not self.breaks:
            yield line("nothing broke the cache", "green")
        if broken:
            listed = 40 if paper.of_command else 12
            lost = counted(sum(one.lost_tokens for one in broken), "token")
            yield line(f"{counted(len(broken), 'break')}: {lost} sent anew that were cached", "yellow")
            yield from table_lines(_BREAKS, [_break_cells(one) for one in broken[-listed:]], paper.room)
            if len(broken) > listed:
                where_all = "; --json lists them" if paper.of_command else ""
                yield line(f"… and {number(len(broken) - listed)} before these{where_all}")
        yield from _trailing_lines([one for one in self.breaks if one.trailing])

    @property
    def totals(self) -> CacheTotals:
        """All calls together."""
        tokens = sum(call.tokens for call in self.calls)
        kept = sum(call.kept_tokens for call in self.calls)
        return CacheTotals(
            calls=len(self.calls),
            tokens=tokens,
            kept_tokens=kept,
            fresh_tokens=tokens - kept,
            lost_tokens=sum(one.lost_tokens for one in self.breaks),
            kept_share=round(kept / tokens, 6) if tokens else 0.0,
        )


async def cache_ledger(
    after: PastHandle,
    upto: PastHandle,
    max_tokens: int | None,
    progress: VerifyProgress | None = None,
    *,
    policy: ContextPolicy = DEFAULT_POLICY,
) -> CacheLedger:
    """The contexts of a thread's model calls from one moment to another, each compared with the one before.

    The first is compared with the last call before `after`, if there is one. Contexts are built without a query. Raises
    `ContextBudgetError` if a call's context does not fit into `max_tokens`.
    """
    checked_call("progress", progress)
    kernel, thread_id = upto.kernel, upto.id
    begin = await _last_call(after)
    messages = MeasuredMessages(kernel[ContextBuilder])
    state = await kernel.reader.state_at(thread_id, begin)
    if max_tokens is not None:
        checked_type("max_tokens", max_tokens, int, give="a number of tokens")
    series = ContextSeries(state, thread_id, max_tokens, messages, policy=policy)
    walk = LedgerWalk(series, after.seq, Runs(kernel.events))

    def step(stored: StoredEvent) -> None:
        event, reduction = decode_row(thread_id, stored, kernel.events)
        walk.step(LedgerRow(stored.seq, stored.id, stored.type, event, reduction.operations, reduction.chunks))

    told = (lambda seq: progress(seq - begin)) if progress is not None else None
    await kernel.reader.walk(thread_id, after=begin, upto=upto.seq).feed(step, progress=told)
    return CacheLedger(
        thread_id=thread_id,
        after=after.seq,
        upto=upto.seq,
        max_tokens=max_tokens,
        calls=tuple(walk.calls),
        breaks=tuple(walk.breaks),
    )


async def _last_call(past: PastHandle) -> int:
    """The seq of the state that the last call up to a moment was made with; that of the moment if there was none."""
    registry = past.kernel.events
    for after in spans_back(past.seq, WINDOW):
        rows = await past.kernel.reader.walk(past.id, after=after, upto=past.seq).all()
        runs, found = Runs(registry), 0
        is_certain = after == 0 and bool(rows)  # the first answer may be the rest of one from before the window
        for stored in rows:
            event, _ = decode_row(past.id, stored, registry)
            _, is_new = runs.next(event, str(stored.seq))
            if is_new and is_certain:
                found = stored.seq
            is_within = stored.type in BESIDE or registry.role(stored.type) == "assistant"
            is_certain = is_certain or not is_within
        if found:
            return found - 1
    return past.seq


_BREAKS = [
    Column("EVENT", right=True), Column("TYPE", least=12), Column("CALL", right=True), Column("MESSAGE", right=True),
    Column("BYTE", right=True), Column("SENT ANEW", right=True), Column("WHY", least=24),
]  # fmt: skip


def _break_cells(one: CacheBreak) -> tuple[str, ...]:
    counts = [number(count) for count in (one.call_seq, one.message, one.byte, one.lost_tokens)]
    return number(one.seq), one.event_type, *counts, one.why


def _trailing_lines(breaks: Sequence[CacheBreak]) -> Iterator[Line]:
    """Sum up the breaks by the last messages: every turn moves these, so their number and tokens are enough."""
    whys: dict[str, list[int]] = {}
    for one in breaks:
        whys.setdefault(one.why, []).append(one.lost_tokens)
    for why, lost in whys.items():
        yield line(f"{counted(len(lost), 'time')}, {counted(sum(lost), 'token')} sent anew: {why}")
