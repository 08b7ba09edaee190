"""The commands that destroy, erase and delete, and the one that lists what was destroyed."""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from memory_engine.administration.erasing import ErasureReport, delete
from memory_engine.administration.holds import StandingHold
from memory_engine.administration.proof import ErasureProof, find_texts
from memory_engine.cli.commands import Command, WrongArgument, add_thread, add_yes, agreed, existing, positive
from memory_engine.cli.options import FOUND_PROBLEMS
from memory_engine.cli.terminal import Terminal
from memory_engine.core.clock import to_datetime
from memory_engine.core.excerpts import Column, counted, number, one_line, size
from memory_engine.core.json_form import named
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import ThreadHasForks
from memory_engine.store.acts import Act
from memory_engine.thread import Thread

LISTED = 20
"""How many places and threads are listed for people."""


def add_said(parser: argparse.ArgumentParser) -> None:
    """The options that are recorded with an act."""
    parser.add_argument("--by", metavar="WHO", default="", help="who asked for it; recorded with the act")
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded with the act")


def _declare_erase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="the thread whose events are erased")
    parser.add_argument("--event", action="append", metavar="ID", default=[], help="an event's id (repeatable)")
    parser.add_argument("--seq", action="append", metavar="N", type=positive, default=[], help="a seq (repeatable)")
    parser.add_argument("--user", metavar="USER", help="everything of a user (of --tenant, or without one)")
    parser.add_argument("--tenant", metavar="TENANT", help="everything of a tenant, or with --user of that user")
    add_said(parser)
    parser.add_argument("--dry-run", action="store_true", help="count what would be destroyed, and write nothing")
    add_yes(parser)
    parser.add_argument(
        "--prove",
        action="store_true",
        help="read all of a large database for the proof; with --text: erase nothing, look for texts in all files",
    )
    parser.add_argument(
        "--text", action="append", metavar="TEXT", default=[], help="a text to look for (repeatable; -: lines of stdin)"
    )


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
            return _print_erasure(planned, terminal)
        if not agreed(asked, terminal, f"Destroy {_counts(planned)}?"):
            return 0
        return _print_erasure(await _erase(engine, asked, dry_run=False), terminal)


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


