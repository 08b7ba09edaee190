"""For tests of those who use the engine: given/when/then, fakes, faults, and the contracts of stores and embedders.

`StoreContract` and `EmbedderContract` are imported at their first use, since they need pytest; the rest needs
nothing more than the engine does.
"""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.testing.embedder_contract import EmbedderContract as EmbedderContract
    from memory_engine.testing.fakes import CompactorCall as CompactorCall
    from memory_engine.testing.fakes import FakeCompactor as FakeCompactor
    from memory_engine.testing.fakes import Hangs as Hangs
    from memory_engine.testing.fakes import HashEmbedder as HashEmbedder
    from memory_engine.testing.fakes import ManualClock as ManualClock
    from memory_engine.testing.fakes import RecordingObserver as RecordingObserver
    from memory_engine.testing.fakes import Returns as Returns
    from memory_engine.testing.fakes import SequentialIds as SequentialIds
    from memory_engine.testing.faults import Faults as Faults
    from memory_engine.testing.faults import FaultyStore as FaultyStore
    from memory_engine.testing.faults import Hold as Hold
    from memory_engine.testing.faults import disk_error as disk_error
    from memory_engine.testing.faults import disk_full as disk_full
    from memory_engine.testing.regression import check_regression as check_regression
    from memory_engine.testing.scenarios import Outcome as Outcome
    from memory_engine.testing.scenarios import Scenario as Scenario
    from memory_engine.testing.scenarios import given as given
    from memory_engine.testing.store_contract import StoreContract as StoreContract

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        "embedder_contract": "EmbedderContract",
        "fakes": "CompactorCall FakeCompactor Hangs HashEmbedder ManualClock RecordingObserver Returns SequentialIds",
        "faults": "Faults FaultyStore Hold disk_error disk_full",
        "regression": "check_regression",
        "scenarios": "Outcome Scenario given",
        "store_contract": "StoreContract",
    },
)
