"""Memory in four layers: working, episodic, semantic, procedural."""

from memory_engine.projections.layers.values import (
    CompactReport,
    KnowledgeEntry,
    MemoryEntry,
    MemoryHit,
    MemoryStats,
    ProceduralRule,
)

__all__ = ["CompactReport", "KnowledgeEntry", "MemoryEntry", "MemoryHit", "MemoryStats", "ProceduralRule"]
