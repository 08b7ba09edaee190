"""The commands that explain: diff, why, bisect."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from attrs import evolve
from msgspec.structs import replace

from memory_engine.chunks import Chunk
from memory_engine.cli.commands import MOMENT, Command, WrongArgument, add_thread, moment, positive, whole
from memory_engine.cli.databases import existing
from memory_engine.cli.excerpts import of_chunk, of_event
from memory_engine.cli.expressions import NAMES, predicate
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.cli.text import columns, counted, number, one_line
from memory_engine.cli.trees import TreePrinter
from memory_engine.config import EngineConfig
from memory_engine.context.builder import Context
from memory_engine.engine import Engine
from memory_engine.moments import Moment
from memory_engine.replay.bisecting import bisect as bisected
from memory_engine.replay.diff import Changed, Diff
from memory_engine.replay.diff import diff as difference
from memory_engine.replay.why import why as explained
from memory_engine.thread import Past

T = TypeVar("T")
LISTED = 20
"""Chunks of a kind that are listed for people."""
LINES = 60
"""Lines of a context's difference that are shown to people."""
ONLY_LOOKS = EngineConfig(read_only=True)


async def _at(engine: Engine, thread_id: str, at: Moment | None) -> Past:
    """A thread at a moment, or at its head."""
    thread = engine.thread(thread_id)
    return await thread.at((await engine.store.head(thread_id)).seq if at is None else at)


