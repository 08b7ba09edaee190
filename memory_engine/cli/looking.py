"""The commands that look: threads, log, show, context, stats."""

import argparse
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
from attrs import asdict

from memory_engine.cli.commands import Command, WrongArgument, add_thread, no_arguments, positive, whole
from memory_engine.cli.databases import existing
from memory_engine.cli.excerpts import chunk_as_json, event_as_json, hit_as_json, of_chunk, of_event, parents
from memory_engine.cli.messages import measure, put_messages
from memory_engine.cli.terminal import Column, Terminal
from memory_engine.cli.text import columns, counted, number, one_line, padded, size
from memory_engine.llm import Tokenizer
from memory_engine.recall.found import Hit
from memory_engine.records import RecordedEvent
from memory_engine.state import State
from memory_engine.thread import Thread
from memory_engine.thread_info import ThreadInfo

WIDE = 100
"""Columns from which on a log shows dates too."""
REASONS_MAX = 10
"""Of passages that were recalled, so many are explained."""


def _declare_threads(parser: argparse.ArgumentParser) -> None:
    for what in ("kind", "user", "tenant", "status"):
        parser.add_argument(f"--{what}", metavar=what.upper(), help=f"only threads of exactly this {what}")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the latest N")


async def threads(asked: argparse.Namespace, terminal: Terminal) -> int:
    """List threads, oldest first."""
    async with existing(asked.db) as engine:
        found = await engine.threads(
            kind=asked.kind,
            user_id=asked.user,
            tenant_id=asked.tenant,
            status=asked.status,
            limit=asked.limit,
        )
    terminal.json([_thread_as_json(info) for info in found])
    if not found:
        terminal.say("no thread matches")
        return 0
    _put_threads(found, terminal)
    return 0


def _put_threads(found: Sequence[ThreadInfo], terminal: Terminal) -> None:
    """A row for each thread; a scope that none of them has gets no column."""
    shown: list[tuple[Column, list[str]]] = [
        (Column("THREAD", least=12), [info.id for info in found]),
        (Column("STATUS"), [info.status for info in found]),
        (Column("EVENTS", right=True), [number(info.events) for info in found]),
        (Column("CHUNKS", right=True), [number(info.chunks) for info in found]),
        (Column("TOKENS", right=True), [number(info.tokens) for info in found]),
        (Column("CREATED (UTC)"), [f"{info.created_at:%Y-%m-%d %H:%M}" for info in found]),
    ]
    for title, cells, usual in (
        ("KIND", [info.kind for info in found], "conversation"),
        ("USER", [info.user_id for info in found], ""),
        ("TENANT", [info.tenant_id for info in found], ""),
    ):
        if set(cells) != {usual}:
            shown.append((Column(title, least=8), [cell or "-" for cell in cells]))
    terminal.table([head for head, _ in shown], list(zip(*(cells for _, cells in shown), strict=True)))


def _thread_as_json(info: ThreadInfo) -> dict[str, object]:
    forked = info.forked_from
    return {
        "id": info.id,
        "kind": info.kind,
        "status": info.status,
        "events": info.events,
        "chunks": info.chunks,
        "tokens": info.tokens,
        "user_id": info.user_id,
        "tenant_id": info.tenant_id,
        "agent_id": info.agent_id,
        "parent_id": info.parent_id,
        "metadata": dict(info.metadata),
        "created_at": info.created_at.isoformat(),
        "forked_from": msgspec.to_builtins(forked) if forked is not None else None,
        "head_hash": info.head_hash,
    }


def _declare_log(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--after", type=whole, metavar="N", help="only events after seq N")
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="only N events: the latest, or with --after the first"
    )
    parser.add_argument("--type", metavar="T", help="only events of this type")


