"""Messages of Strands Agents, as its sessions write them, in the form of Anthropic's API.

Bytes are objects here, with the key `data` for their base64.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from memory_engine.integrations.entries import recordable
from memory_engine.views.records import as_json

Block = dict[str, Any]


def anthropic_of(message: Block) -> Block | None:
    """A message; `None` for one that says nothing."""
    blocks = [found for block in message.get("content") or () if (found := _strands_block(block)) is not None]
    return recordable({"role": message["role"], "content": blocks}) if blocks else None


def strands_text(message: Block) -> str:
    """The words, calls and results of a message, as text."""
    found = anthropic_of(message) or {"content": []}
    return "\n".join(text for block in found["content"] for text in _texts_in(block))


def _texts_in(block: Block) -> Iterator[str]:
    match block:
        case {"type": "text", "text": text}:
            yield text
        case {"type": "tool_use", "name": name, "input": given}:
            yield f"{name}({as_json(given)})"
        case {"type": "tool_result", "content": list() as parts}:
            for part in parts:
                yield from _texts_in(part)


def strands_texts(entry: Block) -> dict[str, str]:
    """The texts in an entry of a session, by their paths."""
    return {place: text for place, text in _strings(entry, "") if text}


def _strings(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key == "text" and isinstance(one, str):
                yield f"{place}text", one
            elif "/" not in key:
                yield from _strings(one, f"{place}{key}/")
    elif isinstance(value, list):
        for n, one in enumerate(value):
            yield from _strings(one, f"{place}{n}/")


def _strands_block(block: Block) -> Block | None:
    match block:
        case {"toolUse": call}:
            given = call.get("input")
            given = given if isinstance(given, dict) else {"input": given}
            return {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": given}
        case {"toolResult": result}:
            parts = [found for part in result.get("content") or () if (found := _strands_result_part(part)) is not None]
            failed = {"is_error": True} if result.get("status") == "error" else {}
            return {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": parts, **failed}
        case {"reasoningContent": {"reasoningText": {"text": str(thought), **rest}}}:
            return {"type": "thinking", "thinking": thought, "signature": rest.get("signature") or ""}
        case {"reasoningContent": {"redactedContent": {"data": data}}}:
            return {"type": "redacted_thinking", "data": data}
    return _strands_result_part(block)


def _strands_result_part(block: Block) -> Block | None:
    match block:
        case {"text": str(text)}:
            return _optional_text_block(text)
        case {"json": value}:
            return _optional_text_block(as_json(value))
        case {"image": {"format": kind, "source": {"bytes": {"data": data}}}}:
            media = f"image/{'jpeg' if kind == 'jpg' else kind}"
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
        case {"document": {"format": "pdf", "source": {"bytes": {"data": data}}, **rest}}:
            source = {"type": "base64", "media_type": "application/pdf", "data": data}
            return {"type": "document", "source": source, "title": str(rest.get("name") or "document")}
        case {"citationsContent": {"content": list() as parts}}:
            return _optional_text_block("".join(part.get("text") or "" for part in parts))
        case {"guardContent": {"text": {"text": str(text)}}}:
            return _optional_text_block(text)
        case {"image": held} | {"document": held} | {"video": held} | {"audio": held}:
            return _optional_text_block(f"[{held.get('name') or next(iter(block))}.{held.get('format', '')}]")
    return None


def _optional_text_block(text: str) -> Block | None:
    return {"type": "text", "text": text} if text else None
