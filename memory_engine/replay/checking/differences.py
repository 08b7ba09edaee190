"""What differs between what is kept and what a replay gives, in lines that people read: `chunk 5.0 tokens: 3 → 2`.

What is kept stands left of the arrow, what the log gives now right of it. Of long texts the surroundings of the first
difference are shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.codec import decode_reduction, resolve_chunks
from memory_engine.events.base import Event, UnknownEvent
from memory_engine.executor import describe
from memory_engine.operations import Add, Batch, Operation, Reorder
from memory_engine.persistence import LiveChunk
from memory_engine.reducing import Reduction

LINES_MAX = 20
"""So many lines say what differs; of more the rest is counted."""
EXCERPT_CHARS = 72
_ABSENT, _LOST, _STRAY = "nothing", "its row is missing", "a row that the log never gave"


def records_differ(recorded: bytes, now: bytes, event: Event | UnknownEvent) -> tuple[str, ...]:
    """How what an event did when it was recorded differs from what its reducers do now; nothing for equal bytes."""
    if recorded == now:
        return ()
    try:
        before, after = (_decoded(record, event) for record in (recorded, now))
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        return (f"the recorded operations cannot be read: {error}",)
    found = reductions_differ(before, after)
    return found or (f"the same operations and chunks in other bytes: {arrow(_text(recorded), _text(now))}",)


def reductions_differ(before: Reduction, after: Reduction) -> tuple[str, ...]:
    """How two reductions differ: operations by their number, then chunks by id and field."""
    lines: list[str] = []
    for n, (one, other) in enumerate(zip_longest(before.operations, after.operations), 1):
        if one != other:
            lines.append(f"operation {n}: {operation_line(one)} → {operation_line(other)}")
    return limited([*lines, *chunks_differ(before.chunks, after.chunks)])


def chunks_differ(before: Iterable[Chunk], after: Iterable[Chunk]) -> Iterator[str]:
    """A line for each field of a chunk that differs, and for each chunk that is on one side only."""
    old, new = ({chunk.id: chunk for chunk in chunks} for chunks in (before, after))
    for chunk_id in dict.fromkeys((*old, *new)):
        yield from fields_differ(f"chunk {chunk_id}", _fields(old.get(chunk_id)), _fields(new.get(chunk_id)))


def rows_differ(view: str, stored: Mapping[str, bytes], made: Mapping[str, bytes]) -> tuple[str, ...]:
    """How the rows of a view differ from those that the log gives, by key and field."""
    return limited(
        line
        for key in sorted(stored.keys() | made.keys())
        if stored.get(key) != made.get(key)
        for line in _row_differs(f"{view} {excerpt(key)}", stored.get(key), made.get(key))
    )


def places_differ(stored: Iterable[LiveChunk], made: Iterable[LiveChunk]) -> tuple[str, ...]:
    """How the places of a state's chunks differ from those that the log gives."""
    old, new = ({row.chunk_id: row for row in rows} for rows in (stored, made))
    lines: list[str] = []
    for chunk_id in dict.fromkeys((*new, *old)):
        one, other = old.get(chunk_id), new.get(chunk_id)
        if one is None or other is None:
            lines.append(f"chunk {chunk_id}: {_LOST if one is None else _STRAY}")
            continue
        for name, kept, given in (
            ("key", one.key.hex(), other.key.hex()), ("container", one.container, other.container)
        ):  # fmt: skip
            if kept != given:
                lines.append(f"chunk {chunk_id} {name}: {arrow(kept, given)}")
    return limited(lines)


def fields_differ(what: str, before: Mapping[str, object] | None, after: Mapping[str, object] | None) -> Iterator[str]:
    """A line for each field whose values differ; one where there is nothing on one side."""
    if before is None or after is None:
        shown = _summary(before if before is not None else after or {})
        yield f"{what}: {_ABSENT} → {shown}" if before is None else f"{what}: {shown} → {_ABSENT}"
        return
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name, _MISSING), after.get(name, _MISSING)
        if one != other or type(one) is not type(other):
            yield f"{what} {name}: {arrow(one, other)}"


def arrow(before: object, after: object) -> str:
    """`'Hello' → 'Hi'`: both sides, cut to the surroundings of their first difference."""
    one, other = _plain(before), _plain(after)
    if len(one) <= EXCERPT_CHARS and len(other) <= EXCERPT_CHARS:
        return f"{_quoted(before, one)} → {_quoted(after, other)}"
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, at - EXCERPT_CHARS // 3)
    cut = [_cut(_quoted(value, text[start : start + EXCERPT_CHARS]), start, len(text) - start - EXCERPT_CHARS)
           for value, text in ((before, one), (after, other))]  # fmt: skip
    where = f" (from character {at + 1:,} on, of {len(one):,} and {len(other):,})"
    return f"{cut[0]} → {cut[1]}{where}"


