"""What providers refuse: a checker for each form, written from the rules that they publish and the errors they give.

Each gives the rules that a request breaks, in words; an empty list for a valid request.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from memory_engine.core.images import image_size
from memory_engine.formats.anthropic import AnthropicInput
from memory_engine.formats.openai_chat import ChatInput
from memory_engine.formats.openai_responses import ResponsesInput

Json = Mapping[str, object]
IMAGE_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
DATA_URL = re.compile(r"data:([^;,]+)(?:;[^,]*)?;base64,(.+)", re.DOTALL)


def broken_in_chat(request: ChatInput) -> list[str]:
    """The rules of chat completions that these messages break."""
    messages: list[Json] = [dict(message) for message in request.messages]
    return [*_chat(messages), *_too_many(messages, "image_url", 500)]


def broken_in_responses(request: ResponsesInput) -> list[str]:
    """The rules of Responses that these items break."""
    items: list[Json] = [dict(item) for item in request.input]
    found = [*_responses(items), *_too_many(items, "input_image", 500)]
    if request.instructions is not None and not request.instructions.strip():
        found.append("instructions are empty")
    return found


def broken_in_anthropic(request: AnthropicInput) -> list[str]:
    """The rules of Anthropic's Messages that this request breaks."""
    messages: list[Json] = [dict(message) for message in request.messages]
    system: list[Json] = [dict(block) for block in request.system]
    images = [*_too_many(messages, "image", 100), *_too_large(messages)]
    return [*_anthropic_system(system), *_anthropic(messages), *_breakpoints(system, messages), *images]


def objects(value: object) -> list[Json]:
    """A list of JSON objects, or an assertion."""
    assert isinstance(value, Sequence)
    assert not isinstance(value, str)
    assert all(isinstance(one, Mapping) for one in value)
    return list(value)


def is_object(text: object) -> bool:
    """Whether a text is JSON of an object."""
    try:
        return isinstance(json.loads(str(text)), dict)
    except ValueError:
        return False


def is_image(url: object) -> bool:
    """Whether OpenAI can see an image by this URL."""
    return is_web(url) or data_type(url) in IMAGE_TYPES


def is_web(url: object) -> bool:
    """Whether a URL can be fetched."""
    return str(url).casefold().startswith(("http://", "https://"))


def data_type(url: object) -> str:
    """The media type of a `data:` URL of well-formed base64, else empty."""
    found = DATA_URL.fullmatch(str(url))
    return found[1] if found and BASE64.fullmatch(found[2]) else ""


def of_type(value: object, kind: str) -> Iterator[Json]:
    """The parts of a type, also those within results."""
    if isinstance(value, Mapping):
        if value.get("type") == kind:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from of_type(one, kind)


def _too_many(messages: list[Json], kind: str, most: int) -> Iterator[str]:
    count = sum(1 for _ in of_type(messages, kind))
    if count > most:
        yield f"{count} images of at most {most}"


# Chat completions.


def _chat(messages: list[Json]) -> Iterator[str]:
    waiting: list[object] = []
    taken: set[object] = set()
    if not messages:
        yield "there are no messages"
    for message in messages:
        role = message["role"]
        if role == "tool":
            if not waiting or waiting.pop(0) != message["tool_call_id"]:
                yield f"a tool message answers no call: {message['tool_call_id']}"
            yield from _text_alone(message["content"])
            continue
        if waiting:
            yield f"calls without their results: {waiting}"
        waiting = []
        match role:
            case "system":
                yield from _text_alone(message["content"])
            case "user":
                yield from _chat_user(message["content"])
            case "assistant":
                calls = objects(message["tool_calls"]) if "tool_calls" in message else []
                waiting = [call["id"] for call in calls]
                yield from _chat_assistant(message, calls, taken)
                taken |= set(waiting)
            case _:
                yield f"no role: {role}"
    if waiting:
        yield f"calls without their results at the end: {waiting}"
    last = messages[-1] if messages else {}
    text = last.get("content")
    if last.get("role") == "assistant" and isinstance(text, str) and text != text.rstrip():
        yield "the last message is of the assistant and ends with white space"


def _chat_assistant(message: Json, calls: list[Json], taken: set[object]) -> Iterator[str]:
    if "tool_calls" in message and not calls:
        yield "an empty list of calls"
    if message.get("content") is not None or not calls:
        yield from _text_alone(message.get("content"))
    for call in calls:
        function = call["function"]
        assert isinstance(function, Mapping)
        yield from _call(call["id"], function["name"], taken, 40)
        taken = taken | {call["id"]}
        if not is_object(function["arguments"]):
            yield f"arguments are not an object: {function['arguments']}"


