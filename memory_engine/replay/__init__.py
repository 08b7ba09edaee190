"""Replay: check a log against its reducers, and make what derives from it again. Never calls a model."""

from memory_engine.replay.checking.divergence import Divergence, VerifyReport
from memory_engine.replay.checking.parallel import FileProgress, verify_file

__all__ = ["Divergence", "FileProgress", "VerifyReport", "verify_file"]
