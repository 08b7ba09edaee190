"""The plug-in of memory files."""

from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import MEMORY, pieces
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.memory_files.events import MemoryFilesDeleted, MemoryFilesMoved, MemoryFileWritten
from memory_engine.views.memory_files.fold import MEMORY_FILES

PLUGIN = Plugin("memory_files", events=[MemoryFileWritten, MemoryFilesMoved, MemoryFilesDeleted])
PLUGIN.projection(MEMORY_FILES)
PLUGIN.silent(MemoryFilesMoved)


@PLUGIN.passages(MemoryFileWritten)
def _file_passages(event: MemoryFileWritten, _seq: int) -> Extracted:
    """A version takes the place of the one before; to forget an earlier one drops it too, as it may hold its words."""
    key = _file_passage_key(event.file_id)
    texts = (
        Text(piece, MEMORY, key=key, origins=event.drawn_from, about=event.path) for piece in pieces(event.content)
    )
    return Extracted(tuple(texts), keys=(key,))


@PLUGIN.passages(MemoryFilesDeleted)
def _deleted(event: MemoryFilesDeleted, _seq: int) -> Extracted:
    return Extracted(keys=tuple(map(_file_passage_key, event.file_ids)))


def _file_passage_key(file_id: str) -> str:
    return f"memory_file:{file_id}"
