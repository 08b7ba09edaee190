"""A tenant's documents: what there is, and the passages that search finds in them."""

from memory_engine.projections.documents.values import Described, DocumentReport

__all__ = ["Described", "DocumentReport"]
