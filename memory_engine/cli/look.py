"""The commands that show things: threads, show, context, report, view. `log` is in a module of its own."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from memory_engine.cli.commands import (
    AT,
    MOMENT,
    Command,
    Option,
    WrongArgument,
    add_thread,
    always,
    existing,
    moment,
    pair,
    positive,
)
from memory_engine.cli.options import FOUND_PROBLEMS, did_you_mean
from memory_engine.cli.terminal import Terminal
from memory_engine.core.clock import to_datetime
from memory_engine.core.excerpts import ago, counted, number, of_chunk, one_line, parents
from memory_engine.core.json_form import named
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadInfo
from memory_engine.core.tokens import TokenCounter
from memory_engine.engine import Engine, kernel_of
from memory_engine.reports import Column, Line, Paper, Part, Printout, first_lines, line, table_lines, table_of
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


async def threads(engine: Engine, asked: argparse.Namespace) -> Printout:
    """Threads by their newest events, or in the order of creation."""
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
    if not found:
        none = "no threads yet: `memory-engine ingest` makes some"
        return Printout(found, [line("no thread matches" if _is_filtered(asked) else none)])
    parts = _thread_parts(found, to_datetime(kernel_of(engine).clock.now_us()))
    if asked.after is not None and len(found) == asked.limit:
        parts.append(line(f"the next ones: --after {shlex.quote(found[-1].id)}", "dim"))
    return Printout(found, parts)


def _is_filtered(asked: argparse.Namespace) -> bool:
    given = (asked.kind, asked.user, asked.tenant, asked.status, asked.after)
    return bool(asked.metadata) or any(value is not None for value in given)


def _status(info: ThreadInfo) -> str:
    """A thread's status; the fork of a what-if is marked as such."""
    if info.damaged:
        return "damaged"
    return f"{info.status}, a what-if" if info.is_what_if else info.status


def _thread_parts(found: Sequence[ThreadInfo], now: datetime) -> list[Part]:
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
    return [
        table_of([head for head, _ in shown], list(zip(*(cells for _, cells in shown), strict=True))),
        *(
            line(f"{info.id} is damaged: {'; '.join(info.damaged)}; run `memory-engine verify`", "red")
            for info in found
            if info.damaged
        ),
    ]


async def show(thread: Thread, asked: argparse.Namespace) -> Printout:
    """A thread's state: its chunks in order."""
    state = await thread.state(at=(await thread.info()).events if asked.at is None else asked.at)

    def as_json() -> dict[str, object]:
        chunks = [data.chunk_as_data(placed.chunk, placed.container) for placed in state.placed()]
        return {"thread_id": thread.id, "seq": state.seq, "tokens": state.tally.tokens, "chunks": chunks}

    return Printout(as_json, [lambda paper: _state_lines(thread.id, state, paper)])


def _state_lines(thread_id: str, state: State, paper: Paper) -> Iterator[Line]:
    held = f"{counted(len(state), 'chunk')}, {counted(state.tally.tokens, 'token')} (estimated)"
    yield line(f"{one_line(thread_id, paper.width // 2)} after event {state.seq}: {held}", "bold")
    heads = [
        Column("CHUNK"),
        Column("TYPE", least=12),
        Column("RETENTION", least=12),
        Column("TOKENS", right=True),
        Column("FROM"),
        Column("TEXT", least=20),
    ]
    rows = [
        (
            ("└ " if placed.container else "") + placed.chunk.id,
            placed.chunk.type,
            placed.chunk.retention,
            number(placed.chunk.tokens),
            parents(placed.chunk) or "-",
            one_line(of_chunk(placed.chunk), paper.width),
        )
        for placed in state.placed()
    ]
    yield from table_lines(heads, rows, paper.room)


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
        return terminal.show(_checked(found))
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
        terminal.lines(_reasons(found.recalled, terminal.paper))
    if found.recall_failure and not terminal.as_json:
        terminal.warn(f"recalled by words alone: {found.recall_failure}")
    return 0


