"""Messages of LangChain as its own code writes them: `messages_to_dict`, `dumpd`, `model_dump`."""

from collections.abc import Iterator, Mapping

from memory_engine.core.moments import moment
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.formats.detection import is_langchain
from memory_engine.formats.langchain import plain_message
from memory_engine.ingest.dialects import (
    Json,
    chat_call,
    objects,
    parts_of,
    response,
    result,
    role_message,
    role_of,
    text_under,
    texts,
    under,
    usage_of,
)


class LangChain:
    """Reads lists and lines of messages, and objects that hold such a list as `messages`."""

    name = "langchain"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first value is a message of LangChain's."""
        return any(is_langchain(one) for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The one conversation of the file."""
        yield RecordedConversation(_records(file))


def _records(file: RecordedFile) -> Iterator[Record | IngestError]:
    for record in file.records:
        if isinstance(record, IngestError) or not isinstance(record.value, Mapping):
            yield record
        else:
            at = moment(under(plain_message(record.value), "response_metadata", "created_at"))
            yield from parts_of(record, [lc_message(record.value)], at=at)


def lc_message(told: Mapping[str, object]) -> Json:
    """The message as chat-completions has it."""
    fields = plain_message(told)
    kind = text_under(fields, "type")
    role = role_of(text_under(fields, "role") if kind == "chat" else kind)
    content = fields.get("content")
    match role:
        case "tool":
            call_id = text_under(fields, "tool_call_id") or text_under(fields, "name")
            failed = fields.get("status") == "error"
            return result(call_id, _langchain_chat_content(content), name=text_under(fields, "name"), failed=failed)
        case "assistant":
            return _langchain_answer(fields)
    message = role_message(role, _langchain_chat_content(content))
    name = text_under(fields, "name")
    return {**message, "name": name} if name and role == "user" else message


def _langchain_answer(fields: Mapping[str, object]) -> Json:
    told = objects(fields, "tool_calls") or objects(fields, "additional_kwargs", "tool_calls")
    calls = [chat_call(one, n) for n, one in enumerate([*told, *objects(fields, "invalid_tool_calls")])]
    blocks = objects(fields, "content")
    thoughts = "\n".join(
        filter(None, (text_under(one, "thinking") or text_under(one, "reasoning") for one in blocks))
    ) or text_under(fields, "additional_kwargs", "reasoning_content")
    content = fields.get("content")
    text = content if isinstance(content, str) else texts([one for one in blocks if one.get("type") in ("text", None)])
    usage = usage_of(fields.get("usage_metadata")) or usage_of(under(fields, "response_metadata", "token_usage"))
    usage = usage or usage_of(under(fields, "response_metadata", "usage"))
    metadata = under(fields, "response_metadata")
    model = text_under(metadata, "model_name") or text_under(metadata, "model")
    named = text_under(fields, "id") or text_under(metadata, "id")
    return response(role_message("assistant", text, calls, thoughts), {"id": named, "model": model, "usage": usage})


def _langchain_chat_content(content: object) -> object:
    """A text, or parts as chat-completions has them, where there are images among them."""
    if isinstance(content, str):
        return content
    blocks = objects({"content": content}, "content")
    if any(one.get("type") == "image_url" for one in blocks):
        return [dict(one) for one in blocks if one.get("type") in ("text", "image_url")]
    return texts(content)
