"""Events of ADK: how they are stored and restored, and the messages in them."""

# pyright: reportMissingImports=false
# google-adk fits with few others: it is in the environment of its tests alone

import json
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import quote

from memory_engine.core.events.messages import LlmTextResponse, UserMessage
from memory_engine.core.records import NewEvent
from memory_engine.errors import MissingExtra
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.messages import groups_as_events
from memory_engine.views.records import as_json
from memory_engine.views.sessions.view import SessionEntry

try:
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.adk.sessions.state import State
    from google.genai import types
except ImportError:
    raise MissingExtra("ADK's sessions", "adk") from None

MARK = "adk"
"""The key in the metadata of threads that are made here: `session` or `memory`."""
KINDS: dict[str, Literal["agent", "user"]] = {State.APP_PREFIX: "agent", State.USER_PREFIX: "user"}
"""By the prefix of a key, the kind of the thread that keeps such state."""
_KEYS = "stateKeys"
"""The key of an entry for the keys of its event's state, in their order."""


def thread_id_of(what: str, tenant_id: str, *names: str) -> str:
    """The id of a thread: names are quoted, so that no two threads share one."""
    every = (tenant_id, *names) if tenant_id else names
    return "/".join((f"adk-{what}", *(quote(name, safe="@+ ") for name in every)))


def state_of(actions: EventActions) -> dict[str, Any]:
    """The lasting state that an event sets, as JSON; like ADK, other values as text."""
    state = json.loads(actions.model_dump_json(include={"state_delta"}))["state_delta"]
    return {key: value for key, value in state.items() if not key.startswith(State.TEMP_PREFIX)}


def dumped(event: Event) -> dict[str, Any]:
    """An event without the values of its state. `None` in fields that are not ADK's stays."""
    exclude = {"actions": {"state_delta"}}
    found: dict[str, Any] = json.loads(event.model_dump_json(by_alias=True, exclude_defaults=True, exclude=exclude))
    if state := state_of(event.actions):
        found[_KEYS] = list(state)
    return found


def event_of(entry: SessionEntry) -> Event:
    """The event that an entry stores."""
    keys = cast("list[str]", entry.entry.pop(_KEYS, []))
    found = Event.model_validate_json(as_json(entry.entry))
    state = entry.state | prefixed(entry.shared)
    found.actions.state_delta = {key: state[key] for key in keys if key in state}
    return found


def prefixed(shared: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Shared state by the kinds of its owners, which ADK has in one mapping."""
    return {prefix + key: value for prefix, kind in KINDS.items() for key, value in shared.get(kind, {}).items()}


def event_again(event: Event) -> Event:
    """A restored event."""
    found = Event.model_validate_json(as_json(dumped(event)))  # which ignores the keys
    found.actions.state_delta = state_of(event.actions)
    return found


def adk_texts(content: types.Content | None) -> dict[str, str]:
    """The texts of a content, by their paths."""
    parts = content.parts or [] if content is not None else []
    return {f"content/parts/{n}/text": part.text for n, part in enumerate(parts) if part.text}


def _is_users(content: types.Content, author: str) -> bool:
    return content.role == "user" if content.role else author == "user"


def said_by(content: types.Content, author: str, text: str) -> UserMessage | LlmTextResponse:
    """The words of a user, or an agent; or tools' results, which the framework puts under the user's role."""
    if not _is_users(content, author):
        return LlmTextResponse(content=text)
    is_result = any(part.function_response is not None for part in content.parts or [])
    return UserMessage(content=text, origin="tool" if is_result else "")


async def messages_of(thread: ThreadHandle, event: Event, event_id: str) -> list[NewEvent]:
    """The events of an event's messages; if calls and results are out of order, the event of its text."""
    content = event.content
    if content is None or not content.parts:
        return []
    messages = _openai(content, _is_users(content, event.author))
    [found] = await groups_as_events(thread, [messages], [event_id], format="openai.chat")
    if found is not None:
        return found
    text = "\n".join(filter(None, map(_as_text, content.parts)))
    return [NewEvent(said_by(content, event.author, text), f"{event_id}.said")] if text else []


def shown_in(content: types.Content) -> list[str]:
    """A content's words and its tools' results, for storage."""
    return [str(message["content"]) for message in _openai(content, True) if message.get("content")]


def _openai(content: types.Content, is_users: bool) -> list[dict[str, Any]]:
    """A content as messages of chat completions: results first, then the other texts."""
    parts = content.parts or []
    results = [
        {
            "role": "tool",
            "tool_call_id": one.id or "",
            "name": one.name or "",
            "content": as_json(_jsonable(one.response)),
        }
        for part in parts
        if (one := part.function_response) is not None
    ]
    said = [found for part in parts if not part.thought and (found := _adk_chat_part(part)) is not None]
    calls = [
        {
            "id": one.id or "",
            "type": "function",
            "function": {"name": one.name or "", "arguments": as_json(_jsonable(one.args or {}))},
        }
        for part in parts
        if (one := part.function_call) is not None
    ]
    thoughts = "\n".join(part.text for part in parts if part.thought and part.text)
    message: dict[str, Any] = {"role": "user" if is_users else "assistant"}
    if said:
        alone = len(said) == 1 and said[0]["type"] == "text"
        message["content"] = said[0]["text"] if alone else said
    if calls:
        message["tool_calls"] = calls
    if thoughts:
        message["reasoning_content"] = thoughts
    return [*results, message] if len(message) > 1 else results


def _adk_chat_part(part: types.Part) -> dict[str, Any] | None:
    """A part in chat completions' form; `None` without one."""
    if part.text:
        return {"type": "text", "text": part.text}
    data, file = part.inline_data, part.file_data
    if data is not None and (data.mime_type or "").startswith("image/"):
        dumped = data.model_dump(mode="json")["data"].translate(_STANDARD)
        return {"type": "image_url", "image_url": {"url": f"data:{data.mime_type};base64,{dumped}"}}
    if file is not None and (file.mime_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file.file_uri or ""}}
    text = _as_text(part)
    return {"type": "text", "text": text} if text and not (part.function_call or part.function_response) else None


_STANDARD = str.maketrans("-_", "+/")


def _as_text(part: types.Part) -> str:
    """A part as text."""
    if part.text:
        return part.text
    if (call := part.function_call) is not None:
        return f"{call.name}({as_json(_jsonable(call.args or {}))})"
    if (result := part.function_response) is not None:
        return f"{result.name}: {as_json(_jsonable(result.response))}"
    if (code := part.executable_code) is not None:
        return code.code or ""
    if (ran := part.code_execution_result) is not None:
        return ran.output or ""
    data = part.inline_data or part.file_data
    if data is None:
        return ""
    return f"[{data.display_name or getattr(data, 'file_uri', None) or data.mime_type or 'a file'}]"


def _jsonable(value: object) -> object:
    """A value of a call or a result, as JSON."""
    return json.loads(EventActions(agent_state={"value": value}).model_dump_json())["agent_state"]["value"]
