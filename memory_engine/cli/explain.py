"""The commands that explain: diff, why, bisect; explanations are trees of lines.

The expression of `bisect` is Python code, and runs with your rights.
"""

import argparse
import ast
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from types import CodeType
from typing import TypeVar

import msgspec
from attrs import evolve, frozen
from msgspec.structs import replace

from memory_engine.cli.commands import MOMENT, Command, WrongArgument, add_thread, existing, moment, positive, whole
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.context.context import Context
from memory_engine.core.chunks import Chunk
from memory_engine.core.excerpts import columns, counted, number, of_chunk, of_event, one_line
from memory_engine.engine import Engine
from memory_engine.errors import InvalidExpression
from memory_engine.replay.bisect import bisect as bisected
from memory_engine.replay.diff import Diff, message_text
from memory_engine.replay.diff import diff as difference
from memory_engine.replay.explanation import Why
from memory_engine.replay.matching import Changed
from memory_engine.replay.why import why as explained
from memory_engine.runtime.config import EngineConfig
from memory_engine.store.reader import MomentLike
from memory_engine.thread import Past

SHOWN = 12
"""Children of one kind that are shown of a node."""
ALL_CHUNKS = 1_000_000
"""Chunks that `why --all` reads: every one that a thread may hold."""
TEXT = 30
"""Columns that are spared for what a node says."""
SHOWS = "shows"
"""How a block is related to the chunk that it shows."""
_STYLES = {"context": "bold", "block": "cyan", "passage": "blue", "compaction": "yellow", "fact": "blue", "row": "bold"}


@frozen
class TreePrinter:
    """Prints trees down to a depth (`None`: all of it), of long lists the first only unless `whole`."""

    terminal: Terminal
    depth: int | None = None
    whole: bool = False

    def put(self, node: Why) -> None:
        """Print a node and what is below it."""
        for guide, line in self._lines(node, None, ("", ""), 0):
            self.terminal.put(self.terminal.styled(guide, "dim") + line)

    def _lines(self, node: Why, over: Why | None, guides: tuple[str, str], level: int) -> Iterator[tuple[str, str]]:
        """The lines of a node, each with its prefix; `guides` are the prefixes of its own line and of the others."""
        guide, below = guides
        yield guide, self._line(node, over, self.terminal.width - columns(guide))
        children = _shown(node)
        if self.depth is not None and level >= self.depth:
            if children:
                yield f"{below}└─ ", self.terminal.styled(f"… {counted(len(children), 'node')} below", "dim")
            return
        listed = self._listed(children)
        for n, child in enumerate(listed):
            branch, trunk = ("└─ ", "   ") if n == len(listed) - 1 else ("├─ ", "│  ")
            if isinstance(child, Why):
                yield from self._lines(child, node, (below + branch, below + trunk), level + 1)
            else:
                yield below + branch, self.terminal.styled(f"… {number(child)} more", "dim")

    def _listed(self, children: Sequence[Why]) -> list[Why | int]:
        """The children; of many of a kind the first, and how many more there are."""
        listed: list[Why | int] = []
        for _, some in groupby(children, key=lambda child: (child.kind, child.facts.get("relation"))):
            alike = list(some)
            room = len(alike) if self.whole or len(alike) <= SHOWN + 1 else SHOWN
            listed += alike[:room]
            if room < len(alike):
                listed.append(len(alike) - room)
        return listed

    def _line(self, node: Why, over: Why | None, width: int) -> str:
        relation = node.facts.get("relation")
        title = one_line(f"{relation}: {node.title}" if relation else node.title, width)
        spared = TEXT if node.text else 0
        facts = one_line(" · ".join(self._facts(node, over)), max(0, width - columns(title) - 2 - spared))
        room = width - columns(title) - columns(facts) - 4
        said = one_line(node.text, room) if room > 10 and not node.facts.get("above") else ""
        parts = [self.terminal.styled(title, _STYLES.get(node.kind, "green")), self.terminal.styled(facts, "dim"), said]
        return "  ".join(part for part in parts if part)

    def _facts(self, node: Why, over: Why | None) -> Iterator[str]:
        facts = node.facts
        behind = next((child for child in node.children if child.facts.get("relation") == SHOWS), None)
        if behind is not None:  # its line says what that of its chunk would say
            facts = {**behind.facts, **facts}
        if facts.get("above") and node.kind != "block":
            yield "see above"
            return
        if node.seq and (node.kind == "chunk" or behind is not None):
            yield f"event {node.seq}"
        if isinstance(at := facts.get("at"), str):
            yield f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M}"
        if isinstance(tokens := facts.get("tokens"), int) and tokens:
            yield counted(tokens, "token")
        yield from _said(facts, over.seq if over is not None and over.kind == "compaction" else 0)


