"""From a piece of a log to the source of a test: the state before it, its events, and what they did when recorded.

It writes JSON values as Python source that reads well, evaluates to the same values, and that no formatter changes.
`pprint` does not: single quotes, brackets on the first and last line, long texts in pieces. Here
every element of a list or an object has a line of its own. Long texts, and those of several lines, come before the
rest as constants between triple quotes; equal ones come once.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from attrs import define, field, frozen

from memory_engine.context.builder import ContextBuilder
from memory_engine.core.arguments import checked_text
from memory_engine.core.aside import aside
from memory_engine.core.chain import is_redacted
from memory_engine.core.chunks import Chunk
from memory_engine.core.codec import decode_reduction, resolve_chunks
from memory_engine.core.events.base import UnknownEvent
from memory_engine.core.lazy import regex
from memory_engine.core.records import StoredEvent
from memory_engine.core.state import Placed, State
from memory_engine.errors import NoSuchTest
from memory_engine.events import builtin_registry
from memory_engine.replay.differences import operation_line
from memory_engine.runtime.handle import PastHandle

LONG_CHARS = 60
"""A text of more characters becomes a constant."""
LINE_CHARS = 100
"""A line of a constant is cut after this number of characters."""
_INDENT = "    "


@define
class Constants:
    """The constants before the rest, by value, in order of appearance."""

    _names: dict[str, str] = field(factory=dict)

    def name_of(self, text: str) -> str:
        """The name of a text's constant."""
        return self._names.setdefault(text, f"TEXT_{len(self._names) + 1}")

    def source(self) -> str:
        """All of them, a blank line after each."""
        return "".join(f"{name} = {text_literal(text)}\n\n" for text, name in self._names.items())


def literal(value: object, constants: Constants, depth: int = 0) -> str:
    """A JSON value as an expression whose further lines are indented for `depth`."""
    match value:
        case str():
            return constants.name_of(value) if is_long(value) else quoted(value)
        case float():
            return repr(value).replace("e+", "e")
        case None | bool() | int():
            return repr(value)
        case Mapping():
            pairs = (f"{quoted(str(k))}: {literal(one, constants, depth + 1)}" for k, one in value.items())
            return _opened("{", pairs, "}", depth)
        case Sequence():
            return _opened("[", (literal(one, constants, depth + 1) for one in value), "]", depth)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _opened(begin: str, parts: Iterable[str], end: str, depth: int) -> str:
    inner = _INDENT * (depth + 1)
    lines = [f"{inner}{part},\n" for part in parts]
    return f"{begin}\n{''.join(lines)}{_INDENT * depth}{end}" if lines else begin + end


def is_long(text: str) -> bool:
    """Whether a text becomes a constant."""
    return len(text) > LONG_CHARS or "\n" in text.rstrip("\n")


def quoted(text: str) -> str:
    """A text on one line, in the quotes that need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + _escaped(text).replace(quote, "\\" + quote) + quote


def text_literal(text: str) -> str:
    """A text between triple quotes, with its own lines, long ones cut, with a backslash at each cut."""
    lines = [_source_line(line) for line in text.split("\n")]
    body = "\n".join(lines)
    body = body[:-1] + '\\"' if body.endswith('"') else body
    body = body.replace('"""', '""\\"')
    return f'"""\\\n{body}"""'


def _source_line(line: str) -> str:
    return "\\\n".join(map(_visible_end, _line_pieces(line)))


