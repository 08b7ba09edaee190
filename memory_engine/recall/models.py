"""What searches are made with beside the log: models, and what orders hits."""

import msgspec

from memory_engine.recall.base import Embedder, VectorIndexFactory
from memory_engine.recall.ranking import Ranker
from memory_engine.recall.reranking import Reranker
from memory_engine.recall.vectors import Graphs


class SearchModels(msgspec.Struct, kw_only=True):
    """The models of one engine's searches. The embedder may be changed while the engine is open."""

    embedder: Embedder | None
    vector_index: VectorIndexFactory
    graphs: Graphs | None
    ranker: Ranker
    reranker: Reranker | None
