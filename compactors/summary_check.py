"""What a model's summary must hold by the structure of its sources, and which sources each of its lines has."""

import math
from collections.abc import Collection, Iterator, Sequence

import msgspec

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.origins import SPOKEN
from memory_engine.core.text import COMPOUND_WORD, is_unspaced, pairs, stop_words
from memory_engine.core.tokens import estimate_text

NAMED_SHARE = 0.8
"""The share of the values that a summary must name."""
VALUES_SHARE = 1 / 3
"""The share of a summary's budget that these values may take."""
OVER = 1.5
"""How far a summary may be over its budget: models do not count tokens well."""
UNDER = 0.05
"""The share of the words in its sources, each counted once, below which a summary cannot stand for them."""
UNDER_BUDGET = 0.25
"""A summary of this share of its budget is long enough, whatever its sources are."""
TOKENS_MIN = 8
"""Tokens that a summary takes at least, or a quarter of its sources' words where these are few."""
VALUE_CHARS_MAX = 60
"""A longer argument is a text of the model's own."""
SAID_MAX = 16
"""Values of a person's messages that are asked for, the latest."""


class Claim(msgspec.Struct, frozen=True):
    """A line of an answer, and the places of the entries that it cites, from 0."""

    section: str
    text: str
    cites: tuple[int, ...] = ()


class Demand(msgspec.Struct, frozen=True):
    """What a summary must hold: `open` (calls and to-dos) whole, of `values` most. Tokens are estimated."""

    open: tuple[str, ...]
    values: tuple[str, ...]
    tokens_min: int
    tokens_max: int

    @classmethod
    def of(cls, chunks: Sequence[Chunk], budget_tokens: int) -> "Demand":
        """The demand of these chunks on a summary within a budget."""
        values: list[str] = []
        room = budget_tokens * VALUES_SHARE
        for value in dict.fromkeys((*_used_later(chunks), *_said(chunks))):
            room -= estimate_text(value) + 1
            if room < 0:
                break
            values.append(value)
        distinct = {word for chunk in chunks for word in COMPOUND_WORD.findall(_told(chunk).casefold())}
        words = estimate_text(" ".join(distinct))
        least = min(max(words * UNDER, min(TOKENS_MIN, words / 4)), budget_tokens * UNDER_BUDGET)
        return cls(tuple(_open(chunks)), tuple(values), math.ceil(least), int(budget_tokens * OVER))

    def unmet(self, lines: Sequence[SummaryLine]) -> list[str]:
        """What a summary lacks, each as a sentence to the model; empty if it may stand."""
        said = "\n".join(line.text for line in lines).casefold()
        tokens = tokens_of(lines)
        missing = [name for name in self.open if name.casefold() not in said]
        unnamed = [value for value in self.values if value.casefold() not in said]
        found: list[str] = []
        if missing:
            found.append(f"It does not say that these are still open: {', '.join(missing)}.")
        if len(self.values) - len(unnamed) < math.ceil(len(self.values) * NAMED_SHARE):
            found.append(f"It does not name these, which are needed again: {', '.join(unnamed)}.")
        if tokens > self.tokens_max:
            found.append(f"It takes about {tokens} tokens: too many.")
        if tokens < self.tokens_min:
            found.append(f"It takes about {tokens} tokens: too few to stand for all that happened.")
        return found


def tokens_of(lines: Sequence[SummaryLine]) -> int:
    """The tokens of a summary (estimated)."""
    return sum(estimate_text(line.text) + 1 for line in lines)


def _told(chunk: Chunk) -> str:
    return "\n".join([chunk.text, *(f"{call.name} {call.arguments}" for call in chunk.calls)])


def _used_later(chunks: Sequence[Chunk]) -> Iterator[str]:
    """The arguments of calls that came from earlier chunks, those of the latest call first."""
    before, words = "", set[str]()
    taken: list[str] = []
    for chunk in chunks:
        for call in chunk.calls:
            taken += [value for value in _leaves(call.arguments) if _stands_in(value.casefold(), before, words)]
        told = _told(chunk).casefold()
        before += f"{told}\n"
        words.update(COMPOUND_WORD.findall(told))
    return reversed(list(dict.fromkeys(taken)))


def _stands_in(value: str, text: str, words: Collection[str]) -> bool:
    return value in words or (not value.isalnum() and value in text)


def _leaves(arguments: str) -> Iterator[str]:
    """The texts and numbers in the arguments of a call, as they are written."""
    try:
        waiting: list[object] = [msgspec.json.decode(arguments or "{}")]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return
    while waiting:
        match waiting.pop(0):
            case dict() as inner:
                waiting += inner.values()
            case list() as inner:
                waiting += inner
            case bool() | None:
                continue
            case str() | int() | float() as leaf if 2 <= len(str(leaf).strip()) <= VALUE_CHARS_MAX:
                yield str(leaf).strip()


def _said(chunks: Sequence[Chunk]) -> list[str]:
    """The numbers, dates and identifiers in a person's messages, the latest."""
    said = (_told(chunk) for chunk in chunks if chunk.type in SPOKEN)
    values = [word for text in said for word in COMPOUND_WORD.findall(text) if len(word) > 1 and _has_digit(word)]
    return list(dict.fromkeys(values))[-SAID_MAX:]


def _open(chunks: Sequence[Chunk]) -> Iterator[str]:
    """The names of calls without a result, and the texts of to-dos that are not done."""
    answered = {chunk.call_id for chunk in chunks}
    for chunk in chunks:
        yield from (call.name for call in chunk.calls if call.id not in answered)
        if chunk.type == ChunkType.TODO_ITEM and chunk.status != "completed":
            yield chunk.text


def grounded(claims: Sequence[Claim], texts: Sequence[str]) -> list[Claim]:
    """The claims, each citing all entries that it may come from, by the texts of the entries.

    One that cites nothing, or only entries without a word of it, cites those that it shares most words with. To every
    other come the entries that hold values which those that it cites do not. What shares no word with any entry
    stays as it is: without citations it may come from all.
    """
    entries = [_marks(text) for text in texts]
    return [Claim(one.section, one.text, _sources(_marks(one.text), one.cites, entries)) for one in claims]


def _sources(marks: Collection[str], cites: tuple[int, ...], entries: Sequence[Collection[str]]) -> tuple[int, ...]:
    held = {mark for n in cites for mark in entries[n] if mark in marks}
    values = {mark for mark in marks if _has_digit(mark) and mark not in held}
    added = [n for n, entry in enumerate(entries) if not values.isdisjoint(entry)]
    if not held:
        shared = [sum(mark in entry for mark in marks) for entry in entries]
        most = max(shared, default=0)
        added += [n for n, count in enumerate(shared) if count and 2 * count >= most]
    return tuple(dict.fromkeys((*cites, *sorted(added))))


def _marks(text: str) -> set[str]:
    """The words of a text that tell where it comes from: long ones, numbers, pairs of signs where no blanks stand."""
    found: set[str] = set()
    for word in COMPOUND_WORD.findall(text.casefold()):
        if is_unspaced(word):
            found.update(pairs(word))
        elif len(word) > 3 or _has_digit(word):
            found.add(word)
    return found - stop_words()


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))