def _line_pieces(line: str) -> list[str]:
    """Pieces of a line, cut before a blank where there is one."""
    pieces: list[str] = []
    at = 0
    while len(line) - at > LINE_CHARS:
        end = line.rfind(" ", at + LINE_CHARS // 2, at + LINE_CHARS)
        end = end if end > 0 else at + LINE_CHARS
        pieces.append(line[at:end])
        at = end
    return [*pieces, line[at:]]


def _visible_end(piece: str) -> str:
    """Escaped; a blank at the end of a line is written out, since editors take it away."""
    escaped = _escaped(piece)
    return escaped[:-1] + "\\x20" if escaped.endswith(" ") else escaped


def _escaped(text: str) -> str:
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(c if c.isprintable() and c != "\\" else repr(c)[1:-1] for c in text)


NAME_CHARS_MAX = 40
WHAT_CHARS_MAX = 80
_WORDS = regex(r"[^a-z0-9]+")


async def to_pytest(first: PastHandle, last: PastHandle, *, name: str = "") -> str:
    """See `Replay.to_pytest`. `name` (default: of the thread and the seqs) is the test's, with `test_` or without.

    Raises `NoSuchTest` where the last is before the first, where a name is not an identifier, for an event whose
    class is not known here, and for one whose texts were taken out (redacted).
    """
    checked_text("name", name)
    piece = _Piece(first, max(1, first.seq), last.seq, _test_name(first, last, name))
    if not 1 <= piece.first <= piece.last:
        raise NoSuchTest(piece.what, "the last is before the first" if piece.last else "nothing has happened yet")
    reader = first.kernel.reader
    before = await reader.state_at(first.id, piece.first - 1)
    stored = await reader.walk(first.id, after=piece.first - 1, upto=piece.last).all()
    for row in stored:
        if is_redacted(row):
            why = f"the texts of event {row.seq} were taken out, so reducers make something else of it; leave it out"
            raise NoSuchTest(piece.what, why)
    after, builder = await reader.state_at(last.id, last.seq), last.kernel[ContextBuilder]

    def source() -> str:
        return _source(piece, before, stored, after, builder.build(after, last.id).messages)

    return await aside(source, items=len(before) + len(stored) + len(after))


@frozen
class _Piece:
    """The events, and the name of their test."""

    past: PastHandle
    first: int
    last: int
    name: str

    @property
    def what(self) -> str:
        events = f"events {self.first} to {self.last}" if self.last > self.first else f"event {self.first}"
        return f"{events} of thread {self.past.id!r}"


def _test_name(first: PastHandle, last: PastHandle, name: str) -> str:
    slug = _WORDS.sub("_", first.id.lower())[:NAME_CHARS_MAX].strip("_") or "thread"
    name = name or f"{slug}_events_{max(1, first.seq)}_to_{last.seq}"
    name = name if name.startswith("test_") else f"test_{name}"
    if not (name.isascii() and name.isidentifier()):
        raise NoSuchTest(f"the name {name!r}", "a function could not be called so: use letters, digits and _")
    return name


def _source(
    piece: _Piece, before: State, stored: Sequence[StoredEvent], after: State, messages: Sequence[object]
) -> str:
    constants = Constants()
    values = {
        "BEFORE": [_placed_chunk(placed) for placed in before.placed()],
        "EVENTS": [_event(piece, row) for row in stored],
        "MESSAGES": _json_value(messages),
    }
    typed = [f"{name}: list[dict[str, object]] = {literal(value, constants)}\n" for name, value in values.items()]
    state = literal(dict(state_lines(after)), constants)
    what = _in_docstring(piece.what)
    return (
        f'"""What {what} did when recorded: their reducers must do the same now.\n\n'
        "Written by `memory-engine to-pytest`. The texts are those of the log.\n"
        '"""\n\n'
        "from collections.abc import Sequence\n\n"
        "from memory_engine import Plugin\n"
        "from memory_engine.testing import check_regression\n\n"
        f"{_plugins(stored)}"
        "PLUGINS: Sequence[Plugin] = ()\n\n\n"
        f"def {piece.name}() -> None:\n"
        '    """What was recorded is what happens now."""\n'
        "    check_regression(\n"
        f"        {quoted(piece.past.id)},\n"
        "        before=BEFORE,\n"
        "        events=EVENTS,\n"
        "        after=AFTER,\n"
        "        messages=MESSAGES,\n"
        "        plugins=PLUGINS,\n"
        "    )\n\n\n"
        f"{constants.source()}"
        f"# The chunks of the state before the first event, in order, with their places.\n{typed[0]}\n"
        f"# The events, and the operations and chunks that they were recorded with.\n{typed[1]}\n"
        f"# The texts of the state after the last event, in order.\nAFTER: dict[str, str] = {state}\n\n"
        f"# What a model would see then.\n{typed[2]}"
    )


def state_lines(state: State) -> Iterable[tuple[str, str]]:
    """The chunks of a state in order: ids, below which container, and texts."""
    above: dict[str, str] = {}
    for placed in state.placed():
        path = f"{above[placed.container]} > {placed.chunk.id}" if placed.container else placed.chunk.id
        above[placed.chunk.id] = path
        yield path, placed.chunk.text


def _placed_chunk(placed: Placed) -> dict[str, object]:
    place: dict[str, object] = {"key": placed.key.hex()}
    if placed.container:
        place["container"] = placed.container
    return {**place, "chunk": _json_value(placed.chunk)}


def _event(piece: _Piece, stored: StoredEvent) -> dict[str, object]:
    registry = piece.past.kernel.reader.registry
    event = registry.decode(stored.type, stored.version, stored.payload)
    if isinstance(event, UnknownEvent):
        what = f"event {stored.seq} of thread {piece.past.id!r}"
        raise NoSuchTest(
            what, f"version {stored.version} of {stored.type} is not known here; open the log with the plug-in of it"
        )
    record = decode_reduction(stored.record)
    chunks: Sequence[Chunk] = resolve_chunks(record, event)
    return {
        "seq": stored.seq,
        "id": stored.id,
        "type": stored.type,
        "version": stored.version,
        "recorded_at_us": stored.recorded_at_us,
        "payload": json.loads(stored.payload),
        "operations": [operation_line(operation) for operation in record.operations],
        "chunks": [_json_value(chunk) for chunk in chunks],
    }


def _plugins(stored: Iterable[StoredEvent]) -> str:
    """The note for readers on the plug-ins that the test needs."""
    own = {cls.event_type for cls in builtin_registry().classes()}
    foreign = dict.fromkeys(row.type for row in stored if row.type not in own)
    if not foreign:
        return "# Plug-ins whose reducers these events go through, if there are any.\n"
    return f"# Put here the plug-ins that declare {_in_docstring(', '.join(foreign))}.\n"


def _json_value(value: object) -> object:
    """A value as JSON."""
    return json.loads(msgspec.json.encode(value))


def _in_docstring(text: str) -> str:
    """A text on one line, which cannot end the text around it."""
    text = text if len(text) <= WHAT_CHARS_MAX else text[: WHAT_CHARS_MAX - 1] + "…"
    return quoted(text.replace('"', "'"))[1:-1]
