"""The built-in compactors: `EmbeddedCompactor` without a model, `WorkingHistoryCompactor` with one, `Pipeline`."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.compactors.embedded import EmbeddedCompactor as EmbeddedCompactor
    from memory_engine.compactors.pipeline import Pipeline as Pipeline
    from memory_engine.compactors.working_history import WorkingHistoryCompactor as WorkingHistoryCompactor

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        "embedded": "EmbeddedCompactor",
        "pipeline": "Pipeline",
        "working_history": "WorkingHistoryCompactor",
    },
)
