"""Compaction: thresholds, plans on cut points, and the protocol that blocks, compacts, replaces, unblocks."""

from memory_engine.compaction.base import CompactionContext, CompactionResult, Compactor

__all__ = ["CompactionContext", "CompactionResult", "Compactor"]
