"""Event streams of OpenHands, the application's (`action`, `observation`) and its SDK's (`kind`).

Its logs of model calls (`messages` with `response`) are conversations of chat-completions, and read as these.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from attrs import evolve

from memory_engine.core.events.messages import MessageOrigin, SystemFailure
from memory_engine.core.moments import moment
from memory_engine.core.recordings import PAUSE, Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.ingest.dialects import (
    Json,
    call,
    chat_call,
    objects,
    response,
    result,
    role_message,
    text_under,
    texts,
    under,
    usage_of,
    with_value,
)

_NOT_ARGUMENTS = frozenset({"thought", "blocking", "is_static", "hidden", "confirmation_state", "kind"})
_SAID = frozenset({"message", "finish"})
_OF_CLIENT = frozenset({"recall", "change_agent_state", "agent_state_changed", "system", "null", "think_state"})


class OpenHandsEvents:
    """Reads events in their order: messages, actions as calls, observations as their results."""

    name = "openhands"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first objects are events of either kind."""
        return any(_is_old(one) or _is_sdk(one) for one in file.first_objects)

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The one conversation of the stream."""
        yield RecordedConversation(_Stream(file.left_out).read(file.live))


def _is_sdk(told: Mapping[str, object]) -> bool:
    return str(told.get("kind")).endswith("Event") and "source" in told


def _is_old(told: Mapping[str, object]) -> bool:
    return "source" in told and isinstance(told.get("action") or told.get("observation"), str)


def _id_of(value: object) -> str:
    return "" if value is None else str(value)


class _Stream:
    """Reads events. Actions of one response share its calls' response id."""

    def __init__(self, left_out: Counter[str]) -> None:
        self._left_out = left_out
        self._asked: dict[str, str] = {}
        self._responses: set[str] = set()
        self._used: tuple[int, ...] = (0, 0, 0)
        self._counted: tuple[int, ...] = self._used
        self._model = ""

    def read(self, records: Iterator[Record | IngestError]) -> Iterator[Record | IngestError]:
        for record in records:
            if isinstance(record, IngestError) or record.value is PAUSE:
                yield record
                continue
            told = record.value if isinstance(record.value, Mapping) else {}
            value = self._sdk(told) if _is_sdk(told) else self._old(told)
            if value is None:
                kind = told.get("kind") or told.get("action") or told.get("observation") or "an event of no kind"
                self._left_out[str(kind)] += 1
                continue
            origin: MessageOrigin | None = "" if told.get("source") == "user" else None
            read = with_value(record, value, at=moment(told.get("timestamp")), origin=origin)
            parent = told.get("action_id", told.get("cause"))
            yield evolve(read, key=_id_of(told.get("id")), parent=_id_of(parent))

    # the SDK's

    def _sdk(self, told: Mapping[str, object]) -> object:
        match told.get("kind"):
            case "ConversationStateUpdateEvent" if told.get("key") == "stats":
                self._stats(told)
            case "SystemPromptEvent":
                return role_message(
                    "system", texts(under(told, "system_prompt", "text") or under(told, "system_prompt", "content"))
                )
            case "MessageEvent":
                return self._said(told)
            case "ActionEvent":
                return self._action(told)
            case "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent":
                return self._observed(told)
            case "ConversationErrorEvent":
                return SystemFailure(content=text_under(told, "detail"), code=text_under(told, "code"))
            case "CondensationSummaryEvent":
                return {"role": "user", "content": text_under(told, "summary"), "isCompactSummary": True}
        return None

    def _said(self, told: Mapping[str, object]) -> object:
        message = under(told, "llm_message")
        found = message if isinstance(message, Mapping) else {}
        role = text_under(found, "role") or ("user" if told.get("source") == "user" else "assistant")
        content = _openhands_content(found.get("content"))
        thoughts = text_under(found, "reasoning_content") or _thoughts(found)
        if role != "assistant":
            return role_message(role, content or "")
        calls = [chat_call(one, n) for n, one in enumerate(objects(found, "tool_calls"))]
        return self._response(role_message("assistant", content, calls, thoughts), told)

    def _action(self, told: Mapping[str, object]) -> object:
        tool_call = under(told, "tool_call")
        its = dict(tool_call) if isinstance(tool_call, Mapping) else {}
        its.setdefault("id", told.get("tool_call_id"))
        its.setdefault("name", told.get("tool_name"))
        if its.get("arguments") is None and isinstance(under(its, "function"), Mapping) is False:
            action = under(told, "action")
            its["arguments"] = {
                key: value for key, value in (action if isinstance(action, Mapping) else {}).items() if key != "kind"
            }
        thoughts = text_under(told, "reasoning_content") or _thoughts(told)
        message = role_message("assistant", texts(told.get("thought")), [chat_call(its)], thoughts)
        return self._response(message, told)

    def _response(self, message: Json, told: Mapping[str, object]) -> Json:
        """The message as a part of its response, whose usage is taken once where the event has one."""
        named = text_under(told, "llm_response_id")
        usage = None if named in self._responses else self._usage_since()
        self._responses.add(named)
        return response(message, {"id": named, "model": self._model if usage else None, "usage": usage})

    def _usage_since(self) -> Json | None:
        """The usage since the response before: the stream has sums, before the actions of a response."""
        fed, made, cached = (now - before for now, before in zip(self._used, self._counted, strict=True))
        self._counted = self._used
        used = {"prompt_tokens": fed, "completion_tokens": made, "cached_tokens": cached}
        return usage_of(used) if fed or made else None

    def _stats(self, told: Mapping[str, object]) -> None:
        """Take the sums of the agent's own model."""
        metrics = under(told, "value", "usage_to_metrics")
        own = under(metrics, "agent") or under(metrics, "default")
        sums = under(own, "accumulated_token_usage")
        counts = [under(sums, name) for name in ("prompt_tokens", "completion_tokens", "cache_read_tokens")]
        self._used = tuple(count if isinstance(count, int) else 0 for count in counts)
        self._model = text_under(own, "model_name")

    def _observed(self, told: Mapping[str, object]) -> object:
        call_id = text_under(told, "tool_call_id")
        observation = under(told, "observation")
        found = observation if isinstance(observation, Mapping) else {}
        content = _openhands_content(found.get("content")) or text_under(found, "output")
        content = content or text_under(told, "error") or text_under(told, "rejection_reason")
        if not content and found:
            content = "\n".join(f"{key}: {value}" for key, value in found.items() if key != "kind" and value)
        failed = found.get("is_error") is True or told.get("kind") != "ObservationEvent"
        return result(call_id, content, name=text_under(told, "tool_name"), failed=failed)

    # the application's

    def _old(self, told: Mapping[str, object]) -> object:
        if isinstance(told.get("observation"), str):
            return self._old_observation(told)
        name = text_under(told, "action")
        args = under(told, "args")
        given = args if isinstance(args, Mapping) else {}
        if name == "system":
            return role_message("system", text_under(given, "content"))
        if name == "message":
            content = text_under(given, "content") or text_under(told, "message")
            is_users = told.get("source") == "user"
            return (
                role_message("user", content)
                if is_users
                else self._old_response(role_message("assistant", content), told)
            )
        if told.get("source") != "agent" or name in _OF_CLIENT:
            return None
        metadata = under(told, "tool_call_metadata")
        call_id = text_under(metadata, "tool_call_id") or f"action-{told.get('id')}"
        self._asked[str(told.get("id"))] = call_id
        asked = self._written(metadata, call_id)
        if asked is None:
            arguments = {key: value for key, value in given.items() if key not in _NOT_ARGUMENTS}
            asked = call(call_id, text_under(metadata, "function_name") or name, arguments)
        thought = text_under(given, "thought") or (text_under(given, "final_thought") if name == "finish" else "")
        return self._old_response(role_message("assistant", thought, [asked]), told)

    def _written(self, metadata: object, call_id: str) -> Json | None:
        """The call as the model wrote it."""
        for choice in objects(metadata, "model_response", "choices"):
            for one in objects(choice, "message", "tool_calls"):
                if one.get("id") == call_id:
                    return chat_call(one)
        return None

    def _old_response(self, message: Json, told: Mapping[str, object]) -> Json:
        original = under(told, "tool_call_metadata", "model_response")
        named = text_under(original, "id")
        if not named:
            return message
        usage = None if named in self._responses else usage_of(under(original, "usage"))
        self._responses.add(named)
        return response(message, {"id": named, "model": under(original, "model"), "usage": usage})

    def _old_observation(self, told: Mapping[str, object]) -> object:
        name = text_under(told, "observation")
        content = text_under(told, "content") or text_under(told, "message")
        call_id = text_under(told, "tool_call_metadata", "tool_call_id") or self._asked.get(str(told.get("cause")), "")
        if not call_id:
            if name == "error":
                return SystemFailure(content=content)
            return None
        failed = name == "error" or under(told, "extras", "is_error") is True
        return result(call_id, content, name=name, failed=failed)


def _openhands_content(blocks: object) -> object:
    """Texts as one text; with images, the parts as chat-completions has them."""
    if not isinstance(blocks, list) or all(text_under(one, "type") in ("text", "") for one in blocks):
        return texts(blocks)
    parts: list[Json] = []
    for one in blocks:
        urls = under(one, "image_urls")
        if isinstance(urls, list):
            parts += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        else:
            parts.append({"type": "text", "text": text_under(one, "text")})
    return parts


def _thoughts(told: Mapping[str, object]) -> str:
    return "\n".join(filter(None, (text_under(one, "thinking") for one in objects(told, "thinking_blocks"))))
