"""Expressions of the command line that are asked about a thread as it was. They are code, and run as such."""

import ast
from collections.abc import Awaitable, Callable
from types import CodeType

import msgspec

from memory_engine.errors import InvalidExpression
from memory_engine.replay.diffing.rendered import message_text
from memory_engine.thread import Past

NAMES: dict[str, str] = {
    "state": "the state",
    "chunks": "its chunks, in order",
    "text": "all their texts, joined by line breaks",
    "tokens": "what they take, estimated",
    "seq": "the seq",
    "event": "the event at this seq (before the first: None)",
    "context": "what a model would be sent, as text",
    "view": 'the rows of a view, by key: view("preferences")',
}
_IN_STATE = {"state", "chunks", "text", "tokens"}


def predicate(expression: str) -> Callable[[Past], Awaitable[bool]]:
    """What asks a thread at a moment. Raises `InvalidExpression` for what is no expression; asking may raise it too."""
    try:
        tree = ast.parse(expression.strip(), "<expression>", mode="eval")
        code = compile(tree, "<expression>", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidExpression(expression, f"is no Python expression: {error}") from None
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
                raise InvalidExpression(expression, 'view() is given one name, in quotes: view("preferences")')
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
