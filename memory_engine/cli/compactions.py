"""The commands about compactions: compactions, undo-compaction, redo-compaction, ledger."""

import argparse
import shlex

from memory_engine.cli.commands import MOMENT, Command, add_thread, existing, moment, positive
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.cli.verify import put_compaction
from memory_engine.cli.what_if import compactor_named
from memory_engine.compaction.listing import history_lines
from memory_engine.compaction.service import CompactionService
from memory_engine.core.events.compaction import CompactionUndone
from memory_engine.core.excerpts import counted
from memory_engine.core.json_form import named
from memory_engine.engine import kernel_of
from memory_engine.replay.ledger import ledger_lines

LISTED = 40
"""Breaks of a ledger that are listed for people."""
_WHICH = "its id, that of its summary, or (default) the latest"


async def compactions(asked: argparse.Namespace, terminal: Terminal) -> int:
    """List the compactions of a thread, failed ones too, whether each is still in effect, and what is due."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        found = await engine.thread(asked.thread).compaction.history()
    terminal.json(found)
    how = f": `memory-engine compact {shlex.quote(found.thread_id)}` makes it now"
    terminal.lines(history_lines(found, terminal.room, how=how))
    return 0


def _declare_undo(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("id", metavar="ID", nargs="?", default="", help=f"which to undo: {_WHICH} live one")
    parser.add_argument("--reason", metavar="TEXT", default="", help="goes to the log")


async def undo_compaction(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Put the originals of a compaction back."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        receipt = await thread.compaction.undo(asked.id, reason=asked.reason)
        event = (await kernel_of(engine).reader.rows_at(thread.id, {receipt.seq}))[receipt.seq]
        undone = kernel_of(engine).reader.decode(thread.id, event).event
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
            compactor_named(asked.compactor, kernel_of(engine)[CompactionService].compactors)
            if asked.compactor
            else None
        )
        thread = engine.thread(asked.thread)
        with Progress("compacting", terminal):
            report = await thread.compaction.redo(asked.id, compactor=compactor)
        summaries = [await thread.replay.chunk(chunk_id) for chunk_id in report.new_chunks]
    put_compaction(report, summaries, terminal)
    return 0


def _declare_ledger(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--after", type=moment, metavar="MOMENT", default=0, help=f"only calls after {MOMENT}")
    parser.add_argument("--upto", type=moment, metavar="MOMENT", help="only calls up to that moment")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="the token budget that the contexts had")


async def ledger(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what a prompt cache could keep from call to call, and which events broke it."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        with Progress("building contexts", terminal) as progress:
            found = await engine.thread(asked.thread).replay.ledger(
                after=asked.after,
                upto=asked.upto,
                max_tokens=asked.max_tokens,
                progress=lambda events: progress.update({"events": events}),
            )
    terminal.json({**named(found, "thread_id after upto"), **found.as_data()})
    terminal.lines(ledger_lines(found, width=terminal.room, listed=LISTED, where_all="; --json lists them"))
    return 0


COMPACTIONS = Command(add_thread, compactions)
UNDO = Command(_declare_undo, undo_compaction)
REDO = Command(_declare_redo, redo_compaction)
LEDGER = Command(_declare_ledger, ledger)
