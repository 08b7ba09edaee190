"""The command that runs logs again under several compactors, and compares what they keep."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from memory_engine.cli.commands import Command, WrongArgument, chosen_plugins, existing
from memory_engine.cli.options import FOUND_PROBLEMS, key_for
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.cli.what_if import (
    add_models,
    add_policy,
    check_model,
    compactor_named,
    policy_of,
    registered_compactors,
)
from memory_engine.compaction.base import Compactor, calls_model
from memory_engine.core.excerpts import counted, duration, number
from memory_engine.files.comparison import SMALL_WINDOW, SUFFIXES, CompactorScore, Comparison, compare_compactors
from memory_engine.files.comparison_chart import draw
from memory_engine.plugins import Plugin
from memory_engine.reports import Column
from memory_engine.thread import Thread
from memory_engine.wiring import model_compactor
from memory_engine.wiring import open as open_engine

ROWS_SHOWN_MAX = 40


def _declare_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "logs",
        metavar="THREAD|PATH",
        nargs="+",
        help="threads of --db; exported logs, recorded conversations, databases, folders of them (a path that exists "
        "is one)",
    )
    how = parser.add_argument_group("what is compared")
    how.add_argument(
        "--compactor",
        action="append",
        default=[],
        metavar="NAME",
        help="may be repeated (default: all registered ones that call no model)",
    )
    add_models(how)
    add_policy(parser)
    parser.add_argument("--chart", metavar="FILE", help="draw tokens kept against facts kept, as SVG")


async def compare(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Compare, and print a line for each log and compactor. Returns 1 if a file could not be read."""
    check_model(asked)
    if asked.no_compaction:
        raise WrongArgument("--no-compaction leaves nothing to compare")
    plugins = chosen_plugins(asked.plugins)
    compactors = await _compactors(asked, plugins)
    done = 0

    def shown(_log: str, _compactor: str) -> None:
        nonlocal done
        done += 1
        progress.update({"reruns": done})

    async with _chosen(asked) as logs:
        with Progress("comparing", terminal) as progress:
            found = await compare_compactors(
                logs,
                compactors,
                policy=policy_of(asked, SMALL_WINDOW),
                plugins=plugins,
                call_models=asked.call_models,
                key_of=key_for,
                progress=shown,
            )
    if asked.chart:
        await asyncio.to_thread(Path(asked.chart).write_text, draw(found), encoding="utf-8")
    terminal.json(found)
    _print_comparison(found, terminal)
    if asked.chart:
        terminal.say(f"the chart is in {asked.chart}")
    return FOUND_PROBLEMS if found.unread else 0


@asynccontextmanager
async def _chosen(asked: argparse.Namespace) -> AsyncIterator[list[str | Thread]]:
    """Paths, and threads of the database, which is opened only for a word that may be one."""
    if all(map(_is_path, asked.logs)):
        yield asked.logs
        return
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        logs = [word if _is_path(word) else engine.thread(word) for word in asked.logs]
        for thread in logs:
            if isinstance(thread, Thread):
                await thread.info()
        yield logs


def _is_path(word: str) -> bool:
    """Whether it is there, or could not be but a file."""
    return Path(word).exists() or word.endswith(SUFFIXES)


async def _compactors(asked: argparse.Namespace, plugins: Sequence[Plugin]) -> list[Compactor]:
    async with open_engine(":memory:") as engine:
        registered = registered_compactors(engine, plugins)
    chosen = [compactor_named(name, registered) for name in dict.fromkeys(asked.compactor)]
    if asked.model:
        chosen.append(model_compactor(asked.model))
    return chosen or [compactor for compactor in registered if not calls_model(compactor)]


def _print_comparison(found: Comparison, terminal: Terminal) -> None:
    if terminal.as_json:
        return
    for one in found.unread:
        terminal.error(f"{one.path}: {one.why}")
    totals = found.totals()
    if not totals:
        terminal.say("no log was read")
        return
    compacted = [row for row in found.rows if row.compactions or row.failed]
    logs = len({row.log for row in found.rows})
    terminal.say(
        f"{counted(logs, 'log')}, {counted(len({row.log for row in compacted}), 'log')} with anything to compact"
    )
    heads = [
        Column("LOG", least=16), Column("COMPACTOR"), Column("TOKENS KEPT", right=True),
        Column("FACTS KEPT", right=True), Column("COMPACTIONS", right=True), Column("TIME", right=True),
    ]  # fmt: skip
    rows = [_kept_cells(row, row.log) for row in compacted[:ROWS_SHOWN_MAX]]
    if len(compacted) > ROWS_SHOWN_MAX:
        rows.append((f"… {number(len(compacted) - ROWS_SHOWN_MAX)} more lines: --json", "", "", "", "", ""))
    terminal.table(heads, [*rows, *(_kept_cells(total, "all") for total in totals)])


def _kept_cells(row: CompactorScore, name: str) -> tuple[str, str, str, str, str, str]:
    failed = f" ({row.failed} failed)" if row.failed else ""
    return (
        name,
        row.compactor,
        _share_text(row.tokens_kept, row.tokens),
        _share_text(row.facts_kept, row.facts),
        f"{row.compactions}{failed}",
        duration(row.seconds),
    )


def _share_text(share: float | None, of: tuple[int, int]) -> str:
    return "-" if share is None else f"{share:.0%} of {number(of[0])}"


COMPARE_COMPACTORS = Command(_declare_compare, compare)