def _said(facts: Mapping[str, object], compacted_at: int) -> Iterator[str]:
    """The standing of a node, as facts say it; a compaction's own line says what became of the chunks it covers."""
    for name in ("pinned", "shortened", "redacted"):
        if facts.get(name):
            yield name
    match facts.get("forgotten"):
        case {"seq": seq, "reason": reason}:
            yield f"forgotten by event {seq}" + (f" ({reason})" if reason else "")
        case True:
            yield "forgotten"
    match facts:
        case {"live": True}:
            yield "live"
        case {"removed_by": {"seq": seq, "type": kind}} if seq != compacted_at:
            instead = facts.get("replaced_by")
            by = f", {' '.join(map(str, instead[:3]))} in its place" if isinstance(instead, list) else ""
            yield f"gone with event {seq} ({kind}){by}"
    match facts:
        case {"tokens_before": before, "tokens_after": after}:
            yield f"{before} → {after} tokens"
    if isinstance(cost := facts.get("cost_usd"), float) and cost:
        yield f"${cost:.4f}"
    for name, text in (("cites", "cites"), ("covered_by", "covered by")):
        if isinstance(ids := facts.get(name), list) and ids:
            yield f"{text} {' '.join(map(str, ids))}"
    for name in ("cut", "missing", "hidden"):
        if isinstance(said := facts.get(name), str):
            yield said


def _shown(node: Why) -> list[Why]:
    """The children that get lines: not the chunk of a block, nor the event of a chunk with nothing more behind it."""
    shown: list[Why] = []
    for child in node.children:
        if child.facts.get("relation") == SHOWS:
            shown += _shown(child)
        elif not (node.kind == "chunk" and child.kind == "event" and child.seq == node.seq and not child.children):
            shown.append(child)
    return shown


NAMES: dict[str, str] = {
    "state": "the state",
    "chunks": "its chunks, in order",
    "text": "all their texts, joined by line breaks",
    "tokens": "their tokens, estimated",
    "seq": "the seq",
    "event": "the event at this seq (before the first: None)",
    "context": "what a model would be sent, as text",
    "view": 'the rows of a view, by key: view("preferences")',
}
_IN_STATE = {"state", "chunks", "text", "tokens"}


def predicate(expression: str) -> Callable[[Past], Awaitable[bool]]:
    """A function that evaluates the expression on a past thread. Both may raise `InvalidExpression`."""
    try:
        tree = ast.parse(expression.strip(), "<expression>", mode="eval")
        code = compile(tree, "<expression>", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidExpression(expression, f"is not a Python expression: {error}") from None
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    views = _views(tree, expression)

    async def ask(past: Past) -> bool:
        names = await _values(past, used)
        names["view"] = await _reader(past, views, expression)
        return _evaluated(code, names, expression, past.seq)

    return ask


def _views(tree: ast.Expression, expression: str) -> list[str]:
    """The views that an expression names. They are read before it runs."""
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="view"), args=[ast.Constant(value=str() as name)], keywords=[]):
                names[name] = None
            case ast.Call(func=ast.Name(id="view")):
                raise InvalidExpression(expression, 'view() takes one name, in quotes: view("preferences")')
    return list(names)


async def _values(past: Past, used: set[str]) -> dict[str, object]:
    """Those of the names that are used."""
    values: dict[str, object] = {"seq": past.seq}
    if used & _IN_STATE:
        state = await past.state()
        chunks = list(state.everything())
        values |= {"state": state, "chunks": chunks, "tokens": state.tally.tokens}
        values["text"] = "\n".join(chunk.text for chunk in chunks)
    if "event" in used:
        values["event"] = await past.event()
    if "context" in used:
        values["context"] = "\n".join(message_text(message) for message in (await past.context()).messages)
    return values


