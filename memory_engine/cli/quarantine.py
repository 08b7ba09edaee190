"""The commands `quarantine` and `release`: hide what rests on a source, and show it again."""

import argparse
import shlex
from collections.abc import Iterator

from memory_engine.cli.commands import DRY_RUN, REASON, Command, Option
from memory_engine.cli.rewind import LISTED
from memory_engine.core.excerpts import counted, escaped, number, one_line
from memory_engine.replay.quarantine import Quarantine, QuarantineReport
from memory_engine.replay.rewind import LearnedElsewhere
from memory_engine.reports import Line, Paper, Printout, first_lines, line
from memory_engine.thread import Thread

_FORMS = "tool:NAME, document:ID, agent:ID, event:SEQ_OR_ID, origin:NAME or everything"


async def quarantine(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Hide what rests on a source, in the thread and in others; or list the quarantines in force."""
    if asked.source is not None:
        return await _act(thread, asked, release=False)
    standing = await thread.admin.quarantines()
    none = f"no quarantine is in force in thread {asked.thread}"
    return Printout(standing, [line(_standing_line(one)) for one in standing] or [line(none)])


async def release(thread: Thread, asked: argparse.Namespace) -> Printout:
    """End the quarantine of a source: what it hid comes back."""
    return await _act(thread, asked, release=True)


async def _act(thread: Thread, asked: argparse.Namespace, *, release: bool) -> Printout:
    report = await thread.admin.quarantine(
        asked.source, release=release, dry_run=asked.dry_run, by=asked.by, reason=asked.reason
    )
    return Printout(report, [lambda paper: _report_lines(report, paper, release=release)])


def _report_lines(report: QuarantineReport, paper: Paper, *, release: bool) -> Iterator[Line]:
    events = report.shown if release else report.hidden
    done = f"recorded by event {report.seq}" if report.seq else "nothing was written here"
    what = f"{counted(len(events), 'event')} {'shown' if release else 'hidden'}"
    chunks = f"{counted(len(report.removed), 'chunk')} removed, {number(len(report.restored))} restored"
    yield line(f"{report.source} in {report.thread_id}: {what}, {chunks}; {done}", "bold")
    for found in (report.hidden, report.shown, report.answers):
        yield from first_lines(found, LISTED, lambda one: line(f"  {one_line(_event_line(one), paper.width)}"))
    if not (release or report.hidden):
        yield line("nothing rests on it so far: is it spelled so? What comes from it later is hidden", "yellow")
    if report.seq and not release:
        words = " ".join(shlex.quote(one) for one in (report.thread_id, report.source))
        yield line(f"to undo it: memory-engine release {words}")


def _event_line(one: LearnedElsewhere) -> str:
    return f"{one.change}: event {one.seq} of {one.thread_id} ({one.type}) {escaped(one.text)}".rstrip()


def _standing_line(one: Quarantine) -> str:
    by = f" by {one.by}" if one.by else ""
    of = f" of thread {one.of}" if one.of else ""
    since = one.since.isoformat(timespec="seconds")
    said = f"{one.source}{of}: {counted(one.events, 'event')} hidden since {since}{by} (event {one.seq})"
    return f"{said}: {one.reason}" if one.reason else said


def _is_act(asked: argparse.Namespace) -> bool:
    return asked.source is not None and not asked.dry_run


_ACT = (DRY_RUN, Option.value("--by", "WHO", "who does it; recorded with it", default=""), REASON)
QUARANTINE = Command.of_thread(
    quarantine,
    Option.word("source", "SOURCE", f"{_FORMS}; without one, list those in force"),
    *_ACT,
    writes=_is_act,
)
RELEASE = Command.of_thread(
    release, Option.value("source", "SOURCE", "the source, as the quarantine names it"), *_ACT, writes=_is_act
)
