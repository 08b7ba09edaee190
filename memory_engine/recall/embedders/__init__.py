"""Embedders that compute on this machine, and one that remembers."""

from typing import TYPE_CHECKING

from memory_engine.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.recall.embedders.cached import CachedEmbedder as CachedEmbedder
    from memory_engine.recall.embedders.fastembed import FastEmbedEmbedder as FastEmbedEmbedder
    from memory_engine.recall.embedders.sentence_transformers import (
        SentenceTransformersEmbedder as SentenceTransformersEmbedder,
    )

__getattr__ = imported_when_asked(
    __name__,
    {
        "cached": "CachedEmbedder",
        "fastembed": "FastEmbedEmbedder",
        "sentence_transformers": "SentenceTransformersEmbedder",
    },
)
