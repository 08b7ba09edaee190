"""The commands about compactions: compact, compactions, undo-compaction, redo-compaction, ledger."""

import argparse
from collections.abc import Iterator, Sequence

import msgspec

from memory_engine.cli.commands import MOMENT, Command, Option, always, moment, positive
from memory_engine.cli.what_if import compactor_named
from memory_engine.compaction.listing import CompactionHistory
from memory_engine.compaction.protocol import CompactionReport
from memory_engine.compaction.service import CompactionService
from memory_engine.context.rendering import render_lines
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.compaction import CompactionUndone
from memory_engine.core.excerpts import FOCUS_CHARS_MAX, counted, number, one_line
from memory_engine.core.json_form import named
from memory_engine.reports import Line, Printout, line
from memory_engine.thread import Thread, handle_of

_WHICH = "its id, that of its summary, or (default) the latest"


async def compact(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Compact a thread now."""
    return await _compacted(thread, await thread.compact(focus=asked.focus))


async def _compacted(thread: Thread, report: CompactionReport) -> Printout:
    """The outcome of a compaction, and the summaries that it made."""
    summaries = [await thread.replay.chunk(chunk_id) for chunk_id in report.new_chunks]
    return Printout(msgspec.to_builtins(report), _summaries(report, summaries))


def _summaries(report: CompactionReport, summaries: Sequence[Chunk]) -> Iterator[Line]:
    yield line(compaction_line(report), "bold")
    for chunk in summaries:
        yield line("")
        yield line(render_lines(chunk.lines))


def compaction_line(report: CompactionReport) -> str:
    """The outcome of a compaction in one line."""
    covered = counted(len(report.covered), "chunk")
    into = counted(len(report.new_chunks), "summary").replace("summarys", "summaries")
    dropped = f", {counted(len(report.dropped), 'chunk')} dropped" if report.dropped else ""
    tokens = f"{number(report.tokens_before)} → {number(report.tokens_after)} tokens"
    focus = f"; focus: {one_line(report.focus, FOCUS_CHARS_MAX)}" if report.focus else ""
    return f"{covered} → {into}{dropped}: {tokens} (by {report.compactor}{focus})"


async def compactions(thread: Thread, _asked: argparse.Namespace) -> CompactionHistory:
    """The compactions of a thread, failed ones too, whether each is still in effect, and what is due."""
    return await thread.compaction.history()


async def undo_compaction(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Put the originals of a compaction back."""
    receipt = await thread.compaction.undo(asked.id, reason=asked.reason)
    reader = handle_of(thread).kernel.reader
    undone = reader.decode(thread.id, (await reader.rows_at(thread.id, {receipt.seq}))[receipt.seq]).event
    tokens = (await thread.state()).tally.tokens
    assert isinstance(undone, CompactionUndone)
    data = {
        **named(receipt, "thread_id seq event_id"),
        **named(undone, "compaction_id completed summaries"),
        "restored": [chunk.id for chunk in receipt.chunks],
        "tokens": tokens,
    }
    gone = f" in place of {' '.join(undone.summaries)}" if undone.summaries else ""
    back = f"{counted(len(receipt.chunks), 'chunk')} back{gone}"
    done = f"the compaction of event {undone.completed} is undone by event {receipt.seq}: {back}"
    return Printout(data, [line(done, "bold"), line(f"the state now takes {counted(tokens, 'token')} (estimated)")])


async def redo_compaction(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Compact the originals of a compaction again."""
    registered = handle_of(thread).kernel[CompactionService].compactors
    compactor = compactor_named(asked.compactor, registered) if asked.compactor else None
    return await _compacted(thread, await thread.compaction.redo(asked.id, compactor=compactor))


async def ledger(thread: Thread, asked: argparse.Namespace) -> Printout:
    """What a prompt cache could keep from call to call, and which events broke it."""
    update = asked.progress.update
    found = await thread.replay.ledger(
        after=asked.after,
        upto=asked.upto,
        max_tokens=asked.max_tokens,
        progress=lambda events: update({"events": events}),
    )
    return Printout({**named(found, "thread_id after upto"), **found.as_data()}, [found.drawn])


COMPACT = Command.of_thread(
    compact,
    Option.value("--focus", "TEXT", "what the summary should keep in detail", default=""),
    writes=always,
    busy="compacting",
)
COMPACTIONS = Command.of_thread(compactions)
UNDO = Command.of_thread(
    undo_compaction,
    Option.word("id", "ID", f"which to undo: {_WHICH} live one", default=""),
    Option.value("--reason", "TEXT", "goes to the log", default=""),
    writes=always,
)
REDO = Command.of_thread(
    redo_compaction,
    Option.word("id", "ID", f"which to redo: {_WHICH}, undone or not", default=""),
    Option.value("--compactor", "NAME", "the registered compactor to use, without a fallback"),
    writes=always,
    busy="compacting",
)
LEDGER = Command.of_thread(
    ledger,
    Option.value("--after", "MOMENT", f"only calls after {MOMENT}", moment, default=0),
    Option.value("--upto", "MOMENT", "only calls up to that moment", moment),
    Option.value("--max-tokens", "N", "the token budget that the contexts had", positive),
    busy="building contexts",
)