async def log(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print a thread's events in order."""
    async with existing(asked.db) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        async for recorded in _chosen(thread, asked):
            if terminal.as_json:
                terminal.json(event_as_json(recorded))
            else:
                _put_event(recorded, terminal)
    return 0


async def _chosen(thread: Thread, asked: argparse.Namespace) -> AsyncIterator[RecordedEvent]:
    """The events asked for. Without --after a limit means the latest, held until the end is seen."""
    limit: int | None = asked.limit
    latest: deque[RecordedEvent] = deque(maxlen=limit)
    holds = limit is not None and asked.after is None
    if holds and asked.type is None:
        for recorded in await thread.latest(limit or 0):
            yield recorded
        return
    given = 0
    async for recorded in thread.events(after=asked.after or 0):
        if asked.type is not None and recorded.type != asked.type:
            continue
        if holds:
            latest.append(recorded)
            continue
        yield recorded
        given += 1
        if given == limit:
            return
    for recorded in latest:
        yield recorded


def _put_event(recorded: RecordedEvent, terminal: Terminal) -> None:
    moment = f"{recorded.recorded_at:%Y-%m-%d %H:%M:%S}"
    place = f"{recorded.seq:>6}  {moment if terminal.width >= WIDE else moment[-8:]}  "
    kind = padded(one_line(recorded.type, 40), 20)
    room = max(20, terminal.width - columns(place) - columns(kind) - 2)
    said = one_line(of_event(recorded.event), room)
    terminal.put(f"{terminal.styled(place, 'dim')}{terminal.styled(kind, 'cyan')}  {said}".rstrip())


def _declare_show(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--at", type=whole, metavar="SEQ", help="the state as it was after this event")


async def show(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print a thread's state: its chunks in order."""
    async with existing(asked.db) as engine:
        thread = engine.thread(asked.thread)
        try:
            state = await (thread.state() if asked.at is None else thread.at(asked.at))
        except ValueError as error:
            raise WrongArgument(str(error)) from None
    if terminal.as_json:
        chunks = [chunk_as_json(placed.chunk, placed.container) for placed in state.placed()]
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
    parser.add_argument(
        "--max-tokens", type=positive, metavar="N", help="the budget (default: all that is in the state)"
    )
    parser.add_argument("--query", metavar="Q", help="recall what the log says about this, before the newest turn")
    parser.add_argument("--format", choices=("messages", "xml"), default="messages", help="default: messages")
    parser.add_argument("--tokenizer", metavar="NAME", help="count exactly, as this model or encoding does")


async def context(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what a model would see next."""
    tokens = Tokenizer(asked.tokenizer) if asked.tokenizer else None
    async with existing(asked.db, tokens) as engine:
        found = await engine.thread(asked.thread).context(max_tokens=asked.max_tokens, query=asked.query)
        counter = engine.parts.counter
    if terminal.as_json:
        shown: dict[str, object] = {
            "thread_id": found.thread_id,
            "seq": found.seq,
            "messages": found.messages,
            "tokens": found.tokens,
            "tokens_exact": found.tokens_exact,
            "tokenizer": found.tokenizer,
            "included": list(found.included),
            "excluded": list(found.excluded),
            "shortened": list(found.shortened),
        }
        if asked.query is not None:
            shown["spent"] = asdict(found.spent)
            shown["recalled_text"] = found.recalled_text
            shown["recalled"] = [hit_as_json(hit) for hit in found.recalled]
            shown["recall_failure"] = found.recall_failure
        terminal.json(shown | ({"xml": found.xml()} if asked.format == "xml" else {}))
    elif asked.format == "xml":
        terminal.say(found.xml())
    else:
        recalled = f", {counted(len(found.recalled), 'passage')} recalled" if asked.query is not None else ""
        terminal.say(measure(found) + recalled, "bold")
        put_messages(found, counter, terminal)
        _put_reasons(found.recalled, terminal)
    if found.recall_failure and not terminal.as_json:
        terminal.warn(f"recalled by words alone: {found.recall_failure}")
    return 0


def _put_reasons(recalled: Sequence[Hit], terminal: Terminal) -> None:
    """Why the passages were recalled, a line each, the best first."""
    if not recalled:
        return
    terminal.say("recalled, the best first", "bold")
    best = sorted(recalled, key=lambda hit: -hit.score)
    for hit in best[:REASONS_MAX]:
        who = hit.speaker or hit.role
        facts = (f"event {hit.seq}", hit.kind, who, f"{hit.at:%Y-%m-%d}", f"{hit.score:.2f}", hit.why)
        terminal.say("  " + one_line(" · ".join(filter(None, facts)), terminal.width - 2))
    if len(best) > REASONS_MAX:
        terminal.say(f"  … and {number(len(best) - REASONS_MAX)} more; --json lists them")


async def stats(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print totals over the database."""
    async with existing(asked.db) as engine:
        totals = await engine.stats()
    terminal.json({"path": asked.db, **msgspec.to_builtins(totals)})
    shown: Mapping[str, str] = {
        "threads": number(totals.threads),
        "events": number(totals.events),
        "chunks": f"{number(totals.chunks)} in the states of all threads",
        "tokens": f"{number(totals.tokens)} in these chunks, estimated",
        "payload": f"{size(totals.payload_bytes)} of events as JSON",
        "file": f"{size(totals.bytes)} at {asked.db}",
    }
    for name, value in shown.items():
        terminal.say(f"{name:<8} {value}")
    return 0


THREADS = Command("threads", "list threads", _declare_threads, threads)
LOG = Command("log", "print a thread's events", _declare_log, log)
SHOW = Command("show", "print a thread's state, now or in the past", _declare_show, show)
CONTEXT = Command("context", "print what the model sees next", _declare_context, context)
STATS = Command("stats", "print totals over the database", no_arguments, stats)