async def _reader(past: Past, views: list[str], expression: str) -> Callable[[str], object]:
    rows: dict[str, object] = {}
    for name in views:
        try:
            found = await past.view(name)
        except KeyError as error:
            raise InvalidExpression(expression, str(error.args[0])) from None
        rows[name] = {key: msgspec.to_builtins(value) for key, value in found.items()}
    return rows.__getitem__


def _evaluated(code: CodeType, names: dict[str, object], expression: str, seq: int) -> bool:
    try:
        return bool(eval(code, names))
    except (Exception, SystemExit) as error:  # the boundary to the user's code, which may call exit() too
        why = f"after event {seq} it raised {type(error).__name__}: {error}"
        raise InvalidExpression(expression, why) from error


T = TypeVar("T")
LISTED = 20
"""How many chunks of a kind are listed for people."""
LINES = 60
"""How many lines of a context's difference are shown to people."""
ONLY_LOOKS = EngineConfig(read_only=True)


async def _at(engine: Engine, thread_id: str, at: MomentLike | None) -> Past:
    """A thread at a moment, or at its head."""
    thread = engine.thread(thread_id)
    return await thread.at((await engine.store.head(thread_id)).seq if at is None else at)


def _declare_diff(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("a", metavar="A", type=moment, help=MOMENT)
    parser.add_argument("b", metavar="B", type=moment, nargs="?", help="another moment (default: the latest)")
    parser.add_argument(
        "--with", dest="other", metavar="THREAD", help="B is a moment of this thread: a fork, or its origin"
    )


async def diff(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what changed from one moment of a thread to another."""
    async with existing(asked.db, config=ONLY_LOOKS, plugins=asked.plugins) as engine:
        a = await _at(engine, asked.thread, asked.a)
        b = await _at(engine, asked.other or asked.thread, asked.b)
        found = await difference(a, b)
    terminal.json(found)
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
    parser.add_argument("--context", action="store_true", help="explain the context (the default without a CHUNK)")
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of then: {MOMENT}")
    parser.add_argument("--query", metavar="Q", help="of the context that this query recalls")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="of the context within this budget")
    parser.add_argument("--depth", type=whole, metavar="N", help="show N levels (default: all)")
    parser.add_argument("--all", action="store_true", help="read every chunk behind it, and show long lists whole")


async def why(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print the explanation of a chunk, a row of a view, or a context."""
    of_context = asked.context or asked.query is not None or asked.max_tokens is not None
    if asked.what is not None and of_context:
        raise WrongArgument("a CHUNK has no budget and no query: give either it or --context")
    config = ONLY_LOOKS if asked.query is None else None  # a search may have to make the index
    async with existing(asked.db, config=config, plugins=asked.plugins) as engine:
        past = await _at(engine, asked.thread, asked.at)
        what = asked.what if asked.what is not None else await _context(past, asked)
        found = await explained(past, what, chunks_max=ALL_CHUNKS if asked.all else None)
    terminal.json(found)
    TreePrinter(terminal, asked.depth, whole=asked.all).put(found)
    return 0


async def _context(past: Past, asked: argparse.Namespace) -> Context:
    """The context asked for; recalled passages with the points that each signal added to their scores."""
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
    parser.add_argument("--after", type=moment, default=0, metavar="MOMENT", help="where it is false (default: 0)")
    parser.add_argument("--upto", type=moment, metavar="MOMENT", help="where it is true (default: the latest event)")


async def bisect(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print the first event after which an expression is true."""
    holds = predicate(asked.expr)
    progress = Progress("halving", terminal)
    async with existing(asked.db, config=ONLY_LOOKS, plugins=asked.plugins) as engine:
        after, upto = await _at(engine, asked.thread, asked.after), await _at(engine, asked.thread, asked.upto)
        found = await bisected(after, upto, holds, lambda count: progress.update({"moments": count}))
    progress.end()
    terminal.json(found)
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
