"""The command `copy`: a whole database into another of any kind, verified at the end."""

import argparse
import time
from functools import partial
from pathlib import Path

from memory_engine.administration.store_copy import CopyReport
from memory_engine.cli.commands import Command, WrongArgument, existing, writable
from memory_engine.cli.options import FOUND_PROBLEMS, add_new_key, key_for, new_key
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted, duration
from memory_engine.errors.base import is_url, shown_place


def _declare_copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FROM", help="the database to copy, a path or a URL; it is only read")
    parser.add_argument("target", metavar="TO", help="a new database, or that of an interrupted copy: a path or a URL")
    add_new_key(parser)


async def copy(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Copy all threads. Returns 1 if one could not be copied completely, or diverges."""
    if asked.target == ":memory:":
        raise WrongArgument("a copy in memory would be gone with this command: name a file or a URL")
    if _is_same(asked.source, asked.target):
        raise WrongArgument(f"{shown_place(asked.target)} is the database to be copied: name another one")
    return await copied(asked, asked.source, asked.target, terminal)


async def copied(asked: argparse.Namespace, source_place: str, target_place: str, terminal: Terminal) -> int:
    """Copy from one place to another. Returns 1 if a thread could not be copied completely, or diverges."""
    begun = time.perf_counter()
    async with (
        existing(source_place, read_only=True, plugins=asked.plugins) as source,
        writable(target_place, plugins=asked.plugins, key=partial(_key_of_target, asked)) as target,
    ):
        with Progress("copying", terminal) as progress:
            report = await source.copy_to(
                target,
                progress=lambda what, threads, events: progress.update({"threads": threads, "events": events}, what),
            )
    terminal.json(report)
    _put_report(report, f"{shown_place(source_place)} → {shown_place(target_place)}", begun, terminal)
    return 0 if report.ok else FOUND_PROBLEMS


def _put_report(report: CopyReport, way: str, begun: float, terminal: Terminal) -> None:
    held = f"{counted(report.threads, 'thread')}, {counted(report.events, 'event')}"
    added = f"{counted(report.added, 'event')} added now"
    terminal.say(f"{way}: {held}, {added}, verified, in {duration(time.perf_counter() - begun)}", "bold")
    for thread_id, why in report.failed.items():
        terminal.say(f"thread {thread_id!r} is not whole there: {why}", "red")
    for thread_id in report.diverged:
        terminal.say(f"thread {thread_id!r} diverges there; `memory-engine verify {thread_id}` says where", "red")


def _key_of_target(asked: argparse.Namespace, place: str) -> str | None:
    """The new key, none for a server or where none is wanted, else that of the source."""
    key = new_key(asked)
    if key is not None or asked.plain or is_url(place):
        return key
    return key_for(place if is_url(asked.source) else asked.source)


def _is_same(source: str, target: str) -> bool:
    if is_url(source) or is_url(target):
        return source == target
    return Path(source).resolve() == Path(target).resolve()


COPY = Command(_declare_copy, copy)
