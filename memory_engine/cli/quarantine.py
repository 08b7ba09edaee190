"""The commands `quarantine` and `release`: hide what rests on a source, and show it again."""

import argparse
import shlex

from memory_engine.cli.commands import Command, add_thread, existing
from memory_engine.cli.life import add_reason
from memory_engine.cli.rewind import LISTED
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import counted, escaped, number, one_line
from memory_engine.replay.quarantine import Quarantine, QuarantineReport
from memory_engine.replay.rewind import LearnedElsewhere

_FORMS = "tool:NAME, document:ID, agent:ID, event:SEQ_OR_ID, origin:NAME or everything"


def _declare_quarantine(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=f"{_FORMS}; without one, list those in force")
    _declare_act(parser)


def _declare_release(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("source", metavar="SOURCE", help="the source, as the quarantine names it")
    _declare_act(parser)


def _declare_act(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print what would change, and write nothing")
    parser.add_argument("--by", metavar="WHO", default="", help="who does it; recorded with it")
    add_reason(parser)


async def quarantine(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Hide what rests on a source, in the thread and in others; or list the quarantines in force."""
    if asked.source is not None:
        return await _act(asked, terminal, release=False)
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        standing = await engine.thread(asked.thread).admin.quarantines()
    terminal.json(standing)
    for one in standing:
        terminal.say(_standing_line(one))
    if not standing:
        terminal.say(f"no quarantine is in force in thread {asked.thread}")
    return 0


async def release(asked: argparse.Namespace, terminal: Terminal) -> int:
    """End the quarantine of a source: what it hid comes back."""
    return await _act(asked, terminal, release=True)


async def _act(asked: argparse.Namespace, terminal: Terminal, *, release: bool) -> int:
    async with existing(asked.db, read_only=asked.dry_run, plugins=asked.plugins) as engine:
        report = await engine.thread(asked.thread).admin.quarantine(
            asked.source, release=release, dry_run=asked.dry_run, by=asked.by, reason=asked.reason
        )
    terminal.json(report)
    _print_report(report, terminal, release=release)
    return 0


def _print_report(report: QuarantineReport, terminal: Terminal, *, release: bool) -> None:
    events = report.shown if release else report.hidden
    done = f"recorded by event {report.seq}" if report.seq else "nothing was written here"
    what = f"{counted(len(events), 'event')} {'shown' if release else 'hidden'}"
    chunks = f"{counted(len(report.removed), 'chunk')} removed, {number(len(report.restored))} restored"
    terminal.say(f"{report.source} in {report.thread_id}: {what}, {chunks}; {done}", "bold")
    for found in (report.hidden, report.shown, report.answers):
        for one in found[:LISTED]:
            terminal.say(f"  {one_line(_event_line(one), terminal.width)}")
        if len(found) > LISTED:
            terminal.say(f"  … and {number(len(found) - LISTED)} more; --json lists them")
    if report.seq and not release:
        words = " ".join(shlex.quote(one) for one in (report.thread_id, report.source))
        terminal.say(f"to undo it: memory-engine release {words}")


def _event_line(one: LearnedElsewhere) -> str:
    return f"{one.change}: event {one.seq} of {one.thread_id} ({one.type}) {escaped(one.text)}".rstrip()


def _standing_line(one: Quarantine) -> str:
    by = f" by {one.by}" if one.by else ""
    of = f" of thread {one.of}" if one.of else ""
    since = one.since.isoformat(timespec="seconds")
    line = f"{one.source}{of}: {counted(one.events, 'event')} hidden since {since}{by} (event {one.seq})"
    return escaped(f"{line}: {one.reason}" if one.reason else line)


QUARANTINE = Command(_declare_quarantine, quarantine)
RELEASE = Command(_declare_release, release)
