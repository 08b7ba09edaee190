"""The commands that destroy, erase and delete, and the one that lists what was destroyed."""

import argparse
import sys
from collections.abc import Iterator, Sequence

import msgspec

from memory_engine.administration.erasing import ErasureReport, delete
from memory_engine.administration.holds import StandingHold
from memory_engine.administration.proof import ErasureProof, find_texts
from memory_engine.cli.commands import Command, Option, WrongArgument, add_thread, add_yes, agreed, existing, positive
from memory_engine.cli.options import FOUND_PROBLEMS
from memory_engine.cli.terminal import Terminal
from memory_engine.core.clock import to_datetime
from memory_engine.core.excerpts import counted, number, size
from memory_engine.core.json_form import named
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import ThreadHasForks
from memory_engine.reports import Column, Line, Printout, first_lines, line, table_of
from memory_engine.store.acts import Act
from memory_engine.thread import Thread

LISTED = 20
"""How many places and threads are listed for people."""


async def erase(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Destroy events of a thread, or all of a user or tenant; or look for texts that should be gone."""
    by_scope = asked.user is not None or asked.tenant is not None
    if asked.prove and (asked.text or not (asked.thread or by_scope)):
        return await _prove(asked, terminal)
    if asked.text:
        raise WrongArgument("--text needs --prove: to erase, name the events that contain it (--event, --seq)")
    if by_scope and (asked.thread or asked.event or asked.seq):
        raise WrongArgument("name a thread and its events, or a user or tenant, not both")
    if not by_scope and not (asked.thread and (asked.event or asked.seq)):
        raise WrongArgument(
            "name a thread and its events (--event ID, --seq N), or --user or --tenant; `memory-engine delete` "
            "destroys a whole thread"
        )
    async with existing(asked.db, plugins=asked.plugins) as engine:
        planned = await _erase(engine, asked, dry_run=True)
        if asked.dry_run:
            return terminal.show(_erasure(planned))
        if not agreed(asked, terminal, f"Destroy {_counts(planned)}?"):
            return 0
        return terminal.show(_erasure(await _erase(engine, asked, dry_run=False)))


async def _erase(engine: Engine, asked: argparse.Namespace, *, dry_run: bool) -> ErasureReport:
    """Plan it, or do it."""
    by, reason = asked.by, asked.reason
    if asked.user is not None:
        user = engine.user(asked.user, tenant_id=asked.tenant or "")
        return await user.erase_all(by=by, reason=reason, dry_run=dry_run)
    if asked.tenant is not None:
        return await engine.tenant(asked.tenant).erase_all(by=by, reason=reason, dry_run=dry_run)
    thread = engine.thread(asked.thread)
    return await thread.admin.erase(
        asked.event, seqs=asked.seq, by=by, reason=reason, dry_run=dry_run, prove=asked.prove
    )


async def delete_thread(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Destroy a whole thread."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        await engine.thread(asked.thread).info()
        try:
            planned = await delete(kernel_of(engine), [asked.thread], dry_run=True)
            if asked.dry_run:
                return terminal.show(_erasure(planned))
            if not agreed(asked, terminal, f"Destroy {_counts(planned)}?"):
                return 0
            done = await engine.thread(asked.thread).admin.delete(by=asked.by, reason=asked.reason)
            return terminal.show(_erasure(done))
        except ThreadHasForks as error:
            forks = ", ".join(error.forks)
            raise WrongArgument(
                f"thread {error.thread_id!r} shares its past with {forks}: delete the forks first, or erase its events"
            ) from None


def _counts(report: ErasureReport) -> str:
    """The targets of an act, in words."""
    parts = []
    if report.deleted:
        parts.append(f"{counted(len(report.deleted), 'whole thread')} ({_first_names(report.deleted)})")
    events = sum(report.erased.values())
    if events or not report.deleted:
        parts.append(f"the texts of {counted(events, 'event')} in {counted(len(report.erased), 'thread')}")
    return " and ".join(parts)


def _first_names(names: Sequence[str]) -> str:
    more = f", … and {number(len(names) - LISTED)} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _erasure(report: ErasureReport) -> Printout:
    """What an act did, and whether its proof succeeded."""
    done = f"act {report.act}" if report.act else "nothing was written (a dry run)"
    head = line(f"{_counts(report)}: {done}", "bold")
    threads = [line(f"  {thread_id}: {counted(events, 'event')}") for thread_id, events in report.erased.items()]
    proof = report.proof
    return Printout(report, [head, *threads, *(_proven(proof) if proof else ())], _code_of(proof))


def _code_of(proof: ErasureProof | None) -> int:
    return FOUND_PROBLEMS if proof is not None and proof.ok is False else 0


def _proven(proof: ErasureProof) -> Iterator[Line]:
    """What was looked for and where, and what was found; also in how much of the files, if not in all."""
    values, read = sum(one.values for one in proof.tables.values()), sum(one.bytes for one in proof.tables.values())
    unpacked = sum(one.unpacked for one in proof.tables.values())
    yield line(f"spellings: {'; '.join(proof.spellings)}")
    yield line(f"rows: {counted(values, 'value')}, {size(read)}, of {', '.join(proof.tables)}")
    if unpacked:
        yield line(f"  and {size(unpacked)} that packed content unpacks to")
    files = counted(len(proof.files), "file")
    where = f"{files}, {size(proof.bytes)}"
    if proof.scanned is not None:
        where = f"{size(proof.scanned)} of {where}"
    sought = f"{counted(proof.pieces, 'piece')} looked for in {where}"
    sought += f" ({proof.how})" if proof.how else ""
    if proof.ok is not False:
        said = f"; {number(proof.elsewhere)} are in other events too" if proof.elsewhere else ""
        yield from first_lines(proof.elsewhere_in, LISTED, _place_line)
        if proof.ok is None:
            yield line(f"{sought}: nothing is left there{said}")
            yield line("  the rest may hold older copies: --prove reads and zeroes all of it")
        else:
            yield line(f"{sought}: nothing is left{said}", "green")
        return
    if proof.unread:
        yield line(f"{counted(len(proof.unread), 'place')} could not be read: this proves nothing about them", "red")
        yield from first_lines(proof.unread, LISTED, _place_line)
    if proof.left:
        yield line(f"{sought}: {counted(len(proof.left), 'place')} hold some", "red")
        yield from first_lines(proof.left, LISTED, _place_line)


def _place_line(place: str) -> Line:
    return line(f"  {place}")


async def _prove(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Look for texts; without any, check that every act is finished and left nothing."""
    texts = [text for given in asked.text for text in (sys.stdin.read().splitlines() if given == "-" else [given])]
    if not texts:
        raise WrongArgument("name what to look for: --text TEXT, or --text - for lines of standard input")
    if not all(text.strip() for text in texts):
        raise WrongArgument("an empty text is everywhere: name what to look for")
    if asked.thread or asked.event or asked.seq or asked.user or asked.tenant:
        raise WrongArgument("--prove searches the whole store: it takes texts only")
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        proof = await find_texts(kernel_of(engine), texts)
    return terminal.show(Printout(proof.as_data() | {"ok": proof.ok}, _proven(proof), _code_of(proof)))


async def acts(engine: Engine, asked: argparse.Namespace) -> Printout:
    """The administrative acts, oldest first. Returns 1 if one is not finished."""
    if asked.finish:
        await engine.admin.finish_acts(retry_failed=asked.retry_failed)
    found = await engine.admin.acts()
    heads = [Column("ACT"), Column("KIND"), Column("ASKED (UTC)"), Column("STATE")]
    heads += [Column("BY", least=8), Column("REASON", least=12, cut=True)]
    failed = [
        line(f"act {act.id} has failed {counted(act.failures, 'time')}: {act.error}") for act in found if act.failures
    ]
    table = table_of(heads, [_act_row(act) for act in found], "no act was recorded")
    code = FOUND_PROBLEMS if any(not act.done_at_us for act in found) else 0
    return Printout([_as_data(act) for act in found], [table, *failed], code)


_STATES = {"done": "done", "pending": "not finished", "failed": "failed"}


def _act_row(act: Act) -> list[str]:
    at = to_datetime(act.asked_at_us).strftime("%Y-%m-%d %H:%M")
    return [act.id, act.kind, at, _STATES[act.state], act.by, act.reason]


def _as_data(act: Act) -> dict[str, object]:
    """An act as JSON: its plan and outcome as JSON values, not as texts."""
    return {
        "id": act.id,
        "kind": act.kind,
        "by": act.by,
        "reason": act.reason,
        "asked_at": to_datetime(act.asked_at_us).isoformat(),
        "done_at": to_datetime(act.done_at_us).isoformat() if act.done_at_us else None,
        "state": act.state,
        "error": act.error,
        "plan": _as_json(act.plan),
        "outcome": _as_json(act.outcome) if act.outcome else None,
    }


def _as_json(text: str) -> object:
    """The value of a JSON text; any other text unchanged: on a server any role can write one."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


async def hold(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Set a hold, end it, or list the current ones."""
    by_scope = asked.user is not None or asked.tenant is not None
    if by_scope and asked.thread:
        raise WrongArgument("name a thread, or a user or tenant, not both")
    if not by_scope and not asked.thread:
        if asked.release:
            raise WrongArgument("name what to release: a thread, --user or --tenant")
        async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
            return terminal.show(_holds(await engine.admin.holds(), "no hold stands"))
    async with existing(asked.db, plugins=asked.plugins) as engine:
        held = _erasure_target(engine, asked)
        if asked.release:
            ended = await held.admin.release(by=asked.by, reason=asked.reason)
            return terminal.show(_holds(ended, "there was no hold"))
        return terminal.show(_holds([await held.admin.hold(by=asked.by, reason=asked.reason)]))


def _erasure_target(engine: Engine, asked: argparse.Namespace) -> Thread:
    if asked.user is not None:
        return engine.user(asked.user, tenant_id=asked.tenant or "")
    return engine.thread(asked.thread) if asked.tenant is None else engine.tenant(asked.tenant)


def _holds(found: Sequence[StandingHold], none: str = "") -> Printout:
    heads = [Column("HOLD"), Column("ON", least=12), Column("SINCE (UTC)")]
    heads += [Column("BY", least=8), Column("REASON", least=12)]
    rows = [[one.id, str(one.scope), one.at[:16].replace("T", " "), one.by, one.reason] for one in found]
    return Printout([named(one) for one in found], [table_of(heads, rows, none)])


_COUNTED = Option.flag("--dry-run", "count what would be destroyed, and write nothing")
_BY = Option.value("--by", "WHO", "who asked for it; recorded with the act", default="")
_WHY = Option.value("--reason", "TEXT", "recorded with the act", default="")
ERASE = Command.of(
    erase,
    Option.word("thread", "THREAD", "the thread whose events are erased"),
    Option.many("--event", "ID", "an event's id (repeatable)"),
    Option.many("--seq", "N", "a seq (repeatable)", positive),
    Option.value("--user", "USER", "everything of a user (of --tenant, or without one)"),
    Option.value("--tenant", "TENANT", "everything of a tenant, or with --user of that user"),
    _BY,
    _WHY,
    _COUNTED,
    add_yes,
    Option.flag(
        "--prove", "read all of a large database for the proof; with --text: erase nothing, look for texts in all files"
    ),
    Option.many("--text", "TEXT", "a text to look for (repeatable; -: lines of stdin)"),
)
DELETE = Command.of(delete_thread, add_thread, _BY, _WHY, _COUNTED, add_yes)
ACTS = Command.of_store(
    acts,
    Option.flag("--finish", "continue those that are not finished"),
    Option.flag("--retry-failed", "with --finish: also those that failed three times"),
    writes=lambda asked: asked.finish,
)
HOLD = Command.of(
    hold,
    Option.word("thread", "THREAD", "a thread (without any of these: list the holds)"),
    Option.value("--user", "USER", "all threads of a user (of --tenant, or without one)"),
    Option.value("--tenant", "TENANT", "all threads of a tenant, or with --user of that user"),
    _BY,
    _WHY,
    Option.flag("--release", "end the holds set on exactly this"),
)
