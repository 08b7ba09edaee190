"""Replay: check a log against its reducers, and make what derives from it again. Never calls a model."""

from typing import TYPE_CHECKING

from memory_engine.public_names import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.replay.checking.divergence import Divergence as Divergence
    from memory_engine.replay.checking.divergence import VerifyReport as VerifyReport
    from memory_engine.replay.checking.parallel import FileProgress as FileProgress
    from memory_engine.replay.checking.parallel import verify_file as verify_file

__getattr__ = imported_when_asked(
    __name__,
    {
        "checking.divergence": "Divergence VerifyReport",
        "checking.parallel": "FileProgress verify_file",
    },
)
