"""The parameters of the providers' SDKs, for type checkers alone: nothing here imports an SDK when it runs.

A `TypedDict` of one's own never passes for an SDK's, even with the same keys: its values would have to be of equal
types, not narrower ones. So requests are typed by the SDK's own names where your type checker finds the SDK, and
pass unchecked where it does not.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anthropic.types import MessageParam as AnthropicMessage
    from anthropic.types import TextBlockParam as AnthropicText
    from langchain_core.messages import BaseMessage as LangChainMessage  # pyright: ignore[reportMissingImports]
    from openai.types.chat import ChatCompletionMessageParam as OpenAIChatMessage
    from openai.types.responses import ResponseInputItemParam as OpenAIInputItem
else:
    AnthropicMessage = AnthropicText = LangChainMessage = OpenAIChatMessage = OpenAIInputItem = dict

__all__ = ["AnthropicMessage", "AnthropicText", "LangChainMessage", "OpenAIChatMessage", "OpenAIInputItem"]
