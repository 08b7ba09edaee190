"""Replay: check a log against its reducers, and make what derives from it again. Never calls a model unasked."""

from memory_engine.replay.checking.divergence import Divergence, VerifyReport

__all__ = ["Divergence", "VerifyReport"]
