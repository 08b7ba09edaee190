"""The providers by their formats: a file or a folder each, loaded when it is asked for.

Each has its messages as events (`read`, `whole_response`, `without_calls`, `has_half_call`), what the fields of events
make (`made`, `OWN`), its streams (`ASSEMBLY`), and contexts as its requests (`render`, `blocks_of`).
"""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import lazy_module

if TYPE_CHECKING:
    from memory_engine.formats import anthropic, gemini, langchain, openai_chat, openai_responses
else:
    anthropic = lazy_module("memory_engine.formats.anthropic")
    gemini = lazy_module("memory_engine.formats.gemini")
    langchain = lazy_module("memory_engine.formats.langchain")
    openai_chat = lazy_module("memory_engine.formats.openai_chat")
    openai_responses = lazy_module("memory_engine.formats.openai_responses")

PROVIDERS = {
    "openai.chat": openai_chat,
    "openai.responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "langchain": langchain,
}
"""Each provider by the name of its format."""
