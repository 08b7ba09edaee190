"""Moments as recordings write them: those of `core.moments`."""

from memory_engine.core.moments import moment, moment_of

__all__ = ["moment", "moment_of"]
