"""Contexts as lists of LangChain's messages.

The model is not known here, so what every model takes is made: instructions stand first, later ones as a note of the
user; a person speaks first. Reasoning goes back in the newest response, and where the running loop carries it.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from attrs import field, frozen

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import Content, Part, TextPart, ToolCall
from memory_engine.formats.langchain.messages import (
    FORMAT,
    THOUGHT_BLOCKS,
    LangChainObject,
    content_block,
    langchain_core,
    made,
    thoughts_in,
    tool_call,
    tool_message,
    without_blocks,
)
from memory_engine.formats.native import Json, filled, from_native
from memory_engine.formats.own import RequestInput, fields_of
from memory_engine.formats.streams import object_in
from memory_engine.formats.turns import (
    EMPTY,
    GO_ON,
    OPENAI_IMAGE_LIMITS,
    FormTurn,
    RenderOptions,
    Result,
    Speech,
    Thought,
    opening,
    parts_text,
    with_images_within,
)
from memory_engine.llm.sdk_types import LangChainMessage  # pyright: ignore[reportAttributeAccessIssue]


@frozen(kw_only=True)
class LangChainInput(RequestInput):
    """What `model.invoke` takes, and its tokens."""

    messages: list[LangChainMessage] = field(repr=False)


def render(turns: Sequence[FormTurn], options: RenderOptions) -> LangChainInput:
    """The messages of these turns. Raises `MissingExtra` without LangChain."""
    first, others = opening(with_images_within(turns, OPENAI_IMAGE_LIMITS))
    messages = [_other_message("system", turn) for turn in first]
    if not others or others[0].role == "agent":
        messages.append({"type": "human", "content": GO_ON})
    messages += [message for turn in others for message in _turn_messages(turn)]
    dicts = [{"type": message["type"], "data": message} for message in messages]
    return LangChainInput(
        messages=cast("list[LangChainMessage]", langchain_core("messages_from_dict")(dicts)),
        tokens=options.tokens + options.thinking_tokens,
    )


def blocks_of(request: LangChainInput) -> Iterator[object]:
    """The blocks of a request, and its reasoning."""
    for message in cast("list[LangChainObject]", request.messages):
        yield from thoughts_in({"additional_kwargs": message.additional_kwargs})
        yield from message.content if isinstance(message.content, list) else ()


def _turn_messages(turn: FormTurn) -> Iterator[Json]:
    if turn.role == "system":
        yield {"type": "human", "content": f"[Instructions] {parts_text(turn.parts)}"}
    elif turn.role == "user":
        yield _other_message("human", turn)
    else:
        answer = _own_ai_message(turn) if turn.own else _rendered_ai_message(turn)
        if answer.get("content") or answer.get("tool_calls") or answer.get("invalid_tool_calls"):
            yield answer
        yield from map(_answered, turn.results)


def _other_message(kind: str, turn: FormTurn) -> Json:
    """A message that is not the model's, as it came where it is shown whole."""
    kept = _kept_message(turn.chunk)
    if kept is None or turn.chunk is None:
        return {"type": kind, "content": _shown_content(turn.parts, turn.chunk)}
    content = turn.chunk.content
    return cast("Json", filled({"type": kind, "content": _langchain_content(content) or EMPTY}, kept))


def _kept_message(chunk: Chunk | None) -> object:
    """What a message says beyond the fields of its chunk; `None` for nothing."""
    return from_native(chunk.native, FORMAT).get("message") if chunk is not None and chunk.native else None


def _langchain_content(content: Content) -> object:
    return content if isinstance(content, str) else [content_block(part) for part in content]


def _shown_content(parts: Sequence[Part], chunk: Chunk | None) -> object:
    """A list where it came as one, or where there is more than text; else a text."""
    is_list = chunk is not None and not isinstance(chunk.content, str)
    is_text = all(isinstance(part, TextPart) for part in parts) and not is_list
    return parts_text(parts) if is_text else list(map(content_block, parts))


def _own_ai_message(turn: FormTurn) -> Json:
    """The message of a response as it came, without its reasoning where that is not all shown."""
    answer = next(chunk for chunk in turn.own if chunk.type != ChunkType.THINKING)
    message = cast("Json", filled(made(fields_of(answer)), _kept_message(answer) or {}))
    return message if turn.whole else _without_thoughts(message)


def _without_thoughts(message: Json) -> Json:
    beside = {key: one for key, one in object_in(message, "additional_kwargs").items() if key != "reasoning_content"}
    return {**without_blocks(message, THOUGHT_BLOCKS), **({"additional_kwargs": beside} if beside else {})}


def _rendered_ai_message(turn: FormTurn) -> Json:
    """The message of a response whose fields are shown, with the reasoning that a provider can verify."""
    thoughts = [one for block in turn.blocks if isinstance(block, Thought) for one in _signed(block.chunk)]
    parts = [part for block in turn.blocks if isinstance(block, Speech) for part in block.parts]
    text = parts_text(parts)
    content: object = [*thoughts, *([{"type": "text", "text": text}] if text else [])] if thoughts else text
    asked = (ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in turn.calls)
    calls = [tool_call(call) for call in asked]
    return {"type": "ai", "content": content, **({"tool_calls": calls} if calls else {})}


def _signed(chunk: Chunk) -> list[Json]:
    kept = _kept_message(chunk)
    if isinstance(kept, list):
        return [one for one in cast("list[object]", filled([], kept)) if isinstance(one, dict)]
    is_signed = chunk.type == ChunkType.THINKING and chunk.status and chunk.text
    return [{"type": "thinking", "thinking": chunk.text, "signature": chunk.status}] if is_signed else []


def _answered(result: Result) -> Json:
    kept = _kept_message(result.chunk)
    if kept is None or result.chunk is None:
        return tool_message(result.call_id, _shown_content(result.parts, result.chunk), failed=result.failed)
    ours = tool_message(result.call_id, _langchain_content(result.chunk.content), failed=result.failed)
    return {**cast("Json", filled(ours, kept)), "tool_call_id": result.call_id}
