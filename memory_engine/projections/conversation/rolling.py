"""Folding what is over the limits into the rolling summary, and making a summary again of which part was forgotten."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from attrs import frozen

from memory_engine.events.conversation import SummaryRolled
from memory_engine.handle import ThreadHandle
from memory_engine.llm.base import MemoryModel
from memory_engine.projections.base import Rows
from memory_engine.projections.conversation.folding import (
    CONVERSATION,
    ExchangeRow,
    Row,
    SummaryRow,
    TallyRow,
    exchanges_of,
    summary_of,
    tally_of,
)
from memory_engine.projections.conversation.limits import ConversationLimits
from memory_engine.projections.conversation.summarizing import Summarizer
from memory_engine.projections.conversation.texts import format_exchange, format_finding, joined, utf8_bytes
from memory_engine.projections.scratchpad import Scratchpad

if TYPE_CHECKING:
    from memory_engine.projections.scratchpad import Snippet

TRIES = 8
"""How often a summary is drawn anew because the exchanges changed meanwhile; then the next turn tries."""
_FINDINGS_SHARE = 3
"""Findings added at one time take at most one part in so many of a compressed summary."""
_FINDING_BYTES_MAX = 300


@frozen(kw_only=True)
class _Roll:
    """What is to be folded, as it was when it was looked at."""

    summary: SummaryRow | None
    tally: TallyRow
    covered: Sequence[ExchangeRow]
    remade: bool
    snippets: "Sequence[Snippet]"


async def roll(thread: ThreadHandle) -> None:
    """Fold until nothing is over the limits. Where another task of this process is at it, that one does it all."""
    lock = thread.kernel.caches.made(thread.id, "conversation rolling", asyncio.Lock)
    if lock.locked():
        return
    async with lock:
        for _ in range(TRIES):
            due = await _due(thread)
            if due is None:
                return
            await _fold(thread, due)


async def _due(thread: ThreadHandle) -> _Roll | None:
    """What must be folded now, if anything."""
    limits = thread.kernel.config.conversation
    rows = await thread.rows(CONVERSATION)
    live, summary, tally = list(exchanges_of(rows)), summary_of(rows), tally_of(rows)
    # after the rows: a snippet that is forgotten in between is then missing here, or the roll is void
    snippets = [snippet for snippet in await Scratchpad(thread).read() if not snippet.recalled]
    used_upto = summary.insights_upto if summary is not None else 0
    if summary is not None and summary.withheld:
        covered = await _covered_in_log(thread, summary, live)
        used = [snippet for snippet in snippets if snippet.seq <= used_upto]
        return _Roll(summary=summary, tally=tally, covered=covered, remade=True, snippets=used)
    fresh = [snippet for snippet in snippets if snippet.seq > used_upto]
    is_full = len(fresh) >= limits.scratchpad_snippets_max
    over = len(live) - (limits.exchanges_kept if is_full else limits.exchanges)
    if over <= 0 and not is_full:
        return None
    covered = live[: max(0, over)]
    return _Roll(summary=summary, tally=tally, covered=covered, remade=False, snippets=fresh)


async def _covered_in_log(thread: ThreadHandle, summary: SummaryRow, live: Sequence[ExchangeRow]) -> list[ExchangeRow]:
    """The exchanges that a summary stands for, drawn from the log again, without those that were forgotten."""
    rows: Rows[Row] = Rows(CONVERSATION.row, {})
    async for event in thread.events():
        if isinstance(event.event, CONVERSATION.events) and not isinstance(event.event, SummaryRolled):
            CONVERSATION.apply(rows, event)
    shown = {row.seq for row in live} | {row.finished_seq for row in live}
    return [
        row
        for row in exchanges_of(rows)
        if shown.isdisjoint((row.seq, row.finished_seq)) and max(row.sources) <= summary.upto
    ]


async def _fold(thread: ThreadHandle, due: _Roll) -> None:
    """Dispatch the summary with what is due. If something changed meanwhile, the event changes nothing."""
    limits = thread.kernel.config.conversation
    before = due.summary.text if due.summary is not None else ""
    told = joined(before, *(_line(row, limits) for row in due.covered))
    findings, used = _findings(due.snippets, limits)
    grown = joined(told, *findings)
    count = len(due.covered) + (due.summary.exchanges if due.summary is not None and not due.remade else 0)
    event = SummaryRolled(
        content=grown,
        covers=() if due.remade else tuple(row.seq for row in due.covered),
        base=due.summary.seq if due.summary is not None else 0,
        forgotten=due.tally.forgotten,
        exchanges=count,
        insights=used,
        insights_upto=max((snippet.seq for snippet in due.snippets), default=0),
    )
    if utf8_bytes(grown) > limits.summary_bytes_max:
        event = await _compressed(thread, due, event, told)
    await thread.dispatch(event)


async def _compressed(thread: ThreadHandle, due: _Roll, event: SummaryRolled, told: str) -> SummaryRolled:
    summarizer = Summarizer(thread.kernel[MemoryModel].model, thread.kernel.config.conversation)
    shorter = await summarizer.summary(told, [snippet.text for snippet in due.snippets], event.content)
    return msgspec.structs.replace(
        event,
        content=shorter.text,
        compressed=True,
        method=shorter.method,
        insights=tuple(s.id for s in due.snippets) if shorter.method == "model" else event.insights,
        model=shorter.model,
        usage=shorter.usage,
        failure=shorter.failure,
    )


def _line(row: ExchangeRow, limits: ConversationLimits) -> str:
    return format_exchange(
        row.question, row.answer, question_bytes=limits.answer_bytes_target, answer_bytes=limits.answer_bytes_max
    )


def _findings(snippets: "Iterable[Snippet]", limits: ConversationLimits) -> tuple[list[str], tuple[str, ...]]:
    """The newest findings that fit into their share, as lines in order, and the snippets that they are."""
    room = limits.summary_bytes_target // _FINDINGS_SHARE
    lines: list[str] = []
    used: list[str] = []
    for snippet in sorted(snippets, key=lambda snippet: snippet.seq, reverse=True):
        line = format_finding(snippet.text, _FINDING_BYTES_MAX)
        room -= utf8_bytes(line) + 1
        if room < 0:
            break
        lines.append(line)
        used.append(snippet.id)
    return lines[::-1], tuple(reversed(used))
