"""The difference between two moments of a log: chunks, the context of a model, and views.

Everything is read at its own time; nothing is written. The work is done from the older moment to the newer one, and
turned round where you asked for the other direction, so that one mirrors the other. Contexts are compared as bytes,
which a prompt cache sees, and as lines, which people read.
"""

import difflib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec
from attrs import field, frozen

from memory_engine.context.builder import FRAME, ContextBuilder
from memory_engine.context.rendering import Message, common_prefix, message_bytes
from memory_engine.core.aside import aside
from memory_engine.core.chunks import Chunk
from memory_engine.core.excerpts import columns, counted, number, of_chunk, one_line
from memory_engine.core.json_form import as_data, named
from memory_engine.core.state import State
from memory_engine.projections.base import Projection, event_types
from memory_engine.replay.data import chunk_as_data
from memory_engine.replay.lineage import shared_seq
from memory_engine.replay.matching import Changed, Compacted, Side, match
from memory_engine.reports import Drawable, Line, Paper, first_lines, line, spaced
from memory_engine.runtime.handle import PastHandle

AROUND = 3
"""Context lines around a change."""
COMPARED_MAX = 2_000
"""Lines on each side to compare one by one; more are shown as replaced."""


def rendered(messages: Sequence[Message]) -> bytes:
    """The bytes of all messages, one after another: a prompt cache compares them from the start."""
    return b"".join(map(message_bytes, messages))


def text_lines(messages: Sequence[Message]) -> list[str]:
    """The messages as people read them: the lines of each, its role before the first."""
    return [line for message in messages for line in f"{message['role']}: {message_text(message)}".split("\n")]


def message_text(message: Message) -> str:
    """Everything a message says, with its calls."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = [part["text"] if part["type"] == "text" else "[image]" for part in content]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        parts.append(f"→ {call['function']['name']}({call['function']['arguments']})")
    if message.get("tool_call_id"):
        parts.insert(0, f"[{message['tool_call_id']}]")
    return "\n".join(part for part in parts if part)


def unified(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The lines of a unified diff, `@@` headers with it, the names of files not."""
    if list(before) == list(after):
        return []
    start = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    shared = min(len(before), len(after)) - start
    tail = next((n for n in range(shared) if before[-1 - n] != after[-1 - n]), shared)
    first, last = max(0, start - AROUND), max(0, tail - AROUND)
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if len(old) > COMPARED_MAX or len(new) > COMPARED_MAX:
        return _replaced(before, after, start, tail)
    found = islice(difflib.unified_diff(old, new, lineterm="", n=AROUND), 2, None)
    return [_moved(line, first) if line.startswith("@@") else line for line in found]


