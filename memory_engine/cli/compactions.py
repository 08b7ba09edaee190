"""The commands about compactions: compactions, undo-compaction, redo-compaction, ledger."""

import argparse
from collections.abc import Sequence

from memory_engine.cli.commands import MOMENT, Command, add_thread, existing, moment, positive
from memory_engine.cli.terminal import Column, Progress, Terminal
from memory_engine.cli.verify import put_compaction
from memory_engine.cli.what_if import compactor_named
from memory_engine.compaction.history import Compaction
from memory_engine.compaction.plan import is_due
from memory_engine.compaction.service import CompactionService
from memory_engine.compaction.undo import compactions as compactions_of
from memory_engine.core.events.compaction import CompactionUndone
from memory_engine.core.excerpts import counted, number, one_line
from memory_engine.core.json_form import named
from memory_engine.core.state import Tally
from memory_engine.core.threads import CompactionPolicy
from memory_engine.replay.cache_breaks import CacheBreak
from memory_engine.replay.ledger import CacheLedger

LISTED = 40
"""Breaks of a ledger that are listed for people."""
_WHICH = "its id, that of its summary, or (default) the latest"


async def compactions(asked: argparse.Namespace, terminal: Terminal) -> int:
    """List the compactions of a thread, and whether each still stands."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        info = await thread.info()
        past = await thread.at(info.events)
        found = await compactions_of(past)
        due = "" if found else _due(thread.id, (await past.state()).tally, info.policy or engine.config.compaction)
    terminal.json(found)
    if not found:
        terminal.say(f"nothing was compacted{due}")
        return 0
    heads = [
        Column("COMPACTION", least=12), Column("EVENT", right=True), Column("TRIGGER"), Column("BY", least=8),
        Column("CHUNKS", right=True), Column("TOKENS", right=True), Column("SUMMARY"), Column("STATUS"),
    ]  # fmt: skip
    terminal.table(heads, [_compaction(one) for one in found])
    return 0


def _due(thread_id: str, tally: Tally, policy: CompactionPolicy) -> str:
    """What there is to compact, if a compaction only waits for a quiet moment, or for somebody who writes."""
    if not is_due(tally, policy):
        return ""
    there = f"{counted(tally.compactable, 'chunk')}, {counted(tally.compactable_tokens, 'token')}"
    return f"; one is due ({there}): `memory-engine compact {thread_id}` makes it now"


def _compaction(one: Compaction) -> list[str]:
    by = f" by event {one.by}" if one.by else ""
    return [
        one.compaction_id,
        number(one.seq),
        one.trigger,
        one.compactor,
        number(len(one.covered) + len(one.dropped)),
        f"{number(one.tokens_before)} → {number(one.tokens_after)}",
        " ".join(one.summaries) or "-",
        one.status + by,
    ]


def _declare_undo(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("id", metavar="ID", nargs="?", default="", help=f"which to undo: {_WHICH} live one")
    parser.add_argument("--reason", metavar="TEXT", default="", help="goes to the log")


async def undo_compaction(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Put the originals of a compaction back."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        receipt = await thread.undo_compaction(asked.id, reason=asked.reason)
        event = (await engine.reader.rows_at(thread.id, {receipt.seq}))[receipt.seq]
        undone = engine.reader.decode(thread.id, event).event
        tokens = (await thread.state()).tally.tokens
    assert isinstance(undone, CompactionUndone)
    terminal.json(
        {
            "thread_id": receipt.thread_id,
            "seq": receipt.seq,
            "event_id": receipt.event_id,
            "compaction_id": undone.compaction_id,
            "completed": undone.completed,
            "summaries": list(undone.summaries),
            "restored": [chunk.id for chunk in receipt.chunks],
            "tokens": tokens,
        }
    )
    gone = f" in place of {' '.join(undone.summaries)}" if undone.summaries else ""
    back = f"{counted(len(receipt.chunks), 'chunk')} back{gone}"
    terminal.say(f"the compaction of event {undone.completed} is undone by event {receipt.seq}: {back}", "bold")
    terminal.say(f"the state now takes {counted(tokens, 'token')} (estimated)")
    return 0


def _declare_redo(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("id", metavar="ID", nargs="?", default="", help=f"which to redo: {_WHICH}, undone or not")
    parser.add_argument("--compactor", metavar="NAME", help="the registered compactor to use, without a fallback")


async def redo_compaction(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Compact the originals of a compaction again."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        compactor = (
            compactor_named(asked.compactor, engine.kernel[CompactionService].compactors) if asked.compactor else None
        )
        thread = engine.thread(asked.thread)
        report = await thread.redo_compaction(asked.id, compactor=compactor)
        summaries = [await thread.chunk(chunk_id) for chunk_id in report.new_chunks]
    put_compaction(report, summaries, terminal)
    return 0


def _declare_ledger(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--after", type=moment, metavar="MOMENT", default=0, help=f"only calls after {MOMENT}")
    parser.add_argument("--upto", type=moment, metavar="MOMENT", help="only calls up to that moment")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="the token budget that the contexts had")


async def ledger(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what a prompt cache could keep from call to call, and which events broke it."""
    progress = Progress("building contexts", terminal)
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        try:
            found = await engine.thread(asked.thread).cache_ledger(
                after=asked.after,
                upto=asked.upto,
                max_tokens=asked.max_tokens,
                progress=lambda events: progress.update({"events": events}),
            )
        finally:
            progress.end()
    terminal.json({**named(found, "thread_id after upto"), **found.as_data()})
    _put_ledger(found, terminal)
    return 0


