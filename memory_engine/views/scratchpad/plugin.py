"""The plug-in of the scratchpad."""

from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import found
from memory_engine.store.passages import NOTHING, Extracted
from memory_engine.views.scratchpad.events import ScratchpadRemoved, ScratchpadWritten
from memory_engine.views.scratchpad.view import reduce_scratchpad_removed, reduce_scratchpad_written

PLUGIN = Plugin("scratchpad", events=[ScratchpadWritten, ScratchpadRemoved])
PLUGIN.reducer(ScratchpadWritten)(reduce_scratchpad_written)
PLUGIN.reducer(ScratchpadRemoved)(reduce_scratchpad_removed)


@PLUGIN.passages(ScratchpadWritten)
def _snippet(event: ScratchpadWritten, _seq: int) -> Extracted:
    return NOTHING if event.recalled else found(event.content, "snippet", speaker=event.flow, key="snippet:")


@PLUGIN.passages(ScratchpadRemoved)
def _snippets_removed(event: ScratchpadRemoved, _seq: int) -> Extracted:
    heads = (chunk_id.partition(".")[0] for chunk_id in event.chunk_ids)
    seqs = tuple(int(head) for head in heads if head.isdecimal() and len(head) <= 18)
    return Extracted(prefixes=("snippet:",) if event.all else (), seqs=seqs)
