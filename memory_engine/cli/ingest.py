"""The command that reads files: ingest."""

import argparse
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import get_args

from attrs import evolve

from memory_engine.cli.commands import NO_PLUGINS, Command, Option, WrongArgument, chosen_plugins, positive, writable
from memory_engine.cli.options import FOUND_PROBLEMS, PluginChoice
from memory_engine.cli.recordings import AskedFile, asked_files
from memory_engine.cli.standard import STANDARD, check_one_is_there, limits
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.aside import on_thread
from memory_engine.core.excerpts import counted, duration, number
from memory_engine.core.json_form import named
from memory_engine.core.recordings import Reader
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine
from memory_engine.errors.base import shown_place
from memory_engine.ingest.following import LiveFile
from memory_engine.ingest.ingestion import Ingestion, IngestOptions, IngestReport
from memory_engine.ingest.mapping import mapping_of
from memory_engine.ingest.readers import BUILT_IN
from memory_engine.ingest.readers.messages import holds_a_log
from memory_engine.ingest.records import Format
from memory_engine.runtime.config import EngineConfig

ERRORS_SHOWN_MAX = 20
KINDS_SHOWN_MAX = 12
AS_RECORDED = EngineConfig(compaction=CompactionPolicy(enabled=False))
"""For logs, which contain their compactions."""


def _for_window(text: str) -> CompactionPolicy:
    return CompactionPolicy.for_window(positive(text))


