"""Embedders that compute on this machine, and one that remembers."""

from memory_engine.recall.embedders.cached import CachedEmbedder
from memory_engine.recall.embedders.fastembed import FastEmbedEmbedder
from memory_engine.recall.embedders.sentence_transformers import SentenceTransformersEmbedder

__all__ = ["CachedEmbedder", "FastEmbedEmbedder", "SentenceTransformersEmbedder"]
