"""Recall: finding what was said, done and remembered, by its words and by a model's vectors.

The names below are imported at their first use: storage needs some of them, and must not load all.
"""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.llm.vectors import Embedder as Embedder
    from memory_engine.llm.vectors import Match as Match
    from memory_engine.llm.vectors import QueryEmbedder as QueryEmbedder
    from memory_engine.llm.vectors import Vector as Vector
    from memory_engine.llm.vectors import VectorIndex as VectorIndex
    from memory_engine.llm.vectors import VectorIndexFactory as VectorIndexFactory
    from memory_engine.recall.hits import Found as Found
    from memory_engine.recall.hits import Hit as Hit
    from memory_engine.recall.likeness import LexicalIndex as LexicalIndex
    from memory_engine.recall.likeness import TextIndex as TextIndex
    from memory_engine.recall.question import Question as Question
    from memory_engine.recall.ranking import Candidate as Candidate
    from memory_engine.recall.ranking import Ranked as Ranked
    from memory_engine.recall.ranking import Ranker as Ranker
    from memory_engine.recall.ranking import Statistics as Statistics
    from memory_engine.recall.ranking import Weights as Weights
    from memory_engine.recall.ranking import rank as rank
    from memory_engine.recall.ranking import weighted as weighted
    from memory_engine.recall.rerankers import ModelReranker as ModelReranker
    from memory_engine.recall.rerankers import Reranker as Reranker
    from memory_engine.store.passages import Extracted as Extracted
    from memory_engine.store.passages import Extractor as Extractor
    from memory_engine.store.passages import Text as Text

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        ".llm.vectors": "Embedder Match QueryEmbedder Vector VectorIndex VectorIndexFactory",
        ".store.passages": "Extracted Extractor Text",
        "hits": "Found Hit",
        "likeness": "LexicalIndex TextIndex",
        "question": "Question",
        "ranking": "Candidate Ranked Ranker Statistics Weights rank weighted",
        "rerankers": "ModelReranker Reranker",
    },
)
