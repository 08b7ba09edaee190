"""The command that reads files: ingest."""

import argparse
import itertools
import time
from pathlib import Path
from typing import get_args

from attrs import evolve

from memory_engine.cli.commands import NO_PLUGINS, Command, WrongArgument, positive, reading_limits, writable
from memory_engine.cli.options import FOUND_PROBLEMS, PluginChoice
from memory_engine.cli.standard import STANDARD, check_one_is_there
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted, duration, number
from memory_engine.core.json_form import named
from memory_engine.core.limits import DEFAULT_LIMITS
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors.base import shown_place
from memory_engine.ingest.ingestion import Ingestion, IngestOptions, IngestReport
from memory_engine.ingest.readers.messages import holds_a_log
from memory_engine.ingest.records import Format
from memory_engine.runtime.config import EngineConfig

ERRORS_SHOWN_MAX = 20
AS_RECORDED = EngineConfig(compaction=CompactionPolicy(enabled=False))
"""For logs, which contain their compactions."""


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="JSON or JSON Lines (-: standard input)")
    parser.add_argument(
        "--format",
        choices=get_args(Format),
        default="auto",
        help="messages of OpenAI or Anthropic, trajectories, events, or spans (default: by the content)",
    )
    parser.add_argument("--user", default="", metavar="U", help="the user who owns new threads")
    parser.add_argument("--tenant", default="", metavar="T", help="the tenant that owns new threads")
    parser.add_argument("--thread", default="", metavar="ID", help="the thread's id (default: the file's)")
    parser.add_argument(
        "--window",
        type=_for_window,
        metavar="TOKENS",
        help="what your model takes: new threads are compacted as they fill it (default: 128,000)",
    )
    parser.add_argument(
        "--limits",
        type=reading_limits,
        default=DEFAULT_LIMITS,
        metavar="NAME=N,…",
        help="other limits of reading, such as json_values=9000000",
    )
    parser.add_argument("--skip-invalid", action="store_true", help="continue after an error, and list them all")


def _for_window(text: str) -> CompactionPolicy:
    return CompactionPolicy.for_window(positive(text))


async def ingest(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Read files into threads. Returns 1 if one of them has an error."""
    options = IngestOptions(
        format=asked.format,
        user_id=asked.user,
        tenant_id=asked.tenant,
        thread_id=asked.thread,
        skip_invalid=asked.skip_invalid,
        limits=asked.limits,
        policy=asked.window,
    )
    if STANDARD in asked.files and not asked.thread:
        raise WrongArgument("standard input has no name: name its thread with --thread")
    paths = [Path("/dev/stdin" if name == STANDARD else name) for name in asked.files]
    _check_names(paths, options)
    check_one_is_there(asked.files)
    begun = time.perf_counter()
    report = await ingest_files(paths, asked.db, options, terminal, asked.plugins)
    seconds = time.perf_counter() - begun
    terminal.json(report_as_json(report, seconds))
    _put_report(report, shown_place(asked.db), seconds, terminal)
    return FOUND_PROBLEMS if report.invalid else 0


def _check_names(paths: list[Path], options: IngestOptions) -> None:
    """Refuse two files that would be one thread."""
    names = [options.thread_id or path.stem for path in paths]
    for at, name in enumerate(names):
        if name in names[:at]:
            first = paths[names.index(name)]
            raise WrongArgument(f"{first} and {paths[at]} would both be thread {name!r}; give each its own --thread")


async def ingest_files(
    paths: list[Path], db: str, options: IngestOptions, terminal: Terminal, plugins: PluginChoice = NO_PLUGINS
) -> IngestReport:
    """Ingest files in order, until one has an error, unless errors are skipped."""
    report = IngestReport()
    progress = Progress("ingesting", terminal)

    def shown(now: IngestReport) -> None:
        progress.update({"threads": len(now.threads), "messages": now.messages})

    is_log = {path: options.format in ("auto", "events") and holds_a_log(path) for path in paths}
    try:
        for as_recorded, group in itertools.groupby(paths, key=is_log.__getitem__):
            async with writable(db, config=AS_RECORDED if as_recorded else None, plugins=plugins) as engine:
                its = evolve(options, policy=None) if as_recorded else options
                ingestion = Ingestion(engine, its, report, shown)
                for path in group:
                    if not await ingestion.file(path):
                        return report
    finally:
        progress.end()
    return report


def report_as_json(report: IngestReport, seconds: float) -> dict[str, object]:
    """The summary that `ingest --json` prints."""
    return {
        "files": report.files,
        "threads": [named(thread, "id messages added known") for thread in report.threads],
        "messages": report.messages,
        "added": sum(thread.added for thread in report.threads),
        "known": sum(thread.known for thread in report.threads),
        **named(report, "compactions tokens_before tokens_after invalid"),
        "errors": [named(error, "path line why") for error in report.errors],
        "seconds": round(seconds, 3),
    }


def _put_report(report: IngestReport, db: str, seconds: float, terminal: Terminal) -> None:
    threads = counted(len(report.threads), "thread")
    added = counted(sum(thread.added for thread in report.threads), "event")
    known = sum(thread.known for thread in report.threads)
    line = f"{counted(report.messages, 'message')} into {threads} of {db}: {added} added"
    if known:
        line += f", {number(known)} known before"
    terminal.say(f"{line} in {duration(seconds)}")
    if report.compactions:
        tokens = f"{number(report.tokens_before)} → {number(report.tokens_after)} tokens"
        terminal.say(f"{counted(report.compactions, 'compaction')} on the way: {tokens}")
    if terminal.as_json:
        return
    for error in report.errors[:ERRORS_SHOWN_MAX]:
        terminal.warn(f"memory-engine: error: {error}")
    if report.invalid > ERRORS_SHOWN_MAX:
        terminal.warn(f"… and {number(report.invalid - ERRORS_SHOWN_MAX)} more; --json lists them")


INGEST = Command(_declare, ingest)
