"""Language models: the protocol, the adapters that call providers, and exact token counts."""

from typing import TYPE_CHECKING

from memory_engine.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.llm.base import Completion as Completion
    from memory_engine.llm.base import LanguageModel as LanguageModel
    from memory_engine.llm.litellm_calls import RequestOptions as RequestOptions
    from memory_engine.llm.litellm_embedder import LiteLLMEmbedder as LiteLLMEmbedder
    from memory_engine.llm.litellm_model import LiteLLM as LiteLLM
    from memory_engine.llm.litellm_model import LiteLLMOptions as LiteLLMOptions
    from memory_engine.llm.litellm_reranker import LiteLLMReranker as LiteLLMReranker
    from memory_engine.llm.tokens import Tokenizer as Tokenizer

__getattr__ = imported_when_asked(
    __name__,
    {
        "base": "Completion LanguageModel",
        "litellm_calls": "RequestOptions",
        "litellm_embedder": "LiteLLMEmbedder",
        "litellm_model": "LiteLLM LiteLLMOptions",
        "litellm_reranker": "LiteLLMReranker",
        "tokens": "Tokenizer",
    },
)
