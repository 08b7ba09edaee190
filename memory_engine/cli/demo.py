"""The demo: recorded agents become a log, a state, compacted memory, and a context for the next call."""

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from attrs import define, field

from memory_engine.cli import story
from memory_engine.cli.commands import Command, WrongArgument, writable
from memory_engine.cli.messages import measure, put_messages_briefly
from memory_engine.cli.options import FOUND_PROBLEMS, VARIABLE
from memory_engine.cli.terminal import Terminal
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context
from memory_engine.context.rendering import render_lines
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.events.compaction import CompactionCompleted
from memory_engine.core.excerpts import counted, duration, escaped, number, one_line
from memory_engine.core.records import RecordedEvent
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors.base import shown_place
from memory_engine.ingest.ingestion import Ingestion, IngestOptions, IngestReport
from memory_engine.options import Parts
from memory_engine.replay.divergence import VerifyReport
from memory_engine.runtime.config import EngineConfig
from memory_engine.thread import Thread

SAMPLES = {
    "support": "a bicycle shop's support agent",
    "coding": "a coding agent and a test that fails one time in four",
    "datenanalyse": "an analyst of a bakery's sales, in German",
}
COMPACTING = EngineConfig(compaction=CompactionPolicy(tokens_min=0))
"""The conversations are short, and compacted anyway, to show it."""
BUDGET = 4_000
"""Tokens of the context that is shown."""
_MARGIN = "  "
_INDENT = " " * 11


@define
class _Shown:
    """The figures of one conversation."""

    thread: Thread
    messages: int
    added: int
    seconds: list[float]
    events: list[RecordedEvent] = field(factory=list)

    @property
    def compactions(self) -> list[tuple[RecordedEvent, CompactionCompleted]]:
        """The compactions in the log, in order."""
        return [(e, e.event) for e in self.events if isinstance(e.event, CompactionCompleted)]

    @property
    def tokens_saved(self) -> int:
        """By how much compactions made the state smaller."""
        return sum(event.tokens_before - event.tokens_after for _, event in self.compactions)


