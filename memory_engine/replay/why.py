"""Why something is in memory: from what a model saw back to the events, through compactions and across threads.

`why` of a chunk, of a row of a view (`"view:NAME/KEY"`), or of each block of a context gives a tree. Forgotten
chunks are named in it, without their texts. Nothing is written, and no model is called.
"""

from collections.abc import Sequence

import msgspec

from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context
from memory_engine.context.flow import TRAILING
from memory_engine.core.arguments import checked_count, checked_text
from memory_engine.core.chunks import Category, Chunk, ChunkType, Retention
from memory_engine.core.events.roles import Reference, Role, roles_of
from memory_engine.core.state import State
from memory_engine.errors import UnknownRow, UnknownView
from memory_engine.recall.hits import Hit
from memory_engine.replay import trace
from memory_engine.replay.diff import message_text
from memory_engine.replay.explanation import Tree, Why
from memory_engine.replay.trace import ChunkRef, EventRef, Tracer
from memory_engine.runtime.handle import PastHandle, ThreadHandle

__all__ = ["Why", "why"]

VIEW = "view:"
"""The prefix of the name of a view's row: `view:preferences/tone`."""


async def why(thread: ThreadHandle, what: str | Context, *, chunks_max: int | None = None) -> Why:
    """Explain a chunk (by id), a row of a view (`"view:NAME/KEY"`), or each block of a context.

    Reads at most `chunks_max` chunks (default: 500), level by level; others are named, with `cut`: ask for them by id.
    Whether a chunk is live is as of the thread's head, or of the moment of a past thread. Raises `UnknownChunk`,
    `UnknownView`, `UnknownRow`.
    """
    chunks_max = trace.CHUNKS_MAX if chunks_max is None else checked_count("chunks_max", chunks_max, least=1)
    if isinstance(what, Context):
        home = thread if thread.id == what.thread_id else ThreadHandle(thread.kernel, what.thread_id)
        return await _Blocks(await _past(home), what, chunks_max).explain()
    checked_text("what", what)
    past = await _past(thread)
    if what.startswith(VIEW):
        return await _view_row(past, what, chunks_max)
    tracer = Tracer(past, chunks_max)
    await tracer.follow([(past.id, what)])
    await tracer.settle()
    return Tree(tracer.trace, past.kernel.reducers).chunk((past.id, what))


async def _past(thread: ThreadHandle) -> PastHandle:
    if isinstance(thread, PastHandle):
        return thread
    return await thread.at(await thread.last_seq())


async def _view_row(past: PastHandle, what: str, chunks_max: int) -> Why:
    """A row of a view, and the events that it names."""
    name, _, key = what.removeprefix(VIEW).partition("/")
    known = tuple(projection.name for projection in past.kernel.projections)
    if name not in known:
        raise UnknownView(name, known)
    rows = await past.view(name)
    if key not in rows:
        raise UnknownRow(past.id, name, key)
    value = msgspec.to_builtins(rows[key])
    named = _seqs(rows[key] if isinstance(rows[key], msgspec.Struct) else value)
    seqs = sorted(seq for seq in named if 0 < seq <= past.seq)
    refs: list[EventRef] = [(past.id, seq) for seq in seqs]
    tracer = Tracer(past, chunks_max)
    await tracer.follow([], refs)
    await tracer.settle()
    tree = Tree(tracer.trace, past.kernel.reducers)
    return Why(
        kind="row",
        id=what,
        thread_id=past.id,
        seq=seqs[-1] if seqs else 0,
        title=f"row {key} of view {name}",
        text=msgspec.json.encode(value).decode(),
        facts={"view": name, "key": key},
        children=tuple(tree.event(ref, relation="made by", level=1) for ref in refs if ref in tracer.trace.events),
    )


def _seqs(value: object) -> set[int]:
    """The seqs that a row names: its own, those of what it lists, and those that it was drawn from.

    A field is known by its role or, where it declares none, by its name.
    """
    match value:
        case msgspec.Struct():
            roles = roles_of(type(value))
            named = [(name, getattr(value, name), roles.get(name)) for name in value.__struct_fields__]
            return set().union(*(_seqs_of(*one) for one in named))
        case dict():
            return set().union(*(_seqs_of(name, inner, None) for name, inner in value.items()))
        case list() | tuple():
            return set().union(*map(_seqs, value))
    return set()


