"""`SentenceTransformersEmbedder`: embeddings on this machine, by PyTorch (extra `sentence-transformers`)."""

import importlib

from memory_engine.recall.embedders.local import Encode, LocalEmbedder
from memory_engine.recall.worker import require

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class SentenceTransformersEmbedder(LocalEmbedder):
    """An `Embedder` by the name of a model on the hub, which the first call downloads, or the path of one on disk.

    `device` is PyTorch's (`"cpu"`, `"cuda"`); without it the library chooses. Raises
    `MissingExtra` where sentence-transformers is not installed.
    """

    def __init__(self, model: str = MODEL, *, dimension: int | None = None, device: str | None = None) -> None:
        require("sentence_transformers", "SentenceTransformersEmbedder", "sentence-transformers")

        def load() -> Encode:
            encoder = importlib.import_module("sentence_transformers").SentenceTransformer(model, device=device)
            return lambda texts: encoder.encode(texts, batch_size=len(texts), show_progress_bar=False)

        super().__init__(
            f"sentence-transformers/{model.removeprefix('sentence-transformers/')}", load, dimension=dimension
        )
