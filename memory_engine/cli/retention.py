"""The command `retain`: what is old enough goes, by the rules of a file."""

import argparse
import asyncio
from datetime import timedelta

from memory_engine.administration.retention import RetentionReport, read_age, read_rules
from memory_engine.cli.commands import Command, existing
from memory_engine.cli.erasing import add_yes, agreed
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import counted
from memory_engine.errors import MemoryEngineError

LISTED = 20
"""Threads of a rule that are listed for people."""


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES.toml", help="the rules: tables [[rule]]")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and write nothing")
    parser.add_argument("--every", metavar="AGE", type=_age, help='again and again, such as "24 hours", until Ctrl-C')
    parser.add_argument("--by", metavar="WHO", default="", help="who asked for it; kept with the acts")
    add_yes(parser)


def _age(text: str) -> timedelta:
    """An age above zero, as argparse wants its types."""
    try:
        age = read_age(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not age:
        raise argparse.ArgumentTypeError("it is a time above zero")
    return age


async def retain(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Follow the rules of a file once, or again and again."""
    rules = read_rules(asked.rules)
    async with existing(asked.db, entry_points=asked.plugins) as engine:
        planned = await engine.retain(rules, dry_run=True)
        if asked.dry_run:
            return _told(planned, terminal)
        if any(one.threads for one in planned.rules) or asked.every:
            if not terminal.as_json and not asked.yes:
                _told(planned, terminal)
            if not agreed(asked, terminal, "Do this?"):
                return 0
        if asked.every is None:
            return _told(await engine.retain(rules, by=asked.by), terminal)
        while True:
            try:
                _told(await engine.retain(rules, by=asked.by), terminal)
            except MemoryEngineError as error:  # a hold in the way, a busy file: the next time is another one
                terminal.warn(f"memory-engine: {error}")
            await asyncio.sleep(asked.every.total_seconds())


def _told(report: RetentionReport, terminal: Terminal) -> int:
    terminal.json(report)
    for one in report.rules:
        events = sum(one.threads.values())
        of = f"{counted(events, 'event')} of " if events else ""
        terminal.say(f"{one.rule}: {one.act} {of}{counted(len(one.threads), 'thread')}", "bold")
        for thread_id, count in list(one.threads.items())[:LISTED]:
            terminal.say(f"  {thread_id}" + (f": {counted(count, 'event')}" if count else ""))
        if len(one.threads) > LISTED:
            terminal.say(f"  … and {len(one.threads) - LISTED:,} more; --json lists them")
        for thread_id, why in one.kept.items():
            terminal.say(f"  {thread_id} stays: {why}", "yellow")
    if report.is_dry_run:
        terminal.say("nothing was written (a dry run)")
    elif report.act:
        terminal.say(f"act {report.act}")
    return 0


RETAIN = Command(_declare, retain)