def _seqs_of(name: object, value: object, role: Role | None) -> set[int]:
    if role is not None:
        is_named = role.reference is Reference.SEQ
    else:
        is_named = name == "seq" if isinstance(value, int) else name in ("seqs", "drawn_from")
    if not is_named:
        return _seqs(value)
    return {seq for seq in (value if isinstance(value, list | tuple) else (value,)) if isinstance(seq, int)}


class _Blocks:
    """The blocks of one context."""

    def __init__(self, past: PastHandle, context: Context, chunks_max: int) -> None:
        self._past = past
        self._context = context
        self._builder = past.kernel[ContextBuilder]
        self._tracer = Tracer(past, chunks_max)
        self._above: dict[str, list[str]] = {}
        self._pieces = {piece.chunk.id: piece for piece in context.pieces}

    async def explain(self) -> Why:
        """The whole tree."""
        context, past = self._context, self._past
        state = await past.kernel.reader.shown_at(past.id, context.seq)
        shown = [*(chunk.id for chunk in context.chunks if not self._is_made(chunk, state)), *context.excluded]
        refs: list[ChunkRef] = [(past.id, chunk_id) for chunk_id in shown]
        passages = await self._places(context.recalled)
        standing = {(line.thread_id, line.seq) for block in context.standing for line in block.lines if line.seq}
        await self._tracer.follow(refs, [*(place for place in passages if place is not None), *sorted(standing)])
        await self._tracer.follow(self._recalled_chunks(passages))
        await self._tracer.settle()
        tree = Tree(self._tracer.trace, past.kernel.reducers)
        blocks = [self._block(tree, state, chunk, passages) for chunk in self._top(state)]
        left_out = self._left_out(tree)
        return Why(
            kind="context",
            id=f"{past.id}@{context.seq}",
            thread_id=past.id,
            seq=context.seq,
            title=f"context of thread {past.id} after event {context.seq}",
            facts={
                "tokens": context.tokens,
                "tokens_exact": context.tokens_exact,
                "messages": len(context.messages),
                "included": len(context.included),
                "excluded": len(context.excluded),
                "recalled": len(context.recalled),
                "recall_failure": context.recall_failure,
            },
            children=(*blocks, *([left_out] if left_out is not None else [])),
        )

    def _is_made(self, chunk: Chunk, state: State) -> bool:
        """Whether a chunk was made for the context: a standing block, or recalled passages.

        All others are of the log, also originals that a summary of the state covers.
        """
        names = {ChunkType.RECALLED, *(one.name for one in self._context.standing)}
        return chunk.type in names and state.get(chunk.id) is None

    def _top(self, state: State) -> list[Chunk]:
        """The chunks that are blocks of their own: not those inside another."""
        placed = {chunk.id: state.placed_at(chunk.id) for chunk in self._context.chunks}
        return [c for c in self._context.chunks if (at := placed[c.id]) is None or not at.container]

    # blocks

    def _block(self, tree: Tree, state: State, chunk: Chunk, passages: Sequence[EventRef | None]) -> Why:
        if self._is_made(chunk, state):
            if chunk.type == ChunkType.RECALLED:
                return self._recalled_block(tree, chunk, passages)
            return self._standing_block(tree, chunk)
        shortened = chunk.id in self._context.shortened
        messages = self._pieces[chunk.id].messages
        pinned = chunk.retention is Retention.CRITICAL or chunk.category in (*TRAILING, Category.SYSTEM)
        facts: dict[str, object] = {
            "roles": [str(message["role"]) for message in messages],
            "tokens": self._builder.tokens(messages),
            "shortened": shortened,
            "pinned": pinned,
        }
        if not messages:
            facts["hidden"] = "its renderer shows a model nothing of it"
        own = self._past.id
        shown = tree.chunk((own, chunk.id), relation="shows", level=1)  # first, to be whole
        inner = [tree.chunk((own, child.id), relation="inside", level=1) for child in state.children(chunk.id)]
        return Why(
            kind="block",
            id=chunk.id,
            thread_id=self._past.id,
            seq=chunk.seq,
            title=f"{'/'.join(dict.fromkeys(str(m['role']) for m in messages)) or 'hidden'}: {chunk.type} {chunk.id}",
            text="\n".join(map(message_text, messages)),
            facts=facts,
            children=(shown, *inner),
        )

    def _left_out(self, tree: Tree) -> Why | None:
        excluded = self._context.excluded
        if not excluded:
            return None
        return Why(
            kind="block",
            id="excluded",
            thread_id=self._past.id,
            seq=self._context.seq,
            title=f"left out: {len(excluded)} chunks did not fit into the budget",
            facts={"excluded": list(excluded)},
            children=tuple(tree.chunk((self._past.id, one), relation="left out", level=2) for one in excluded),
        )

    # standing blocks and recalled passages

    def _standing_block(self, tree: Tree, chunk: Chunk) -> Why:
        block = next(one for one in self._context.standing if one.name == chunk.type)
        messages = self._pieces[chunk.id].messages
        places = dict.fromkeys((line.thread_id, line.seq) for line in block.lines if line.seq)
        return Why(
            kind="block",
            id=chunk.id,
            thread_id=self._past.id,
            seq=self._context.seq,
            title=f"standing: {block.name}, {len(block.lines)} lines",
            text="\n".join(map(message_text, messages)),
            facts={
                "roles": [str(message["role"]) for message in messages],
                "tokens": self._builder.tokens(messages),
                "left_out": block.left_out,
                "pinned": False,
            },
            children=tuple(
                tree.event(place, relation="said by", level=2) for place in places if place in self._tracer.trace.events
            ),
        )

    def _recalled_block(self, tree: Tree, chunk: Chunk, passages: Sequence[EventRef | None]) -> Why:
        messages = list(self._builder.messages(chunk))
        hits = zip(self._context.recalled, passages, strict=True)
        return Why(
            kind="block",
            id=chunk.id,
            thread_id=self._past.id,
            seq=self._context.seq,
            title=f"recalled: {len(self._context.recalled)} passages",
            text="\n".join(map(message_text, messages)),
            facts={
                "roles": [str(message["role"]) for message in messages],
                "tokens": self._builder.tokens(messages),
                "shortened": False,
                "pinned": False,
            },
            children=tuple(self._passage(tree, hit, place) for hit, place in hits),
        )

    def _passage(self, tree: Tree, hit: Hit, place: EventRef | None) -> Why:
        trace = self._tracer.trace
        made = trace.events[place].chunks if place in trace.events else ()
        own = made if hit.thread_id == self._past.id else ()
        covered = [one for chunk in own if (one := self._covered_by(chunk.id))]
        facts: dict[str, object] = {
            "score": hit.score,
            "why": hit.why,
            "parts": dict(hit.parts),
            "what": hit.kind,
            "role": hit.role,
            "speaker": hit.speaker,
            "about": hit.about,
            "key": hit.key,
            "at": hit.at.isoformat(),
            "event_type": hit.event_type,
            "covered_by": list(dict.fromkeys(covered)),
            "alike": list(hit.alike),
            "superseded_by": hit.superseded_by,
            "decided_by": hit.decided_by,
        }
        chunks = [tree.chunk((hit.thread_id, chunk.id), relation="part of", level=3) for chunk in made]
        event = [tree.event(place, relation="part of", level=3)] if place in trace.events and not chunks else []
        return Why(
            kind="passage",
            id=hit.event_id,
            thread_id=hit.thread_id,
            seq=hit.seq,
            title=f"{hit.kind} of event {hit.seq}, {hit.score:.2f}: {hit.why}",
            text=hit.text,
            facts={name: value for name, value in facts.items() if value or name in ("score", "why")},
            children=(*chunks, *event),
        )

    async def _places(self, hits: Sequence[Hit]) -> list[EventRef | None]:
        """The events of passages; `None` for one in a thread that may not be read from here."""
        return [(hit.thread_id, hit.seq) if await self._tracer.may_read(hit.thread_id) else None for hit in hits]

    def _recalled_chunks(self, passages: Sequence[EventRef | None]) -> list[ChunkRef]:
        events = [self._tracer.trace.events[place] for place in passages if place in self._tracer.trace.events]
        return [(event.thread_id, chunk.id) for event in events for chunk in event.chunks]

    def _covered_by(self, chunk_id: str) -> str:
        """The summary of a chunk of this thread in the context, through summaries of summaries."""
        if not self._above:
            for (owner, _), chunk in self._tracer.trace.chunks.items():
                if owner == self._past.id:
                    for parent in chunk.parent_ids:
                        self._above.setdefault(parent, []).append(chunk.id)
        shown = set(self._context.included)
        waiting, seen = [chunk_id], {chunk_id}
        while waiting:
            above = [one for one in self._above.get(waiting.pop(), ()) if one not in seen]
            if found := next((one for one in above if one in shown), ""):
                return found
            seen.update(above)
            waiting += above
        return ""
