"""Entries of a Claude session's transcript: which are messages, what these say, and a transcript without some of them.

An entry is a line of the transcript as JSON. Its `message` is as in Anthropic's API, but each block of a response has
an entry; `parentUuid` is the entry that it continues from.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from memory_engine.integrations.entries import recordable

Entry = dict[str, Any]

_FLAGS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")
_REPEATED_MIN = 8
"""Characters of a text from which on an entry that is not a message counts as repeating it."""


def uuid_of(entry: Entry) -> str:
    """The entry's `uuid`; empty for an entry without one."""
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) else ""


def message_of(entry: Entry, *, of_agent: bool) -> Entry | None:
    """The message in an entry, as Anthropic's API has it and with the client's flags; `None` for any other entry.

    In a session's own transcript, a sub-agent's entries are not messages.
    """
    message = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or not isinstance(message, dict):
        return None
    if message.get("role") != entry["type"] or not message.get("content"):
        return None
    if entry.get("isSidechain") is True and not of_agent:
        return None
    found = {"role": message["role"], "content": message["content"]}
    found |= {flag: entry[flag] for flag in _FLAGS if flag in entry}
    if message["role"] == "assistant" and isinstance(message.get("id"), str):
        found |= {"type": "message", "id": message["id"], "stop_reason": None}
    return recordable(found)


def entry_blocks(entry: Entry) -> list[Entry]:
    """The blocks of an entry's message; a text is one block."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def is_prompt(entry: Entry) -> bool:
    """Whether an entry is a message to the agent that answers no call."""
    is_users = entry.get("type") == "user" and entry.get("isCompactSummary") is not True
    return is_users and bool(entry_blocks(entry)) and not _result_ids(entry)


def answers_only(entry: Entry) -> bool:
    """Whether an entry holds results of calls."""
    return bool(_result_ids(entry))


def claude_message_text(message: Entry) -> str:
    """The texts of a message and of the results in it."""
    texts = []
    for block in entry_blocks({"message": message}):
        texts += [found for key in ("text", "content") for found in _texts_in(block.get(key))]
    return "\n".join(texts)


def _texts_in(content: object) -> list[str]:
    if isinstance(content, str):
        return [content] if content else []
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def strings(entry: Entry) -> dict[str, str]:
    """The texts in an entry, by their paths: those that its message says are not stored twice."""
    return dict(_strings(entry, ""))


def _strings(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if "/" in key:
                continue
            if isinstance(one, str):
                if len(one) >= _REPEATED_MIN:
                    yield f"{place}{key}", one
            else:
                yield from _strings(one, f"{place}{key}/")
    elif isinstance(value, list):
        for n, one in enumerate(value):
            yield from _strings(one, f"{place}{n}/")


def without(entries: Sequence[Entry], gone: Collection[int]) -> list[Entry]:
    """The entries but for those at these places, and what belongs to them.

    Calls go with their results and results with their calls, since a model takes neither alone; so do entries that are
    not messages and repeat a text of theirs. Entries after them continue from those before them.
    """
    left = set(gone)
    while more := _paired(entries, left):
        left |= more
    said = [text for n in left for text in _repeatable_texts(entries[n])]
    left |= {n for n, entry in enumerate(entries) if n not in left and _repeats(entry, said)}
    before = {uuid_of(entries[n]): entries[n].get("parentUuid") for n in left if uuid_of(entries[n])}
    return [_continued(entry, before) for n, entry in enumerate(entries) if n not in left]


def _paired(entries: Sequence[Entry], left: Collection[int]) -> set[int]:
    """The places of entries with the other half of a call in one that is left out."""
    ids = {one for n in left for one in (*_call_ids(entries[n]), *_result_ids(entries[n]))}
    if not ids:
        return set()
    pairs = ((n, {*_call_ids(entry), *_result_ids(entry)}) for n, entry in enumerate(entries) if n not in left)
    return {n for n, own in pairs if not ids.isdisjoint(own)}


def _call_ids(entry: Entry) -> list[str]:
    return [str(block.get("id")) for block in entry_blocks(entry) if block.get("type") == "tool_use"]


def _result_ids(entry: Entry) -> list[str]:
    return [str(block.get("tool_use_id")) for block in entry_blocks(entry) if block.get("type") == "tool_result"]


def _repeatable_texts(entry: Entry) -> list[str]:
    held = (block.get(key) for block in entry_blocks(entry) for key in ("text", "thinking", "content"))
    return [text for one in held for text in _texts_in(one) if len(text) >= _REPEATED_MIN]


def _repeats(entry: Entry, said: Sequence[str]) -> bool:
    """Whether an entry that is not a message holds one of these texts, or a part of one."""
    if not said or entry.get("type") in ("user", "assistant"):
        return False
    own = [text for _, text in _strings(entry, "") if len(text) >= _REPEATED_MIN]
    return any(one in text or text in one for one in own for text in said)


def _continued(entry: Entry, before: Mapping[str, Any]) -> Entry:
    parent = entry.get("parentUuid")
    seen = set[str]()
    while isinstance(parent, str) and parent in before and parent not in seen:
        seen.add(parent)
        parent = before[parent]
    return entry if parent == entry.get("parentUuid") else {**entry, "parentUuid": parent}
