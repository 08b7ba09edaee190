"""Language models: the protocol, the one adapter that calls providers, and exact token counts."""

from memory_engine.llm.base import Completion, LanguageModel
from memory_engine.llm.litellm_model import LiteLLM, LiteLLMOptions
from memory_engine.llm.tokens import Tokenizer

__all__ = ["Completion", "LanguageModel", "LiteLLM", "LiteLLMOptions", "Tokenizer"]
