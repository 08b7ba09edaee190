"""The thinking that a model gets back: that of the running tool loop, and no other.

A provider that signs or encrypts its reasoning wants it back unchanged with the calls that it led to, until the loop
is done; then it wants it no longer. A loop runs when the last thing the model did was to call; it reaches back to the
last message of a person before that, or to a final answer: a response that calls nothing, and after which something
else than the model comes next.
"""

from collections.abc import Iterator, Sequence

from memory_engine.context.invariants import ANSWERS
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.origins import SPOKEN
from memory_engine.core.tokens import TokenCounter

THINKING_SHARE = 0.5
"""The share of a budget that thinking may take. Beyond it only the last response's is kept, and if need be none: then
call the model without thinking."""
ENCRYPTED_CHARS_PER_TOKEN = 5.5
"""An estimate for reasoning of which only an encrypted form is there: base64 of about four bytes a token."""


def running_thinking(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The thinking of the tool loop that runs at the end of these chunks (in the order of the state), oldest first."""
    return _running(chunks, next((n for n in range(len(chunks) - 1, -1, -1) if _is_response(chunks[n])), -1))


def _running(chunks: Sequence[Chunk], last: int) -> list[Chunk]:
    """The same where the position of the last response is known."""
    if last < 0 or not _calls(chunks, last):
        return []
    return list(_before(chunks, last))[::-1]


def carried_thinking(
    chunks: Sequence[Chunk], responded: int, max_tokens: int | None, counter: TokenCounter
) -> tuple[Chunk, ...]:
    """The running thinking that a provider can verify, within its share of a budget (`None`: all of it).

    `responded` is the position of the last response, -1 if there is none: it may stand behind many messages.
    """
    verifiable = [chunk for chunk in _running(chunks, responded) if chunk.status or chunk.native]
    if max_tokens is None or thinking_tokens(verifiable, counter) <= max_tokens * THINKING_SHARE:
        return tuple(verifiable)
    calls = (n for n in range(len(chunks) - 1, -1, -1) if chunks[n].calls)
    last = next(calls, -1)
    first = next((n for n in calls if not _same(chunks[n], chunks[last])), -1)
    latest = {chunk.id for chunk in chunks[first + 1 :]}
    kept = tuple(chunk for chunk in verifiable if chunk.id in latest)
    return kept if thinking_tokens(kept, counter) <= max_tokens * THINKING_SHARE else ()


def thinking_tokens(chunks: Sequence[Chunk], counter: TokenCounter) -> int:
    """The tokens that thinking takes in a request, by its text; estimated where only an encrypted form is there."""
    return sum(
        counter.count(chunk.text) if chunk.text else int(len(chunk.native) / ENCRYPTED_CHARS_PER_TOKEN)
        for chunk in chunks
    )


def _before(chunks: Sequence[Chunk], last: int) -> Iterator[Chunk]:
    """The thinking before the last call, newest first, as far as the loop reaches back."""
    for n in range(last, -1, -1):
        chunk = chunks[n]
        if chunk.type in SPOKEN or (chunk.type in ANSWERS and _is_final(chunks, n)):
            return
        if chunk.type == ChunkType.THINKING:
            yield chunk


def _is_final(chunks: Sequence[Chunk], n: int) -> bool:
    """Whether a text ends a loop though calls follow later: whatever made the agent go on is the next thing said."""
    return not _calls(chunks, n) and not (_is_response(chunks[n + 1]) or chunks[n + 1].type == ChunkType.THINKING)


def _is_response(chunk: Chunk) -> bool:
    return bool(chunk.calls) or chunk.type in ANSWERS


def _calls(chunks: Sequence[Chunk], n: int) -> bool:
    """Whether the response that a chunk belongs to calls something: by its id, else by what stands right after it."""
    chunk = chunks[n]
    if chunk.calls:
        return True
    if chunk.response_id:
        near = chunks[max(0, n - 8) : n + 9]
        return any(other.calls and _same(chunk, other) for other in near)
    return n + 1 < len(chunks) and bool(chunks[n + 1].calls) and not chunks[n + 1].response_id


def _same(one: Chunk, other: Chunk) -> bool:
    return bool(one.response_id) and one.response_id == other.response_id
