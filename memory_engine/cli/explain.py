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

from memory_engine.cli.commands import MOMENT, Command, WrongArgument, add_thread, existing, moment, positive, whole
from memory_engine.cli.options import did_you_mean
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.context.context import Context
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import InvalidExpression
from memory_engine.replay.bisect import bisection_lines
from memory_engine.replay.diff import DiffLines, message_text
from memory_engine.replay.diff import diff as difference
from memory_engine.replay.explanation import SHOWN, WhyLines
from memory_engine.replay.why import why as explained
from memory_engine.runtime.config import EngineConfig
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


LISTED = 20
"""How many chunks of a kind are listed for people."""
LINES = 60
"""How many lines of a context's difference are shown to people."""
ONLY_LOOKS = EngineConfig(read_only=True)


async def _past_of(engine: Engine, thread_id: str, at: MomentLike | None) -> Past:
    """A thread at a moment, or at its head."""
    thread = engine.thread(thread_id)
    return await thread.at((await kernel_of(engine).store.head(thread_id)).seq if at is None else at)


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
        a = await _past_of(engine, asked.thread, asked.a)
        b = await _past_of(engine, asked.other or asked.thread, asked.b)
        found = await difference(handle_of(a), handle_of(b))
    terminal.json(found)
    terminal.lines(_diff_lines(terminal).of(found))
    return 0


def _diff_lines(terminal: Terminal) -> DiffLines:
    return DiffLines(terminal.width, LISTED, LINES, "; --json has them all")


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
        past = await _past_of(engine, asked.thread, asked.at)
        what = asked.what if asked.what is not None else await _context(past, asked)
        found = await explained(handle_of(past), what, chunks_max=ALL_CHUNKS if asked.all else None)
    terminal.json(found)
    terminal.lines(WhyLines(terminal.width, asked.depth, None if asked.all else SHOWN).of(found))
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
    async with existing(asked.db, config=ONLY_LOOKS, plugins=asked.plugins) as engine:
        with Progress("halving", terminal) as progress:
            found = await engine.thread(asked.thread).replay.bisect(
                holds, after=asked.after, upto=asked.upto, progress=lambda count: progress.update({"moments": count})
            )
    terminal.json(found)
    terminal.lines(bisection_lines(found, _diff_lines(terminal)))
    return 0


DIFF = Command(_declare_diff, diff)
WHY = Command(_declare_why, why)
BISECT = Command(_declare_bisect, bisect)
