"""The tree that explains something, built from a `trace` of the log."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Literal

import msgspec
from attrs import evolve, field, frozen

from memory_engine.core.chunks import REDACTED, Chunk, ChunkType, content_text
from memory_engine.core.events.base import UnknownEvent
from memory_engine.core.events.compaction import CompactionCompleted, CompactionUndone, ThreadRewound
from memory_engine.core.events.memory import ThreadCleared
from memory_engine.core.excerpts import columns, counted, number, one_line
from memory_engine.core.executor import describe
from memory_engine.core.lineage import batches, heirs, is_covering, place
from memory_engine.core.records import RecordedEvent
from memory_engine.core.reduction import ReducerRegistry
from memory_engine.replay.trace import ChunkRef, EventRef, LineageTrace, Link
from memory_engine.reports import WIDTH, Drawable, Line, Paper, line, spaced

NodeKind = Literal["context", "block", "passage", "row", "chunk", "compaction", "line", "fact", "event"]
"""The kinds of nodes. Blocks and passages are under a context, lines under a compaction."""


@frozen(kw_only=True)
class Why(Drawable):
    """A chunk, an event or the like, and under `children` what it comes from.

    `title` says in a few words what it is, `text` its full text. `facts` are JSON values by name: `relation` to the
    node above, `at` (ISO time), `tokens`, `live`, and others of its kind. A node that is already further up in the tree
    is repeated with `above` and without children; where a tree is cut, `cut` says how to go on.
    """

    kind: NodeKind
    id: str
    thread_id: str
    seq: int
    title: str
    text: str = field(default="", repr=False)
    facts: Mapping[str, object] = field(factory=dict, repr=False)
    children: "tuple[Why, ...]" = field(default=(), repr=False)

    def walk(self) -> Iterator["Why"]:
        """This node and all below it, each before its children."""
        waiting: list[Why] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """Its tree: of children of one kind the first few (see `WhyLines`)."""
        return WhyLines(paper.width, shown=SHOWN if paper.of_command else 4).of(self)

    def _repr_html_(self) -> str:
        """The tree, indented, for a notebook."""
        from memory_engine.core.notebook import table

        waiting, rows = [(0, self)], []
        while waiting:
            level, node = waiting.pop()
            rows.append((f"{'  ' * level}{node.title}", f"{node.thread_id} #{node.seq}", node.text))
            waiting += [(level + 1, child) for child in reversed(node.children)]
        return table(f"Where {self.id} comes from", ("node", "event", "text"), rows)

    def events(self) -> list[tuple[str, int]]:
        """The events that this node comes from: thread and seq, each once, in tree order."""
        found = [(node.thread_id, node.seq) for node in self.walk() if node.kind in ("event", "compaction")]
        return [place for place in dict.fromkeys(found) if place[1]]


DEPTH_MAX = 100
"""Nodes from the root to a leaf: ask for deeper ones by id."""
UNREAD_MAX = 500
"""Chunks below a summary to name although they were not read."""
_TOO_DEEP = "it goes on: ask for this chunk"
_TOO_MANY = "not read: many chunks lie behind what was asked for; ask for this one"


class Tree:
    """Builds nodes, each chunk and event whole where it comes first."""

    def __init__(self, trace: LineageTrace, reducers: ReducerRegistry) -> None:
        self._trace = trace
        self._reducers = reducers
        self._seen: set[tuple[str, str, object]] = set()
        self._heirs: dict[EventRef, Mapping[str, list[str]]] = {}

    def chunk(self, ref: ChunkRef, *, relation: str = "", level: int = 0) -> Why:
        """A chunk, the event that made it, and what it was made from."""
        thread_id, chunk_id = ref
        chunk = self._trace.chunks.get(ref)
        if chunk is None:
            return _bare_node(
                "chunk", thread_id, chunk_id, place(chunk_id)[0], {"relation": relation, "cut": _TOO_MANY}
            )
        again = self._is_again("chunk", ref)
        facts = _nonempty({"relation": relation, "above": again})
        if not again:
            facts |= self._chunk_facts(thread_id, chunk)
        children: tuple[Why, ...] = ()
        if not again and level >= DEPTH_MAX:
            facts["cut"] = _TOO_DEEP
            self._seen.discard(("chunk", *ref))
        elif not again:
            children = self._behind(thread_id, chunk, level + 1)
        return Why(
            kind="chunk",
            id=chunk.id,
            thread_id=thread_id,
            seq=chunk.seq,
            title=f"{chunk.type} {chunk.id}" + (f" ({chunk.name})" if chunk.name else ""),
            text="" if again or "forgotten" in facts else _chunk_text(chunk),
            facts=facts,
            children=children,
        )

    def _chunk_facts(self, thread_id: str, chunk: Chunk) -> dict[str, object]:
        trace = self._trace
        event = trace.events[thread_id, chunk.seq]
        live = trace.is_live(thread_id, chunk.id)
        facts: dict[str, object] = {
            "type": chunk.type,
            "retention": chunk.retention.value,
            "category": chunk.category.value,
            "tokens": chunk.tokens,
            "at": _event_time(event),
            "live": live,
        }
        facts |= _nonempty({name: getattr(chunk, name) for name in ("name", "label", "status", "call_id")})
        removed = trace.events.get((thread_id, trace.gone.get((thread_id, chunk.id), 0)))
        if not live and removed is not None:
            facts["removed_by"] = {"seq": removed.seq, "type": removed.type, "id": removed.id}
            instead = self._instead(chunk.id, removed)
            if instead:
                facts["replaced_by"] = instead
            if isinstance(removed.event, ThreadCleared):
                facts["cleared"] = {"seq": removed.seq, "reason": removed.event.reason}
            if isinstance(removed.event, ThreadRewound):
                facts["rewound"] = {"seq": removed.seq, "to": removed.event.to, "reason": removed.event.reason}
        facts |= _nonempty({"quarantined": trace.quarantined_by(event)})
        forgotten = trace.forgotten_by(thread_id, chunk)
        if forgotten is not None:
            seq, event_ = forgotten
            facts["forgotten"] = {"seq": seq, "reason": event_.reason}
        if chunk.status == REDACTED:
            facts["redacted"] = True
        return facts

    def _instead(self, chunk_id: str, removed: RecordedEvent) -> list[str]:
        """The chunks that took a chunk's place."""
        if isinstance(removed.event, CompactionUndone) and chunk_id in removed.event.summaries:
            return [chunk.id for chunk in removed.chunks]
        ref = removed.thread_id, removed.seq
        if ref not in self._heirs:
            told = {one for thread_id, one in self._trace.chunks if thread_id == removed.thread_id}
            self._heirs[ref] = heirs(removed.operations, removed.chunks, told)
        return self._heirs[ref].get(chunk_id, [])

    def _behind(self, thread_id: str, chunk: Chunk, level: int) -> tuple[Why, ...]:
        """The event that made a chunk, and its parents; for a summary the compaction, and what it covers."""
        recorded = self._trace.events[thread_id, chunk.seq]
        replaced = batches(recorded.operations).get(chunk.id, ())
        if isinstance(recorded.event, CompactionCompleted) and chunk.type == ChunkType.COMPACTED:
            return (self._compaction(recorded, recorded.event, chunk, level),)
        nodes = [self.event((thread_id, chunk.seq), relation="made by", level=level)]
        for parent in dict.fromkeys(chunk.parent_ids):
            known = self._trace.chunks.get((thread_id, parent))
            if is_covering(chunk, parent, replaced):
                relation = "covers"
            elif known is None or known.type == chunk.type:
                relation = "earlier version"
            else:
                relation = "made from"
            nodes.append(self.chunk((thread_id, parent), relation=relation, level=level))
        return tuple(nodes)

    def _compaction(self, recorded: RecordedEvent, event: CompactionCompleted, summary: Chunk, level: int) -> Why:
        started = self._trace.started.get((recorded.thread_id, recorded.seq))
        facts = self._event_facts(recorded) | {
            "compaction_id": event.compaction_id,
            "trigger": event.trigger,
            "compactor": event.compactor,
            "model": event.model,
            "usage": {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens},
            "cost_usd": event.usage.cost_usd,
            "tokens_before": event.tokens_before,
            "tokens_after": event.tokens_after,
            "completed_seq": recorded.seq,
        }
        if started is not None:
            facts["started_seq"] = started.seq
            facts["took_s"] = (recorded.recorded_at - started.recorded_at).total_seconds()
        withheld = self._trace.forgotten_by(recorded.thread_id, summary) is not None
        lines = [
            Why(
                kind="line",
                id=f"{summary.id}#{n}",
                thread_id=recorded.thread_id,
                seq=recorded.seq,
                title=f"line {n} of {len(summary.lines)}",
                text="" if withheld else line.text,
                facts={"section": line.section, "cites": list(line.sources)}
                | ({"forgotten": True} if withheld else {}),
            )
            for n, line in enumerate(summary.lines, 1)
        ]
        parents = list(dict.fromkeys(summary.parent_ids))
        covered = self._covered(recorded.thread_id, parents, level + 1)
        by = f"{event.compactor}, {event.model}" if event.model else event.compactor
        return Why(
            kind="compaction",
            id=recorded.id,
            thread_id=recorded.thread_id,
            seq=recorded.seq,
            title=f"{event.trigger} compaction of {len(parents)} chunks by {by}",
            facts={"relation": "made by"} | facts,
            children=(*lines, *covered, *self._causes(recorded, level + 1)),
        )

    def _covered(self, thread_id: str, chunk_ids: Sequence[str], level: int) -> list[Why]:
        """The chunks that a summary covers; of those that were not read the first ones, and how many follow."""
        read = {one for owner, one in self._trace.chunks if owner == thread_id}
        more = [one for one in chunk_ids if one not in read][UNREAD_MAX:]
        hidden = set(more)
        shown = [(thread_id, one) for one in chunk_ids if one not in hidden]
        nodes = [self.chunk(ref, relation="covers", level=level) for ref in shown]
        if more:
            facts: dict[str, object] = {"relation": "covers", "cut": _TOO_MANY, "more": len(more)}
            node = _bare_node("chunk", thread_id, more[0], place(more[0])[0], facts)
            nodes.append(evolve(node, title=f"{len(more):,} more chunks from {more[0]} on"))
        return nodes

    def event(self, ref: EventRef, *, relation: str = "", level: int = 0) -> Why:
        """An event, and what caused it or what it was drawn from, in any thread."""
        recorded = self._trace.events[ref]
        again = self._is_again("event", ref)
        facts = _nonempty({"relation": relation, "above": again})
        children: tuple[Why, ...] = ()
        if not again:
            facts |= self._event_facts(recorded)
            if level < DEPTH_MAX:
                children = self._causes(recorded, level + 1)
        return Why(
            kind="event",
            id=recorded.id,
            thread_id=recorded.thread_id,
            seq=recorded.seq,
            title=f"event {recorded.seq} {recorded.type}",
            text="" if again or self._is_forgotten(recorded) else event_text(recorded),
            facts=facts,
            children=children,
        )

    def _event_facts(self, recorded: RecordedEvent) -> dict[str, object]:
        facts: dict[str, object] = {
            "type": recorded.type,
            "at": _event_time(recorded),
            "recorded_at": recorded.recorded_at.isoformat(),
            "operations": [describe(operation) for operation in recorded.operations],
            "reducers": [entry.name for entry in self._reducers.of_type(recorded.type)],
            "hash": recorded.hash,
        }
        if recorded.occurred_at is not None:
            facts["occurred_at"] = recorded.occurred_at.isoformat()
        if self._is_forgotten(recorded):
            facts["forgotten"] = True
        facts |= _nonempty({"quarantined": self._trace.quarantined_by(recorded)})
        return facts | _nonempty({"causation_id": recorded.causation_id, "correlation_id": recorded.correlation_id})

    def _is_forgotten(self, recorded: RecordedEvent) -> bool:
        made = {chunk.id for chunk in recorded.chunks}
        return any(
            seq > recorded.seq and (recorded.seq in event.seqs or not made.isdisjoint(event.chunk_ids))
            for seq, event in self._trace.forgotten.get(recorded.thread_id, ())
        )

    def _causes(self, recorded: RecordedEvent, level: int) -> tuple[Why, ...]:
        ref = (recorded.thread_id, recorded.seq)
        started = self._trace.started.get(ref)  # a compaction's beginning is shown as a fact of it
        links = [link for link in self._trace.links.get(ref, ()) if started is None or link.event_id != started.id]
        nodes = [self._linked(recorded, link, level) for link in links]
        snippet = getattr(recorded.event, "snippet", "")
        if isinstance(snippet, str) and (recorded.thread_id, snippet) in self._trace.chunks:
            nodes.append(self.chunk((recorded.thread_id, snippet), relation="judged", level=level))
        return tuple(nodes)

    def _linked(self, recorded: RecordedEvent, link: Link, level: int) -> Why:
        if link.event is None or link.event not in self._trace.events:
            missing = {"relation": link.relation, "missing": "no event of this id is in a thread that may be read here"}
            return _bare_node("event", "", link.event_id, 0, missing)
        thread_id, seq = link.event
        if thread_id == recorded.thread_id:
            return self.event(link.event, relation=link.relation, level=level)
        return Why(
            kind="fact",
            id=recorded.id,
            thread_id=thread_id,
            seq=seq,
            title=f"{link.relation} thread {thread_id}",
            facts={"relation": link.relation, "to_thread": recorded.thread_id, "to_seq": recorded.seq},
            children=(self.event(link.event, level=level + 1),),
        )

    def _is_again(self, kind: str, ref: tuple[str, object]) -> bool:
        key = (kind, *ref)
        again = key in self._seen
        self._seen.add(key)
        return again


