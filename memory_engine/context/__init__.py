"""Context of a model call: the builder, the renderers, recall, and the invariants that keep a context valid."""

from memory_engine.context.budget import ContextPolicy, Room, Split
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context, Spent
from memory_engine.context.rendering import Message, Renderer

__all__ = [
    "Context", "ContextBuilder", "ContextPolicy", "Message", "Renderer", "Room", "Spent", "Split",
]  # fmt: skip
