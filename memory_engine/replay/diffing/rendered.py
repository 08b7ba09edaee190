"""What a model is sent, as bytes and as lines: for comparing two contexts."""

import difflib
from collections.abc import Sequence
from itertools import islice

from memory_engine.codec import encode_json
from memory_engine.context.rendering import Message

AROUND = 3
"""Lines that are shown around a change."""
COMPARED_MAX = 2_000
"""Lines of either side that are compared one by one; more are shown as replaced."""


def message_bytes(message: Message) -> bytes:
    """A message as it goes to a provider, as far as that can be known: deterministic JSON, and a line break."""
    return encode_json(message) + b"\n"


def rendered(messages: Sequence[Message]) -> bytes:
    """All messages, one after the other: what a prompt cache compares from its beginning."""
    return b"".join(map(message_bytes, messages))


def kept_bytes(before: bytes, after: bytes) -> int:
    """How many bytes at the beginning are the same."""
    length = min(len(before), len(after))
    if before[:length] == after[:length]:
        return length
    low, high = 0, length  # the first `low` are the same, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle
    return low


def text_lines(messages: Sequence[Message]) -> list[str]:
    """The messages as people read them: what each says, line by line, its role before the first."""
    return [line for message in messages for line in f"{message['role']}: {message_text(message)}".split("\n")]


def message_text(message: Message) -> str:
    """Everything a message says, with its calls."""
    content = message.get("content")
    parts = [content] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = [part["text"] if part["type"] == "text" else "[image]" for part in content]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        parts.append(f"→ {call['function']['name']}({call['function']['arguments']})")
    if message.get("tool_call_id"):
        parts.insert(0, f"[{message['tool_call_id']}]")
    return "\n".join(part for part in parts if part)


def unified(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The lines of a unified diff, `@@` headers with it, the names of files not."""
    if list(before) == list(after):
        return []
    start = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    shared = min(len(before), len(after)) - start
    tail = next((n for n in range(shared) if before[-1 - n] != after[-1 - n]), shared)
    first, last = max(0, start - AROUND), max(0, tail - AROUND)
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if len(old) > COMPARED_MAX or len(new) > COMPARED_MAX:
        return _replaced(before, after, start, tail)
    found = islice(difflib.unified_diff(old, new, lineterm="", n=AROUND), 2, None)
    return [_moved(line, first) if line.startswith("@@") else line for line in found]


def _replaced(before: Sequence[str], after: Sequence[str], start: int, tail: int) -> list[str]:
    old, new = before[start : len(before) - tail], after[start : len(after) - tail]
    head = f"@@ -{start + 1},{len(old)} +{start + 1},{len(new)} @@"
    return [head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _moved(head: str, by: int) -> str:
    """A header whose lines are counted from the beginning."""
    _, old, new, _ = head.split(" ", 3)
    return f"@@ {_counted(old, by)} {_counted(new, by)} @@"


def _counted(span: str, by: int) -> str:
    line, comma, count = span[1:].partition(",")
    return f"{span[0]}{int(line) + by}{comma}{count}"
