"""Replay: check a log against its reducers, and make what derives from it again. Never calls a model."""

from memory_engine.replay.verify import Divergence, VerifyReport

__all__ = ["Divergence", "VerifyReport"]
