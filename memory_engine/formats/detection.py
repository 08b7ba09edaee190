"""Which format messages have, by what only one of them says."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

from memory_engine.errors import InvalidMessage

Format = Literal["openai.chat", "openai.responses", "anthropic", "gemini", "langchain"]
"""The formats of messages: chat-completions, Responses items, Anthropic's, Gemini's contents, LangChain's."""
FORMATS: tuple[Format, ...] = get_args(Format)
_MODULES: Mapping[str, Format] = {
    "openai.types.responses": "openai.responses",
    "openai.types.chat": "openai.chat",
    "anthropic": "anthropic",
    "google.genai": "gemini",
    "langchain_core.messages": "langchain",
}
"""Where the objects of the providers' SDKs are defined."""
_LANGCHAIN = frozenset("ai aimessagechunk chat developer function human system tool".split())
"""Types of LangChain's messages, which have no role."""
_CHAT_KEYS = frozenset("tool_calls function_call tool_call_id refusal audio reasoning_content choices".split())
_PARTS: Mapping[str, Format] = {
    **dict.fromkeys("image_url input_audio file".split(), FORMATS[0]),
    **dict.fromkeys("input_text input_image input_file output_text".split(), FORMATS[1]),
    **dict.fromkeys(
        "image document tool_use tool_result thinking redacted_thinking search_result server_tool_use "
        "container_upload".split(),
        FORMATS[2],
    ),
}
"""Types of parts that one format alone has."""
_ANTHROPIC_PART_KEYS = frozenset({"cache_control", "citations"})
"""Keys of a text that are Anthropic's, which proxies take in other formats too."""


def checked(format: str | None) -> Format | None:
    """A format that a caller names. Raises `InvalidMessage` for one that is not known."""
    known: Format
    for known in FORMATS:
        if format == known:
            return known
    if format is None:
        return None
    raise InvalidMessage("$", f"the format {format!r} is not one of {', '.join(FORMATS)}")


def of_object(value: object) -> Format | None:
    """The format of an object of an SDK, by the module that defines its class."""
    modules = [base.__module__ for base in type(value).__mro__]
    return next((known for name, known in _MODULES.items() for one in modules if one.startswith(name)), None)


def detected(values: Sequence[object], hints: Iterable[Format | None] = ()) -> Format:
    """The format of messages, as plain JSON. Messages of a role and a text mean the same in each: `openai.chat`.

    Raises `InvalidMessage` where they are of several formats.
    """
    found: dict[Format, str] = {}
    for hint in hints:
        if hint is not None:
            found[hint] = "$"
    for n, value in enumerate(values):
        for sign in _signs(value):
            found.setdefault(sign, f"$[{n}]")
    if not found and any(map(_has_marks, values)) and not any(map(_is_developers, values)):
        return "anthropic"
    if len(found) > 1:
        told = " and ".join(found)
        raise InvalidMessage(list(found.values())[-1], f"these are messages of {told}; say which with `format`")
    return next(iter(found)) if found else "openai.chat"


def unambiguous_format(values: Sequence[object]) -> Format | None:
    """The format that messages of a file show by themselves; `None` where they mean the same in each.

    Files of chat-completions may have keys of their own, so less is a sign than in `detected`: not the `type` of a
    message that has a role, nor marks on texts. Raises `InvalidMessage` where they are of several formats.
    """
    bare = [_without_type(value) for value in values]
    return detected(bare) if any(any(_signs(value)) for value in bare) else None


def _without_type(value: object) -> object:
    if not isinstance(value, Mapping) or "role" not in value:
        return value
    return {key: one for key, one in value.items() if key != "type"}


def _signs(value: object) -> Iterable[Format]:
    """The formats that a message shows signs of."""
    if not isinstance(value, Mapping):
        return
    if is_langchain(value):
        yield "langchain"
        return
    if value.get("object") == "response":
        yield "openai.responses"
    elif value.get("object") == "chat.completion" or not _CHAT_KEYS.isdisjoint(value) or _is_tool(value):
        yield "openai.chat"
    elif "candidates" in value or isinstance(value.get("parts"), list):
        yield "gemini"
    elif "stop_reason" in value:
        yield "anthropic"
    elif isinstance(value.get("type"), str):
        yield "openai.responses"
    for part in _parts_in(value):
        known = _PARTS.get(str(part.get("type")))
        if known is not None:
            yield known
        elif part.get("type") == "refusal" and "type" not in value:  # an item of Responses says its own type too
            yield "openai.chat"


def is_langchain(value: Mapping[str, object]) -> bool:
    """Whether a message is LangChain's: as `message_to_dict`, `dumpd` or `model_dump` write it."""
    if "lc" in value or isinstance(value.get("kwargs"), Mapping):
        named = value.get("id")
        return isinstance(named, list) and bool(named) and str(named[-1]).endswith(("Message", "MessageChunk"))
    if str(value.get("type")).casefold() not in _LANGCHAIN or ("role" in value and value["type"] != "chat"):
        return False
    return isinstance(value.get("data"), Mapping) or "content" in value


def _parts_in(value: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    content = value.get("content")
    return (part for part in content if isinstance(part, Mapping)) if isinstance(content, list) else iter(())


def _has_marks(value: object) -> bool:
    return isinstance(value, Mapping) and any(not _ANTHROPIC_PART_KEYS.isdisjoint(part) for part in _parts_in(value))


def _is_developers(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("role") == "developer"


def _is_tool(value: Mapping[str, object]) -> bool:
    return value.get("role") in ("tool", "function")


def of_stream(value: Mapping[str, object]) -> Format:
    """The format of the first chunk, or event, of a stream. Raises `InvalidMessage`."""
    kind = str(value.get("type", ""))
    if value.get("object") == "chat.completion.chunk" or "choices" in value or kind == "chunk":
        return "openai.chat"
    if not kind and "error" in value:
        return "openai.chat"
    if "candidates" in value:
        return "gemini"
    if is_langchain(value):
        return "langchain"
    if kind.startswith("response."):
        return "openai.responses"
    if kind.startswith(("message_", "content_block_")) or kind in ("ping", "error"):
        return "anthropic"
    raise InvalidMessage("$", "a chunk of a stream that no format begins with; say which with `format`")
