"""A tenant's documents: what there is, and the passages that search finds in them."""

from memory_engine.projections.documents.passages import document_id_of
from memory_engine.projections.documents.values import Described, DocumentReport

__all__ = ["Described", "DocumentReport", "document_id_of"]
