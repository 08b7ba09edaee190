"""The terminal's face of the engine, over its public API."""

from memory_engine.cli.program import main

__all__ = ["main"]
