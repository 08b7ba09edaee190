"""Memories of other systems come in, and a user's memory goes out with its proof."""

from memory_engine.interchange.checking import MemoriesChecked, check_memories
from memory_engine.interchange.exporting import MemoriesExported
from memory_engine.interchange.importing import MemoriesImported
from memory_engine.interchange.systems import System

__all__ = ["MemoriesChecked", "MemoriesExported", "MemoriesImported", "System", "check_memories"]
