"""The built-in compactors: `EmbeddedCompactor` needs no model, `WorkingHistoryCompactor` asks one, `Pipeline` joins."""

from memory_engine.compactors.embedded import EmbeddedCompactor
from memory_engine.compactors.pipeline import Pipeline
from memory_engine.compactors.working_history import WorkingHistoryCompactor

__all__ = ["EmbeddedCompactor", "Pipeline", "WorkingHistoryCompactor"]
