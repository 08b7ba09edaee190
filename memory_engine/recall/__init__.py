"""Recall: finding what is like a text, by its words or by a model's vectors."""

from memory_engine.recall.base import Embedder, Match, Vector, VectorIndex, VectorIndexFactory
from memory_engine.recall.lexical import LexicalIndex
from memory_engine.recall.similarity import TextIndex

__all__ = ["Embedder", "LexicalIndex", "Match", "TextIndex", "Vector", "VectorIndex", "VectorIndexFactory"]