def _chat_user(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield from _text_alone(content)
        return
    parts = objects(content)
    if not parts:
        yield "an empty list of parts"
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)} if text.strip():
                pass
            case {"type": "image_url", "image_url": {"url": url, **rest}} if is_image(url):
                if not rest.keys() <= {"detail"} or rest.get("detail", "auto") not in ("auto", "low", "high"):
                    yield f"a wrong detail: {rest}"
            case {"type": "file", "file": {"file_id": str(id_)}} if id_ and not id_.startswith("file_"):
                pass
            case {"type": "file", "file": {"file_data": url, "filename": str(name)}} if data_type(url) and name:
                if data_type(url).startswith(("audio/", "video/")):
                    yield f"sound as a document: {part}"
            case {"type": "input_audio", "input_audio": {"data": str(data), "format": "wav" | "mp3"}} if data:
                pass
            case _:
                yield f"no part of a user's message: {part}"


def _text_alone(content: object) -> Iterator[str]:
    if not isinstance(content, str) or not content.strip():
        yield f"not a text with something in it: {content!r}"


def _call(id_: object, name: object, taken: set[object], length: int) -> Iterator[str]:
    if not NAME.fullmatch(str(id_)) or len(str(id_)) > length:
        yield f"not an id of a call: {id_!r}"
    if id_ in taken:
        yield f"two calls of one id: {id_!r}"
    if not NAME.fullmatch(str(name)):
        yield f"not a name of a tool: {name!r}"


# Responses.


def _responses(items: list[Json]) -> Iterator[str]:
    if not items:
        yield "there is no input"
    waiting: list[tuple[object, str]] = []
    taken: set[object] = set()
    for n, item in enumerate(items):
        match item["type"]:
            case str(kind) if kind.endswith("_output"):
                asked = waiting.pop(0) if waiting else ()
                if asked != (item["call_id"], kind.removesuffix("_output")):
                    yield f"an output of no call: {item['call_id']}"
                yield from _input_content(item["output"]) if kind == "function_call_output" else ()
            case str(kind) if kind.endswith("_call") and "call_id" in item:
                if waiting and str(items[n - 1]["type"]).endswith("_output"):
                    yield f"calls without their outputs: {waiting}"
                yield from _call(item["call_id"], item.get("name", "computer"), taken, 64)
                taken.add(item["call_id"])
                waiting.append((item["call_id"], kind))
                if not is_object(item.get("arguments", "{}")):
                    yield f"arguments are not an object: {item['arguments']}"
            case "message":
                yield from _responses_message(item, waiting)
    if waiting:
        yield f"calls without their outputs at the end: {waiting}"
    yield from _reasoning(items)


def _reasoning(items: list[Json]) -> Iterator[str]:
    """Reasoning stands before what it led to, and what is bound to it by an id stands behind it."""
    reasoned = False
    for n, item in enumerate(items):
        kind, following = item["type"], items[n + 1] if n + 1 < len(items) else {}
        if kind == "reasoning":
            reasoned = True
            if not isinstance(item.get("id"), str) or not isinstance(item.get("summary"), list):
                yield f"reasoning without id or summary: {item}"
            if str(following.get("type")).endswith("_output") or following.get("role", "assistant") != "assistant":
                yield "reasoning without what it led to"
            if not following:
                yield "reasoning at the end"
        elif str(kind).endswith("_output") or item.get("role") == "user":
            reasoned = False
        elif not reasoned and ("id" in item or kind not in ("message", "function_call", "custom_tool_call")):
            yield f"an item without the reasoning that it is bound to: {item}"


def _responses_message(item: Json, waiting: Sequence[object]) -> Iterator[str]:
    role, content = item["role"], item["content"]
    if waiting and role != "assistant":
        yield f"calls without their outputs before a message: {waiting}"
    if role == "user":
        yield from _input_content(content)
    elif role == "developer" or (role == "assistant" and isinstance(content, str)):
        yield from _text_alone(content)
    elif role == "assistant":
        for part in objects(content):
            yield from _text_alone(part["text"])
            if part["type"] != "output_text" or "id" not in item or "annotations" not in part:
                yield f"no part of an answer: {part}"
    else:
        yield f"no role: {role}"