def _checked(found: "Context") -> Printout:
    """The statements that a context had to show, the missing ones marked; exit code 1 where one is missing."""
    missing = {one.place for one in found.unsaid}
    said = counted(len(missing), "standing statement") if missing else "no standing statement"
    verb = "are" if len(missing) > 1 else "is"
    where = f"a context of {counted(found.tokens, 'token')} at event {found.seq}"
    head = line(f"{said} {verb} missing in {where}; {number(len(found.stood))} stood", "red" if missing else "green")
    heads = [Column("SEQ", right=True), Column("CONTEXT"), Column("TEXT", least=20, cut=True)]
    rows = [
        (str(one.seq), "missing" if one.place in missing else "has it", one.text)
        for one in sorted(found.stood, key=lambda one: (one.thread_id == found.thread_id, one.seq, one.n))
    ]
    code = FOUND_PROBLEMS if missing else 0
    return Printout(named(found, "thread_id seq tokens stood unsaid"), [head, table_of(heads, rows)], code)


def _reasons(recalled: "Sequence[Hit]", paper: Paper) -> Iterator[Line]:
    """Why the passages were recalled, one line each, best first."""

    def reason(hit: "Hit") -> Line:
        who = hit.speaker or hit.role
        facts = (f"event {hit.seq}", hit.kind, who, f"{hit.at:%Y-%m-%d}", f"{hit.score:.2f}", hit.why)
        return line("  " + one_line(" · ".join(filter(None, facts)), paper.width - 2))

    if recalled:
        yield line("recalled, best first", "bold")
        yield from first_lines(sorted(recalled, key=lambda hit: -hit.score), REASONS_MAX, reason)


async def report(thread: Thread, asked: argparse.Namespace) -> Printout:
    """A thread's memory state, its tool cache and the messages of the next model call."""
    at = (await thread.at(asked.at)).seq if asked.at is not None else None
    found = await reports.memory_report(handle_of(thread), at=at)
    return Printout(dict(found.data), [line(found.text)])


async def view(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Which views of a thread have rows, or the rows of one."""
    names = [projection.name for projection in handle_of(thread).kernel.projections]
    if asked.view is not None and asked.view not in names:
        meant = did_you_mean(asked.view, names) or f"; there are {', '.join(names)}"
        raise WrongArgument(f"there is no view {asked.view!r}{meant}")
    if asked.view is None:
        found = {name: len(await thread.views.read(name, at=asked.at)) for name in names}
        held = [(name, number(count)) for name, count in found.items() if count]
        return Printout(found, [table_of([Column("VIEW"), Column("ROWS", right=True)], held, "no view has any rows")])
    rows = list((await thread.views.read(asked.view, at=asked.at)).items())
    rows = rows[-asked.limit :] if asked.limit else rows
    encoded = [(key, msgspec.json.encode(value).decode()) for key, value in rows]
    table = table_of([Column("KEY", least=12), Column("VALUE", least=20)], encoded, "no rows")
    return Printout({key: msgspec.to_builtins(value) for key, value in rows}, [table])


def _declare_order(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--order",
        choices=("created", "updated"),
        default="updated",
        help="newest event first (default), or in order of creation",
    )


THREADS = Command.of_store(
    threads,
    *(
        Option.value(f"--{what}", what.upper(), f"only threads of exactly this {what}")
        for what in ("kind", "user", "tenant", "status")
    ),
    Option.many("--metadata", "KEY=VALUE", "only threads with this metadata", pair),
    _declare_order,
    Option.value("--limit", "N", "at most N: the latest, or with --after the next", positive),
    Option.value("--after", "THREAD", "only those after this one; '' starts with the first"),
)
SHOW = Command.of_thread(show, AT)
CONTEXT = Command(_declare_context, context)
REPORT = Command.of_thread(report, AT, writes=always)
VIEW = Command.of_thread(
    view,
    Option.word("view", "VIEW", "one view's rows (default: list the views that have any)"),
    AT,
    Option.value("--limit", "N", "only the last N rows by key", positive),
    writes=always,
)
