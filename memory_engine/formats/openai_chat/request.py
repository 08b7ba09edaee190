"""Contexts as requests to OpenAI's chat completions, and all that speak them.

What its rules ask beyond those of all providers: a tool's message holds text alone, so images and files of results
follow in a message of the user; the assistant's and the system's hold text alone too. Reasoning has no place. Some
providers other than OpenAI (DeepSeek, Qwen, vLLM) want it back as `reasoning_content` while the tool loop runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from attrs import field, frozen

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import FilePart, ImagePart, Part, TextPart
from memory_engine.formats.media import file_url, id_at, image_url, input_audio, is_heard
from memory_engine.formats.native import Json, filled, from_native
from memory_engine.formats.openai_chat.messages import FORMAT, OWN, made
from memory_engine.formats.own import RequestInput, accepted_blocks, fields_of, native_message
from memory_engine.formats.turns import (
    GO_ON,
    OPENAI_IMAGE_LIMITS,
    FormCall,
    FormTurn,
    RenderOptions,
    Speech,
    Thought,
    media_note,
    parts_text,
    runs,
    with_images_within,
)
from memory_engine.llm.sdk_types import OpenAIChatMessage

_OURS = frozenset({"role", "content", "reasoning", "reasoning_content", "tool_calls"})
"""Keys of an assistant's message that are never what its provider said of them at some other time."""


@frozen(kw_only=True)
class ChatInput(RequestInput):
    """The arguments of `client.chat.completions.create`, and their tokens."""

    messages: list[OpenAIChatMessage] = field(repr=False)


def render(turns: Sequence[FormTurn], options: RenderOptions) -> ChatInput:
    """The messages of these turns. `reasoning_content` gives carried thinking back under that name."""
    within = with_images_within(turns, OPENAI_IMAGE_LIMITS)
    messages = [message for turn in within for message in _chat_messages(turn, options.reasoning_content)]
    if not any(turn.role != "system" for turn in turns):
        messages.append({"role": "user", "content": GO_ON})
    last = messages[-1]
    if last["role"] == "assistant" and isinstance(text := last.get("content"), str):
        last["content"] = text.rstrip()  # a provider refuses white space at the end
    return ChatInput(messages=cast("list[OpenAIChatMessage]", messages), tokens=options.tokens)


def blocks_of(request: ChatInput) -> Iterator[object]:
    """The messages of a request, and the thinking in them as a block each."""
    yield from request.messages
    for message in request.messages:
        if "reasoning_content" in message:
            yield {"type": "thinking", "reasoning_content": message.get("reasoning_content")}


def _chat_messages(turn: FormTurn, reasoning_content: bool) -> Iterator[Json]:
    if turn.role != "agent":
        text = turn.role == "system" or all(isinstance(part, TextPart) for part in turn.parts)
        content: object = parts_text(turn.parts) if text else list(map(chat_part, turn.parts))
        yield _with_more_keys({"role": turn.role, "content": content}, turn.chunk)
        return
    spoken = _assistant(turn, reasoning_content)
    if turn.own or len(spoken) > 2 or spoken["content"] is not None:
        yield spoken
    for result in turn.results:
        answer: Json = {"role": "tool", "tool_call_id": result.call_id, "content": parts_text(result.parts)}
        yield _with_more_keys(answer, result.chunk)
    shown = [part for result in turn.results for part in _shown_after(result.call_id, result.parts)]
    if shown:
        yield {"role": "user", "content": shown}


def _with_more_keys(made: Json, chunk: Chunk | None) -> Json:
    """A message with the keys that came with it and that the form does not have."""
    return native_message({}, chunk, FORMAT) | made


def _assistant(turn: FormTurn, reasoning_content: bool) -> Json:
    """One message of all that one response said, with what its provider added to it."""
    own = _own_message(turn.own) if turn.own else None
    thoughts = [block.chunk.text for block in turn.blocks if isinstance(block, Thought)]
    reasoning: Json = {}
    if reasoning_content and any(thoughts):
        reasoning = {"reasoning_content": "\n".join(filter(None, thoughts))}
    if own is not None:
        return own | reasoning
    made: Json = {"role": "assistant", "content": None}
    texts: list[str] = []
    calls: list[Json] = []
    for chunk, blocks in runs(turn):
        asked = [_chat_tool_call(block) for block in blocks if isinstance(block, FormCall)]
        native = native_message({"tool_calls": asked}, chunk, FORMAT)
        calls += cast("list[Json]", native["tool_calls"])
        made |= {key: value for key, value in native.items() if key not in _OURS}
        texts += [parts_text(block.parts) for block in blocks if isinstance(block, Speech)]
    made["content"] = "\n".join(texts) if texts else None
    return made | reasoning | ({"tool_calls": calls} if calls else {})


def _own_message(chunks: Iterable[Chunk]) -> Json | None:
    """The message of a response as it came; `None` for one of nothing but reasoning."""
    said = next((chunk for chunk in chunks if chunk.type != ChunkType.THINKING), None)
    if said is None:
        return None
    kept = from_native(said.native, FORMAT)
    message = cast("Json", filled(made(fields_of(said)), kept.get("message", {})))
    around = kept.get("response")
    listed = around.get("choices") if isinstance(around, dict) else None
    choice = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    lost = choice.get("message")
    return accepted_blocks([message | lost if isinstance(lost, dict) else message], said, OWN)[0]


def _chat_tool_call(call: FormCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _shown_after(call_id: str, parts: Iterable[Part]) -> list[Json]:
    """The images and files of a result that chat completions takes, with a line that says whose they are."""
    found = [part for part in parts if not isinstance(part, TextPart)]
    shown = [made for made in map(chat_part, found) if made["type"] != "text"]
    return [{"type": "text", "text": f"[Shown by the result of call {call_id}]"}, *shown] if shown else []


def chat_part(part: Part) -> Json:
    """A part of a user's message; a note for what chat completions does not take."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart() if url := image_url(part.url):
            detail = {"detail": part.detail} if part.detail in ("auto", "low", "high") else {}
            return {"type": "image_url", "image_url": {"url": url} | detail}
        case FilePart() if not part.text:
            if id_ := id_at(part, "openai"):
                return {"type": "file", "file": {"file_id": id_}}
            if audio := input_audio(part):
                return audio
            if (url := file_url(part)) and not is_heard(part):
                return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}
    return {"type": "text", "text": media_note(part)}
