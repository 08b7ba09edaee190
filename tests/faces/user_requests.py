"""What a user writes to call a model with a context: never run, checked by mypy (strict) and pyright in `tasks.py`.

A request in a provider's form passes where the provider's SDK takes it.
"""

from typing import assert_type

from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import MessageParam, TextBlockParam, ToolParam
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam

from memory_engine import Context, Thread


async def chat_completions(client: AsyncOpenAI, thread: Thread, tools: list[ChatCompletionToolParam]) -> str | None:
    """A call of chat completions."""
    request = (await thread.context(max_tokens=8_000)).render("openai.chat")
    assert_type(request.messages, list[ChatCompletionMessageParam])
    assert_type(request.tokens, int)
    answer = await client.chat.completions.create(model="gpt-5", messages=request.messages, tools=tools)
    return answer.choices[0].message.content


async def responses(client: AsyncOpenAI, thread: Thread, tools: list[FunctionToolParam]) -> str:
    """A call of Responses."""
    request = (await thread.context(max_tokens=8_000)).render("openai.responses")
    assert_type(request.input, list[ResponseInputItemParam])
    assert_type(request.instructions, str | None)
    answer = await client.responses.create(
        model="gpt-5",
        input=request.input,
        instructions=request.instructions,
        tools=tools,
        store=False,
        include=["reasoning.encrypted_content"],
    )
    return answer.output_text


async def messages(client: AsyncAnthropic, thread: Thread, tools: list[ToolParam]) -> str | None:
    """A call of Anthropic's Messages."""
    request = (await thread.context(max_tokens=8_000)).render("anthropic", cache=True)
    assert_type(request.system, list[TextBlockParam])
    assert_type(request.messages, list[MessageParam])
    answer = await client.messages.create(
        model="claude-opus-4-8",
        max_tokens=8_000,
        system=request.system,
        messages=request.messages,
        tools=tools,
        thinking={"type": "enabled", "budget_tokens": 2_000},
    )
    return answer.stop_reason


def without_waiting(openai: OpenAI, anthropic: Anthropic, context: Context) -> None:
    """The clients that are not async take the same, and so does what a user adds."""
    chat = context.render("openai.chat", reasoning_content=True)
    openai.chat.completions.create(model="m", messages=[*chat.messages, {"role": "user", "content": "Go on."}])
    items = context.render("openai.responses")
    openai.responses.create(model="m", input=[*items.input, {"role": "user", "content": "Go on."}])
    request = context.render("anthropic")
    anthropic.messages.create(model="m", max_tokens=100, system=request.system, messages=request.messages)