def _declare_delete(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_said(parser)
    parser.add_argument("--dry-run", action="store_true", help="count what would be destroyed, and write nothing")
    add_yes(parser)


async def delete_thread(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Destroy a whole thread."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        await engine.thread(asked.thread).info()
        try:
            planned = await delete(kernel_of(engine), [asked.thread], dry_run=True)
            if asked.dry_run:
                return _print_erasure(planned, terminal)
            if not agreed(asked, terminal, f"Destroy {_counts(planned)}?"):
                return 0
            return _print_erasure(
                await engine.thread(asked.thread).admin.delete(by=asked.by, reason=asked.reason), terminal
            )
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


def _print_erasure(report: ErasureReport, terminal: Terminal) -> int:
    """Say what an act did, and whether its proof succeeded."""
    terminal.json(report)
    done = f"act {report.act}" if report.act else "nothing was written (a dry run)"
    terminal.say(f"{_counts(report)}: {done}", "bold")
    for thread_id, events in report.erased.items():
        terminal.say(f"  {thread_id}: {counted(events, 'event')}")
    return _proven(report.proof, terminal) if report.proof is not None else 0


def _proven(proof: ErasureProof, terminal: Terminal) -> int:
    """Say what was looked for and where, and what was found; also in how much of the files, if not in all."""
    values, read = sum(one.values for one in proof.tables.values()), sum(one.bytes for one in proof.tables.values())
    unpacked = sum(one.unpacked for one in proof.tables.values())
    terminal.say(f"spellings: {'; '.join(proof.spellings)}")
    terminal.say(f"rows: {counted(values, 'value')}, {size(read)}, of {', '.join(proof.tables)}")
    if unpacked:
        terminal.say(f"  and {size(unpacked)} that packed content unpacks to")
    files = counted(len(proof.files), "file")
    where = f"{files}, {size(proof.bytes)}"
    if proof.scanned is not None:
        where = f"{size(proof.scanned)} of {where}"
    sought = f"{counted(proof.pieces, 'piece')} looked for in {where}"
    sought += f" ({proof.how})" if proof.how else ""
    if proof.ok is not False:
        said = f"; {number(proof.elsewhere)} are in other events too" if proof.elsewhere else ""
        _listed_places(proof.elsewhere_in, terminal)
        if proof.ok is None:
            terminal.say(f"{sought}: nothing is left there{said}")
            terminal.say("  the rest may hold older copies: --prove reads and zeroes all of it")
            return 0
        terminal.say(f"{sought}: nothing is left{said}", "green")
        return 0
    if proof.unread:
        terminal.say(f"{counted(len(proof.unread), 'place')} could not be read: this proves nothing about them", "red")
        _listed_places(proof.unread, terminal)
    if proof.left:
        terminal.say(f"{sought}: {counted(len(proof.left), 'place')} hold some", "red")
        _listed_places(proof.left, terminal)
    return FOUND_PROBLEMS


def _listed_places(places: Sequence[str], terminal: Terminal) -> None:
    for place in places[:LISTED]:
        terminal.say(f"  {place}")
    if len(places) > LISTED:
        terminal.say(f"  … and {number(len(places) - LISTED)} more; --json lists them")


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
    terminal.json(proof.as_data() | {"ok": proof.ok})
    return _proven(proof, terminal)


def _declare_acts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--finish", action="store_true", help="continue those that are not finished")
    parser.add_argument("--retry-failed", action="store_true", help="with --finish: also those that failed three times")


async def acts(asked: argparse.Namespace, terminal: Terminal) -> int:
    """List the administrative acts, oldest first. Returns 1 if one is not finished."""
    async with existing(asked.db, read_only=not asked.finish, plugins=asked.plugins) as engine:
        if asked.finish:
            await engine.admin.finish_acts(retry_failed=asked.retry_failed)
        found = await engine.admin.acts()
    terminal.json([_as_data(act) for act in found])
    if not found:
        terminal.say("no act was recorded")
        return 0
    heads = [Column("ACT"), Column("KIND"), Column("ASKED (UTC)"), Column("STATE")]
    heads += [Column("BY", least=8), Column("REASON", least=12)]
    terminal.table(heads, [_act_row(act, terminal.width) for act in found])
    for act in found:
        if act.failures:
            terminal.say(f"act {act.id} has failed {counted(act.failures, 'time')}: {act.error}")
    return FOUND_PROBLEMS if any(not act.done_at_us for act in found) else 0


_STATES = {"done": "done", "pending": "not finished", "failed": "failed"}


def _act_row(act: Act, width: int) -> list[str]:
    at = to_datetime(act.asked_at_us).strftime("%Y-%m-%d %H:%M")
    return [act.id, act.kind, at, _STATES[act.state], act.by, one_line(act.reason, width)]


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


def _declare_hold(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread (without any of these: list the holds)")
    parser.add_argument("--user", metavar="USER", help="all threads of a user (of --tenant, or without one)")
    parser.add_argument("--tenant", metavar="TENANT", help="all threads of a tenant, or with --user of that user")
    add_said(parser)
    parser.add_argument("--release", action="store_true", help="end the holds set on exactly this")


async def hold(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Set a hold, end it, or list the current ones."""
    by_scope = asked.user is not None or asked.tenant is not None
    if by_scope and asked.thread:
        raise WrongArgument("name a thread, or a user or tenant, not both")
    if not by_scope and not asked.thread:
        if asked.release:
            raise WrongArgument("name what to release: a thread, --user or --tenant")
        async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
            return _put_holds(await engine.admin.holds(), "no hold stands", terminal)
    async with existing(asked.db, plugins=asked.plugins) as engine:
        held = _erasure_target(engine, asked)
        if asked.release:
            ended = await held.admin.release(by=asked.by, reason=asked.reason)
            return _put_holds(ended, "there was no hold", terminal)
        return _put_holds([await held.admin.hold(by=asked.by, reason=asked.reason)], "", terminal)


def _erasure_target(engine: Engine, asked: argparse.Namespace) -> Thread:
    if asked.user is not None:
        return engine.user(asked.user, tenant_id=asked.tenant or "")
    return engine.thread(asked.thread) if asked.tenant is None else engine.tenant(asked.tenant)


def _put_holds(found: Sequence[StandingHold], none: str, terminal: Terminal) -> int:
    terminal.json([named(one) for one in found])
    if not found:
        terminal.say(none)
        return 0
    heads = [Column("HOLD"), Column("ON", least=12), Column("SINCE (UTC)")]
    heads += [Column("BY", least=8), Column("REASON", least=12)]
    since = [one.at[:16].replace("T", " ") for one in found]
    rows = [[one.id, str(one.scope), at, one.by, one.reason] for one, at in zip(found, since, strict=True)]
    terminal.table(heads, rows)
    return 0


ERASE = Command(_declare_erase, erase)
DELETE = Command(_declare_delete, delete_thread)
ACTS = Command(_declare_acts, acts)
HOLD = Command(_declare_hold, hold)
