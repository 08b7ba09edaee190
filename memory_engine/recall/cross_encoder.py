"""`CrossEncoderReranker`: a model here that reads query and text together (extra `sentence-transformers`)."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite

from memory_engine.errors import ModelError
from memory_engine.recall.worker import LocalModel, require

MODEL = "cross-encoder/ms-marco-MiniLM-L6-v2"
BATCH = 16
"""Pairs that are computed together: so long a cancelled call still computes."""
Predict = Callable[[list[tuple[str, str]]], list[float]]


class CrossEncoderReranker:
    """A `Reranker` by the name of a cross-encoder on the hub, which the first call downloads, or one's path on disk.

    It has one output, and its scores are as the library gives them: with most models from 0 to
    1. Raises `MissingExtra` where sentence-transformers is not installed.
    """

    def __init__(self, model: str = MODEL, *, device: str | None = None) -> None:
        require("sentence_transformers", "CrossEncoderReranker", "sentence-transformers")

        def load() -> Predict:
            encoder = importlib.import_module("sentence_transformers").CrossEncoder(model, device=device)
            return lambda pairs: encoder.predict(pairs, batch_size=len(pairs), show_progress_bar=False).tolist()

        self._model = LocalModel(model, load)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def __repr__(self) -> str:
        return f"CrossEncoderReranker({self.name!r})"

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """A score for each text, in the order of the texts. The first call loads the model, which may take seconds.

        Raises `ModelError` where it cannot be loaded, or gives no such scores.
        """
        pairs = [(_whole(query), _whole(text)) for text in texts]
        scores: list[float] = []
        for at in range(0, len(pairs), BATCH):
            some = pairs[at : at + BATCH]
            found = await self._model.run(partial(_scores, some))
            if len(found) != len(some) or not all(map(isfinite, found)):
                raise ModelError(self.name, "invalid_response", f"it gave no {len(some)} scores for as many texts")
            scores += found
        return scores

    async def aclose(self) -> None:
        """Let go of the model. A later call loads it again."""
        await self._model.aclose()


def _scores(pairs: list[tuple[str, str]], predict: Predict) -> list[float]:
    return predict(pairs)


def _whole(text: str) -> str:
    return text.encode(errors="replace").decode()  # tokenizers take no lone surrogates
