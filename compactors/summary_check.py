"""What a model's summary lacks by the structure of its sources, and which sources each of its lines has."""

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

import msgspec

from memory_engine.compactors.history_prompt import shortened
from memory_engine.compactors.summary_reading import Claim
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine, ToolCall
from memory_engine.core.origins import SPOKEN
from memory_engine.core.text import COMPOUND_WORD, is_unspaced, pairs, stop_words
from memory_engine.core.tokens import recorded_tokens

UNDER = 0.05
"""The share of the words in its sources, each counted once, below which a summary cannot stand for them."""
UNDER_BUDGET = 0.25
"""A summary of this share of its budget is long enough, whatever its sources are."""
TOKENS_MIN = 8
"""Tokens that a summary takes at least, or a quarter of its sources' words where these are few."""
VALUE_CHARS_MAX = 60
"""A longer argument is a text of the model's own."""
DIGITS_MIN = 5
"""A whole number below this many digits is a count, an offset or a line, and no identifier."""
CROSS = "✗"
"""Marks a call that failed, as in the lines of the embedded compactor."""
FAILURES_MAX = 5
"""Failures that are added to a summary, the latest."""
TOLD_TOKENS = 60
"""Tokens of a failure's text, and of the arguments of an open call, that an added line holds."""


def tokens_min(chunks: Sequence[Chunk], budget_tokens: int) -> int:
    """The least (estimated) tokens with which a model's lines can stand for chunks.

    People's words count for nothing: they are kept without the model.
    """
    told = (_told(chunk) for chunk in chunks if chunk.type not in SPOKEN)
    words = recorded_tokens(" ".join({word for text in told for word in COMPOUND_WORD.findall(text.casefold())}))
    least = min(max(words * UNDER, min(TOKENS_MIN, words / 4)), budget_tokens * UNDER_BUDGET)
    return math.ceil(least)


def tokens_of(lines: Sequence[SummaryLine]) -> int:
    """The tokens of a summary (estimated)."""
    return sum(recorded_tokens(line.text) + 1 for line in lines)


def missing(lines: Sequence[SummaryLine], chunks: Sequence[Chunk], room: int) -> list[SummaryLine]:
    """The lines that a summary needs beside those that it has, each citing its chunks, in about `room` tokens.

    Open calls and to-dos come whole; failures that no line cites, and values that later calls took and that no line
    names, as far as there is room.
    """
    said = "\n".join(line.text for line in lines).casefold()
    added = [line for line, name in _open(chunks) if name.casefold() not in said]
    room -= tokens_of(added)
    cited = {source for line in lines for source in line.sources}
    for line in (*_failures(chunks, cited), *_unnamed(chunks, said)):
        room -= tokens_of([line])
        if room >= 0:
            added.append(line)
    return added


def _open(chunks: Sequence[Chunk]) -> Iterator[tuple[SummaryLine, str]]:
    """The calls without a result and the to-dos that are not done, each with the name that tells it."""
    answered = {chunk.call_id for chunk in chunks}
    for chunk in chunks:
        for call in chunk.calls:
            if call.id not in answered:
                yield SummaryLine("next_steps", f"{_call(call)} …", (chunk.id,)), call.name
        if chunk.type == ChunkType.TODO_ITEM and chunk.status != "completed":
            yield SummaryLine("next_steps", f"[ ] {chunk.text}", (chunk.id,)), chunk.text


def _failures(chunks: Sequence[Chunk], cited: Collection[str]) -> list[SummaryLine]:
    """The latest failed results that no line cites, but those whose call succeeded when it was made again."""
    asked: dict[str, tuple[Chunk, ToolCall]] = {}
    found: dict[tuple[str, str], SummaryLine] = {}
    for chunk in chunks:
        asked.update((call.id, (chunk, call)) for call in chunk.calls)
        if not chunk.call_id or chunk.call_id not in asked:
            continue
        caller, call = asked[chunk.call_id]
        key = call.name, call.arguments
        found.pop(key, None)
        if chunk.status == "failed" and chunk.id not in cited:
            text = f"{_call(call)} {CROSS} {shortened(' '.join(chunk.text.split()), TOLD_TOKENS)}"
            found[key] = SummaryLine("attempted_approaches", text, (caller.id, chunk.id))
    return list(reversed(found.values()))[:FAILURES_MAX]


def _call(call: ToolCall) -> str:
    return f"{call.name}({shortened(call.arguments, TOLD_TOKENS)})"


def _unnamed(chunks: Sequence[Chunk], said: str) -> Iterator[SummaryLine]:
    """A line for each tool and key, the latest first, with the values that no line names."""
    by_key: dict[tuple[str, str], dict[str, str]] = {}
    for name, key, value, chunk_id in used_later(chunks):
        if value.casefold() not in said:
            by_key.setdefault((name, key), {}).setdefault(value, chunk_id)
    for (name, key), values in by_key.items():
        text = f"{name}: {key} {', '.join(values)}" if key else f"{name}: {', '.join(values)}"
        yield SummaryLine("key_information", text, tuple(dict.fromkeys(values.values())))


def used_later(chunks: Sequence[Chunk]) -> list[tuple[str, str, str, str]]:
    """The identifiers in arguments of calls that came from earlier chunks, those of the latest call first.

    Each with the tool, the argument's key and the call's chunk. Small whole numbers are no identifiers: offsets, lines.
    """
    before, words = "", set[str]()
    taken: dict[tuple[str, str], tuple[str, str, str, str]] = {}
    for chunk in chunks:
        for call in chunk.calls:
            for key, leaf in _leaves(call.arguments):
                value = str(leaf).strip()
                if _is_identifier(leaf) and _stands_in(value.casefold(), before, words):
                    taken.pop((key, value), None)
                    taken[key, value] = (call.name, key, value, chunk.id)
        told = chunk.text.casefold()
        before += f"{told}\n"
        words.update(COMPOUND_WORD.findall(told))
    return list(reversed(taken.values()))


def _is_identifier(leaf: str | float) -> bool:
    if isinstance(leaf, int) or (isinstance(leaf, str) and leaf.strip().isdecimal()):
        return len(str(leaf).strip()) >= DIGITS_MIN
    return 2 <= len(str(leaf).strip()) <= VALUE_CHARS_MAX


def _stands_in(value: str, text: str, words: Collection[str]) -> bool:
    return value in words or (not value.isalnum() and value in text)


def _leaves(arguments: str) -> Iterator[tuple[str, str | float]]:
    """The texts and numbers in the arguments of a call, each with the key that it has."""
    try:
        waiting: list[tuple[str, object]] = [("", msgspec.json.decode(arguments or "{}"))]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return
    while waiting:
        key, value = waiting.pop(0)
        match value:
            case dict():
                waiting += [(str(name), inner) for name, inner in value.items()]
            case list():
                waiting += [(key, inner) for inner in value]
            case bool() | None:
                continue
            case str() | int() | float():
                yield key, value


def derived_numbers(chunks: Sequence[Chunk]) -> list[int]:
    """The numbers that follow from the whole numbers of one call: the end of a range, the size of one."""
    found: set[int] = set()
    for call in (call for chunk in chunks for call in chunk.calls):
        whole = [leaf for _, leaf in _leaves(call.arguments) if isinstance(leaf, int) and leaf < 10**9]
        for a, b in combinations(whole[:6], 2):
            found.update((a + b - 1, a + b, a + b + 1, abs(a - b), abs(a - b) + 1))
    return sorted(found)


def _told(chunk: Chunk) -> str:
    return "\n".join([chunk.text, *(f"{call.name} {call.arguments}" for call in chunk.calls)])


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
