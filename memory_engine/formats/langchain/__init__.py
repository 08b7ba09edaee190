"""LangChain: messages and streams as events (`messages`), contexts as its messages (`request`)."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.formats.langchain.messages import ASSEMBLY as ASSEMBLY
    from memory_engine.formats.langchain.messages import FORMAT as FORMAT
    from memory_engine.formats.langchain.messages import OWN as OWN
    from memory_engine.formats.langchain.messages import has_half_call as has_half_call
    from memory_engine.formats.langchain.messages import made as made
    from memory_engine.formats.langchain.messages import plain_message as plain_message
    from memory_engine.formats.langchain.messages import read as read
    from memory_engine.formats.langchain.messages import whole_response as whole_response
    from memory_engine.formats.langchain.messages import without_calls as without_calls
    from memory_engine.formats.langchain.request import LangChainInput as LangChainInput
    from memory_engine.formats.langchain.request import blocks_of as blocks_of
    from memory_engine.formats.langchain.request import render as render

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        "messages": "ASSEMBLY FORMAT OWN has_half_call made plain_message read whole_response without_calls",
        "request": "LangChainInput blocks_of render",
    },
)
