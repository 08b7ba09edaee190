"""The exports of ChatGPT and of Claude.ai: trees of messages.

The branch last seen is the conversation; each other becomes a fork, from the last message that both have in common.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from attrs import define, evolve, field

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
    role_message,
    text_under,
    texts,
    under,
)

Spoken = Callable[[Record, Mapping[str, object]], Iterator[Record]]
"""The records of a message, at the place that is given."""


@define
class _Tree:
    """A conversation's messages by their keys, of which `main` leads to the one last seen.

    `spots` has for each key that was read the key of the last record up to there.
    """

    record: Record
    label: str
    parents: Mapping[str, str]
    messages: Mapping[str, Mapping[str, object]]
    main: Collection[str]
    spoken: Spoken
    spots: dict[str, str] = field(factory=dict)

    def conversations(self) -> Iterator[RecordedConversation]:
        """The conversation, then its other branches, each after the one that it leaves."""
        tree = self.messages.keys() if len(self.main) < len(self.parents) else ()
        records = self._records(self.main, "")
        yield RecordedConversation(records, label=self.label, line=self.record.line, tree=tree)
        children: dict[str, list[str]] = {}
        for key, parent in self.parents.items():
            children.setdefault(parent if parent in self.parents else "", []).append(key)
        waiting = deque(self._left(["", *self.main], self.main, children, self.label))
        while waiting:
            begin, owner = waiting.popleft()
            path = [begin]
            while under_it := children.get(path[-1]):
                path.append(under_it[-1])
            label = f"{self.label}/branch-{begin}"
            after = self.spots.get(self.parents[begin], "")
            records = self._records(path, after)
            yield RecordedConversation(
                records, label=label, line=self.record.line, branch_of=owner, after=after, tree=tree
            )
            waiting.extend(self._left(path, path, children, label))

    def _left(
        self, path: Iterable[str], taken: Collection[str], children: Mapping[str, Sequence[str]], owner: str
    ) -> Iterator[tuple[str, str]]:
        """Where other branches begin below a path, and which they leave."""
        known = set(taken)
        return ((child, owner) for key in path for child in children.get(key, ()) if child not in known)

    def _records(self, path: Iterable[str], spot: str) -> Iterator[Record]:
        number = 0
        for key in path:
            if key in self.messages:
                number += 1
                parent = self.parents[key] if number > 1 and self.parents[key] in self.parents else ""
                place = evolve(self.record, number=number, is_line=False, key=key, parent=parent)
                for one in self.spoken(place, self.messages[key]):
                    spot = one.key
                    yield one
            self.spots[key] = spot


def _objects(file: RecordedFile) -> Iterator[tuple[Record, Mapping[str, object], str] | IngestError]:
    """Each object of the file with its label."""
    for record in file.records:
        if isinstance(record, IngestError):
            yield record
            continue
        told = record.value if isinstance(record.value, Mapping) else {}
        named = (text_under(told, key) for key in ("conversation_id", "uuid", "id"))
        yield record, told, next(filter(None, named), str(record.number))


class ChatGpt:
    """Reads `conversations.json` of ChatGPT's export."""

    name = "chatgpt"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first object is a conversation with its `mapping`."""
        return any(isinstance(one.get("mapping"), Mapping) for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """Each conversation, as far as it leads to its current node, then its other branches."""
        for found in _objects(file):
            if isinstance(found, IngestError):
                yield found
            else:
                yield from _chatgpt(*found, file).conversations()


def _chatgpt(record: Record, told: Mapping[str, object], label: str, file: RecordedFile) -> _Tree:
    mapping = under(told, "mapping")
    nodes = dict(mapping) if isinstance(mapping, Mapping) else {}
    asked: dict[str, str] = {}

    def spoken(place: Record, message: Mapping[str, object]) -> Iterator[Record]:
        value, origin = _of_chatgpt(place.key, message, asked)
        if value is None:
            file.left_out["empty or hidden message"] += 1
        else:
            yield from parts_of(evolve(place, at=moment(message.get("create_time"))), [value], origin)

    messages = {key: one for key, node in nodes.items() if isinstance(one := under(node, "message"), Mapping)}
    parents = {key: text_under(node, "parent") for key, node in nodes.items()}
    main = _path_to(text_under(told, "current_node"), parents)
    return _Tree(record, label, parents, messages, main, spoken)


def _path_to(leaf: str, parents: Mapping[str, str]) -> Collection[str]:
    """The keys from the root to a leaf; without one, to the message that came last."""
    if leaf not in parents:
        leaf = list(parents)[-1] if parents else ""
    path: dict[str, None] = {}
    while leaf in parents and leaf not in path:
        path[leaf] = None
        leaf = parents[leaf]
    return dict.fromkeys(reversed(path))


def _of_chatgpt(
    key: str, message: Mapping[str, object], asked: dict[str, str]
) -> tuple[Json | None, MessageOrigin | None]:
    role = text_under(message, "author", "role")
    content = under(message, "content")
    kind = text_under(content, "content_type")
    text = _export_text(content)
    if not text:
        return None, None
    if kind in ("user_editable_context", "model_editable_context"):
        return role_message("user", text), "client"
    recipient = text_under(message, "recipient")
    match role:
        case "assistant" if recipient not in ("", "all"):
            asked[recipient] = f"call-{key}"
            arguments = text if text.lstrip().startswith("{") else compact({"input": text})
            value = role_message("assistant", None, [call(f"call-{key}", recipient, arguments)])
        case "assistant" if kind in ("thoughts", "reasoning_recap"):
            value = role_message("assistant", None, thoughts=text)
        case "assistant":
            value = role_message("assistant", text)
        case "tool":
            name = text_under(message, "author", "name")
            found = next((one for one in asked if one == name or one.partition(".")[0] == name.partition(".")[0]), "")
            if not found:
                return role_message("user", text), "tool"
            return result(asked.pop(found), text, name=name, failed=kind == "system_error"), None
        case "system":
            return role_message("system", text), None
        case _:
            return role_message("user", text), ""
    return response(value, {"id": key, "model": text_under(message, "metadata", "model_slug")}), None


def _export_text(content: object) -> str:
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
        """Each conversation, as far as it leads to its current leaf, then its other branches."""
        for found in _objects(file):
            if isinstance(found, IngestError):
                yield found
            else:
                yield from _claude_ai(*found, file).conversations()


def _claude_ai(record: Record, told: Mapping[str, object], label: str, file: RecordedFile) -> _Tree:
    def spoken(place: Record, message: Mapping[str, object]) -> Iterator[Record]:
        files = objects(message, "files")
        if files:
            file.left_out["file without its content"] += len(files)
        origin: MessageOrigin | None = "" if message.get("sender") == "human" else None
        values = list(_of_claude_ai(place.key, message))
        if not values:
            file.left_out["empty or hidden message"] += 1
        yield from parts_of(evolve(place, at=moment(message.get("created_at"))), values, origin)

    messages = {text_under(one, "uuid"): one for one in objects(told, "chat_messages")}
    parents = {key: text_under(one, "parent_message_uuid") for key, one in messages.items()}
    leaf = text_under(told, "current_leaf_message_uuid")
    followed = [parent for parent in parents.values() if parent in parents]
    is_tree = leaf in parents or len(set(followed)) < len(followed)
    return _Tree(record, label, parents, messages, _path_to(leaf, parents) if is_tree else list(parents), spoken)


def _of_claude_ai(key: str, message: Mapping[str, object]) -> Iterator[Json]:
    """The messages of one: a response with calls is cut at their results."""
    blocks = objects(message, "content")
    attached = [text_under(one, "extracted_content") for one in objects(message, "attachments")]
    if message.get("sender") == "human":
        text = texts([block for block in blocks if block.get("type") == "text"]) or text_under(message, "text")
        whole = "\n\n".join(filter(None, (text, *attached)))
        if whole:
            yield role_message("user", whole)
        return
    if not blocks and text_under(message, "text"):
        blocks = [{"type": "text", "text": text_under(message, "text")}]
    asked = ""
    waiting: list[Json] = []
    for n, block in enumerate(blocks):
        match block.get("type"):
            case "tool_result":
                yield from _anthropic_response(key, waiting)
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
    yield from _anthropic_response(key, waiting)


def _anthropic_response(key: str, blocks: list[Json]) -> Iterator[Json]:
    if blocks:
        yield {"type": "message", "role": "assistant", "id": key, "stop_reason": None, "content": blocks}
