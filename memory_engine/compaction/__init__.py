"""Compaction: thresholds, plans on cut points, and the protocol (block, compact, replace, unblock)."""

from memory_engine.compaction.base import CompactionContext, CompactionResult, Compactor

__all__ = ["CompactionContext", "CompactionResult", "Compactor"]
