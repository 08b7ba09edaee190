"""OpenAI's chat completions: messages and streams as events (`messages`), contexts as requests (`request`)."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.formats.openai_chat.messages import ASSEMBLY as ASSEMBLY
    from memory_engine.formats.openai_chat.messages import FORMAT as FORMAT
    from memory_engine.formats.openai_chat.messages import OWN as OWN
    from memory_engine.formats.openai_chat.messages import has_half_call as has_half_call
    from memory_engine.formats.openai_chat.messages import made as made
    from memory_engine.formats.openai_chat.messages import read as read
    from memory_engine.formats.openai_chat.messages import whole_response as whole_response
    from memory_engine.formats.openai_chat.messages import without_calls as without_calls
    from memory_engine.formats.openai_chat.request import ChatInput as ChatInput
    from memory_engine.formats.openai_chat.request import blocks_of as blocks_of
    from memory_engine.formats.openai_chat.request import render as render

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        "messages": "ASSEMBLY FORMAT OWN has_half_call made read whole_response without_calls",
        "request": "ChatInput blocks_of render",
    },
)
