"""Context of a model call: the builder, the renderers, recall, and the invariants that keep a context valid."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.context.budget import ContextPolicy as ContextPolicy
    from memory_engine.context.budget import Room as Room
    from memory_engine.context.budget import Split as Split
    from memory_engine.context.builder import ContextBuilder as ContextBuilder
    from memory_engine.context.context import Context as Context
    from memory_engine.context.context import Spent as Spent
    from memory_engine.context.rendering import Message as Message
    from memory_engine.context.rendering import Renderer as Renderer

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        "budget": "ContextPolicy Room Split",
        "builder": "ContextBuilder",
        "context": "Context Spent",
        "rendering": "Message Renderer",
    },
)
