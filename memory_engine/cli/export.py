"""The commands that move logs: export, import, anchors (hashes kept elsewhere), to-pytest."""

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import msgspec
from attrs import evolve, frozen

from memory_engine.cli.commands import (
    MOMENT,
    Command,
    Option,
    WrongArgument,
    check_is_there,
    existing,
    moment,
    positive,
    writable,
)
from memory_engine.cli.options import FOUND_PROBLEMS
from memory_engine.cli.schedule import add_every, again_and_again
from memory_engine.cli.standard import STANDARD, read_whole, written_whole
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted, duration, escaped_in_json, number, size
from memory_engine.core.json_form import JsonForm
from memory_engine.errors import IntegrityError, StorageRefused
from memory_engine.errors.base import is_url, shown_place
from memory_engine.replay.anchors import Anchor, Contradicted, add_anchors, read_anchors
from memory_engine.replay.export.archive import MANIFEST
from memory_engine.replay.export.claims import AS_EXPORTED, AS_GIVEN, CONVERSATIONS, ImportScopes, allowed
from memory_engine.replay.export.export import ExportReport, export
from memory_engine.replay.export.importer import ImportReport
from memory_engine.replay.export.log_file import LogFile, schema
from memory_engine.replay.export.redaction import Redaction
from memory_engine.reports import Column, Printout, line
from memory_engine.store.reader import MomentLike
from memory_engine.thread import Thread, handle_of


def _declare_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "thread", metavar="THREAD", nargs="?", help="a thread's id (`memory-engine threads` lists them)"
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the file to write (-: standard output); compressed if it ends in .gz"
    )
    parser.add_argument("--all", metavar="FOLDER", help="every thread, into a new folder: a file each, and a manifest")
    parser.add_argument("--upto", type=moment, metavar="MOMENT", help=f"the log up to: {MOMENT}")
    parser.add_argument("--compress", action="store_true", help="compress, whatever the file's name")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of a line, and do nothing else")
    taken = parser.add_argument_group("what to redact (each may be given several times)")
    taken.add_argument(
        "--redact-field", action="append", metavar="NAME", help="a field of events, by name or path (metadata.email)"
    )
    taken.add_argument("--redact-pattern", action="append", metavar="REGEX", help="what matches, in any text")
    taken.add_argument("--redact-type", action="append", metavar="TYPE", help="the texts of all events of a type")
    taken.add_argument("--redact-seq", action="append", type=positive, metavar="SEQ", help="the texts of an event")
    taken.add_argument(
        "--redact-forgotten", action="store_true", help="what was forgotten (the default with any of these)"
    )
    taken.add_argument("--keep-forgotten", action="store_true", help="not what was forgotten")


async def export_log(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Write a log to a file. Returns 1 if the log is broken: the file then is too."""
    if asked.schema:
        text = msgspec.json.format(msgspec.json.encode(schema())).decode()
        terminal.json(schema())
        terminal.say(text)
        return 0
    if asked.all is not None:
        return await _export_all(asked, terminal)
    if asked.thread is None or asked.file is None:
        raise WrongArgument("name a thread and the file to make: memory-engine export THREAD FILE")
    _check_folder(asked.file)
    begun = time.perf_counter()
    try:
        with written_whole(asked.file) as file, Progress("exporting", terminal) as progress:
            report = await _export(asked, file, progress)
    except FileExistsError as error:
        raise WrongArgument(f"{error.filename}: the file exists; --force replaces it") from None
    if asked.file == STANDARD:
        terminal = evolve(terminal, out=terminal.err)  # standard output has the log
    terminal.json(report)
    _put_export(report, time.perf_counter() - begun, terminal)
    return FOUND_PROBLEMS if report.broken_at or report.idle_rules else 0


async def _export(asked: argparse.Namespace, file: Path, progress: Progress) -> ExportReport:
    """Write a log to a file, and report where."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        report = await export(
            handle_of(engine.thread(asked.thread)),
            file,
            upto=asked.upto,
            redaction=_redaction(asked),
            progress=lambda events: progress.update({"events": events}),
            compress=asked.compress,
            force=asked.force,
        )
    return evolve(report, path=asked.file)


