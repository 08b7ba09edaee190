"""Counting tokens: exactly with a tokenizer, or by an estimate that says it is one."""

from collections.abc import Callable
from typing import Protocol

from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Content, ImagePart, Part, TextPart
from memory_engine.core.token_classes import count_by_classes

IMAGE_TOKENS = 765
"""Tokens that providers charge for a typical image (OpenAI: 85 + 170 per tile of 512 px, four tiles)."""
FILE_TOKENS = 2_300
"""Tokens of a page of a PDF (Anthropic: 1,500 to 3,000 for its text), for each page that a file may have."""
PAGE_CHARS = 100_000
"""Characters of a `data:` URL that are taken for a page."""


class TokenCounter(Protocol):
    """Counts the tokens of a text. `exact` says whether a real tokenizer does it."""

    @property
    def name(self) -> str:
        """The tokenizer's name, or `estimate`."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the count is a tokenizer's."""
        ...

    def count(self, text: str) -> int:
        """The tokens of `text`."""
        ...


class EstimatedTokens:
    """Counts by classes of characters: 1.0 to 1.4 times the tokens of OpenAI's o200k, of prose, code and data."""

    name = "estimate"
    exact = False

    def count(self, text: str) -> int:
        """The estimate, rounded up; 0 for no text only."""
        return estimate_text(text)


def estimate_text(text: str) -> int:
    """The tokens of a text by classes of its characters, on the safe side (see `EstimatedTokens`)."""
    return count_by_classes(text)


def recorded_tokens(text: str) -> int:
    """A quarter of the UTF-8 bytes, rounded up: the measure of recorded chunks, which must not change.

    Of data it counts less than half of the tokens: keep budgets by a `TokenCounter`.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (size + 3) >> 2  # as `tokens_of_bytes`: every dispatch and every verification comes by


def tokens_of_bytes(size: int) -> int:
    """The estimate for a number of bytes of UTF-8."""
    return (size + 3) >> 2


def estimate_content(content: Content, of_text: Callable[[str], int] = recorded_tokens) -> int:
    """The estimate for text, or for parts with a flat price for an image and for a page of a file."""
    if isinstance(content, str):
        return of_text(content)
    return sum([_estimate_part(part, of_text) for part in content])


def _estimate_part(part: Part, of_text: Callable[[str], int]) -> int:
    if isinstance(part, ImagePart):
        return IMAGE_TOKENS
    if isinstance(part, TextPart) or part.text:
        return of_text(part.text)
    return file_tokens(part.url)


def file_tokens(url: str) -> int:
    """The tokens of the pages that a file may have: one at least, more for a long `data:` URL."""
    return FILE_TOKENS * (1 + len(url) // PAGE_CHARS)


def estimate_chunk(chunk: Chunk, of_text: Callable[[str], int] = recorded_tokens) -> int:
    """The tokens of the chunk's content, calls, lines and own blocks, without the frame around them.

    `of_text` is the estimate of its content's texts, for a caller that knows it of long ones.
    """
    content = chunk.content
    total = of_text(content) if isinstance(content, str) else estimate_content(content, of_text)
    for call in chunk.calls:
        total += recorded_tokens(call.name) + recorded_tokens(call.arguments)
    for line in chunk.lines:
        total += recorded_tokens(line.text) + 1
    return total + chunk.native_tokens