def excerpt(value: object, chars: int = EXCERPT_CHARS) -> str:
    """The beginning of a value, as Python would write it."""
    text = _plain(value)
    return _cut(_quoted(value, text[:chars]), 0, len(text) - chars)


def limited(lines: Iterable[str], most: int = LINES_MAX) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    every = list(lines)
    if len(every) <= most:
        return tuple(every)
    return (*every[: most - 1], f"… and {len(every) - most + 1:,} more")


class _Missing:
    def __repr__(self) -> str:
        return _ABSENT


_MISSING = _Missing()


def _decoded(record: bytes, event: Event | UnknownEvent) -> Reduction:
    found = decode_reduction(record)
    return Reduction(found.operations, resolve_chunks(found, event))


def operation_line(operation: Operation | None) -> str:
    """An operation in a line, with its place, which `describe` leaves out; `nothing` for none."""
    match operation:
        case None:
            return _ABSENT
        case Batch():
            return "BATCH [" + "; ".join(map(operation_line, operation.operations)) + "]"
        case Add() | Reorder():
            container = getattr(operation, "container", "")
            places = (
                f" in {container}" if container else "",
                " first" if operation.first else "",
                f" before {operation.before}" if operation.before else "",
                f" after {operation.after}" if operation.after else "",
            )
            return describe(operation) + "".join(places)
    return describe(operation)


def _fields(chunk: Chunk | None) -> dict[str, object] | None:
    if chunk is None:
        return None
    return {name: getattr(chunk, name) for name in chunk.__struct_fields__}


def _row_differs(what: str, stored: bytes | None, made: bytes | None) -> Iterator[str]:
    if stored is None:
        yield f"{what}: {_LOST}"
        return
    if made is None:
        yield f"{what}: {_STRAY}"
        return
    try:
        old, new = msgspec.json.decode(stored), msgspec.json.decode(made)
    except (msgspec.DecodeError, UnicodeDecodeError):
        old, new = _text(stored), _text(made)
    found = list(fields_differ(what, old, new)) if isinstance(old, dict) and isinstance(new, dict) else []
    if not found and old != new:
        found = [f"{what}: {arrow(old, new)}"]
    yield from found or [f"{what}: the same values in other bytes: {arrow(_text(stored), _text(made))}"]


def _summary(fields: Mapping[str, object]) -> str:
    """A chunk or row in a few words: its type and its text."""
    said = [excerpt(fields[name], EXCERPT_CHARS // 2) for name in ("type", "content", "value") if fields.get(name)]
    return " ".join(said) or excerpt(dict(fields))


def _plain(value: object) -> str:
    """A text as it is, anything else as Python writes it."""
    if isinstance(value, str):
        return str(value)
    return repr(value if isinstance(value, _Missing) else msgspec.to_builtins(value))


def _quoted(value: object, text: str) -> str:
    return repr(text) if isinstance(value, str) else text


def _cut(text: str, before: int, after: int) -> str:
    return ("…" if before > 0 else "") + text + ("…" if after > 0 else "")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def reducers_behind(parts: Sequence[tuple[str, Reduction]], recorded: Reduction) -> tuple[str, ...]:
    """The names of the reducers, of those that ran in this order, that may do otherwise than was recorded.

    One where it can be told: the others did what stands at their place, counted from the first or from the last.
    """
    front = next(_misfits(parts, recorded.operations, recorded.chunks), len(parts))
    backwards = [(name, Reduction(part.operations[::-1], part.chunks[::-1])) for name, part in reversed(parts)]
    back = len(parts) - 1 - next(_misfits(backwards, recorded.operations[::-1], recorded.chunks[::-1]), len(parts))
    return tuple(name for name, _ in parts[max(0, min(front, back)) : max(front, back) + 1])


def _misfits(
    parts: Iterable[tuple[str, Reduction]], operations: Sequence[Operation], chunks: Sequence[Chunk]
) -> Iterator[int]:
    """The numbers of the parts that are not what stands at their place."""
    for n, (_, part) in enumerate(parts):
        if (*operations[: len(part.operations)],) != part.operations or (*chunks[: len(part.chunks)],) != part.chunks:
            yield n
        operations, chunks = operations[len(part.operations) :], chunks[len(part.chunks) :]
