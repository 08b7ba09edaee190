"""The commands that explain: diff, why, bisect; explanations are trees of lines.

The expression of `bisect` is Python code, and runs with your rights.
"""

import argparse
import ast
from collections.abc import Awaitable, Callable
from types import CodeType

import msgspec
from attrs import evolve
from msgspec.structs import replace

from memory_engine.cli.commands import MOMENT, Command, Option, WrongArgument, add_thread, moment, positive, whole
from memory_engine.cli.options import did_you_mean
from memory_engine.context.context import Context
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import InvalidExpression
from memory_engine.replay.bisect import Bisection
from memory_engine.replay.diff import Diff, message_text
from memory_engine.replay.diff import diff as difference
from memory_engine.replay.explanation import SHOWN, WhyLines
from memory_engine.replay.why import why as explained
from memory_engine.reports import Printout
from memory_engine.store.reader import MomentLike
from memory_engine.thread import Past, handle_of

ALL_CHUNKS = 1_000_000
"""Chunks that `why --all` reads: every one that a thread may hold."""

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
        names = await _condition_values(past, used)
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


async def _condition_values(past: Past, used: set[str]) -> dict[str, object]:
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
            found = await past.views.read(name)
        except KeyError as error:
            raise InvalidExpression(expression, str(error.args[0])) from None
        rows[name] = {key: msgspec.to_builtins(value) for key, value in found.items()}
    return rows.__getitem__


def _evaluated(code: CodeType, names: dict[str, object], expression: str, seq: int) -> bool:
    try:
        return bool(eval(code, names))
    except (Exception, SystemExit) as error:  # the boundary to the user's code, which may call exit() too
        why = f"after event {seq} it raised {type(error).__name__}: {error}"
        if isinstance(error, NameError):
            why += did_you_mean(error.name or "", NAMES) or f"; it may use {', '.join(NAMES)}"
        raise InvalidExpression(expression, why) from error


async def _past_of(engine: Engine, thread_id: str, at: MomentLike | None) -> Past:
    """A thread at a moment, or at its head."""
    thread = engine.thread(thread_id)
    return await thread.at((await kernel_of(engine).store.head(thread_id)).seq if at is None else at)


async def diff(engine: Engine, asked: argparse.Namespace) -> Diff:
    """What changed from one moment of a thread to another."""
    a = await _past_of(engine, asked.thread, asked.a)
    b = await _past_of(engine, asked.other or asked.thread, asked.b)
    return await difference(handle_of(a), handle_of(b))


def _check_why(asked: argparse.Namespace) -> None:
    if asked.what is not None and (asked.context or asked.query is not None or asked.max_tokens is not None):
        raise WrongArgument("a CHUNK has no budget and no query: give either it or --context")


async def why(engine: Engine, asked: argparse.Namespace) -> Printout:
    """The explanation of a chunk, a row of a view, or a context."""
    past = await _past_of(engine, asked.thread, asked.at)
    what = asked.what if asked.what is not None else await _context(past, asked)
    found = await explained(handle_of(past), what, chunks_max=ALL_CHUNKS if asked.all else None)
    shown = None if asked.all else SHOWN
    return Printout(found, [lambda paper: WhyLines(paper.width, asked.depth, shown).of(found)])


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


def _check_bisect(asked: argparse.Namespace) -> None:
    asked.holds = predicate(asked.expr)


async def bisect(engine: Engine, asked: argparse.Namespace) -> Bisection:
    """The first event after which an expression is true."""
    update = asked.progress.update
    return await engine.thread(asked.thread).replay.bisect(
        asked.holds, after=asked.after, upto=asked.upto, progress=lambda count: update({"moments": count})
    )


def _declare_with(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--with", dest="other", metavar="THREAD", help="B is a moment of this thread: a fork, or its origin"
    )


def _declare_expr(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--expr", required=True, metavar="EXPR", help=f"a Python expression over {', '.join(NAMES)}; it runs as code"
    )


DIFF = Command.of_store(
    diff,
    add_thread,
    Option.value("a", "A", MOMENT, moment),
    Option.word("b", "B", "another moment (default: the latest)", moment),
    _declare_with,
)
WHY = Command.of_store(
    why,
    add_thread,
    Option.word("what", "CHUNK", "a chunk's id, or view:NAME/KEY for a row of a view"),
    Option.flag("--context", "explain the context (the default without a CHUNK)"),
    Option.value("--at", "MOMENT", f"as of then: {MOMENT}", moment),
    Option.value("--query", "Q", "of the context that this query recalls"),
    Option.value("--max-tokens", "N", "of the context within this budget", positive),
    Option.value("--depth", "N", "show N levels (default: all)", whole),
    Option.flag("--all", "read every chunk behind it, and show long lists whole"),
    writes=lambda asked: asked.query is not None,  # a search may have to make the index
    check=_check_why,
)
BISECT = Command.of_store(
    bisect,
    add_thread,
    _declare_expr,
    Option.value("--after", "MOMENT", "where it is false (default: 0)", moment, default=0),
    Option.value("--upto", "MOMENT", "where it is true (default: the latest event)", moment),
    check=_check_bisect,
    busy="halving",
)
