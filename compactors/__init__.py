"""The built-in compactors: `EmbeddedCompactor`, which needs no model, and `WorkingHistoryCompactor`, which uses one."""

from memory_engine.compactors.embedded import EmbeddedCompactor

__all__ = ["EmbeddedCompactor"]
