"""The command of the regression lab: lab run."""

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory_engine.cli.commands import Command, WrongArgument, positive, whole
from memory_engine.cli.options import FAILED, FOUND_PROBLEMS, INTERRUPTED, add_shared, key_for
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.lab.page import page
from memory_engine.lab.report import LabReport
from memory_engine.lab.running import MOMENTS, run

_WHAT = "run recorded threads again under a change, and report what got worse"
_CODES = "exit codes: 0 no threshold is broken, 1 one is, 2 a log or the change could not be used, 130 interrupted"


def _declare_lab(parser: argparse.ArgumentParser) -> None:
    words = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    inner = words.add_parser("run", help=_WHAT, description=f"{_WHAT}; {_CODES}", allow_abbrev=False)
    inner.add_argument(
        "logs", metavar="LOG", nargs="+", help="databases, exported logs, recordings that ingest reads, folders of them"
    )
    what = inner.add_argument_group("what is compared")
    what.add_argument("--under", required=True, metavar="CHANGE", help="a TOML file, or: recorded, defaults")
    what.add_argument(
        "--against",
        default="recorded",
        metavar="BASELINE",
        help="recorded (the default), defaults, another TOML file, or the JSON of an earlier run",
    )
    what.add_argument("--python", metavar="PATH", help="measure the baseline with this environment's memory_engine")
    what.add_argument("--thread", action="append", default=[], metavar="ID", help="only this thread (may be repeated)")
    how = inner.add_argument_group("how it is measured")
    how.add_argument("--window", type=positive, metavar="N", help="the model takes N tokens, where a change says none")
    how.add_argument(
        "--moments", type=positive, default=MOMENTS, metavar="N", help=f"contexts of a thread (default: {MOMENTS})"
    )
    how.add_argument("--call-models", action="store_true", help="allow model calls, which cost time and money")
    how.add_argument("--jobs", type=whole, metavar="N", help="processes (default: one a core; 0: in this one)")
    out = inner.add_argument_group("what is written")
    out.add_argument("--html", metavar="FILE", help="the report as a page")
    out.add_argument("--keep", metavar="FOLDER", help="keep databases with both reruns here, for diff, why, ledger")
    out.add_argument("--tests", metavar="FOLDER", help="write a pytest file for each event where something broke")
    add_shared(inner)


async def lab(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Run the lab, and print its report. Ctrl-C ends it with what is finished."""
    if asked.html and not Path(asked.html).parent.is_dir():
        raise WrongArgument(f"--html {asked.html}: there is no such folder")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # a change names modules of the application, which is started here
    with _stopped_by_ctrl_c() as stop, Progress("measuring", terminal) as progress:
        report = await run(
            asked.logs,
            asked.under,
            against=asked.against,
            threads=asked.thread,
            window=asked.window,
            moments=asked.moments,
            plugins=asked.plugins.named,
            entry_points=asked.plugins.published,
            call_models=asked.call_models,
            python=asked.python,
            keep=asked.keep,
            tests=asked.tests,
            processes=asked.jobs,
            key_of=key_for,
            progress=lambda done, found: progress.update({"threads": done, "found": found}),
            stop=stop,
        )
    if asked.html:
        await asyncio.to_thread(Path(asked.html).write_text, page(report), encoding="utf-8")
    terminal.show(report)
    for name in filter(None, (asked.html, asked.tests)):
        terminal.say(f"written: {name}", "dim")
    return _exit_code(report)


def _exit_code(report: LabReport) -> int:
    if report.interrupted:
        return INTERRUPTED
    if report.broken:
        return FOUND_PROBLEMS
    return 0 if report.safe else FAILED


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[asyncio.Event]:
    """An event that the first Ctrl-C sets; the second ends the command as it does any other."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def end(_signal: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(stop.set)

    signal.signal(signal.SIGINT, end)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


LAB = Command(_declare_lab, lab)
