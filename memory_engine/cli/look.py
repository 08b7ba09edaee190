"""The commands that show things: threads, show, context, report, view. `log` is in a module of its own."""

import argparse
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from memory_engine.cli.commands import (
    MOMENT,
    Command,
    WrongArgument,
    add_thread,
    existing,
    moment,
    pair,
    positive,
)
from memory_engine.cli.options import FOUND_PROBLEMS, did_you_mean
from memory_engine.cli.terminal import Terminal
from memory_engine.core.clock import to_datetime
from memory_engine.core.excerpts import Column, ago, counted, number, of_chunk, one_line, parents
from memory_engine.core.json_form import named
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadInfo
from memory_engine.core.tokens import TokenCounter
from memory_engine.engine import kernel_of
from memory_engine.store.reader import MomentLike
from memory_engine.thread import Thread, handle_of

if TYPE_CHECKING:
    from memory_engine.cli import messages
    from memory_engine.context import builder, thread_context
    from memory_engine.context.context import Context
    from memory_engine.recall.hits import Hit
    from memory_engine.replay import data
    from memory_engine.views import report as reports
else:
    messages = lazy_module("memory_engine.cli.messages")
    builder, thread_context = lazy_modules("memory_engine.context", "builder thread_context")
    data = lazy_module("memory_engine.replay.data")
    reports = lazy_module("memory_engine.views.report")

REASONS_MAX = 10
"""How many recalled passages are explained."""


def _declare_threads(parser: argparse.ArgumentParser) -> None:
    for what in ("kind", "user", "tenant", "status"):
        parser.add_argument(f"--{what}", metavar=what.upper(), help=f"only threads of exactly this {what}")
    parser.add_argument(
        "--metadata",
        type=pair,
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="only threads with this metadata",
    )
    parser.add_argument(
        "--order",
        choices=("created", "updated"),
        default="updated",
        help="newest event first (default), or in order of creation",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="at most N: the latest, or with --after the next")
    parser.add_argument("--after", metavar="THREAD", help="only those after this one; '' starts with the first")


async def threads(asked: argparse.Namespace, terminal: Terminal) -> int:
    """List threads by their newest events, or in the order of creation."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        found = await engine.threads(
            kind=asked.kind,
            user_id=asked.user,
            tenant_id=asked.tenant,
            status=asked.status,
            metadata=dict(asked.metadata),
            order=asked.order,
            limit=asked.limit,
            after=asked.after,
        )
        now = to_datetime(kernel_of(engine).clock.now_us())
    terminal.json(found)
    if not found:
        none = "no threads yet: `memory-engine ingest` makes some"
        terminal.say("no thread matches" if _is_filtered(asked) else none)
        return 0
    _put_threads(found, terminal, now)
    if asked.after is not None and len(found) == asked.limit:
        terminal.say(f"the next ones: --after {shlex.quote(found[-1].id)}", "dim")
    return 0


def _is_filtered(asked: argparse.Namespace) -> bool:
    given = (asked.kind, asked.user, asked.tenant, asked.status, asked.after)
    return bool(asked.metadata) or any(value is not None for value in given)


def _status(info: ThreadInfo) -> str:
    """A thread's status; the fork of a what-if is marked as such."""
    if info.damaged:
        return "damaged"
    return f"{info.status}, a what-if" if info.is_what_if else info.status


def _put_threads(found: Sequence[ThreadInfo], terminal: Terminal, now: datetime) -> None:
    """A row for each thread; a scope that none of them has gets no column."""
    shown: list[tuple[Column, list[str]]] = [
        (Column("THREAD", least=12), [info.id for info in found]),
        (Column("STATUS"), [_status(info) for info in found]),
        *(
            (Column(what.upper(), right=True), ["?" if info.damaged else number(getattr(info, what)) for info in found])
            for what in ("events", "chunks", "tokens")
        ),
        (Column("LAST EVENT"), [ago((now - info.updated_at).total_seconds()) for info in found]),
    ]
    for title, cells, usual in (
        ("KIND", [info.kind for info in found], "conversation"),
        ("USER", [info.user_id for info in found], ""),
        ("TENANT", [info.tenant_id for info in found], ""),
    ):
        if set(cells) != {usual}:
            shown.append((Column(title, least=8), [cell or "-" for cell in cells]))
    terminal.table([head for head, _ in shown], list(zip(*(cells for _, cells in shown), strict=True)))
    for info in found:
        if info.damaged:
            terminal.say(f"{info.id} is damaged: {'; '.join(info.damaged)}; run `memory-engine verify`", "red")


