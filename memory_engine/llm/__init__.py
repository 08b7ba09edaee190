"""Language models: the protocol, the adapters that call providers, and exact token counts."""

from memory_engine.llm.base import Completion, LanguageModel
from memory_engine.llm.litellm_calls import RequestOptions
from memory_engine.llm.litellm_embedder import LiteLLMEmbedder
from memory_engine.llm.litellm_model import LiteLLM, LiteLLMOptions
from memory_engine.llm.litellm_reranker import LiteLLMReranker
from memory_engine.llm.tokens import Tokenizer

__all__ = [
    "Completion",
    "LanguageModel",
    "LiteLLM",
    "LiteLLMEmbedder",
    "LiteLLMOptions",
    "LiteLLMReranker",
    "RequestOptions",
    "Tokenizer",
]
