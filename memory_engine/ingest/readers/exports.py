"""The exports of ChatGPT and of Claude.ai: trees of messages, of which the branch last seen is read."""

from collections.abc import Callable, Iterator, Mapping

from attrs import evolve

from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.moments import moment
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.formats.values import compact
from memory_engine.ingest.dialects import (
    Json,
    call,
    objects,
    parts_of,
    response,
    result,
    said,
    text_under,
    texts,
    under,
)

Read = Callable[[Record, Mapping[str, object], RecordedFile], Iterator[Record | IngestError]]


def _each(file: RecordedFile, read: Read) -> Iterator[RecordedConversation | IngestError]:
    """A conversation for each object of the file."""
    for record in file.records:
        if isinstance(record, IngestError):
            yield record
            continue
        told = record.value if isinstance(record.value, Mapping) else {}
        named = (text_under(told, key) for key in ("conversation_id", "uuid", "id"))
        label = next(filter(None, named), str(record.number))
        yield RecordedConversation(read(record, told, file), label=label, line=record.line)


class ChatGpt:
    """Reads `conversations.json` of ChatGPT's export."""

    name = "chatgpt"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first object is a conversation with its `mapping`."""
        return any(isinstance(one.get("mapping"), Mapping) for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """Each conversation, as far as it leads to its current node."""
        return _each(file, _chatgpt)


def _chatgpt(record: Record, told: Mapping[str, object], file: RecordedFile) -> Iterator[Record | IngestError]:
    mapping = under(told, "mapping")
    nodes = dict(mapping) if isinstance(mapping, Mapping) else {}
    branch = _branch(nodes, text_under(told, "current_node"))
    others = [key for key, node in nodes.items() if key not in branch and isinstance(under(node, "message"), Mapping)]
    if others:
        file.left_out["message of another branch"] += len(others)
    asked: dict[str, str] = {}
    number = 0
    for key in branch:
        message = under(nodes[key], "message")
        if not isinstance(message, Mapping):
            continue
        number += 1
        value, origin = _of_chatgpt(key, message, asked)
        if value is None:
            file.left_out["empty or hidden message"] += 1
            continue
        at = moment(message.get("create_time"))
        parent = text_under(nodes[key], "parent")
        place = evolve(record, number=number, is_line=False, at=at, key=key, parent=parent if number > 1 else "")
        yield from parts_of(place, [value], origin)


def _branch(nodes: Mapping[str, object], leaf: str) -> dict[str, None]:
    """The keys of the nodes from the root to a leaf; without one, to the node that came last."""
    if leaf not in nodes:
        leaf = list(nodes)[-1] if nodes else ""
    path: dict[str, None] = {}
    while leaf in nodes and leaf not in path:
        path[leaf] = None
        leaf = text_under(nodes[leaf], "parent")
    return dict.fromkeys(reversed(path))


def _of_chatgpt(
    key: str, message: Mapping[str, object], asked: dict[str, str]
) -> tuple[Json | None, MessageOrigin | None]:
    role = text_under(message, "author", "role")
    content = under(message, "content")
    kind = text_under(content, "content_type")
    text = _text_of(content)
    if not text:
        return None, None
    if kind in ("user_editable_context", "model_editable_context"):
        return said("user", text), "client"
    recipient = text_under(message, "recipient")
    match role:
        case "assistant" if recipient not in ("", "all"):
            asked[recipient] = f"call-{key}"
            arguments = text if text.lstrip().startswith("{") else compact({"input": text})
            value = said("assistant", None, [call(f"call-{key}", recipient, arguments)])
        case "assistant" if kind in ("thoughts", "reasoning_recap"):
            value = said("assistant", None, thoughts=text)
        case "assistant":
            value = said("assistant", text)
        case "tool":
            name = text_under(message, "author", "name")
            found = next((one for one in asked if one == name or one.partition(".")[0] == name.partition(".")[0]), "")
            if not found:
                return said("user", text), "tool"
            return result(asked.pop(found), text, name=name, failed=kind == "system_error"), None
        case "system":
            return said("system", text), None
        case _:
            return said("user", text), ""
    return response(value, {"id": key, "model": text_under(message, "metadata", "model_slug")}), None


def _text_of(content: object) -> str:
    found = [text_under(content, "text"), text_under(content, "result"), text_under(content, "content")]
    found += [text_under(content, "user_profile"), text_under(content, "user_instructions")]
    parts = under(content, "parts")
    for part in parts if isinstance(parts, list) else ():
        found.append(part if isinstance(part, str) else text_under(part, "text") or _asset(part))
    found += [
        "\n".join(filter(None, (text_under(one, "summary"), text_under(one, "content"))))
        for one in objects(content, "thoughts")
    ]
    return "\n".join(filter(None, found)).strip()


def _asset(part: object) -> str:
    pointer = text_under(part, "asset_pointer") or text_under(part, "audio_asset_pointer", "asset_pointer")
    return f"[{pointer}]" if pointer else ""


class ClaudeAi:
    """Reads `conversations.json` of Claude.ai's export."""

    name = "claude-ai"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first object is a conversation with its `chat_messages`."""
        return any(isinstance(one.get("chat_messages"), list) for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """Each conversation, as far as it leads to its current leaf."""
        return _each(file, _claude_ai)


def _claude_ai(record: Record, told: Mapping[str, object], file: RecordedFile) -> Iterator[Record | IngestError]:
    messages = objects(told, "chat_messages")
    leaf = text_under(told, "current_leaf_message_uuid")
    nodes = {text_under(one, "uuid"): {"parent": text_under(one, "parent_message_uuid")} for one in messages}
    branch = _branch(nodes, leaf) if leaf in nodes else dict.fromkeys(nodes)
    taken = [one for one in messages if text_under(one, "uuid") in branch]
    if len(taken) < len(messages):
        file.left_out["message of another branch"] += len(messages) - len(taken)
    for number, message in enumerate(taken, 1):
        at = moment(message.get("created_at"))
        parent = text_under(message, "parent_message_uuid")
        key = text_under(message, "uuid")
        place = evolve(
            record,
            number=number,
            is_line=False,
            at=at,
            key=key,
            parent=parent if parent in branch and number > 1 else "",
        )
        files = objects(message, "files")
        if files:
            file.left_out["file without its content"] += len(files)
        origin: MessageOrigin | None = "" if message.get("sender") == "human" else None
        values = list(_of_claude_ai(key, message))
        if not values:
            file.left_out["empty or hidden message"] += 1
        yield from parts_of(place, values, origin)


def _of_claude_ai(key: str, message: Mapping[str, object]) -> Iterator[Json]:
    """The messages of one: a response with calls is cut where their results stand in it."""
    blocks = objects(message, "content")
    attached = [text_under(one, "extracted_content") for one in objects(message, "attachments")]
    if message.get("sender") == "human":
        text = texts([block for block in blocks if block.get("type") == "text"]) or text_under(message, "text")
        whole = "\n\n".join(filter(None, (text, *attached)))
        if whole:
            yield said("user", whole)
        return
    if not blocks and text_under(message, "text"):
        blocks = [{"type": "text", "text": text_under(message, "text")}]
    asked = ""
    waiting: list[Json] = []
    for n, block in enumerate(blocks):
        match block.get("type"):
            case "tool_result":
                yield from _response(key, waiting)
                waiting = []
                call_id = text_under(block, "tool_use_id") or asked
                yield result(call_id, texts(block.get("content")), failed=block.get("is_error") is True)
            case "tool_use":
                asked = text_under(block, "id") or f"{key}-{n}"
                waiting.append(
                    {"type": "tool_use", "id": asked, "name": block.get("name"), "input": block.get("input") or {}}
                )
            case "thinking" if text_under(block, "thinking"):
                thought = {"type": "thinking", "thinking": block["thinking"], "signature": block.get("signature") or ""}
                waiting.append(thought)
            case "text" if text_under(block, "text"):
                waiting.append({"type": "text", "text": block["text"]})
    yield from _response(key, waiting)


def _response(key: str, blocks: list[Json]) -> Iterator[Json]:
    if blocks:
        yield {"type": "message", "role": "assistant", "id": key, "stop_reason": None, "content": blocks}
