"""The command `retain`: removes what is old enough, by the rules of a file."""

import argparse
from collections.abc import Sequence

from memory_engine.administration.retention import RetentionReport, RetentionRule, read_rules
from memory_engine.cli.commands import Command, add_yes, agreed, existing
from memory_engine.cli.schedule import add_every, again_and_again
from memory_engine.cli.standard import read_whole
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import counted
from memory_engine.engine import Engine

LISTED = 20
"""How many threads of a rule are listed for people."""


def _declare_retention(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES.toml", help="the rules: tables [[rule]] (-: standard input)")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and write nothing")
    add_every(parser)
    parser.add_argument("--by", metavar="WHO", default="", help="who asked for it; recorded with the acts")
    add_yes(parser)


async def retain(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Apply the rules of a file once, or repeatedly."""
    with read_whole(asked.rules) as file:
        rules = read_rules(file)
    async with existing(asked.db, plugins=asked.plugins) as engine:
        planned = await engine.admin.retain(rules, dry_run=True)
        if asked.dry_run:
            return _print_retention(planned, terminal)
        if any(one.threads for one in planned.rules) or asked.every:
            if not terminal.as_json and not asked.yes:
                _print_retention(planned, terminal)
            if not agreed(asked, terminal, "Do this?"):
                return 0
        if asked.every is None:
            return await _retained(engine, rules, asked.by, terminal)
        return await again_and_again(asked.every, terminal, lambda: _retained(engine, rules, asked.by, terminal))


async def _retained(engine: Engine, rules: Sequence[RetentionRule], by: str, terminal: Terminal) -> int:
    return _print_retention(await engine.admin.retain(rules, by=by), terminal)


def _print_retention(report: RetentionReport, terminal: Terminal) -> int:
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


RETAIN = Command(_declare_retention, retain)
