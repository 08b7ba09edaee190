"""The rows of the four layers, and the folds that make them.

Episodic entries may be very many: they have a projection of their own whose rows are never read for
a dispatch. Everything else is few rows: working memory, rules, knowledge, and one summary a layer.
A compaction of episodic memory is thus two changes that fit: there the covered rows go, here the summary comes.
`LayerRows` reads the rows of one layer from both.
"""

from collections.abc import Iterable

import msgspec

from memory_engine.core.clock import to_us
from memory_engine.core.codec import encode_json
from memory_engine.core.events.memory import MemoryForget, SessionEnded
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, seq_key
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.layers.events import (
    Layer,
    LayerLine,
    MemoryAppended,
    MemoryCleared,
    MemoryCompacted,
    MemoryRemoved,
)

LAYER_NAMES: tuple[Layer, ...] = ("working", "episodic", "semantic", "procedural")
SUMMARIZED: tuple[Layer, ...] = ("working", "episodic")
"""The layers whose older entries become a summary."""
WITHHELD = LayerLine("(withheld: something that was covered is no longer to be seen)")


class EntryRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An entry of a layer, or (`count` above 0) the summary of `count` entries, with seqs from `first` to `upto`.

    `metadata` is JSON text, as search looks at it; empty for none. `seq` and `event_id` are of the event that made it.
    """

    layer: str
    seq: int
    event_id: str
    timestamp_us: int
    content: str = ""
    id: str = ""
    metadata: str = ""
    key: str = ""
    condition: str = ""
    recalled: bool = False
    source_thread: str = ""
    sources: tuple[str, ...] = ()
    drawn_from: tuple[int, ...] = ()
    count: int = 0
    first: int = 0
    upto: int = 0
    lines: tuple[LayerLine, ...] = ()
    left_out: int = 0
    method: str = ""
    own: bool = False

    @property
    def text(self) -> str:
        """The content; of a summary, its lines under their heading."""
        if not self.count:
            return self.content
        heading = f"[Summary of {self.count} {'entry' if self.count == 1 else 'entries'}]"
        rest = [f"- … {self.left_out} more, left out here"] if self.left_out else []
        return "\n".join([heading, *(f"- {line.text}" for line in self.lines), *rest])

    @property
    def said(self) -> str:
        """The content, or the lines of a summary without the words of its form."""
        return "\n".join(line.text for line in self.lines) if self.count else self.content


def entry_row(appended: MemoryAppended, *, seq: int, event_id: str, recorded_us: int) -> EntryRow:
    """The row of an appended entry. The key of knowledge and the condition of a rule show in its metadata."""
    metadata = dict(appended.metadata)
    key = ""
    if appended.layer == "semantic":
        key = appended.key or appended.entry_id or event_id
        metadata.setdefault("key", key)
    elif appended.layer == "procedural":
        metadata.setdefault("condition", appended.condition)
    return EntryRow(
        layer=appended.layer,
        seq=seq,
        event_id=event_id,
        timestamp_us=recorded_us if appended.timestamp_us is None else appended.timestamp_us,
        content=appended.content,
        id=appended.entry_id or event_id,
        metadata=encode_json(metadata).decode() if metadata else "",
        key=key,
        condition=appended.condition,
        recalled=appended.recalled,
        source_thread=appended.source_thread,
        sources=appended.sources,
        drawn_from=appended.drawn_from,
        own=appended.own,
    )


def recorded_row(event: RecordedEvent, appended: MemoryAppended) -> EntryRow:
    """The row of an entry that is in the log."""
    return entry_row(appended, seq=event.seq, event_id=event.id, recorded_us=to_us(event.recorded_at))


_FIRST, _LAST = "0", ":"
"""Before and after the key of every seq."""


class EpisodicFold:
    """The episodic entries by seq, without the summary of older ones. Never reads its rows."""

    name = "episodic"
    version = 1
    mode: ProjectionMode = "inline"
    row = EntryRow
    events = (MemoryAppended, MemoryRemoved, MemoryCompacted, MemoryCleared, MemoryForget)
    lazy = True

    def apply(self, rows: Rows[EntryRow], event: RecordedEvent) -> None:
        """Put and drop."""
        match event.event:
            case MemoryAppended(layer="episodic") as appended:
                rows.put(seq_key(event.seq), recorded_row(event, appended))
            case MemoryCompacted(layer="episodic", upto=upto):
                rows.drop_range(_FIRST, seq_key(upto + 1))
            case MemoryCleared(layers=layers) if "episodic" in layers:
                rows.drop_range(_FIRST, _LAST)
            case MemoryRemoved(layer="episodic", seqs=seqs) | MemoryForget(seqs=seqs):
                for seq in seqs:
                    rows.drop(seq_key(seq))


class LayersFold:
    """Working entries, rules (both by seq), knowledge (by key), the summaries of layers, and when entries went.

    Keys: `working/<seq>`, `procedural/<seq>`, `semantic/<key>`; a summary has the seq of the last
    entry that it covers, so before those that were kept: `working/<seq>`, `episodic/<seq>`.
    `cleared/<layer>` and `removed` hold the seqs of the last events that took entries away: a summary that
    was drawn before may mention them.
    """

    name = "layers"
    version = 1
    mode: ProjectionMode = "inline"
    row = EntryRow
    events = (MemoryAppended, MemoryRemoved, MemoryCompacted, MemoryCleared, MemoryForget, SessionEnded)
    lazy = False

    def apply(self, rows: Rows[EntryRow], event: RecordedEvent) -> None:
        """Change the layers by one event."""
        match event.event:
            case MemoryAppended() as appended:
                self._append(rows, event, appended)
            case MemoryCompacted() as compacted:
                self._compact(rows, event, compacted)
            case MemoryCleared(layers=layers):
                for layer in layers:
                    self._clear(rows, event, layer)
            case MemoryRemoved(layer=layer, seqs=seqs):
                self._remove(rows, event, (layer,), frozenset(seqs))
            case MemoryForget(seqs=seqs) if seqs:
                self._remove(rows, event, LAYER_NAMES, frozenset(seqs))
            case SessionEnded():
                if keys_of(rows, "working"):
                    self._clear(rows, event, "working")

    def _append(self, rows: Rows[EntryRow], event: RecordedEvent, appended: MemoryAppended) -> None:
        row = recorded_row(event, appended)
        if appended.layer == "semantic":
            rows.put(f"semantic/{row.key}", row)
        elif appended.layer != "episodic":
            rows.put(f"{appended.layer}/{seq_key(event.seq)}", row)
        if appended.layer == "working":
            held = keys_of(rows, "working")
            for key in held[: max(0, len(held) - max(1, appended.capacity))]:
                rows.drop(key)

    def _compact(self, rows: Rows[EntryRow], event: RecordedEvent, compacted: MemoryCompacted) -> None:
        """The summary in place of its entries, unless they were cleared or a later one covers them."""
        layer = compacted.layer
        if layer == "semantic":
            return
        former = summary_of(rows, layer)
        was_cleared = _seq_at(rows, f"cleared/{layer}") > compacted.drawn_at
        if was_cleared or (former is not None and former.upto > compacted.upto):
            return
        rows.drop_range(f"{layer}/{_FIRST}", f"{layer}/{seq_key(compacted.upto + 1)}")
        if not compacted.lines or layer == "procedural":
            return
        changed = _seq_at(rows, "removed") > compacted.drawn_at
        row = EntryRow(
            layer=layer,
            seq=event.seq,
            event_id=event.id,
            timestamp_us=to_us(event.recorded_at),
            id=event.id,
            count=compacted.count,
            first=compacted.first,
            upto=compacted.upto,
            lines=(WITHHELD,) if changed else compacted.lines,
            left_out=0 if changed else compacted.left_out,
            method=compacted.method,
        )
        rows.put(f"{layer}/{seq_key(compacted.upto)}", row)

    def _clear(self, rows: Rows[EntryRow], event: RecordedEvent, layer: str) -> None:
        for key in keys_of(rows, layer):
            rows.drop(key)
        rows.put(f"cleared/{layer}", EntryRow(layer="", seq=event.seq, event_id=event.id, timestamp_us=0))

    def _remove(self, rows: Rows[EntryRow], event: RecordedEvent, layers: Iterable[str], seqs: frozenset[int]) -> None:
        for key in [key for layer in layers for key in keys_of(rows, layer)]:
            row = rows.get(key)
            if row is None:
                continue
            if row.seq in seqs or not seqs.isdisjoint(row.drawn_from):
                rows.drop(key)
            elif row.count and (lines := lines_kept(row.lines, seqs)) != row.lines:
                rows.put(key, msgspec.structs.replace(row, lines=lines))
        rows.put("removed", EntryRow(layer="", seq=event.seq, event_id=event.id, timestamp_us=0))


def keys_of(rows: ReadableRows[EntryRow], layer: str) -> list[str]:
    """The keys of a layer's rows in `layers`, in order."""
    return rows.between(f"{layer}/", f"{layer}0")


