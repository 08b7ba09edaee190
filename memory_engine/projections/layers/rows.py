"""The rows of one layer, wherever they are kept."""

from attrs import frozen

from memory_engine.events import Layer
from memory_engine.handle import ThreadHandle
from memory_engine.projections.base import ReadableRows
from memory_engine.projections.layers.entries import EPISODIC, LAYERS, EntryRow, keys_of


@frozen
class LayerRows:
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
    """The rows of a layer as they are, or were. Read what you need of them before you await anything else."""
    entries = await thread.rows(EPISODIC, at=at) if layer == "episodic" else None
    return LayerRows(layer, await thread.rows(LAYERS, at=at), entries)
