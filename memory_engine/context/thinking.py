"""The thinking that is sent back to a model: that of the running tool loop and of the newest response, and no other.

A provider that signs or encrypts its reasoning wants it back unchanged, with the calls that it led to, until the loop
ends. The newest response goes back unchanged, so its thinking does too, whether it calls or not. A loop runs
if the model's last response made calls; it extends back to the last preceding message of a person, or to a final
answer: a response without calls that is followed by something other than the model.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memory_engine.context.invariants import ANSWERS
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.lazy import lazy_module, regex
from memory_engine.core.origins import SPOKEN
from memory_engine.core.tokens import TokenCounter

if TYPE_CHECKING:
    from memory_engine.formats import native
else:
    native = lazy_module("memory_engine.formats.native")

THINKING_SHARE = 0.5
"""Share of a budget that thinking may take. Above it only the last response's thinking is kept, and if that is too
much, none: then call the model without thinking."""
ENCRYPTED_CHARS_PER_TOKEN = 5.5
"""Estimate for reasoning available only in encrypted form: base64 of about four bytes per token."""
SEALS = {
    "anthropic": ("signature", "data"),
    "openai.responses": ("encrypted_content", "id"),
    "gemini": ("thought",),
    "langchain": ("type",),
}
"""The keys by which a provider knows its reasoning again: a signature, encrypted content, its id in the store.

Gemini takes a thought as it came, and has its signatures on the parts that it led to. LangChain hands every block of
reasoning to a provider that is not known here."""
THOUGHTS_BACK = 64
"""Number of the newest chunks among which a response of nothing but thinking is looked for."""
_GIVEN_ID = regex(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|message-\d+")
"""Ids that the engine gives to responses whose provider names none."""


def is_recorded(chunk: Chunk) -> bool:
    """Return whether a response was recorded as its provider sent it; `chunk` is its last."""
    return '"response":' in chunk.native or _GIVEN_ID.fullmatch(chunk.response_id) is not None


def is_sealed(chunk: Chunk) -> bool:
    """Return whether a provider can verify this thinking, whatever can be read of it."""
    return bool(chunk.status) or any(
        isinstance(entry, dict) and any(entry.get(key) for key in keys) for entry, keys in _sealed_entries(chunk.native)
    )


def _sealed_entries(kept: str) -> Iterator[tuple[object, tuple[str, ...]]]:
    for form, keys in SEALS.items():
        message = native.from_native(kept, form).get("message")
        for entry in message if isinstance(message, list) else ():
            yield (entry.get(native.WHOLE, entry) if isinstance(entry, dict) else entry), keys


def running_thinking(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the thinking of the tool loop that runs at the end of these chunks (in state order), oldest first."""
    return _running(chunks, next((n for n in range(len(chunks) - 1, -1, -1) if is_response(chunks[n])), -1))


def _running(chunks: Sequence[Chunk], last: int) -> list[Chunk]:
    """Return the running thinking, given the position of the last response."""
    if last < 0 or not _makes_calls(chunks, last):
        return []
    return list(_thinking_before(chunks, last))[::-1]


def carried_thinking(
    chunks: Sequence[Chunk], responded: int, max_tokens: int | None, counter: TokenCounter
) -> tuple[Chunk, ...]:
    """Return the thinking to send that a provider can verify, within its share of a budget (`None`: all of it).

    `responded` is the position of the last response, -1 without one. It is passed in because many messages may
    follow it.
    """
    newest = newest_thinking(chunks, responded)
    there = {chunk.id for chunk in newest}
    running = [chunk for chunk in _running(chunks, responded) if chunk.id not in there]
    verifiable = [chunk for chunk in (*running, *newest) if is_sealed(chunk)]
    if max_tokens is None or thinking_tokens(verifiable, counter) <= max_tokens * THINKING_SHARE:
        return tuple(verifiable)
    if newest and thinking_tokens(newest, counter) <= max_tokens * THINKING_SHARE:
        return tuple(chunk for chunk in newest if is_sealed(chunk))
    calls = (n for n in range(len(chunks) - 1, -1, -1) if chunks[n].calls)
    last = next(calls, -1)
    first = next((n for n in calls if not _same(chunks[n], chunks[last])), -1)
    latest = {chunk.id for chunk in chunks[first + 1 :]}
    kept = tuple(chunk for chunk in verifiable if chunk.id in latest)
    return kept if thinking_tokens(kept, counter) <= max_tokens * THINKING_SHARE else ()


def newest_thinking(chunks: Sequence[Chunk], responded: int) -> list[Chunk]:
    """Return the thinking of the newest response, if it was recorded as its provider sent it, oldest first."""
    first = max(responded, len(chunks) - THOUGHTS_BACK, 0)
    thoughts = (n for n in range(len(chunks) - 1, first - 1, -1) if chunks[n].type == ChunkType.THINKING)
    last = next(thoughts, responded)
    if last < 0 or not chunks[last].response_id or not is_recorded(chunks[last]):
        return []
    found = []
    for n in range(last, -1, -1):
        if not _same(chunks[n], chunks[last]):
            break
        if chunks[n].type == ChunkType.THINKING:
            found.append(chunks[n])
    return found[::-1]


def thinking_tokens(chunks: Sequence[Chunk], counter: TokenCounter) -> int:
    """Return the tokens of thinking in a request, counted from its text or estimated from its encrypted form."""
    return sum(
        counter.count(chunk.text)
        if chunk.text
        else int((len(chunk.native) + len(chunk.status)) / ENCRYPTED_CHARS_PER_TOKEN)
        for chunk in chunks
    )


def _thinking_before(chunks: Sequence[Chunk], last: int) -> Iterator[Chunk]:
    """Yield the thinking of the loop up to the last call, newest first."""
    for n in range(last, -1, -1):
        chunk = chunks[n]
        if chunk.type in SPOKEN or (chunk.type in ANSWERS and _is_final(chunks, n)):
            return
        if chunk.type == ChunkType.THINKING:
            yield chunk


def _is_final(chunks: Sequence[Chunk], n: int) -> bool:
    """Return whether a text ends a loop although calls follow later: what follows directly is not the model's."""
    return not _makes_calls(chunks, n) and not (is_response(chunks[n + 1]) or chunks[n + 1].type == ChunkType.THINKING)


def is_response(chunk: Chunk) -> bool:
    """Return whether the model answers or calls in a chunk."""
    return bool(chunk.calls) or chunk.type in ANSWERS


def _makes_calls(chunks: Sequence[Chunk], n: int) -> bool:
    """Return whether the response that contains a chunk makes calls, by its id or else by the next chunk."""
    chunk = chunks[n]
    if chunk.calls:
        return True
    if chunk.response_id:
        near = chunks[max(0, n - 8) : n + 9]
        return any(other.calls and _same(chunk, other) for other in near)
    return n + 1 < len(chunks) and bool(chunks[n + 1].calls) and not chunks[n + 1].response_id


def _same(one: Chunk, other: Chunk) -> bool:
    return bool(one.response_id) and one.response_id == other.response_id