def _declare_show(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of: {MOMENT}")


async def show(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print a thread's state: its chunks in order."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        state = await thread.state(at=(await thread.info()).events if asked.at is None else asked.at)
    if terminal.as_json:
        chunks = [data.chunk_as_data(placed.chunk, placed.container) for placed in state.placed()]
        terminal.json({"thread_id": thread.id, "seq": state.seq, "tokens": state.tally.tokens, "chunks": chunks})
    else:
        _put_state(thread.id, state, terminal)
    return 0


def _put_state(thread_id: str, state: State, terminal: Terminal) -> None:
    held = f"{counted(len(state), 'chunk')}, {counted(state.tally.tokens, 'token')} (estimated)"
    terminal.say(f"{one_line(thread_id, terminal.width // 2)} after event {state.seq}: {held}", "bold")
    heads = [
        Column("CHUNK"),
        Column("TYPE", least=12),
        Column("RETENTION", least=12),
        Column("TOKENS", right=True),
        Column("FROM"),
        Column("TEXT", least=20),
    ]
    rows = []
    for placed in state.placed():
        chunk = placed.chunk
        indent = "└ " if placed.container else ""
        said = one_line(of_chunk(chunk), terminal.width)
        rows.append(
            (
                indent + chunk.id,
                chunk.type,
                chunk.retention,
                number(chunk.tokens),
                parents(chunk) or "-",
                said,
            )
        )
    terminal.table(heads, rows)


def _declare_context(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="the budget (default: the whole state)")
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"what it saw at: {MOMENT}")
    parser.add_argument("--query", metavar="Q", help="recall what the log says about this")
    parser.add_argument("--format", choices=("messages", "xml"), default="messages", help="default: messages")
    parser.add_argument(
        "--check", action="store_true", help="list the statements that stood instead, and those that are missing"
    )
    parser.add_argument("--tokenizer", metavar="NAME", help="count exactly, with this model's or encoding's tokenizer")


def _exact(name: str) -> TokenCounter:
    from memory_engine.llm.tokens import Tokenizer

    return Tokenizer(name)


async def context(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what a model would see next."""
    async with existing(
        asked.db, _exact(asked.tokenizer) if asked.tokenizer else None, plugins=asked.plugins
    ) as engine:
        thread = engine.thread(asked.thread)
        found = await thread_context.thread_context(
            handle_of(thread), asked.max_tokens, query=asked.query, at=asked.at, is_loop=False
        )
        counter = kernel_of(engine)[builder.ContextBuilder].counter
    if asked.check:
        return _put_check(found, terminal)
    if terminal.as_json:
        names = "thread_id seq messages tokens tokens_exact tokenizer included excluded shortened"
        recall = " spent recalled_text recalled recall_failure" if asked.query is not None else ""
        shown = named(found, names + recall)
        terminal.json(shown | ({"xml": found.xml()} if asked.format == "xml" else {}))
    elif asked.format == "xml":
        terminal.say(found.xml())
    else:
        recalled = f", {counted(len(found.recalled), 'passage')} recalled" if asked.query is not None else ""
        terminal.say(messages.measure(found) + recalled, "bold")
        messages.put_messages(found, counter, terminal)
        _put_reasons(found.recalled, terminal)
    if found.recall_failure and not terminal.as_json:
        terminal.warn(f"recalled by words alone: {found.recall_failure}")
    return 0


def _put_check(found: "Context", terminal: Terminal) -> int:
    """The statements that a context had to show, the missing ones marked; exit code 1 where one is missing."""
    terminal.json(named(found, "thread_id seq tokens stood unsaid"))
    missing = {one.place for one in found.unsaid}
    said = counted(len(missing), "standing statement") if missing else "no standing statement"
    verb = "are" if len(missing) > 1 else "is"
    where = f"a context of {counted(found.tokens, 'token')} at event {found.seq}"
    terminal.say(f"{said} {verb} missing in {where}; {number(len(found.stood))} stood", "red" if missing else "green")
    heads = [Column("SEQ", right=True), Column("CONTEXT"), Column("TEXT", least=20)]
    rows = [
        (str(one.seq), "missing" if one.place in missing else "has it", one_line(one.text, terminal.width))
        for one in sorted(found.stood, key=lambda one: (one.thread_id == found.thread_id, one.seq, one.n))
    ]
    if rows:
        terminal.table(heads, rows)
    return FOUND_PROBLEMS if missing else 0


def _put_reasons(recalled: "Sequence[Hit]", terminal: Terminal) -> None:
    """Why the passages were recalled, one line each, best first."""
    if not recalled:
        return
    terminal.say("recalled, best first", "bold")
    best = sorted(recalled, key=lambda hit: -hit.score)
    for hit in best[:REASONS_MAX]:
        who = hit.speaker or hit.role
        facts = (f"event {hit.seq}", hit.kind, who, f"{hit.at:%Y-%m-%d}", f"{hit.score:.2f}", hit.why)
        terminal.say("  " + one_line(" · ".join(filter(None, facts)), terminal.width - 2))
    if len(best) > REASONS_MAX:
        terminal.say(f"  … and {number(len(best) - REASONS_MAX)} more; --json lists them")


THREADS = Command(_declare_threads, threads)
SHOW = Command(_declare_show, show)
CONTEXT = Command(_declare_context, context)


def _declare_report(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of: {MOMENT}")


async def report(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print a thread's memory state, its tool cache and the messages of the next model call."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        at = (await thread.at(asked.at)).seq if asked.at is not None else None
        found = await reports.memory_report(handle_of(thread), at=at)
    terminal.json(dict(found.data))
    terminal.say(found.text)
    return 0


REPORT = Command(_declare_report, report)


def _declare_view(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "view", metavar="VIEW", nargs="?", help="one view's rows (default: list the views that have any)"
    )
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of: {MOMENT}")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the last N rows by key")


async def view(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print which views of a thread have rows, or the rows of one."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        names = [projection.name for projection in kernel_of(engine).projections]
        if asked.view is not None and asked.view not in names:
            meant = did_you_mean(asked.view, names) or f"; there are {', '.join(names)}"
            raise WrongArgument(f"there is no view {asked.view!r}{meant}")
        if asked.view is None:
            return await _put_views(thread, names, asked.at, terminal)
        rows = list((await thread.views.read(asked.view, at=asked.at)).items())
    rows = rows[-asked.limit :] if asked.limit else rows
    terminal.json({key: msgspec.to_builtins(value) for key, value in rows})
    if not rows:
        terminal.say("no rows")
        return 0
    encoded = [(key, msgspec.json.encode(value).decode()) for key, value in rows]
    terminal.table([Column("KEY", least=12), Column("VALUE", least=20)], encoded)
    return 0


async def _put_views(thread: Thread, names: list[str], at: MomentLike | None, terminal: Terminal) -> int:
    found = {name: len(await thread.views.read(name, at=at)) for name in names}
    terminal.json(found)
    held = {name: count for name, count in found.items() if count}
    if not held:
        terminal.say("no view has any rows")
        return 0
    terminal.table(
        [Column("VIEW"), Column("ROWS", right=True)], [(name, number(count)) for name, count in held.items()]
    )
    return 0


VIEW = Command(_declare_view, view)