def _declare_diff(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("a", metavar="A", type=moment, help=MOMENT)
    parser.add_argument("b", metavar="B", type=moment, nargs="?", help="another moment (default: the latest)")
    parser.add_argument("--with", dest="other", metavar="THREAD", help="B is of this thread: a fork, or its origin")


async def diff(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what changed from one moment of a thread to another."""
    async with existing(asked.db, config=ONLY_LOOKS) as engine:
        a = await _at(engine, asked.thread, asked.a)
        b = await _at(engine, asked.other or asked.thread, asked.b)
        found = await difference(a, b)
    terminal.json(found.as_data())
    _put_diff(found, terminal)
    return 0


def _put_diff(found: Diff, terminal: Terminal) -> None:
    a, b = found.a, found.b
    other = "" if a.thread_id == b.thread_id else f" of {b.thread_id}"
    held = f"{number(a.chunks)} → {counted(b.chunks, 'chunk')}, {number(a.tokens)} → {counted(b.tokens, 'token')}"
    terminal.say(one_line(f"{a.thread_id}, event {a.seq} → event {b.seq}{other}: {held}", terminal.width), "bold")
    if found.is_empty:
        terminal.say("nothing differs")
        return
    covers = {one.summary: one.covers for one in (*found.compacted, *found.restored)}
    _put_chunks("-", "red", found.removed, covers, terminal)
    _put_chunks("+", "green", found.added, covers, terminal)
    for change in _cut(found.changed, terminal):
        _put_change(change, terminal)
    if found.moved:
        terminal.say(one_line(f"moved: {' '.join(found.moved)}", terminal.width), "yellow")
    _put_context(found, terminal)
    for name, rows in (found.views or {}).items():
        signs = (("+", rows.added), ("-", rows.removed), ("~", rows.changed))
        keys = " ".join(f"{sign}{key}" for sign, some in signs for key in some[:LISTED])
        terminal.say(one_line(f"view {name}: {keys}", terminal.width))


def _put_chunks(
    sign: str, style: str, chunks: Sequence[Chunk], covers: Mapping[str, tuple[str, ...]], terminal: Terminal
) -> None:
    for chunk in _cut(chunks, terminal):
        covered = covers.get(chunk.id, ())
        some = " ".join(covered[:3]) + (f" … {covered[-1]}" if len(covered) > 3 else "")
        stands = f", stands for {counted(len(covered), 'chunk')}: {some}" if covered else ""
        head = f"{sign} {chunk.id}  {chunk.type}, {counted(chunk.tokens, 'token')}{stands}"
        said = one_line(of_chunk(chunk), max(10, terminal.width - columns(head) - 2))
        terminal.put(f"{terminal.styled(one_line(head, terminal.width), style)}  {said}".rstrip())


def _put_change(change: Changed, terminal: Terminal) -> None:
    fields = ", ".join(f"{name} {_short(old)} → {_short(new)}" for name, (old, new) in change.fields.items())
    head = f"~ {change.before.id} → {change.after.id}  {change.after.type}: {fields or 'the same'}"
    terminal.say(one_line(head, terminal.width), "yellow")


def _short(value: object) -> str:
    return one_line(msgspec.json.encode(value).decode(), 60)


def _put_context(found: Diff, terminal: Terminal) -> None:
    context = found.context
    tokens = f"{number(context.tokens[0])} → {counted(context.tokens[1], 'token')}"
    kept = f"its first {number(context.kept_bytes)} of {number(context.bytes[0])} bytes stay the same"
    terminal.say(f"context: {tokens}; {kept}", "bold")
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in context.lines[:LINES]:
        terminal.put("  " + terminal.styled(one_line(line, terminal.width - 2), *filter(None, [styles.get(line[:1])])))
    if len(context.lines) > LINES:
        terminal.say(f"  … {counted(len(context.lines) - LINES, 'more line')}; --json has them all")


def _cut(some: Sequence[T], terminal: Terminal) -> Iterator[T]:
    yield from some[:LISTED]
    if len(some) > LISTED:
        terminal.say(f"  … {number(len(some) - LISTED)} more; --json lists them all")


def _declare_why(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("what", metavar="CHUNK", nargs="?", help="a chunk's id, or view:NAME/KEY for a row of a view")
    parser.add_argument("--context", action="store_true", help="explain the context, which it does without a CHUNK")
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of then: {MOMENT}")
    parser.add_argument("--query", metavar="Q", help="of the context with what this recalls")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="of the context in this budget")
    parser.add_argument("--depth", type=whole, metavar="N", help="show N levels (default: all)")
    parser.add_argument("--all", action="store_true", help="show long lists whole")


async def why(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what is behind a chunk, a row of a view, or a context."""
    of_context = asked.context or asked.query is not None or asked.max_tokens is not None
    if asked.what is not None and of_context:
        raise WrongArgument("a CHUNK has no budget and no question: give either it or --context")
    config = ONLY_LOOKS if asked.query is None else EngineConfig()  # a search may have to make the index
    async with existing(asked.db, config=config) as engine:
        past = await _at(engine, asked.thread, asked.at)
        found = await explained(past, asked.what if asked.what is not None else await _context(past, asked))
    terminal.json(found.as_data())
    TreePrinter(terminal, asked.depth, whole=asked.all).put(found)
    return 0


async def _context(past: Past, asked: argparse.Namespace) -> Context:
    """The context asked for; what a query recalled with what each signal added to its score."""
    context = await past.context(asked.max_tokens, query=asked.query)
    if not context.recalled:
        return context
    own = len([hit for hit in context.recalled if hit.score])
    found = await past.search(asked.query, limit=max(1, 2 * own), explain=True)
    parts = {(hit.seq, hit.n): hit.parts for hit in found}
    return evolve(
        context,
        recalled=tuple(replace(hit, parts=parts.get((hit.seq, hit.n), hit.parts)) for hit in context.recalled),
    )


def _declare_bisect(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "--expr", required=True, metavar="EXPR", help=f"a Python expression over {', '.join(NAMES)}; it runs as code"
    )
    parser.add_argument("--after", type=moment, default=0, metavar="MOMENT", help="where it does not hold (default: 0)")
    parser.add_argument("--upto", type=moment, metavar="MOMENT", help="where it holds (default: the latest event)")


async def bisect(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print the first event after which an expression holds."""
    holds = predicate(asked.expr)
    progress = Progress("halving", terminal)
    async with existing(asked.db, config=ONLY_LOOKS) as engine:
        after, upto = await _at(engine, asked.thread, asked.after), await _at(engine, asked.thread, asked.upto)
        found = await bisected(after, upto, holds, lambda count: progress.update({"moments": count}))
    progress.end()
    terminal.json(found.as_data())
    event = found.event
    terminal.say(f"it holds from event {found.seq} on: {event.type}, {event.recorded_at:%Y-%m-%d %H:%M:%S}", "bold")
    terminal.say("  " + one_line(of_event(event.event), terminal.width - 2))
    asked_at = " ".join(f"{seq}:{'yes' if held else 'no'}" for seq, held in found.asked)
    terminal.say(one_line(f"asked at {counted(len(found.asked), 'seq')}: {asked_at}", terminal.width), "dim")
    _put_diff(found.change, terminal)
    return 0


DIFF = Command(_declare_diff, diff)
WHY = Command(_declare_why, why)
BISECT = Command(_declare_bisect, bisect)