async def demo(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Ingest the sample, and print its story. Returns 1 if the resulting log does not verify."""
    db = asked.db if asked.is_db_given else _new_database()
    terminal.say("Three recorded agents become memory. No key, no network, no model.", "bold")
    begun = time.perf_counter()
    results: list[dict[str, object]] = []
    async with writable(db, config=COMPACTING) as engine:
        for at, (name, title) in enumerate(SAMPLES.items(), 1):
            terminal.say()
            terminal.put(terminal.styled(f"{at}/{len(SAMPLES)} {name}", "bold", "cyan") + f"  {escaped(title)}")
            shown = await _dispatch(engine, name)
            results.append(await _narrate(engine, shown, terminal))
    terminal.say()
    terminal.put(terminal.styled(story.THREAD, "bold", "cyan") + f"  {escaped(story.TITLE)}")
    is_verified = await _tell_story(db, terminal)
    seconds = time.perf_counter() - begun
    told = {"thread": story.THREAD, "seq": story.ALARM, "question": story.QUESTION, "verified": is_verified}
    terminal.json({"db": shown_place(db), "seconds": round(seconds, 3), "conversations": results, "story": told})
    _print_next_steps(shown_place(db), seconds, terminal)
    return 0 if is_verified and all(result["verified"] for result in results) else FOUND_PROBLEMS


async def _tell_story(db: str, terminal: Terminal) -> bool:
    """Write the story and show what it is about. Returns whether its logs verify."""
    clock = story.story_clock()
    async with writable(db, parts=Parts(clock=clock)) as engine:
        if not await story.is_told(engine):
            await story.tell_story(engine, clock)
        infos = [info for info in await engine.threads() if info.id not in SAMPLES]
        thread = engine.thread(story.THREAD)
        size = f"{counted(sum(info.events for info in infos), 'event')} in {counted(len(infos), 'thread')}"
        _step(terminal, "log", f"{size}, at their times: the agent's, its user's, a sub-agent's, and what agents know")
        context = await thread.context(max_tokens=story.SMALL)
        is_kept = any(story.RULE in str(message["content"]) for message in context.messages)
        kept = "is still in front of the model" if is_kept else "is left out"
        _step(terminal, "rule", f"in {number(context.tokens)} tokens, “{story.RULE}” {kept}")
        answer = (
            f"event {story.ALARM} ← event {story.TOLD}, where the user gave the limit; corrected by {story.CORRECTED}"
        )
        _step(terminal, "why", f"“{story.QUESTION}” {answer}")
        _step(
            terminal,
            "erased",
            f"event {story.ERASED}, a private number: its bytes are gone, and the log says who asked",
        )
        reports = [await engine.thread(info.id).replay.verify() for info in infos]
        events = counted(sum(report.events for report in reports), "event")
        is_verified = all(report.ok for report in reports)
        result = "every hash, operation and state is as recorded" if is_verified else "some differ: ask `verify`"
        _step(terminal, "verify", f"{events} replayed: {result}")
        return is_verified


def _new_database() -> str:
    return str(Path(tempfile.mkdtemp(prefix="memory-engine-demo-")) / "demo.db")


async def _dispatch(engine: Engine, name: str) -> _Shown:
    """Ingest one conversation of the sample, and time each message."""
    moments = [time.perf_counter()]

    def tick(_report: IngestReport) -> None:
        moments.append(time.perf_counter())

    ingestion = Ingestion(engine, IngestOptions(thread_id=name), on_record=tick)
    sample = resources.files("memory_engine.cli") / "sample" / f"{name}.jsonl"
    with resources.as_file(sample) as path:
        if not await ingestion.file(path):
            raise WrongArgument(f"{ingestion.report.errors[-1]}; give the demo a new database")
    thread = engine.thread(name)
    seconds = [after - before for before, after in itertools.pairwise(moments)]
    added = sum(result.added for result in ingestion.report.threads)
    return _Shown(thread, len(seconds), added, seconds, [event async for event in thread.events()])


async def _narrate(engine: Engine, shown: _Shown, terminal: Terminal) -> dict[str, object]:
    """Show a conversation's log, state and context, and return its figures."""
    _put_log(shown, terminal)
    state = await shown.thread.state()
    _put_compactions(shown, terminal)
    summaries = [chunk for chunk in state.chunks() if chunk.type == ChunkType.COMPACTED]
    if summaries:
        _put_summary(summaries[-1], terminal)
    begun = time.perf_counter()
    context = await shown.thread.context(max_tokens=BUDGET)
    took = time.perf_counter() - begun
    _put_context(engine, context, shown.tokens_saved, terminal)
    for chunk in summaries[-1:]:
        await _put_why(shown, chunk, terminal)
    begun = time.perf_counter()
    report = await shown.thread.replay.verify()
    _put_verified(report, time.perf_counter() - begun, took, terminal)
    return {
        "thread": shown.thread.id,
        "messages": shown.messages,
        "events": len(shown.events),
        "compactions": [
            {"seq": e.seq, "tokens_before": c.tokens_before, "tokens_after": c.tokens_after}
            for e, c in shown.compactions
        ],
        "context": {"messages": len(context.messages), "tokens": context.tokens},
        "verified": report.ok,
        "median_ms": round(statistics.median(shown.seconds) * 1e3, 3),
    }


def _step(terminal: Terminal, name: str, text: str) -> None:
    """A step under its name, wrapped where the terminal is narrow."""
    lines = textwrap.wrap(escaped(text), terminal.width - len(_INDENT))
    terminal.put(f"{_MARGIN}{terminal.styled(f'{name:<8}', 'green')} {lines[0]}")
    for line in lines[1:]:
        terminal.put(_INDENT + line)


def _put_log(shown: _Shown, terminal: Terminal) -> None:
    messages, each = counted(shown.messages, "message"), duration(statistics.median(shown.seconds))
    if shown.added:
        _step(terminal, "log", f"{messages} dispatched one by one, {each} each, durable")
    else:
        _step(terminal, "log", f"{messages} dispatched again: all were here, so nothing was added")


def _put_compactions(shown: _Shown, terminal: Terminal) -> None:
    ran = counted(len(shown.compactions), "time")
    _step(terminal, "memory", f"compacted {ran} on the way, each an event in the log:")
    for recorded, event in shown.compactions:
        before, after = event.tokens_before, event.tokens_after
        covered = counted(sum(len(replacement.covers) for replacement in event.replacements), "chunk")
        less = f"-{100 * (before - after) // max(before, 1)} %"
        text = f"event {recorded.seq}: {covered}, {number(before)} → {number(after)} tokens ({less})"
        terminal.put(f"{_INDENT}{text}")


def _put_summary(chunk: Chunk, terminal: Terminal) -> None:
    _step(terminal, "summary", f"chunk {chunk.id} now stands for {counted(len(chunk.parent_ids), 'chunk')}:")
    for line in render_lines(chunk.lines, title=False).splitlines():
        if line:
            shown = one_line(line, min(terminal.width, 110) - 13)
            terminal.put(f"{_INDENT}{terminal.styled('│', 'dim')} {shown}")


def _put_context(engine: Engine, context: Context, saved: int, terminal: Terminal) -> None:
    instead = f", instead of about {number(context.tokens + saved)}" if saved > 0 else ""
    _step(terminal, "context", f"the next model call: {measure(context)}{instead}")
    width = min(terminal.width, 110) - 29
    put_messages_briefly(context, kernel_of(engine)[ContextBuilder].counter, terminal, width=width, margin=_INDENT)


async def _put_why(shown: _Shown, chunk: Chunk, terminal: Terminal) -> None:
    """Lead from a line of the summary to its event."""
    line = _line_with_source(chunk.lines)
    if line is None:
        return
    source = await shown.thread.replay.chunk(line.sources[-1])
    event = next(event for event in shown.events if event.seq == source.seq)
    said = one_line(line.text, 48)
    way = f"← chunk {source.id} ({source.type}) ← event {event.seq} ({event.type}, id {event.id[:8]}…)"
    _step(terminal, "why", f"“{said}” {way}")


def _line_with_source(lines: Sequence[SummaryLine]) -> SummaryLine | None:
    return next((line for line in lines if line.sources), None)


def _put_verified(report: VerifyReport, seconds: float, context: float, terminal: Terminal) -> None:
    result = "every hash, operation and state is as recorded" if report.ok else str(report.divergence)
    _step(terminal, "verify", f"{counted(report.events, 'event')} replayed in {duration(seconds)}: {result}")
    _step(terminal, "speed", f"context built in {duration(context)}")


def _print_next_steps(db: str, seconds: float, terminal: Terminal) -> None:
    program = _typed_as()
    terminal.say()
    terminal.say(f"All of it took {duration(seconds)} and is in {db}. Ask it:", "bold")
    terminal.say()
    terminal.say(f"{_MARGIN}export {VARIABLE}={db}", "cyan")
    asked = (
        "threads",
        "log coding --limit 10",
        "why coding 23.0",
        f"context {story.THREAD} --max-tokens 500",
        "verify",
    )
    for words in asked:
        terminal.say(f"{_MARGIN}{program} {words}", "cyan")
    terminal.say()
    terminal.say(f"Or look at all of it in your browser. {story.QUESTION}", "bold")
    terminal.say()
    terminal.say(f"{_MARGIN}{program} inspect --open --thread {story.THREAD} --seq {story.ALARM} --db {db}", "cyan")


def _typed_as() -> str:
    """How to call this program from here: by its name if that is on the path, else by its path."""
    program = Path(sys.argv[0])
    found = shutil.which(program.name)
    if program.name != "memory-engine" or (found and Path(found).resolve() == program.resolve()):
        return "memory-engine"
    place = program.resolve()
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)


DEMO = Command.of(demo)
