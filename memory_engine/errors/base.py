"""The root of the tree."""


class MemoryEngineError(Exception):
    """Base of all errors of this package."""