def _put_ledger(found: CacheLedger, terminal: Terminal) -> None:
    totals = found.totals
    sent = f"{counted(totals.calls, 'model call')}, {counted(totals.tokens, 'token')} sent"
    kept = f"{number(totals.kept_tokens)} kept ({totals.kept_share:.1%}), {number(totals.fresh_tokens)} fresh"
    terminal.say(f"{one_line(found.thread_id, terminal.width // 2)}: {sent}: {kept}", "bold")
    broken = [one for one in found.breaks if not one.trailing]
    if not found.breaks:
        terminal.say("nothing broke the cache", "green")
    if broken:
        lost = sum(one.lost_tokens for one in broken)
        terminal.say(f"{counted(len(broken), 'break')}: {counted(lost, 'token')} sent anew that were cached", "yellow")
        _put_breaks(broken, terminal)
    _put_trailing([one for one in found.breaks if one.trailing], terminal)


def _put_breaks(broken: Sequence[CacheBreak], terminal: Terminal) -> None:
    heads = [
        Column("EVENT", right=True), Column("TYPE", least=12), Column("CALL", right=True),
        Column("MESSAGE", right=True), Column("BYTE", right=True), Column("SENT ANEW", right=True),
        Column("WHY", least=24),
    ]  # fmt: skip
    rows = [
        (
            number(one.seq),
            one.event_type,
            number(one.call_seq),
            number(one.message),
            number(one.byte),
            number(one.lost_tokens),
            one.why,
        )
        for one in broken[-LISTED:]
    ]
    terminal.table(heads, rows)
    if len(broken) > LISTED:
        terminal.say(f"… and {number(len(broken) - LISTED)} before these; --json lists them")


def _put_trailing(breaks: Sequence[CacheBreak], terminal: Terminal) -> None:
    """Sum up the breaks by the last messages: every turn moves these, so their number and tokens are enough."""
    whys: dict[str, list[int]] = {}
    for one in breaks:
        whys.setdefault(one.why, []).append(one.lost_tokens)
    for why, lost in whys.items():
        terminal.say(f"{counted(len(lost), 'time')}, {counted(sum(lost), 'token')} sent anew: {why}")


COMPACTIONS = Command(add_thread, compactions)
UNDO = Command(_declare_undo, undo_compaction)
REDO = Command(_declare_redo, redo_compaction)
LEDGER = Command(_declare_ledger, ledger)
