"""`FastEmbedEmbedder`: embeddings on this machine, by ONNX and without PyTorch (extra `fastembed`)."""

import importlib

from memory_engine.recall.embedders.local import Encode, LocalEmbedder
from memory_engine.recall.worker import require

MODEL = "BAAI/bge-small-en-v1.5"


class FastEmbedEmbedder(LocalEmbedder):
    """An `Embedder` by a name that fastembed knows. The first call downloads the model, into `cache_dir` if given.

    Raises `MissingExtra` where fastembed is not installed.
    """

    def __init__(self, model: str = MODEL, *, dimension: int | None = None, cache_dir: str | None = None) -> None:
        require("fastembed", "FastEmbedEmbedder", "fastembed")

        def load() -> Encode:
            encoder = importlib.import_module("fastembed").TextEmbedding(model_name=model, cache_dir=cache_dir)
            return lambda texts: encoder.embed(texts, batch_size=len(texts))

        super().__init__(f"fastembed/{model}", load, dimension=dimension)
