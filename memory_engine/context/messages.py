"""Valid chat-completions from rendered chunks: pairs adjacent, every call answered once, nothing too long."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from memory_engine.chunks import Chunk
from memory_engine.context.invariants.answers import NOBODY
from memory_engine.context.rendering import Message
from memory_engine.tokens import IMAGE_TOKENS, TokenCounter

MESSAGE_FRAME = 4
"""Tokens that each message takes beyond its text (role and delimiters)."""
NO_RESULT = "[no result yet]"
"""Stands for the result of a call that has none: providers refuse an unanswered call."""
TEXT_TOKENS_MIN = 24
"""A text is never cut below this."""


class Piece(msgspec.Struct, frozen=True):
    """A chunk with its messages and its position in the state."""

    chunk: Chunk
    messages: tuple[Message, ...]
    position: int
    shortened: bool = False


def assemble(pieces: Iterable[Piece]) -> list[Message]:
    """The messages in order, each result directly after its call.

    A placeholder stands where a call has no result, a note for a result whose call is not there.
    """
    flat = [(piece.chunk, message) for piece in pieces for message in piece.messages]
    answers = _answers(flat)
    result: list[Message] = []
    used: set[int] = set()
    for n, (_, message) in enumerate(flat):
        if message.get("role") == "tool":
            continue
        result.append(message)
        for call_id in _call_ids(message):
            answer = answers.pop((n, call_id), None) or answers.pop((NOBODY, call_id), None)
            if answer is not None:
                used.add(id(answer))
            result.append(answer or {"role": "tool", "tool_call_id": call_id, "content": NO_RESULT})
    if len(used) < sum(message.get("role") == "tool" for _, message in flat):
        return _with_strays(flat, result, used)
    return result


def _answers(flat: Sequence[tuple[Chunk, Message]]) -> dict[tuple[int, str], Message]:
    """The last word on each call, by the place of its message and its id: the first final result, else the first.

    A result belongs to the latest call of its id before it: some models number their calls anew each time.
    """
    asking: dict[str, int] = {}
    final: dict[tuple[int, str], Message] = {}
    any_: dict[tuple[int, str], Message] = {}
    for n, (chunk, message) in enumerate(flat):
        if message.get("role") == "tool":
            call_id = str(message["tool_call_id"])
            place = asking.get(call_id, NOBODY), call_id
            any_.setdefault(place, message)
            if chunk.final:
                final.setdefault(place, message)
        else:
            asking.update(dict.fromkeys(_call_ids(message), n))
    return any_ | final


def _call_ids(message: Message) -> list[str]:
    calls = message.get("tool_calls")
    return [str(call["id"]) for call in calls] if isinstance(calls, list) else []


def _with_strays(flat: Sequence[tuple[Chunk, Message]], result: list[Message], used: set[int]) -> list[Message]:
    """Put each tool message that answers no call here, as a note, after what stood before it."""
    place = {id(message): n for n, message in enumerate(result)}
    notes: dict[int, list[Message]] = {}
    at = -1
    for chunk, message in flat:
        if message.get("role") == "tool" and id(message) not in used:
            kind = "Result" if chunk.final else "Intermediate result"
            note: Message = {"role": "user", "content": f"[{kind} of call {chunk.call_id}] {chunk.text}"}
            notes.setdefault(at, []).append(note)
        else:
            at = max(at, place[id(message)])
    for n in sorted(notes, reverse=True):
        following = n + 1
        while following < len(result) and result[following].get("role") == "tool":
            following += 1
        result[following:following] = notes[n]
    return result


def message_tokens(message: Message, counter: TokenCounter) -> int:
    """Tokens of a message: its texts, a flat price for an image, and the frame."""
    total = MESSAGE_FRAME
    content = message.get("content")
    if isinstance(content, str):
        total += counter.count(content)
    elif isinstance(content, list):
        total += sum(counter.count(p["text"]) if p["type"] == "text" else IMAGE_TOKENS for p in content)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            total += counter.count(call["function"]["name"]) + counter.count(call["function"]["arguments"])
    return total


def shorten(pieces: Sequence[Piece], room: int, counter: TokenCounter) -> tuple[Piece, ...] | None:
    """The pieces with their longest texts cut so that they fit into `room`; `None` where they cannot."""
    current = list(pieces)
    for _ in range(64):
        over = sum(message_tokens(m, counter) for m in assemble(current)) - room
        if over <= 0:
            return tuple(current)
        sizes = [_text_tokens(piece, counter) for piece in current]
        longest = max(range(len(current)), key=sizes.__getitem__)
        target = max(TEXT_TOKENS_MIN, sizes[longest] - over - 16)
        if target >= sizes[longest]:
            return None
        current[longest] = _cut(current[longest], target, sizes[longest])
    return None


def _text_tokens(piece: Piece, counter: TokenCounter) -> int:
    texts = [content for m in piece.messages if isinstance(content := m.get("content"), str)]
    return sum(map(counter.count, texts))


def _cut(piece: Piece, tokens: int, of: int) -> Piece:
    """The piece with its texts cut to about `tokens` of `of`, head and tail kept, saying what was left out."""
    messages = tuple(
        {**message, "content": _cut_text(content, tokens, of, piece.chunk.id)}
        if isinstance(content := message.get("content"), str)
        else message
        for message in piece.messages
    )
    return replace(piece, messages=messages, shortened=True)


def _cut_text(text: str, tokens: int, of: int, chunk_id: str) -> str:
    keep = max(40, len(text) * tokens // max(of, 1) - 40)
    if keep >= len(text):
        return text
    head, tail = text[: keep * 2 // 3], text[len(text) - keep // 3 :]
    return f"{head} [… {len(text) - len(head) - len(tail)} characters of {chunk_id} …] {tail}"
