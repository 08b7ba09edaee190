"""How chunks look to a model: chat-completions messages, and an XML form for prompts."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import cast

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.compaction.base import render_lines
from memory_engine.events.base import Content, TextPart
from memory_engine.tokens import TokenCounter

Message = dict[str, object]
"""A chat-completions message."""

Renderer = Callable[[Chunk], Iterable[Message]]
"""The messages of one chunk; none hides it from the model. Pure: the same chunk, the same messages."""


class Rendering(msgspec.Struct, frozen=True):
    """How chunks look to models, by their type, and how tokens are counted."""

    renderers: Mapping[str, Renderer]
    counter: TokenCounter


_LABELS = {
    "parent_message": "Message from the parent agent",
    "subagent_message": "Message from a sub-agent",
    "error": "Error",
    "task": "Task",
    "external": "Note",
    "environment": "Environment",
    "execution": "Execution",
    "recalled": "From memory, not said now",
}


def message_content(content: Content) -> object:
    """Content as chat-completions wants it: a text, or a list of text and image parts."""
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": part.url}}
        for part in content
    ]


def render_system(chunk: Chunk) -> Iterable[Message]:
    """Instructions."""
    return ({"role": "system", "content": message_content(chunk.content)},)


def render_user(chunk: Chunk) -> Iterable[Message]:
    """What a person said; the speaker's name stands before it where there is one."""
    content = message_content(chunk.content)
    if chunk.label and isinstance(content, str):
        content = f"{chunk.label}: {content}"
    return ({"role": "user", "content": content},)


def render_assistant(chunk: Chunk) -> Iterable[Message]:
    """What the model said."""
    return ({"role": "assistant", "content": message_content(chunk.content)},)


def render_action(chunk: Chunk) -> Iterable[Message]:
    """Calls: one message, however many they are."""
    if not chunk.calls:
        return render_assistant(chunk) if chunk.content else ()  # providers refuse an empty list of calls
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in chunk.calls
    ]
    return ({"role": "assistant", "content": message_content(chunk.content) or None, "tool_calls": calls},)


def render_result(chunk: Chunk) -> Iterable[Message]:
    """The answer to a call, or an error that stands alone."""
    if not chunk.call_id:
        return render_note(chunk)
    return ({"role": "tool", "tool_call_id": chunk.call_id, "content": message_content(chunk.content)},)


def render_note(chunk: Chunk) -> Iterable[Message]:
    """What is neither person nor model: a labelled note, as the user role (all providers take it anywhere)."""
    label = _LABELS.get(chunk.type, chunk.type.replace("_", " ").capitalize())
    if chunk.label:
        label = f"{label} ({chunk.label})"
    content = message_content(chunk.content)
    if isinstance(content, str):
        return ({"role": "user", "content": f"[{label}] {content}".rstrip()},)
    parts = cast("list[object]", content)
    return ({"role": "user", "content": [{"type": "text", "text": f"[{label}]"}, *parts]},)


def render_compacted(chunk: Chunk) -> Iterable[Message]:
    """A summary in place of what it covers."""
    text = render_lines(chunk.lines) if chunk.lines else chunk.text
    return ({"role": "user", "content": f"[Summary of earlier conversation]\n{text}"},)


def render_nothing(_chunk: Chunk) -> Iterable[Message]:
    """Not for the model: reasoning of earlier turns has no place in chat-completions."""
    return ()


DEFAULT_RENDERERS: Mapping[str, Renderer] = {
    "system": render_system,
    "user_message": render_user,
    "agent_response": render_assistant,
    "clarification": render_assistant,
    "agent_action": render_action,
    "action_result": render_result,
    "error": render_result,
    "thinking": render_nothing,
    "compacted": render_compacted,
    "*": render_note,
}
"""By chunk type; `"*"` for every other."""


def render_todo_list(chunk: Chunk, items: Iterable[Chunk]) -> Message:
    """A list with its items, ticked or not."""
    marks = {"completed": "x", "in_progress": "~"}
    lines = [f"- [{marks.get(item.status, ' ')}] {item.text}" for item in items]
    return {
        "role": "user",
        "content": "\n".join([f"[To-do{': ' + chunk.text if chunk.text else ''}]", *lines]),
    }


def render_scratchpad(snippets: Iterable[Chunk]) -> Iterable[Message]:
    """What flows found out, oldest first, each marked with its flow; nothing for an empty scratchpad."""
    lines = [f"- ({s.label}) {s.text}" if s.label else f"- {s.text}" for s in sorted(snippets, key=lambda s: s.seq)]
    return ({"role": "user", "content": "\n".join(["[Scratchpad]", *lines])},) if lines else ()


def render_xml(chunks: Iterable[Chunk]) -> str:
    """The XML form: one element a chunk, with its id, so that a model can cite it."""
    parts = ["<memory>"]
    for chunk in chunks:
        named = chunk.type.isidentifier()
        tag = chunk.type if named else "chunk"
        attributes = f" id={_quoted(chunk.id)}" + ("" if named else f" type={_quoted(chunk.type)}")
        for name in ("label", "call_id", "status"):
            value = getattr(chunk, name)
            if value:
                attributes += f" {name}={_quoted(value)}"
        body = render_lines(chunk.lines) if chunk.lines else chunk.text
        calls = "".join(
            f"<call id={_quoted(c.id)} name={_quoted(c.name)}>{escape(c.arguments, quote=False)}</call>"
            for c in chunk.calls
        )
        parts.append(f"<{tag}{attributes}>{escape(body, quote=False)}{calls}</{tag}>")
    parts.append("</memory>")
    return "\n".join(parts)


_SPACES = str.maketrans({"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})
"""White space that a reader of XML would take for a blank, were it in an attribute as it is."""


def _quoted(value: str) -> str:
    """An attribute's value in double quotes, or in single ones where it holds only double ones."""
    told = escape(value, quote=False).translate(_SPACES)
    if '"' in told and "'" not in told:
        return f"'{told}'"
    return '"' + told.replace('"', "&quot;") + '"'