def _replaced(before: Sequence[str], after: Sequence[str], start: int, tail: int) -> list[str]:
    old, new = before[start : len(before) - tail], after[start : len(after) - tail]
    head = f"@@ -{start + 1},{len(old)} +{start + 1},{len(new)} @@"
    return [head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _moved(head: str, by: int) -> str:
    """A header whose lines are counted from the beginning."""
    _, old, new, _ = head.split(" ", 3)
    return f"@@ {_shifted_span(old, by)} {_shifted_span(new, by)} @@"


def _shifted_span(span: str, by: int) -> str:
    line, comma, count = span[1:].partition(",")
    return f"{span[0]}{int(line) + by}{comma}{count}"


T = TypeVar("T")


@frozen
class Point:
    """A moment of a thread, and the size of its state (estimated tokens)."""

    thread_id: str
    seq: int
    chunks: int
    tokens: int


@frozen(kw_only=True)
class ContextDiff:
    """The contexts of both sides, with everything in the state.

    `kept_bytes` is how many bytes at the start stay the same (deterministic JSON, one line per message): a provider's
    prompt cache can keep them. `lines` is a unified diff of the texts, under the role of each.
    """

    tokens: tuple[int, int]
    bytes: tuple[int, int]
    kept_bytes: int
    lines: tuple[str, ...] = field(repr=False)


@frozen
class RowsDiff:
    """The keys of a view's rows that were added, removed, and changed in value, in order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def _rows_told(rows: RowsDiff) -> str:
    return f"{len(rows.added)} rows added, {len(rows.removed)} removed, {len(rows.changed)} changed"


@frozen(kw_only=True)
class Diff(Drawable):
    """The difference from `a` to `b`.

    `added` are only in b, in its order; `removed` only in a, in its order; `changed` are versions of one chunk on each
    side and in neither of the two. `moved` are ids (of b) whose place among the common chunks differs, as few as
    possible. `compacted`: added summaries with the removed chunks that they cover; `restored`: removed summaries with
    the added chunks that they covered. `views` has those with any difference, `None` if not asked for.
    """

    a: Point
    b: Point
    added: tuple[Chunk, ...] = ()
    removed: tuple[Chunk, ...] = ()
    changed: tuple[Changed, ...] = ()
    moved: tuple[str, ...] = ()
    compacted: tuple[Compacted, ...] = ()
    restored: tuple[Compacted, ...] = ()
    context: ContextDiff
    views: Mapping[str, RowsDiff] | None = None
    _containers: tuple[Mapping[str, str], Mapping[str, str]] = field(default=({}, {}), repr=False, alias="containers")

    @property
    def is_empty(self) -> bool:
        """Whether state, context and views are the same."""
        chunks = (self.added, self.removed, self.changed, self.moved)
        return not any(chunks) and not self.context.lines and not self.views

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """How large both sides are, chunks, the context, views."""
        most = (20, 60, "; --json has them all") if paper.of_command else (5, 12, "")
        return _DiffLines(paper.width, *most).of(self)

    def _repr_html_(self) -> str:
        """The additions, removals and changes, for a notebook."""
        from memory_engine.core.notebook import table

        rows = [
            *(("+", chunk.id, chunk.type, chunk.text) for chunk in self.added),
            *(("-", chunk.id, chunk.type, chunk.text) for chunk in self.removed),
            *(("±", one.after.id, one.after.type, ", ".join(one.fields) or "another id") for one in self.changed),
            *(("moved", chunk_id, "", "") for chunk_id in self.moved),
            *(("view", name, "", _rows_told(rows)) for name, rows in (self.views or {}).items()),
        ]
        caption = f"From event {self.a.seq} to event {self.b.seq} of {self.b.thread_id}"
        return table(caption, ("", "id", "type", "what"), rows)

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        before, after = self._containers
        return {
            "a": named(self.a, "thread_id seq"),
            "b": named(self.b, "thread_id seq"),
            "added": [chunk_as_data(chunk, after.get(chunk.id, "")) for chunk in self.added],
            "removed": [chunk_as_data(chunk, before.get(chunk.id, "")) for chunk in self.removed],
            **named(self, "changed moved compacted restored"),
            "tokens": [self.a.tokens, self.b.tokens],
            "chunks": [self.a.chunks, self.b.chunks],
            "context": as_data(self.context),
            "views": as_data(self.views or {}),
        }


async def diff(a: PastHandle, b: PastHandle, *, views: bool = True) -> Diff:
    """The changes from one moment to another: of one thread, or of a fork and its origin, in either order.

    `views=False` leaves out the views, which take longer the more of them changed.
    """
    one, other = await a.state(), await b.state()
    shared = await shared_seq(a.kernel, (a.id, a.seq), (b.id, b.seq))
    is_forward = (a.seq, a.id) <= (b.seq, b.id)
    items = one.tally.chunks + other.tally.chunks
    ends = ((a, one), (b, other)) if is_forward else ((b, other), (a, one))
    older, newer = await aside(lambda: (Side(*ends[0]), Side(*ends[1])), items=items)
    chunks = await match(older, newer, shared)
    if not is_forward:
        chunks = chunks.mirrored()
    return Diff(
        a=Point(a.id, a.seq, one.tally.chunks, one.tally.tokens),
        b=Point(b.id, b.seq, other.tally.chunks, other.tally.tokens),
        added=chunks.added,
        removed=chunks.removed,
        changed=chunks.changed,
        moved=chunks.moved,
        compacted=chunks.compacted,
        restored=chunks.restored,
        context=await aside(lambda: _contexts(a, one, b, other), items=items),
        views=await _views(a, b, shared) if views else None,
        containers=await aside(
            lambda: (_containers(chunks.removed, one), _containers(chunks.added, other)),
            items=len(chunks.removed) + len(chunks.added),
        ),
    )


def _containers(chunks: Sequence[Chunk], state: State) -> dict[str, str]:
    """The container of chunks, if they have one."""
    placed = {chunk.id: state.placed_at(chunk.id) for chunk in chunks}
    return {chunk_id: at.container for chunk_id, at in placed.items() if at is not None and at.container}


def _contexts(a: PastHandle, one: State, b: PastHandle, other: State) -> ContextDiff:
    """The contexts are made and compared message by message: none of them is ever held whole."""
    builders = [past.kernel[ContextBuilder] for past in (a, b)]
    parts = [builder.in_parts(state) for builder, state in zip(builders, (one, other), strict=True)]
    found = _compared(*map(_ComparedContext, builders, parts))
    if found is None:
        built = [builders[0].build(one, a.id), builders[1].build(other, b.id)]
        found = _compared(*map(_ComparedContext, builders, ([context.messages] for context in built)))
    assert found is not None
    return found


class _ComparedContext:
    """The messages of a context one by one, and what those so far add up to. `is_whole`: nothing is missing."""

    def __init__(self, builder: ContextBuilder, parts: Iterable[Sequence[Message] | None]) -> None:
        self._builder = builder
        self._messages = self._each(parts)
        self.tokens = FRAME
        self.bytes = 0
        self.is_whole = True

    def _each(self, parts: Iterable[Sequence[Message] | None]) -> Iterator[Message]:
        for part in parts:
            if part is None:
                self.is_whole = False
                return
            yield from part

    def next(self) -> tuple[Message, bytes] | None:
        """The next message, and its bytes; `None` after the last."""
        message = next(self._messages, None)
        if message is None:
            return None
        encoded = message_bytes(message)
        self.tokens += self._builder.tokens((message,))
        self.bytes += len(encoded)
        return message, encoded

    def lines(self, first: tuple[Message, bytes] | None) -> list[str]:
        """The lines of a message and of all that follow."""
        found: list[str] = []
        while first is not None:
            found += text_lines((first[0],))
            first = self.next()
        return found


def _compared(old: _ComparedContext, new: _ComparedContext) -> ContextDiff | None:
    """`None` where a context is not whole."""
    kept = count = 0
    last: deque[str] = deque(maxlen=AROUND)  # of the lines that are the same: those before the first difference
    before, after = old.next(), new.next()
    while before is not None and after is not None and before[1] == after[1]:
        kept += len(before[1])
        lines = text_lines((before[0],))
        count += len(lines)
        last += lines
        before, after = old.next(), new.next()
    if before is not None and after is not None:
        kept += common_prefix(before[1], after[1])
    found = unified([*last, *old.lines(before)], [*last, *new.lines(after)])
    passed = count - len(last)
    return (
        ContextDiff(
            tokens=(old.tokens, new.tokens),
            bytes=(old.bytes, new.bytes),
            kept_bytes=kept,
            lines=tuple(_moved(line, passed) if line.startswith("@@") else line for line in found),
        )
        if old.is_whole and new.is_whole
        else None
    )


async def _views(a: PastHandle, b: PastHandle, shared: int) -> dict[str, RowsDiff]:
    found: dict[str, RowsDiff] = {}
    for projection in a.kernel.projections:
        if await _may_differ(projection, a, b, shared):
            rows = _rows_diff((await a.rows(projection)).encoded(), (await b.rows(projection)).encoded())
            if rows.added or rows.removed or rows.changed:
                found[projection.name] = rows
    return found


async def _may_differ(projection: Projection[T], a: PastHandle, b: PastHandle, shared: int) -> bool:
    """Whether either log holds anything that the projection reads after what both share."""
    types = event_types(projection)
    for past in (a, b):
        if past.seq == shared:
            continue
        marks = (await past.kernel.store.head(past.id)).marks
        if types is None or any(marks.get(name, 0) > shared for name in types):
            return True
    return False


def _rows_diff(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> RowsDiff:
    return RowsDiff(
        added=tuple(key for key in after if key not in before),
        removed=tuple(key for key in before if key not in after),
        changed=tuple(key for key, value in after.items() if key in before and before[key] != value),
    )


@frozen
class _DiffLines:
    """The lines of a difference: of chunks of a kind the first `listed`, of the context the first `text_max`.

    `where_all` says where the rest can be seen.
    """

    width: int
    listed: int
    text_max: int
    where_all: str

    def of(self, found: Diff) -> Iterator[Line]:
        """A difference: how large both sides are, chunks, the context, views."""
        a, b = found.a, found.b
        other = "" if a.thread_id == b.thread_id else f" of {b.thread_id}"
        held = f"{number(a.chunks)} → {counted(b.chunks, 'chunk')}, {number(a.tokens)} → {counted(b.tokens, 'token')}"
        yield self._cut(f"{a.thread_id}, event {a.seq} → event {b.seq}{other}: {held}", "bold")
        if found.is_empty:
            yield line("nothing differs")
            return
        covers = {one.summary: one.covers for one in (*found.compacted, *found.restored)}
        yield from self._first(found.removed, lambda chunk: self._chunk("-", "red", chunk, covers))
        yield from self._first(found.added, lambda chunk: self._chunk("+", "green", chunk, covers))
        yield from self._first(found.changed, self._change)
        if found.moved:
            yield self._cut(f"moved: {' '.join(found.moved)}", "yellow")
        yield from self._context(found)
        for name, rows in (found.views or {}).items():
            signs = (("+", rows.added), ("-", rows.removed), ("~", rows.changed))
            keys = " ".join(f"{sign}{key}" for sign, some in signs for key in some[: self.listed])
            yield self._cut(f"view {name}: {keys}")

    def _first(self, some: Sequence[T], of_one: Callable[[T], Line]) -> Iterator[Line]:
        return first_lines(some, self.listed, of_one, f"  … {{}} more{self.where_all}")

    def _chunk(self, sign: str, style: str, chunk: Chunk, covers: Mapping[str, tuple[str, ...]]) -> Line:
        covered = covers.get(chunk.id, ())
        some = " ".join(covered[:3]) + (f" … {covered[-1]}" if len(covered) > 3 else "")
        stands = f", stands for {counted(len(covered), 'chunk')}: {some}" if covered else ""
        head = f"{sign} {chunk.id}  {chunk.type}, {counted(chunk.tokens, 'token')}{stands}"
        said = one_line(of_chunk(chunk), max(10, self.width - columns(head) - 2))
        return spaced([(one_line(head, self.width), style), (said, "")])

    def _change(self, change: Changed) -> Line:
        fields = ", ".join(f"{name} {_short(old)} → {_short(new)}" for name, (old, new) in change.fields.items())
        head = f"~ {change.before.id} → {change.after.id}  {change.after.type}: {fields or 'the same'}"
        return self._cut(head, "yellow")

    def _context(self, found: Diff) -> Iterator[Line]:
        context = found.context
        tokens = f"{number(context.tokens[0])} → {counted(context.tokens[1], 'token')}"
        kept = f"its first {number(context.kept_bytes)} of {number(context.bytes[0])} bytes stay the same"
        yield line(f"context: {tokens}; {kept}", "bold")
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for text in context.lines[: self.text_max]:
            yield ("  ", ""), (one_line(text, self.width - 2), styles.get(text[:1], ""))
        if len(context.lines) > self.text_max:
            yield line(f"  … {counted(len(context.lines) - self.text_max, 'more line')}{self.where_all}")

    def _cut(self, text: str, style: str = "") -> Line:
        return line(one_line(text, self.width), style)


def _short(value: object) -> str:
    return one_line(msgspec.json.encode(value).decode(), 60)
