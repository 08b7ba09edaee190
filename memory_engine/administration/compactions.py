"""What became of a thread's compactions, and what is kept from them: `thread.compaction`."""

from typing import TYPE_CHECKING

from memory_engine.compaction.service import CompactionService
from memory_engine.core.aside import imported
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.memory import MemoryMarkCritical
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.records import Receipt
from memory_engine.runtime.handle import ThreadHandle

if TYPE_CHECKING:
    from memory_engine.compaction import listing, undo
    from memory_engine.compaction.base import Compactor
    from memory_engine.compaction.protocol import CompactionReport
    from memory_engine.views.layers import offloads
else:
    listing, undo = lazy_modules("memory_engine.compaction", "listing undo")
    offloads = lazy_module("memory_engine.views.layers.offloads")


class ThreadCompactions:
    """A thread's compactions: their history, undoing and redoing them, and what they may not take."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def history(self) -> "listing.CompactionHistory":
        """The compactions of this thread in the order in which they began, and the one that is due, if any.

        Tries that failed or were abandoned are among them, with the reason; of the others, whether their summaries
        still stand, and which event took them. Reads the log from the first compaction on.
        """
        return await listing.compactions(self._thread)

    async def undo(self, compaction: str = "", *, reason: str = "") -> Receipt:
        """Put the originals back in place of a compaction's summaries: by its id, a summary's id, or the latest.

        Chunks forgotten since stay forgotten. Raises `CompactionNotLive` if later compactions cover it.
        """
        self._thread.check_present("undoing")
        await imported(undo)
        return await undo.undo_compaction(self._thread, compaction, reason=reason)

    async def redo(self, compaction: str = "", *, compactor: "Compactor | None" = None) -> "CompactionReport":
        """Compact the originals of a compaction again, never its summary, whether it was undone or not.

        With `compactor`, only that one does it. Raises `CompactionNotLive`, and what `Thread.compact` raises.
        """
        self._thread.check_present("compaction")
        await imported(undo)
        return await undo.redo_compaction(self._thread, compaction, compactor=compactor)

    async def originals(self, chunk_id: str) -> list[Chunk]:
        """The originals behind a summary, through any number of compactions, in order.

        Leaves out forgotten ones. Raises `UnknownChunk`, `ForgottenChunk`.
        """
        reader = self._thread.kernel.reader
        found = await reader.originals(self._thread.id, await self._thread.chunk(chunk_id))
        shown = await reader.shown(self._thread.id, [chunk.id for chunk in found])
        return list(shown.values())

    async def settle(self) -> None:
        """Wait for a running compaction."""
        if self._thread.as_of is None:
            await self._thread.kernel[CompactionService].settle(await self._thread.runtime())

    async def mark_critical(self, *chunk_ids: str) -> Receipt:
        """Protect these chunks from compaction from now on. Raises `EventRefused` for one not in the state."""
        return await self._thread.dispatch(MemoryMarkCritical(chunk_ids=chunk_ids))

    async def offload(self, *, min_chars: int = 20_000, keep_chars: int = 400) -> Receipt | None:
        """Shorten chunks of `min_chars` characters or more to their beginning and a reference.

        The log keeps them whole; read on with `open`. Returns `None` if there are no such chunks.
        """
        return await offloads.offload(self._thread, min_chars=min_chars, keep_chars=keep_chars)

    async def open(self, reference: str, *, start: int = 0, chars: int = 4_000) -> "offloads.Opened":
        """A piece of the text of an off-loaded chunk (or any chunk), by id. Raises `UnknownChunk`."""
        return await offloads.open_reference(self._thread, reference, start=start, chars=chars)
