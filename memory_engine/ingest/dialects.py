"""Messages in the dialects of chat-completions that tools write, as chat-completions has them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from attrs import evolve

from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.recordings import Record
from memory_engine.formats.values import compact

Json = dict[str, object]
ROLES = {
    "human": "user",
    "ai": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "developer": "system",
    "function": "tool",
    "observation": "tool",
}
"""Other names of the roles."""
_CALL_KEYS = ("arguments", "args", "input", "parameters")


def role_of(name: object) -> str:
    """The role that a tool means by a name."""
    lowered = str(name).lower()
    return ROLES.get(lowered, lowered)


def role_message(role: str, content: object, calls: Iterable[Json] = (), thoughts: str = "") -> Json:
    """A message of chat-completions."""
    message: Json = {"role": role, "content": content}
    asked = list(calls)
    if asked:
        message |= {"content": content or None, "tool_calls": asked}
    if thoughts:
        message["reasoning_content"] = thoughts
        if not content and not asked:
            del message["content"]
    return message


def call(call_id: object, name: object, arguments: object) -> Json:
    """A call of chat-completions. Arguments that are not a text are written as JSON."""
    text = arguments if isinstance(arguments, str) else compact({} if arguments is None else arguments)
    return {"id": str(call_id or ""), "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def result(call_id: object, content: object, *, name: str = "", failed: bool = False) -> Json:
    """The result of a call; of one that failed, in Anthropic's format, since chat-completions cannot say so."""
    if failed:
        block = {"type": "tool_result", "tool_use_id": str(call_id), "content": texts(content), "is_error": True}
        return {"role": "user", "content": [block]}
    message: Json = {"role": "tool", "content": content or "", "tool_call_id": str(call_id)}
    return {**message, "name": name} if name else message


def with_value(
    record: Record, value: object, *, at: datetime | None = None, origin: MessageOrigin | None = None
) -> Record:
    """The record with what was read of it: a message of this module, or an event."""
    blocks = objects(value, "content")
    of_anthropic = under(value, "type") == "message" or bool(blocks and blocks[0].get("type") == "tool_result")
    return evolve(
        record, value=value, format="anthropic" if of_anthropic else "openai.chat", at=at or record.at, origin=origin
    )


def parts_of(
    record: Record,
    values: Sequence[object],
    origin: MessageOrigin | None = None,
    *,
    at: datetime | None = None,
) -> Iterator[Record]:
    """The records of one record that holds several messages: each has a key of its own."""
    for n, value in enumerate(values):
        one = with_value(record, value, at=at, origin=origin)
        yield evolve(one, key=f"{record.key or record.number}.{n}") if n else one


def response(message: Json, around: Mapping[str, object]) -> Json:
    """A whole response of chat-completions: a message with the id, model and usage around it."""
    rest = {key: value for key, value in around.items() if value not in (None, "", {})}
    is_thought = "tool_calls" not in message and "content" not in message
    if not rest or (is_thought and "usage" not in rest):
        return message
    choice: Json = {"index": 0, "message": message}
    if "finish_reason" in rest:
        choice["finish_reason"] = rest.pop("finish_reason")
    return {"object": "chat.completion", **rest, "choices": [choice]}


def usage_of(told: object) -> Json | None:
    """The counts of a usage, by any of their names, in the form of chat-completions; `None` without any."""
    if not isinstance(told, Mapping):
        return None
    fed = _first(told, "prompt_tokens", "input_tokens", "promptTokens", "inputTokens", "input", "promptTokenCount")
    made = _first(
        told, "completion_tokens", "output_tokens", "completionTokens", "outputTokens", "output", "candidatesTokenCount"
    )
    if fed is None and made is None:
        return None
    counted: Json = {"prompt_tokens": fed or 0, "completion_tokens": made or 0}
    details = told.get("input_token_details") or told.get("prompt_tokens_details") or told
    cached = _first(
        details if isinstance(details, Mapping) else {},
        "cached_tokens",
        "cache_read",
        "cached_input_tokens",
        "input_tokens_cache_read",
        "cached",
        "cachedContentTokenCount",
    )
    if cached:
        counted["prompt_tokens_details"] = {"cached_tokens": cached}
    return counted


def _first(told: Mapping[str, object], *names: str) -> int | None:
    for name in names:
        found = told.get(name)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return int(found)
    return None


def is_dialect(value: Mapping[str, object]) -> bool:
    """Return True if a message of a role writes its calls, or the id of its call, in another way than OpenAI."""
    calls = value.get("tool_calls")
    if isinstance(calls, list) and any(isinstance(one, Mapping) and _is_flat(one) for one in calls):
        return True
    is_result = value.get("role") == "tool" and not value.get("tool_call_id")
    return is_result and any(isinstance(value.get(key), str | list) for key in ("tool_call_ids", "id"))


def _is_flat(told: Mapping[str, object]) -> bool:
    return not isinstance(told.get("function"), Mapping) and told.get("type") != "custom" and _name_of(told) != ""


def _name_of(told: Mapping[str, object]) -> str:
    return next((found for key in ("function", "name", "tool_name") if isinstance(found := told.get(key), str)), "")


def chat_call(told: Mapping[str, object], number: int = 0) -> Json:
    """A call in any dialect: flat or with its function, its arguments a text or a value."""
    function = told.get("function")
    within = function if isinstance(function, Mapping) else told
    given = next((within[key] for key in _CALL_KEYS if within.get(key) is not None), None)
    call_id = told.get("id") or told.get("tool_call_id") or told.get("call_id") or f"call-{number}"
    return call(call_id, _name_of(within), given)


def chat_message(told: Mapping[str, object]) -> Json:
    """A message of a role in any dialect, as chat-completions has it; keys of other kinds stay."""
    message = dict(told)
    calls = told.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [chat_call(one) if isinstance(one, Mapping) and _is_flat(one) else one for one in calls]
        message["content"] = told.get("content") or None
    if told.get("role") == "tool" and not told.get("tool_call_id"):
        ids = message.pop("tool_call_ids", None)
        first = ids[0] if isinstance(ids, list) and ids else None
        message["tool_call_id"] = str(first or message.pop("id", None) or "")
    return message


def of_sequence(values: Iterable[object]) -> Iterator[Mapping[str, object]]:
    """The JSON objects among values."""
    return (value for value in values if isinstance(value, Mapping))


def objects(value: object, *keys: str) -> list[Mapping[str, object]]:
    """The JSON objects of the list under a path of keys; none without such a list."""
    found = under(value, *keys)
    return list(of_sequence(found)) if isinstance(found, list | tuple) else []


def under(value: object, *keys: str) -> object:
    """The value under a path of keys; `None` if one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def text_under(value: object, *keys: str) -> str:
    """The text under a path of keys; empty without one."""
    found = under(value, *keys)
    return found if isinstance(found, str) else ""


def texts(blocks: object, *, between: str = "\n") -> str:
    """The text of a text, or of a list of texts and of blocks with a text."""
    if isinstance(blocks, str):
        return blocks
    if not isinstance(blocks, Sequence):
        return ""
    found = (one if isinstance(one, str) else text_under(one, "text") or text_under(one, "content") for one in blocks)
    return between.join(filter(None, found))
