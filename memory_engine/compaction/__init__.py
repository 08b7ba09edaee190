"""Compaction: thresholds, plans on cut points, and the protocol (block, compact, replace, unblock)."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.compaction.base import CompactionContext as CompactionContext
    from memory_engine.compaction.base import CompactionResult as CompactionResult
    from memory_engine.compaction.base import Compactor as Compactor

__getattr__, __dir__ = imported_when_asked(__name__, {"base": "CompactionContext CompactionResult Compactor"})
