"""The inspector: a page over a store's logs, states, contexts and lineage, served to this machine alone."""

from memory_engine.inspector.app import create_app
from memory_engine.inspector.server import CannotServe, serving

__all__ = ["CannotServe", "create_app", "serving"]
