"""Language models: the protocol, the adapters that call providers, and exact token counts."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.llm.base import Completion as Completion
    from memory_engine.llm.base import LanguageModel as LanguageModel
    from memory_engine.llm.clients import AnthropicModel as AnthropicModel
    from memory_engine.llm.clients import OpenAIModel as OpenAIModel
    from memory_engine.llm.embedder import LiteLLMEmbedder as LiteLLMEmbedder
    from memory_engine.llm.embedder import LiteLLMReranker as LiteLLMReranker
    from memory_engine.llm.litellm import LiteLLM as LiteLLM
    from memory_engine.llm.litellm import LiteLLMOptions as LiteLLMOptions
    from memory_engine.llm.litellm import RequestOptions as RequestOptions
    from memory_engine.llm.tokens import Tokenizer as Tokenizer
    from memory_engine.llm.tries import CallOptions as CallOptions

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        "base": "Completion LanguageModel",
        "clients": "AnthropicModel OpenAIModel",
        "embedder": "LiteLLMEmbedder LiteLLMReranker",
        "litellm": "LiteLLM LiteLLMOptions RequestOptions",
        "tokens": "Tokenizer",
        "tries": "CallOptions",
    },
)