async def ingest(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Read files into threads. Returns 1 if one of them has an error."""
    mapped = mapping_of(asked.map) if asked.map else None
    options = IngestOptions(
        format=mapped.name if mapped is not None else asked.format,
        user_id=asked.user,
        tenant_id=asked.tenant,
        thread_id=asked.thread,
        skip_invalid=asked.skip_invalid,
        branches=not asked.no_branches,
        limits=asked.limits,
        policy=asked.window,
    )
    if STANDARD in asked.files and not asked.thread:
        raise WrongArgument("standard input has no name: name its thread with --thread")
    files = asked_files(asked.files, asked.thread)
    readers = [
        *([mapped] if mapped is not None else []),
        *(one for plugin in chosen_plugins(asked.plugins) for one in plugin.readers),
    ]
    _check_format(options.format, readers)
    begun = time.perf_counter()
    if asked.follow:
        return await follow_file(files, asked, options, terminal, readers)
    if not any(file.in_folder for file in files):
        check_one_is_there([*map(_source_name, files)])
    report = await ingest_files(files, _Opening(asked.db, asked.plugins), options, terminal, readers)
    seconds = time.perf_counter() - begun
    terminal.json(report_as_json(report, seconds))
    _put_report(report, shown_place(asked.db), seconds, terminal)
    return FOUND_PROBLEMS if report.invalid else 0


def _source_name(file: AskedFile) -> str:
    return STANDARD if str(file.path) == "/dev/stdin" else str(file.path)


def _check_format(name: str, readers: Sequence[Reader]) -> None:
    known = [*get_args(Format), *(reader.name for reader in (*readers, *BUILT_IN))]
    if name not in known:
        raise WrongArgument(f"the format {name!r} is not one of {', '.join(dict.fromkeys(known))}")


class _Opening:
    """Opens the database once a file holds something to keep, and closes it."""

    def __init__(self, db: str, plugins: PluginChoice = NO_PLUGINS) -> None:
        self._db, self._plugins = db, plugins
        self._stack = AsyncExitStack()
        self._opened: dict[bool, Engine] = {}

    async def engine(self, *, as_recorded: bool) -> Engine:
        """The engine; for logs, one that compacts nothing of its own accord."""
        if as_recorded not in self._opened:
            await self.close()
            config = AS_RECORDED if as_recorded else None
            opening = writable(self._db, config=config, plugins=self._plugins)
            self._opened[as_recorded] = await self._stack.enter_async_context(opening)
        return self._opened[as_recorded]

    async def close(self) -> None:
        """Close what is open."""
        self._opened.clear()
        await self._stack.aclose()


async def ingest_files(
    files: Sequence[AskedFile],
    opening: _Opening,
    options: IngestOptions,
    terminal: Terminal,
    readers: Sequence[Reader] = (),
) -> IngestReport:
    """Ingest files in order, until one has an error, unless errors are skipped."""
    report = IngestReport()
    taken: set[Path] = set()

    def shown(now: IngestReport) -> None:
        progress.update({"files": now.files, "threads": len(now.threads), "messages": now.messages})

    with Progress("ingesting", terminal) as progress:
        try:
            for file in files:
                if file.path.resolve() in taken:
                    continue
                is_log = options.format in ("auto", "events") and holds_a_log(file.path)
                its = evolve(options, policy=None) if is_log else options
                ingestion = Ingestion(partial(opening.engine, as_recorded=is_log), its, report, shown, readers=readers)
                if not await _ingest_file(ingestion, file):
                    return report
                taken.update(path.resolve() for path in ingestion.also_read)
        finally:
            await opening.close()
    return report


async def _ingest_file(ingestion: Ingestion, file: AskedFile) -> bool:
    """Ingest a file; one of a folder that turns out to be no recording is passed over."""
    report = ingestion.report
    threads, invalid = len(report.threads), report.invalid
    if await ingestion.file(file.path, file.name):
        return True
    if not file.in_folder or len(report.threads) > threads or report.invalid != invalid + 1:
        return False
    report.invalid -= 1
    report.files -= 1
    report.passed_over.append(report.errors.pop())
    return True


async def follow_file(
    files: Sequence[AskedFile],
    asked: argparse.Namespace,
    options: IngestOptions,
    terminal: Terminal,
    readers: Sequence[Reader],
) -> int:
    """Read a file, and then each addition to it, until an error or an interruption."""
    if len(files) != 1 or files[0].in_folder:
        raise WrongArgument("--follow takes one file of JSON Lines; start it once for each")
    following = LiveFile(files[0].path, options.limits)
    report, opening = IngestReport(), _Opening(asked.db, asked.plugins)
    told: list[int] = [0]

    def paused(now: IngestReport) -> None:
        added = sum(thread.added for thread in now.threads)
        if added != told[0]:
            terminal.json({"messages": now.messages, "added": added})
            terminal.say(f"{counted(now.messages, 'message')} so far: {counted(added, 'event')} added")
            terminal.out.flush()
            told[0] = added

    ingestion = Ingestion(partial(opening.engine, as_recorded=False), options, report, on_pause=paused, readers=readers)
    try:
        file = await on_thread(lambda: following.file(files[0].name, options.format))
        await ingestion.recording(file)
    finally:
        following.stop.set()
        await opening.close()
    _put_report(report, shown_place(asked.db), 0.0, terminal)
    return FOUND_PROBLEMS if report.invalid else 0


def report_as_json(report: IngestReport, seconds: float) -> dict[str, object]:
    """The summary that `ingest --json` prints."""
    return {
        "files": report.files,
        "threads": [named(thread, "id messages added known branch_of") for thread in report.threads],
        "messages": report.messages,
        "added": sum(thread.added for thread in report.threads),
        "known": sum(thread.known for thread in report.threads),
        **named(report, "compactions tokens_before tokens_after invalid"),
        "left_out": dict(report.left_out.most_common()),
        "passed_over": [named(error, "path line why") for error in report.passed_over],
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
    branches = [thread.id for thread in report.threads if thread.branch_of]
    if branches:
        names = ", ".join(branches[:KINDS_SHOWN_MAX]) + ", …" * (len(branches) > KINDS_SHOWN_MAX)
        terminal.say(f"{counted(len(branches), 'fork')} for branches that were left: {names}")
    if report.compactions:
        tokens = f"{number(report.tokens_before)} → {number(report.tokens_after)} tokens"
        terminal.say(f"{counted(report.compactions, 'compaction')} on the way: {tokens}")
    if report.left_out:
        kinds = ", ".join(f"{number(count)} {kind}" for kind, count in report.left_out.most_common(KINDS_SHOWN_MAX))
        more = len(report.left_out) - KINDS_SHOWN_MAX
        terminal.say(f"not taken: {kinds}" + (f" and {counted(more, 'kind')} more" if more > 0 else ""))
    if report.passed_over:
        names = ", ".join(one.path for one in report.passed_over[:KINDS_SHOWN_MAX])
        terminal.say(f"passed over, as they are not recordings: {counted(len(report.passed_over), 'file')} ({names})")
    if terminal.as_json:
        return
    for error in report.errors[:ERRORS_SHOWN_MAX]:
        terminal.error(f"{error}")
    if report.invalid > ERRORS_SHOWN_MAX:
        terminal.warn(f"… and {number(report.invalid - ERRORS_SHOWN_MAX)} more; --json lists them")


INGEST = Command.of(
    ingest,
    lambda parser: parser.add_argument(
        "files", metavar="FILE", nargs="+", help="a recording, a folder or a pattern (-: standard input)"
    ),
    Option.value(
        "--format",
        "NAME",
        "what the file is, such as openai, anthropic, events, otlp, claude-code (default: by the content)",
        default="auto",
    ),
    Option.value("--map", "WORDS", "where a message's parts are: role=author.type,text=body, or a file", default=""),
    Option.flag("--follow", "then read what is appended (Ctrl-C ends it)"),
    Option.value("--user", "U", "the user who owns new threads", default=""),
    Option.value("--tenant", "T", "the tenant that owns new threads", default=""),
    Option.value("--thread", "ID", "the thread's id (default: the file's)", default=""),
    Option.value(
        "--window",
        "TOKENS",
        "what your model takes: new threads are compacted as they fill it (default: 128,000)",
        _for_window,
    ),
    limits("json_values=9000000"),
    Option.flag("--no-branches", "only count the branches of a conversation that were left (default: each is a fork)"),
    Option.flag("--skip-invalid", "continue after an error, and list them all"),
)
