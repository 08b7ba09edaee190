"""What the model sees: the builder, the renderers, and the invariants that keep it valid."""

from memory_engine.context.builder import Context, build_context
from memory_engine.context.rendering import Message, Renderer

__all__ = ["Context", "Message", "Renderer", "build_context"]
