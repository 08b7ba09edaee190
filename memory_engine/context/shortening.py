"""Shortening of texts that are too long for a budget, keeping what matters in them and marking what is left out."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from memory_engine.context.rendering import Message, RenderedChunk, assemble, message_tokens, own_messages
from memory_engine.core.lazy import lazy_module, regex
from memory_engine.core.tokens import TokenCounter
from memory_engine.language.text import has_any

if TYPE_CHECKING:
    from memory_engine.context import excerpt as excerpts
    from memory_engine.context import long_arguments
else:
    excerpts = lazy_module("memory_engine.context.excerpt")
    long_arguments = lazy_module("memory_engine.context.long_arguments")

LINES_LEFT_OUT = "[… {} earlier line(s) left out …]"
"""Mark before lines whose predecessors did not fit."""
STATEMENTS_LEFT_OUT = "[… {} line(s) left out …]"
"""Mark before the shown statements of a summary; statements between them may be left out too."""
LINES_LEFT_OUT_END = STATEMENTS_LEFT_OUT.rpartition("}")[2]
TEXT_TOKENS_MIN = 24
"""Minimum tokens of a cut text."""
SLACK = 8
"""Tokens that a cut may leave unused."""
_TRIES_MAX = 16


def shorten(
    pieces: Sequence[RenderedChunk], room: int, counter: TokenCounter, asked: frozenset[str] = frozenset()
) -> tuple[RenderedChunk, ...] | None:
    """Return the pieces with their longest texts cut to fit into `room` tokens, or `None` if they cannot fit.

    A cut text keeps its beginning, its end, and between them what it says about the terms of `asked`. Long texts in
    the arguments of calls are cut only if cutting all else does not suffice: a model repeats the form of its own calls.
    """
    found = _within(pieces, room, counter, asked)
    if found is None and (cuttable := [piece for piece in pieces if long_arguments.may_be_cut(piece)]):
        found = _within(pieces, room, counter, asked, frozenset(piece.chunk.id for piece in cuttable))
    return found


def _within(
    pieces: Sequence[RenderedChunk],
    room: int,
    counter: TokenCounter,
    asked: frozenset[str],
    calls: Collection[str] = (),
) -> tuple[RenderedChunk, ...] | None:
    """Return the pieces with their longest texts cut, also in the arguments of the chunks whose ids are `calls`."""
    sizes = [_text_tokens(piece, counter, in_calls=piece.chunk.id in calls) for piece in pieces]
    texts = room - _assembled_tokens(pieces, counter) + sum(sizes)
    found: tuple[RenderedChunk, ...] | None = None
    for _ in range(_TRIES_MAX):
        targets = fair_shares(sizes, texts)
        if any(target < min(TEXT_TOKENS_MIN, size) for size, target in zip(sizes, targets, strict=True)):
            return found
        cut = tuple(
            piece if target >= size else _cut_piece(piece, target, _Cut(size, asked, counter, piece.chunk.id in calls))
            for piece, size, target in zip(pieces, sizes, targets, strict=True)
        )
        over = _assembled_tokens(cut, counter) - room
        if over > 0 and found is not None:
            return found
        if over <= 0:
            found = cut
            if over > -SLACK:
                return found
        texts -= over
    return found


def referenced(
    pieces: Sequence[RenderedChunk], over: int, tokens: int, counter: TokenCounter
) -> tuple[RenderedChunk, ...]:
    """Return the pieces with results of more than `over` tokens cut to about `tokens`.

    A cut result has its beginning, its end, and a reference.
    """
    found = []
    for piece in pieces:
        is_result = any(message.get("role") == "tool" for message in piece.messages)
        size = sum(message_tokens(message, counter) for message in piece.messages) if is_result else 0
        found.append(_cut_piece(piece, tokens, _Cut(size, frozenset(), counter)) if size > over else piece)
    return tuple(found)


def _assembled_tokens(pieces: Sequence[RenderedChunk], counter: TokenCounter) -> int:
    own = (message for piece in pieces for message in own_messages(piece))
    return sum(message_tokens(message, counter) for message in (*assemble(pieces), *own))


def fair_shares(sizes: Sequence[int], room: int) -> list[int]:
    """Divide a room: each gets all that it needs, up to an even share of what the smaller ones leave."""
    shares = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    for n, place in enumerate(order):
        shares[place] = min(sizes[place], room // (len(order) - n))
        room -= shares[place]
    return shares


def keep_last_lines(piece: RenderedChunk, room: int, counter: TokenCounter) -> RenderedChunk:
    """Return the piece with its texts cut at the beginning, to the last lines that fit into `room` tokens.

    The first line, a heading, stays, and a mark says how many lines are left out. A line longer than half of the room
    is itself cut, except in a summary, where half a statement would change its meaning. Images and files stay.
    """
    cut = (
        partial(_last_statements, counter=counter)
        if piece.chunk.lines
        else partial(_last_lines, chunk_id=piece.chunk.id, counter=counter)
    )
    messages = tuple(_with_last_lines(message, room, cut, counter) for message in piece.messages)
    return replace(piece, messages=messages, shortened=True)


def _with_last_lines(message: Message, room: int, cut: Callable[[str, int], str], counter: TokenCounter) -> Message:
    texts = _message_texts(message)
    sizes = [counter.count(text) for text in texts]
    left = room - message_tokens(message, counter) + sum(sizes)
    shares = fair_shares(sizes, max(0, left))
    return _with_texts(
        message,
        (text if share >= size else cut(text, share) for text, size, share in zip(texts, sizes, shares, strict=True)),
    )


def _last_lines(text: str, room: int, chunk_id: str, counter: TokenCounter) -> str:
    heading, *rest = text.split("\n")
    size = counter.count(heading)
    most = room // 2 if rest else room
    if size > most:
        heading = _cut_text(heading, most, chunk_id, _Cut(size, frozenset(), counter))
    lines = [line for line in rest if line.strip()]
    kept = last_lines(lines, room - counter.count(f"{heading}\n"), counter, chunk_id)
    earlier = sum(not line.startswith("#") for line in lines[: len(lines) - len(kept)])
    return "\n".join([heading, *([LINES_LEFT_OUT.format(earlier)] if earlier else []), *kept])


def _last_statements(text: str, room: int, counter: TokenCounter) -> str:
    """Return the first line of a summary, and its newest whole statements that fit, under their headings."""
    heading, *rest = text.split("\n")
    statements = [one for one in _STATEMENT.split("\n".join(rest)) if one.strip()]
    room -= counter.count(f"{heading}\n{STATEMENTS_LEFT_OUT.format(len(statements))}\n")
    kept: list[str] = []
    for statement in reversed(statements):
        is_heading = statement.startswith("#")
        shown = statement.rstrip()
        size = counter.count(shown) + 1
        if size <= room and not (is_heading and (not kept or kept[-1].startswith("#"))):
            kept.append(shown)
            room -= size
        elif is_heading and kept and not kept[-1].startswith("#"):
            break  # what follows would appear under a wrong heading
    left_out = sum(not one.startswith("#") for one in statements) - sum(not one.startswith("#") for one in kept)
    return "\n".join([heading, *([STATEMENTS_LEFT_OUT.format(left_out)] if left_out else []), *reversed(kept)])


_STATEMENT = regex(r"\n+(?=- |> (?! )|#)")


def last_lines(lines: Sequence[str], room: int, counter: TokenCounter, chunk_id: str = "it") -> list[str]:
    """Return the last lines that fit into `room` tokens, which leaves room for a mark with the number of the others.

    The caller adds the mark (`LINES_LEFT_OUT`). A line longer than half of the room is itself cut.
    """
    sizes = [counter.count(line) + 1 for line in lines]
    if sum(sizes) <= room:
        return list(lines)
    room -= TEXT_TOKENS_MIN  # for the mark that says how many lines are left out
    kept: list[str] = []
    for line, size in zip(reversed(lines), reversed(sizes), strict=True):
        shown = line
        if size > room // 2:
            shown = _cut_text(line, room // 2, chunk_id, _Cut(size, frozenset(), counter))
        room -= counter.count(shown) + 1
        if room < 0:
            break
        kept.append(shown)
    return kept[::-1]


def _text_tokens(piece: RenderedChunk, counter: TokenCounter, *, in_calls: bool) -> int:
    return sum(counter.count(text) for message in piece.messages for text in _message_texts(message, in_calls=in_calls))


def _message_texts(message: Message, *, in_calls: bool = False) -> list[str]:
    """Return the texts of a message. Adjacent texts are joined into one, since each gets its own marks when cut."""
    if in_calls:
        return [*_message_texts(message), *long_arguments.long_texts(message)]
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    runs = itertools.groupby(parts, key=_is_text)
    return ["\n".join(str(part["text"]) for part in run) for is_text, run in runs if is_text]


def _with_texts(message: Message, texts: Iterator[str], *, in_calls: bool = False) -> Message:
    """Return the message with its texts replaced by others; images and files stay where they are."""
    if in_calls:
        return long_arguments.with_long_texts(_with_texts(message, texts), lambda _text: next(texts))
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": next(texts)}
    if not isinstance(content, list):
        return message
    parts: list[object] = []
    for is_text, run in itertools.groupby(content, key=_is_text):
        parts += [{"type": "text", "text": next(texts)}] if is_text else run
    return {**message, "content": parts}


def _is_text(part: Mapping[str, object]) -> bool:
    return part["type"] == "text"


class _Cut(msgspec.Struct, frozen=True):
    """Parameters for cutting a text of `size` tokens: the terms that matter in it, the counter, and what is cut."""

    size: int
    asked: frozenset[str]
    counter: TokenCounter
    in_calls: bool = False
    """Whether long texts in the arguments of calls are cut, too."""


def _cut_piece(piece: RenderedChunk, tokens: int, how: _Cut) -> RenderedChunk:
    """Return the piece with its longest texts cut, so that all together take about `tokens`."""
    texts = [text for message in piece.messages for text in _message_texts(message, in_calls=how.in_calls)]
    sizes = [how.counter.count(text) for text in texts]
    shares = fair_shares(sizes, tokens)
    cut = iter(
        text if share >= size else _cut_text(text, share, piece.chunk.id, replace(how, size=size))
        for text, size, share in zip(texts, sizes, shares, strict=True)
    )
    messages = tuple(_with_texts(message, cut, in_calls=how.in_calls) for message in piece.messages)
    return replace(piece, messages=messages, shortened=True)


def _cut_text(text: str, tokens: int, chunk_id: str, how: _Cut) -> str:
    """Return beginning and end of a text, and between them what was asked about.

    Marks say how many characters of which chunk are left out.
    """
    mark = f"[… {{}} characters of {chunk_id} …]"
    keep = max(40, len(text) * tokens // max(how.size, 1) - len(mark) - 8)
    if keep >= len(text):
        return text
    start, end = _asked_part(text, keep, tokens, how)
    beside = keep - (end - start)
    head = text[: min(start, max(beside * 2 // 3, beside - (len(text) - end)))]
    tail = text[max(end, len(text) - (beside - len(head))) :]
    left_out = len(text) - len(head) - len(tail) - (end - start)
    said = f"{excerpts.LEFT_OUT} {text[start:end]} " if end > start else ""
    return f"{head} {said}{mark.format(left_out)} {tail}"


def _asked_part(text: str, keep: int, tokens: int, how: _Cut) -> tuple[int, int]:
    """Return the span of the part that says most about what was asked, between the beginning and the end of a text.

    The span is empty, and in the middle, if the text says nothing about it.
    """
    nothing = keep * 2 // 3, keep * 2 // 3
    first, last = keep // 3, len(text) - keep // 4
    if not has_any(text[first:last], how.asked):
        return nothing
    said = excerpts.excerpt(text[first:last], how.asked, tokens // 3, how.counter)
    said = said.removeprefix(f"{excerpts.LEFT_OUT} ").removesuffix(f" {excerpts.LEFT_OUT}")
    start = text.find(said, first)
    if not said or start < 0 or not has_any(said, how.asked):
        return nothing
    return start, start + len(said)
