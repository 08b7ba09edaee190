"""OpenAI's Responses: messages and streams as events (`messages`), contexts as requests (`request`)."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.formats.openai_responses.messages import ASSEMBLY as ASSEMBLY
    from memory_engine.formats.openai_responses.messages import CALLS as CALLS
    from memory_engine.formats.openai_responses.messages import FORMAT as FORMAT
    from memory_engine.formats.openai_responses.messages import OUTPUTS as OUTPUTS
    from memory_engine.formats.openai_responses.messages import OWN as OWN
    from memory_engine.formats.openai_responses.messages import has_half_call as has_half_call
    from memory_engine.formats.openai_responses.messages import is_answer as is_answer
    from memory_engine.formats.openai_responses.messages import is_silent as is_silent
    from memory_engine.formats.openai_responses.messages import made as made
    from memory_engine.formats.openai_responses.messages import read as read
    from memory_engine.formats.openai_responses.messages import runs as runs
    from memory_engine.formats.openai_responses.messages import whole_response as whole_response
    from memory_engine.formats.openai_responses.messages import without_calls as without_calls
    from memory_engine.formats.openai_responses.request import ResponsesInput as ResponsesInput
    from memory_engine.formats.openai_responses.request import blocks_of as blocks_of
    from memory_engine.formats.openai_responses.request import render as render

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {
        "messages": "ASSEMBLY CALLS FORMAT OUTPUTS OWN "
        "has_half_call is_answer is_silent made read runs whole_response without_calls",
        "request": "ResponsesInput blocks_of render",
    },
)
