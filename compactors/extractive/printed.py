"""The text that a tool printed, where its result is JSON around it."""

from memory_engine.compactors.extractive.structured import Json

PRINTED_KEYS = (
    "stdout",
    "output",
    "stderr",
    "content",
    "contents",
    "text",
    "result",
    "body",
    "data",
    "logs",
    "message",
)
NAMES_KEYS = frozenset(("files", "paths", "entries", "matches", "results", "filenames", "items"))
CODE_KEYS = frozenset(
    ("exit_code", "exitcode", "exitstatus", "exit_status", "returncode", "return_code", "status_code")
)
LINES_MIN = 2
"""Minimum number of lines in a printed text; a shorter one is a value."""


def printed_in(value: Json) -> str | None:
    """Return the text printed inside a result, with an exit code as its last line; `None` if it holds only values."""
    if isinstance(value, list):
        return _of_list(value)
    if not isinstance(value, dict):
        return None
    code = next((one for key, one in value.items() if key.lower() in CODE_KEYS and isinstance(one, str)), None)
    parts = [one for key in PRINTED_KEYS if isinstance(one := value.get(key), str) and one.strip()]
    found = "\n".join(parts)
    if code is not None or found.count("\n") >= LINES_MIN:
        return "\n".join([*([found] if found else []), *([f"exit code {code}"] if code not in (None, "0") else [])])
    lists = [one for key, one in value.items() if isinstance(one, list) and key.lower() in NAMES_KEYS]
    return _of_list(lists[0]) if len(lists) == 1 and all(isinstance(one, str) for one in lists[0]) else None


def _of_list(value: list[Json]) -> str | None:
    """Return a message's parts as their text, or a list of names as one per line."""
    if value and all(isinstance(one, dict) and isinstance(one.get("text"), str) for one in value):
        texts = [one["text"] for one in value if isinstance(one, dict)]
        is_message = all(isinstance(one, dict) and one.get("type") == "text" for one in value)
        return "\n".join(text for text in texts if isinstance(text, str)) if is_message else None
    names = [one for one in value if isinstance(one, str)]
    return "\n".join(names) if len(names) == len(value) > 1 and all("/" in one or "." in one for one in names) else None
