"""A type for tests that open one engine after another over the same store."""

from collections.abc import Callable

from memory_engine.store.protocol import Store

StayOpen = Callable[[Store], None]
"""Lets a store stay open for the next engine, until the test ends."""