async def _export_all(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Write every log to a folder."""
    if asked.thread or asked.upto is not None or asked.compress or asked.force:
        raise WrongArgument("--all takes the folder to make, and what to redact, and nothing else")
    _check_folder(asked.all)
    begun = time.perf_counter()
    with Progress("exporting", terminal) as progress:
        async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
            report = await engine.transfer.export_all(
                asked.all,
                redaction=_redaction(asked),
                progress=lambda threads, events: progress.update({"threads": threads, "events": events}),
            )
    terminal.json(report)
    taken_out = f", {report.redacted:,} of them redacted" if report.redacted else ""
    what = f"{counted(report.threads, 'thread')}, {counted(report.events, 'event')}{taken_out}"
    terminal.say(f"{what} → {report.path} ({size(report.bytes)}) in {duration(time.perf_counter() - begun)}")
    for rule in () if terminal.as_json else report.idle_rules:
        terminal.warn(f"memory-engine: no log matches this rule: {rule}")
    for thread_id in () if terminal.as_json else report.broken:
        terminal.warn(
            f"memory-engine: the hash chain of thread {thread_id!r} is broken: no import will accept its file"
        )
    return FOUND_PROBLEMS if report.broken or report.idle_rules else 0


def _check_folder(file: str) -> None:
    if not Path(file).absolute().parent.is_dir():
        raise WrongArgument(f"{file}: its folder does not exist")


def _redaction(asked: argparse.Namespace) -> Redaction | None:
    rules: tuple[Sequence[object], ...] = tuple(
        given or () for given in (asked.redact_field, asked.redact_pattern, asked.redact_type, asked.redact_seq)
    )
    if asked.redact_forgotten and asked.keep_forgotten:
        raise WrongArgument("--redact-forgotten and --keep-forgotten exclude each other")
    if not any(rules) and not asked.redact_forgotten:
        return None
    return Redaction(
        fields=asked.redact_field or (),
        patterns=asked.redact_pattern or (),
        types=asked.redact_type or (),
        seqs=asked.redact_seq or (),
        forgotten=not asked.keep_forgotten,
    )


def _put_export(report: ExportReport, seconds: float, terminal: Terminal) -> None:
    taken_out = f", {report.redacted:,} of them redacted" if report.redacted else ""
    what = f"{counted(report.events, 'event')} of {report.thread_id}{taken_out}"
    terminal.say(f"{what} → {report.path} ({size(report.bytes)}) in {duration(seconds)}")
    terminal.say(f"head {report.head_hash or 'none: the log is empty'}", "dim")
    if terminal.as_json:
        return
    for rule in report.idle_rules:
        terminal.warn(f"memory-engine: nothing in the log matches this rule: {rule}")
    if report.broken_at:
        terminal.warn(
            f"memory-engine: event {report.broken_at} does not have the hash of what it says: no import will take the "
            "file; `memory-engine verify` says more"
        )


def _declare_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file or folder that `export` wrote (-: standard input)")
    parser.add_argument("--thread", default="", metavar="ID", help="the thread's id (default: as it was)")
    may = parser.add_argument_group("whose thread the file may be (default: a conversation of nobody)")
    may.add_argument("--tenant", default="", metavar="ID", help="this tenant's")
    may.add_argument("--user", default="", metavar="ID", help="this user's")
    may.add_argument("--agent", default="", metavar="ID", help="this agent's")
    may.add_argument("--parent", default="", metavar="ID", help="a child of this thread")
    may.add_argument(
        "--kind", action="append", metavar="KIND", help="of this kind, such as user (may be given several times)"
    )
    may.add_argument("--as-exported", action="store_true", help="whatever it says: for an archive of your own")


async def import_log(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Make a thread from an exported file, or all of an exported folder."""
    if _is_whole_store(asked.file):
        return await _import_all(asked, terminal)
    _check_is_there(asked.file)
    begun = time.perf_counter()
    with Progress("importing", terminal) as progress, read_whole(asked.file) as file:
        if not is_url(asked.db):
            await asyncio.to_thread(_check_head, file, asked)
        async with writable(asked.db, plugins=asked.plugins) as engine:
            report = await engine.transfer.import_log(
                file,
                thread_id=asked.thread,
                **_scopes(asked),
                progress=lambda events: progress.update({"events": events}),
            )
    report = evolve(report, path=asked.file)
    terminal.json(report)
    _put_import(report, shown_place(asked.db), time.perf_counter() - begun, terminal)
    return 0


def _is_whole_store(path: str) -> bool:
    return Path(path, MANIFEST).is_file()


async def _import_all(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Make the threads of a folder. Returns 1 if one could not be imported."""
    if asked.thread:
        raise WrongArgument("--thread is for one file: the threads of a folder keep their ids")
    if asked.kind or asked.tenant or asked.user or asked.agent or asked.parent:
        raise WrongArgument("a folder has threads of many kinds and owners: --as-exported takes them as they are")
    begun = time.perf_counter()
    with Progress("importing", terminal) as progress:
        async with writable(asked.db, plugins=asked.plugins) as engine:
            report = await engine.transfer.import_all(
                asked.file,
                scopes=AS_EXPORTED if asked.as_exported else AS_GIVEN,
                progress=lambda threads, events: progress.update({"threads": threads, "events": events}),
            )
    terminal.json(report)
    known = f", {counted(report.known, 'thread')} known before" if report.known else ""
    added = f"{counted(report.added, 'event')} added of {counted(report.threads, 'thread')}"
    terminal.say(f"{added} into {shown_place(asked.db)}{known}, in {duration(time.perf_counter() - begun)}")
    for thread_id, why in report.failed.items():
        terminal.say(f"thread {thread_id!r} was not imported: {why}", "red")
    if report.failed and not asked.as_exported:
        terminal.say("--as-exported takes kinds and owners as the files say: for an archive of your own", "dim")
    return FOUND_PROBLEMS if report.failed else 0


def _check_is_there(file: str) -> None:
    """Raise `WrongArgument` for a missing file, before a database is made for nothing."""
    if file == STANDARD:
        return
    if Path(file).is_dir():
        raise WrongArgument(f"{file}: it is a directory")
    if not Path(file).is_file():
        raise WrongArgument(f"{file}: there is no such file")


def _check_head(file: Path, asked: argparse.Namespace) -> None:
    """Raise what an import of the file would, as far as its header shows it, before a database is made for nothing."""
    with LogFile(file) as log:
        allowed(**_scopes(asked)).check(str(file), log.header.thread)


class _Scopes(TypedDict):
    """The content that the command's arguments admit to the file."""

    scopes: ImportScopes
    kinds: Sequence[str]
    tenant_id: str
    user_id: str
    agent_id: str
    parent_id: str


def _scopes(asked: argparse.Namespace) -> _Scopes:
    return {
        "scopes": AS_EXPORTED if asked.as_exported else AS_GIVEN,
        "kinds": asked.kind or CONVERSATIONS,
        "tenant_id": asked.tenant,
        "user_id": asked.user,
        "agent_id": asked.agent,
        "parent_id": asked.parent,
    }


def _put_import(report: ImportReport, db: str, seconds: float, terminal: Terminal) -> None:
    known = f", {report.events - report.added:,} known before" if report.added < report.events else ""
    taken_out = f"; {report.redacted:,} of all are redacted" if report.redacted else ""
    added = counted(report.added, "event")
    terminal.say(f"{added} into thread {report.thread_id} of {db}{known}{taken_out}, in {duration(seconds)}")
    terminal.say(f"head {report.head_hash or 'none: the log is empty'}", "dim")
    if not report.header_hashed:
        terminal.say("the file is of an older release: no hash covers what it says of kind, owners and policy", "dim")


EXPORT = Command(_declare_export, export_log)
IMPORT = Command(_declare_import, import_log)


@frozen
class Compared(JsonForm):
    """Anchors that were compared, and those that the logs do not match."""

    checked: int = 0
    rewritten: Sequence[Contradicted] = ()

    def put(self, terminal: Terminal) -> None:
        """Say which do not match."""
        for one in self.rewritten:
            why = one.why or "the log is not the one whose hash was kept"
            what = f"thread {one.thread_id!r}, seq {one.seq}: {why}"
            terminal.say(f"{what} ({one.hash[:16]}…)", "red")
        if self.checked and not self.rewritten:
            terminal.say(f"{counted(self.checked, 'anchor')}: every log has the hash that was kept", "green")


async def compare(db: str, file: str, only: str | None) -> Compared:
    """Compare the logs of a database with the anchors of a file, all or those of one thread."""
    with read_whole(file) as kept:
        anchors = [one for one in read_anchors(kept) if only in (None, one.thread_id)]
    async with existing(db, read_only=True) as engine:
        return Compared(len(anchors), await engine.admin.check_anchors(anchors))


def _declare_anchors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread's id (default: all threads)")
    parser.add_argument("--out", metavar="FILE", help="add them to the end of a file instead of printing them")
    add_every(parser)


async def anchors(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print or keep the current hashes of the logs. Returns 1 if a log is damaged."""
    if asked.every is None:
        found, damaged = await _anchors_of(asked, terminal)
        if asked.out is None:
            _put_anchors(found, terminal)
        terminal.json(found)
        return FOUND_PROBLEMS if damaged else 0
    if asked.out is None:
        raise WrongArgument("--every needs --out FILE, where nobody who writes to the database can reach it")
    check_is_there(asked.db)

    async def run() -> None:
        found, damaged = await _anchors_of(asked, terminal)
        terminal.json({"added": len(found), "out": asked.out, "damaged": damaged})

    return await again_and_again(asked.every, terminal, run)


def _put_anchors(found: Sequence[Anchor], terminal: Terminal) -> None:
    """A table on a terminal; elsewhere the lines that `verify --anchors` reads."""
    if not found:
        return
    if terminal.is_terminal and not terminal.as_json:
        heads = [Column("THREAD", least=12), Column("SEQ", right=True), Column("AT (UTC)"), Column("HASH", least=16)]
        at = [f"{one.recorded_at:%Y-%m-%d %H:%M}" if one.recorded_at is not None else "-" for one in found]
        rows = [(one.thread_id, number(one.seq), when, one.hash) for one, when in zip(found, at, strict=True)]
        terminal.table(heads, rows)
        terminal.say("--out FILE keeps them whole, for `memory-engine verify --anchors FILE`", "dim")
        return
    for one in found:
        terminal.put(escaped_in_json(msgspec.json.encode(one).decode()))


async def _anchors_of(asked: argparse.Namespace, terminal: Terminal) -> tuple[list[Anchor], list[str]]:
    """The anchors, which go to the file if there is one, and the damaged threads, which have none."""
    found: list[Anchor] = []
    damaged: list[str] = []
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        for thread_id in [asked.thread] if asked.thread is not None else [info.id for info in await engine.threads()]:
            try:
                found.append(await engine.thread(thread_id).replay.anchor())
            except (IntegrityError, StorageRefused) as error:
                if asked.thread is not None:
                    raise
                damaged.append(thread_id)
                terminal.warn(f"memory-engine: {error}")
    if asked.out is not None:
        add_anchors(Path(asked.out), found)
        terminal.say(f"{counted(len(found), 'anchor')} added to {asked.out}")
    return found, damaged


ANCHORS = Command(_declare_anchors, anchors)


def _between(text: str) -> tuple[MomentLike, MomentLike]:
    """`A..B`, or `A` for one event."""
    first, dots, last = text.partition("..")
    if not first or (dots and not last):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range: write A..B")
    return moment(first), moment(last or first)


_between.__name__ = "range"  # argparse's name for it in errors


async def to_pytest(thread: Thread, asked: argparse.Namespace) -> Printout:
    """A test that runs recorded events again and compares, printed or in a new file."""
    source = await thread.replay.to_pytest(*asked.seqs, name=asked.name)
    if asked.out is not None:
        _write_new_test(Path(asked.out), source)
    shown = line(f"pytest {asked.out}") if asked.out is not None else ((source.removesuffix("\n"), ""),)
    return Printout({"thread_id": asked.thread, "out": asked.out, "source": source}, [shown])


def _write_new_test(path: Path, source: str) -> None:
    """A new file: an existing test is never overwritten."""
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(source)


def _declare_seqs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seqs", type=_between, required=True, metavar="A..B", help=f"the first and the last event: each {MOMENT}"
    )


TO_PYTEST = Command.of_thread(
    to_pytest,
    _declare_seqs,
    Option.value("--out", "FILE", "write a new file (default: to standard output)"),
    Option.value("--name", "NAME", "the test's name", default=""),
)
