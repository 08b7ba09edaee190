"""The built-in compactors: `EmbeddedCompactor` needs no model, `WorkingHistoryCompactor` asks one."""

from memory_engine.compactors.embedded import EmbeddedCompactor
from memory_engine.compactors.working_history import WorkingHistoryCompactor

__all__ = ["EmbeddedCompactor", "WorkingHistoryCompactor"]