def _input_content(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield from _text_alone(content)
        return
    parts = objects(content)
    if not parts:
        yield "an empty list of parts"
    for part in parts:
        match part:
            case {"type": "input_text", "text": str(text)} if text.strip():
                pass
            case {"type": "input_image", "detail": "auto" | "low" | "high" | "original", "image_url": url}:
                if not is_image(url):
                    yield f"not an image: {url}"
            case {"type": "input_image", "detail": "auto" | "low" | "high" | "original", "file_id": str(id_)} if id_:
                pass
            case {"type": "input_file", "file_id": str(id_)} if id_ and not id_.startswith("file_"):
                pass
            case {"type": "input_file", "file_url": url} if is_web(url):
                pass
            case {"type": "input_file", "file_data": url, "filename": str(name)} if data_type(url) and name:
                pass
            case _:
                yield f"no part of input: {part}"


# Anthropic.


def _anthropic_system(system: list[Json]) -> Iterator[str]:
    for block in system:
        if block["type"] != "text":
            yield f"system is text alone: {block}"
        yield from _text_alone(block["text"])


def _anthropic(messages: list[Json]) -> Iterator[str]:
    if not messages or messages[0]["role"] != "user" or messages[-1]["role"] != "user":
        yield "messages begin and end with the user"
    if any(one["role"] == other["role"] for one, other in pairwise(messages)):
        yield "two messages of one role in a row"
    asked: list[object] = []
    taken: set[object] = set()
    for message in messages:
        blocks = objects(message["content"])
        if not blocks:
            yield "a message without content"
        if message["role"] == "user":
            yield from _anthropic_user(blocks, asked)
            asked = []
        elif message["role"] == "assistant":
            asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
            yield from _anthropic_assistant(blocks, taken)
            taken |= set(asked)
        else:
            yield f"no role: {message['role']}"
    yield from _thinking(messages)


def _anthropic_user(blocks: list[Json], asked: list[object]) -> Iterator[str]:
    results = [block for block in blocks if block["type"] == "tool_result"]
    if [block["tool_use_id"] for block in results] != asked:
        yield f"each call is answered in the next message, and nothing else is: {asked}"
    if blocks[: len(results)] != results:
        yield "results stand before all else in their message"
    for block in blocks[len(results) :]:
        yield from _anthropic_content(block)
    for result in results:
        content = result.get("content", "")
        if isinstance(content, str):
            yield from _text_alone(content)
            continue
        if result.get("is_error"):
            yield "a failed result is text alone"
        for block in objects(content):
            yield from _anthropic_content(block)


def _anthropic_content(block: Json) -> Iterator[str]:
    match block:
        case {"type": "text", "text": str(text)} if text.strip():
            pass
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            if kind not in IMAGE_TYPES or not data or not BASE64.fullmatch(data):
                yield f"not an image: {block}"
        case {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": str(data)}}:
            if not data or not BASE64.fullmatch(data):
                yield f"not a PDF: {block}"
        case {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": str(text)}}:
            yield from _text_alone(text)
        case {"type": "image" | "document", "source": {"type": "url", "url": url}} if is_web(url):
            pass
        case {"type": "image" | "document", "source": {"type": "file", "file_id": str(id_)}} if id_[:5] == "file_":
            pass
        case {"type": "container_upload" | "search_result"}:
            pass
        case _:
            yield f"no block of a user's message: {block}"
    if not str(block.get("title", "x")).strip():
        yield "an empty title"


def _anthropic_assistant(blocks: list[Json], taken: set[object]) -> Iterator[str]:
    if blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        yield "the last block of an assistant's message is thinking"
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)} if text.strip():
                pass
            case {"type": "tool_use", "id": id_, "name": name, "input": {}}:
                yield from _call(id_, name, taken, 64)
                taken = taken | {id_}
            case {"type": "thinking", "thinking": str(), "signature": str(signature)} if signature:
                pass
            case {"type": "redacted_thinking", "data": str(data)} if data:
                pass
            case {"type": "server_tool_use" | "web_search_tool_result"}:
                pass
            case _:
                yield f"no block of an assistant's message: {block}"


def _thinking(messages: list[Json]) -> Iterator[str]:
    """Thinking stands in a loop that runs, and begins the last response of it if it is in it."""
    with_thinking = [n for n, one in enumerate(messages) if _has(one, "thinking") or _has(one, "redacted_thinking")]
    answers = [n for n, one in enumerate(messages) if one["role"] == "assistant"]
    if with_thinking and not _has(messages[answers[-1]], "tool_use"):
        yield "thinking after the end of its loop"


def _has(message: Json, kind: str) -> bool:
    return any(block["type"] == kind for block in objects(message["content"]))


def _too_large(messages: list[Json]) -> Iterator[str]:
    """A side of an image has at most 8,000 px, in a request of more than twenty 2,000."""
    images = list(of_type(messages, "image"))
    most = 2_000 if len(images) > 20 else 8_000
    for image in images:
        match image["source"]:
            case {"type": "base64", "media_type": kind, "data": data}:
                size = image_size(f"data:{kind};base64,{data}")
                if size is not None and max(size) > most:
                    yield f"an image of {size} px, of at most {most} to a side"


def _breakpoints(system: list[Json], messages: list[Json]) -> Iterator[str]:
    blocks = [*system, *(block for message in messages for block in objects(message["content"]))]
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > 4:
        yield f"{len(marked)} breakpoints of at most four"
    if any(block["type"] in ("thinking", "redacted_thinking") for block in marked):
        yield "a breakpoint on thinking"
