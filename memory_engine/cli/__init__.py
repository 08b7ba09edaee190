"""The command line, over the engine's public API."""

from memory_engine.cli.program import main

__all__ = ["main"]