def event_text(recorded: RecordedEvent) -> str:
    """The text of an event; its payload as JSON if it has none."""
    event = recorded.event
    said = "\n".join(filter(None, (content_text(body.content) for body in event.bodies())))
    calls = "\n".join(f"{call.name}({call.arguments})" for body in event.bodies() for call in body.calls)
    if said or calls:
        return "\n".join(filter(None, (said, calls)))
    if isinstance(event, UnknownEvent):
        return event.raw.decode("utf-8", "replace")
    return msgspec.json.encode(event).decode()


def _chunk_text(chunk: Chunk) -> str:
    calls = "\n".join(f"{call.name}({call.arguments})" for call in chunk.calls)
    return "\n".join(filter(None, (chunk.text, calls)))


def _event_time(recorded: RecordedEvent) -> str:
    return (recorded.occurred_at or recorded.recorded_at).isoformat()


def _nonempty(facts: Mapping[str, object]) -> dict[str, object]:
    """The facts that are not empty."""
    return {name: value for name, value in facts.items() if value}


def _bare_node(kind: str, thread_id: str, id_: str, seq: int, facts: Mapping[str, object]) -> Why:
    return Why(
        kind="event" if kind == "event" else "chunk",
        id=id_,
        thread_id=thread_id,
        seq=seq,
        title=f"{kind} {id_}",
        facts=_nonempty(facts),
    )