def summary_of(rows: ReadableRows[EntryRow], layer: str) -> EntryRow | None:
    """The summary of a layer: its first row, if it has one."""
    first = next(iter(keys_of(rows, layer)), None)
    row = rows.get(first) if first is not None else None
    return row if row is not None and row.count else None


def _seq_at(rows: Rows[EntryRow], key: str) -> int:
    row = rows.get(key)
    return row.seq if row is not None else 0


def lines_kept(lines: tuple[LayerLine, ...], seqs: frozenset[int]) -> tuple[LayerLine, ...]:
    """The lines that do not rest on any of these entries."""
    kept = tuple(line for line in lines if seqs.isdisjoint(line.seqs))
    return kept if kept or not lines else (WITHHELD,)


EPISODIC = EpisodicFold()
LAYERS = LayersFold()


class LayerRows(msgspec.Struct, frozen=True):
    """The rows of one layer: those of `layers`, and for the episodic layer those of `episodic`."""

    layer: Layer
    resident: ReadableRows[EntryRow]
    entries: ReadableRows[EntryRow] | None = None

    def keys(self) -> list[str]:
        """The keys in order: a summary first, then the entries. Those of `episodic` begin with a digit."""
        own = [] if self.entries is None else list(self.entries.keys())
        return [*keys_of(self.resident, self.layer), *own]

    def get(self, key: str) -> EntryRow | None:
        """The row under a key."""
        if self.entries is not None and key[0].isdigit():
            return self.entries.get(key)
        return self.resident.get(key)

    def rows(self) -> list[EntryRow]:
        """All rows: by place, knowledge by the time it was learned."""
        found = [row for key in self.keys() if (row := self.get(key)) is not None]
        return sorted(found, key=lambda row: row.seq) if self.layer == "semantic" else found


async def layer_rows(thread: ThreadHandle, layer: Layer, at: int | None = None) -> LayerRows:
    """The rows of a layer, now or then. Read what you need of them before you await anything else."""
    entries = await thread.rows(EPISODIC, at=at) if layer == "episodic" else None
    return LayerRows(layer, await thread.rows(LAYERS, at=at), entries)
