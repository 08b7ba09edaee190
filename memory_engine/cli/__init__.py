"""The terminal's face of the engine, over its public API."""