# ---- as lines

SHOWN = 12
"""Children of one kind that are shown of a node; `print()` shows fewer."""
SAID = 30
"""Columns that are spared for what a node says."""
SHOWS = "shows"
"""How a block is related to the chunk that it shows."""
_STYLES = {"context": "bold", "block": "cyan", "passage": "blue", "compaction": "yellow", "fact": "blue", "row": "bold"}
_Guided = tuple[str, Line]
"""A line, and the guides before it."""


@frozen
class WhyLines:
    """The lines of an explanation, down to a depth, of children of one kind the first (`None`: all of either)."""

    width: int = WIDTH
    depth: int | None = None
    shown: int | None = SHOWN

    def of(self, node: Why) -> Iterator[Line]:
        """A node, and what is below it."""
        for guide, pieces in self._lines(node, None, ("", ""), 0):
            yield ((guide, "dim"), *pieces)

    def _lines(self, node: Why, over: Why | None, guides: tuple[str, str], level: int) -> Iterator[_Guided]:
        """The lines of a node, each with its prefix; `guides` are the prefixes of its own line and of the others."""
        guide, below = guides
        yield guide, self._line(node, over, self.width - columns(guide))
        children = _listed_children(node)
        if self.depth is not None and level >= self.depth:
            if children:
                yield f"{below}└─ ", line(f"… {counted(len(children), 'node')} below", "dim")
            return
        listed = self._listed(children)
        for n, child in enumerate(listed):
            branch, trunk = ("└─ ", "   ") if n == len(listed) - 1 else ("├─ ", "│  ")
            if isinstance(child, int):
                yield below + branch, line(f"… {number(child)} more", "dim")
            else:
                yield from self._lines(child, node, (below + branch, below + trunk), level + 1)

    def _listed(self, children: Sequence[Why]) -> list[Why | int]:
        """The children; of many of a kind the first, and how many more there are."""
        listed: list[Why | int] = []
        for _, some in groupby(children, key=lambda child: (child.kind, child.facts.get("relation"))):
            alike = list(some)
            room = len(alike) if self.shown is None or len(alike) <= self.shown + 1 else self.shown
            listed += alike[:room]
            if room < len(alike):
                listed.append(len(alike) - room)
        return listed

    def _line(self, node: Why, over: Why | None, width: int) -> Line:
        relation = node.facts.get("relation")
        title = one_line(f"{relation}: {node.title}" if relation else node.title, width)
        spared = SAID if node.text else 0
        facts = one_line(" · ".join(self._facts(node, over)), max(0, width - columns(title) - 2 - spared))
        room = width - columns(title) - columns(facts) - 4
        said = one_line(node.text, room) if room > 10 and not node.facts.get("above") else ""
        return spaced([(title, _STYLES.get(node.kind, "green")), (facts, "dim"), (said, "")])

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
        yield from _standing_of(facts, over.seq if over is not None and over.kind == "compaction" else 0)


def _standing_of(facts: Mapping[str, object], compacted_at: int) -> Iterator[str]:
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


def _listed_children(node: Why) -> list[Why]:
    """The children that get lines: not the chunk of a block, nor the event of a chunk with nothing more behind it."""
    shown: list[Why] = []
    for child in node.children:
        if child.facts.get("relation") == SHOWS:
            shown += _listed_children(child)
        elif not (node.kind == "chunk" and child.kind == "event" and child.seq == node.seq and not child.children):
            shown.append(child)
    return shown
