"""OpenAI's chat completions, and all that speak them.

What its rules ask beyond those of all providers: a tool's message holds text alone, so images and files of results
follow in a message of the user; the assistant's and the system's hold text alone too. Reasoning has no place. Some
providers beside OpenAI (DeepSeek, Qwen, vLLM) want it back as `reasoning_content` while the tool loop runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from attrs import field, frozen

from memory_engine.context.forms.media import file_url, id_at, image_url
from memory_engine.context.forms.native import native_message
from memory_engine.context.forms.own import NotSent, own_message
from memory_engine.context.forms.turns import (
    GO_ON,
    OPENAI_IMAGE_LIMITS,
    FormCall,
    FormTurn,
    Speech,
    Thought,
    media_note,
    runs,
    said,
    with_images_within,
)
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import FilePart, ImagePart, Part, TextPart
from memory_engine.llm.sdk_types import OpenAIChatMessage

ChatPart = dict[str, object]
_OURS = frozenset({"role", "content", "reasoning", "reasoning_content", "tool_calls"})
"""Keys of an assistant's message that are never what its provider said of them at some other time."""


@frozen(kw_only=True)
class ChatInput:
    """What `client.chat.completions.create` takes, and its tokens."""

    messages: list[OpenAIChatMessage] = field(repr=False)
    tokens: int
    left_out: tuple[NotSent, ...] = ()
    """What providers sent and this request does not hold."""


def chat_input(turns: Sequence[FormTurn], tokens: int, *, reasoning_content: bool = False) -> ChatInput:
    """The messages of these turns. `reasoning_content` gives carried thinking back under that name."""
    within = with_images_within(turns, OPENAI_IMAGE_LIMITS)
    messages = [message for turn in within for message in _messages(turn, reasoning_content)]
    if not any(turn.role != "system" for turn in turns):
        messages.append({"role": "user", "content": GO_ON})
    last = messages[-1]
    if last["role"] == "assistant" and isinstance(text := last.get("content"), str):
        last["content"] = text.rstrip()  # a provider refuses white space at the end
    return ChatInput(messages=cast("list[OpenAIChatMessage]", messages), tokens=tokens)


def _messages(turn: FormTurn, reasoning_content: bool) -> Iterator[dict[str, object]]:
    if turn.role != "agent":
        text = turn.role == "system" or all(isinstance(part, TextPart) for part in turn.parts)
        content: object = said(turn.parts) if text else list(map(chat_part, turn.parts))
        yield _with_more_keys({"role": turn.role, "content": content}, turn.chunk)
        return
    spoken = _assistant(turn, reasoning_content)
    if turn.own or len(spoken) > 2 or spoken["content"] is not None:
        yield spoken
    for result in turn.results:
        answer: ChatPart = {"role": "tool", "tool_call_id": result.call_id, "content": said(result.parts)}
        yield _with_more_keys(answer, result.chunk)
    shown = [part for result in turn.results for part in _shown_after(result.call_id, result.parts)]
    if shown:
        yield {"role": "user", "content": shown}


def _with_more_keys(made: ChatPart, chunk: Chunk | None) -> ChatPart:
    """A message with the keys that came with it and that the form does not have."""
    return native_message({}, chunk, "openai.chat") | made


def _assistant(turn: FormTurn, reasoning_content: bool) -> ChatPart:
    """One message of all that one response said, with what its provider added to it."""
    own = own_message(turn.own) if turn.own else None
    thoughts = [block.chunk.text for block in turn.blocks if isinstance(block, Thought)]
    reasoning: ChatPart = {}
    if reasoning_content and any(thoughts):
        reasoning = {"reasoning_content": "\n".join(filter(None, thoughts))}
    if own is not None:
        return own | reasoning
    made: ChatPart = {"role": "assistant", "content": None}
    texts: list[str] = []
    calls: list[ChatPart] = []
    for chunk, blocks in runs(turn):
        asked = [_call(block) for block in blocks if isinstance(block, FormCall)]
        native = native_message({"tool_calls": asked}, chunk, "openai.chat")
        calls += cast("list[ChatPart]", native["tool_calls"])
        made |= {key: value for key, value in native.items() if key not in _OURS}
        texts += [said(block.parts) for block in blocks if isinstance(block, Speech)]
    made["content"] = "\n".join(texts) if texts else None
    return made | reasoning | ({"tool_calls": calls} if calls else {})


def _call(call: FormCall) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _shown_after(call_id: str, parts: Iterable[Part]) -> list[ChatPart]:
    """The images and files of a result that chat completions takes, with a line that says whose they are."""
    found = [part for part in parts if not isinstance(part, TextPart)]
    shown = [made for made in map(chat_part, found) if made["type"] != "text"]
    return [{"type": "text", "text": f"[Shown by the result of call {call_id}]"}, *shown] if shown else []


def chat_part(part: Part) -> ChatPart:
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
            if url := file_url(part):
                return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}
    return {"type": "text", "text": media_note(part)}
