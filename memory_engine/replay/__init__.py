"""Looking back: verify, rebuild, why, diff, bisect, what-if, rewind, export, … Never calls a model unasked."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.replay.divergence import Divergence as Divergence
    from memory_engine.replay.divergence import VerifyReport as VerifyReport

__getattr__, __dir__ = imported_when_asked(__name__, {"divergence": "Divergence VerifyReport"})
