"""Checks of a model's summary by the structure of its sources: what is missing, and the sources of each line."""

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

import msgspec

from memory_engine.compactors.history_prompt import shortened
from memory_engine.compactors.summary_reading import Claim
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine, ToolCall
from memory_engine.core.origins import SPOKEN
from memory_engine.core.tokens import recorded_tokens
from memory_engine.language.text import COMPOUND_WORD, is_unspaced, pairs, stop_words

UNDER = 0.05
"""Minimum size of a summary, as a share of its sources' distinct words."""
UNDER_BUDGET = 0.25
"""Share of its budget from which a summary is long enough, whatever its sources are."""
TOKENS_MIN = 8
"""Minimum tokens of a summary, or a quarter of its sources' words if these are few."""
VALUE_CHARS_MAX = 60
"""Maximum length of a value in arguments; a longer argument is a text that the model wrote."""
DIGITS_MIN = 5
"""Minimum digits of a whole number that is an identifier; a shorter one is a count, an offset or a line."""
CROSS = "✗"
"""Marks a call that failed, as in the lines of the embedded compactor."""
FAILURES_MAX = 5
"""Maximum number of failures added to a summary; the latest are taken."""
TOLD_TOKENS = 60
"""Maximum tokens of a failure's text, or of an open call's arguments, in an added line."""


def tokens_min(chunks: Sequence[Chunk], budget_tokens: int) -> int:
    """Return the minimum estimated tokens of a model's lines for these chunks.

    People's words do not count: they are kept without the model.
    """
    told = (_chunk_with_calls(chunk) for chunk in chunks if chunk.type not in SPOKEN)
    words = recorded_tokens(" ".join({word for text in told for word in COMPOUND_WORD.findall(text.casefold())}))
    least = min(max(words * UNDER, min(TOKENS_MIN, words / 4)), budget_tokens * UNDER_BUDGET)
    return math.ceil(least)


def tokens_of(lines: Sequence[SummaryLine]) -> int:
    """The tokens of a summary (estimated)."""
    return sum(recorded_tokens(line.text) + 1 for line in lines)


def missing(lines: Sequence[SummaryLine], chunks: Sequence[Chunk], room: int) -> list[SummaryLine]:
    """Return the lines that the summary lacks, each citing its chunks, in about `room` tokens.

    Open calls and to-dos are included whole. Failures that no line cites, and values that later calls used and no line
    names, are added as far as there is room.
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
    """Yield the calls without a result and the to-dos that are not done, each with its name."""
    answered = {chunk.call_id for chunk in chunks}
    for chunk in chunks:
        for call in chunk.calls:
            if call.id not in answered:
                yield SummaryLine("next_steps", f"{_call_label(call)} …", (chunk.id,)), call.name
        if chunk.type == ChunkType.TODO_ITEM and chunk.status != "completed":
            yield SummaryLine("next_steps", f"[ ] {chunk.text}", (chunk.id,)), chunk.text


def _failures(chunks: Sequence[Chunk], cited: Collection[str]) -> list[SummaryLine]:
    """Return the latest failed results that no line cites, unless the same call succeeded when repeated."""
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
            text = f"{_call_label(call)} {CROSS} {shortened(' '.join(chunk.text.split()), TOLD_TOKENS)}"
            found[key] = SummaryLine("attempted_approaches", text, (caller.id, chunk.id))
    return list(reversed(found.values()))[:FAILURES_MAX]


def _call_label(call: ToolCall) -> str:
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
    """Return identifiers from earlier chunks that later calls passed as arguments, the latest call's first.

    Each comes with the tool, the argument's key and the call's chunk. Small whole numbers are not identifiers: they are
    offsets or lines.
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
    """Yield the texts and numbers in a call's arguments, each with its key."""
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
    """Return the numbers computed from the whole numbers of one call: the end of a range, the size of one."""
    found: set[int] = set()
    for call in (call for chunk in chunks for call in chunk.calls):
        whole = [leaf for _, leaf in _leaves(call.arguments) if isinstance(leaf, int) and leaf < 10**9]
        for a, b in combinations(whole[:6], 2):
            found.update((a + b - 1, a + b, a + b + 1, abs(a - b), abs(a - b) + 1))
    return sorted(found)


def _chunk_with_calls(chunk: Chunk) -> str:
    return "\n".join([chunk.text, *(f"{call.name} {call.arguments}" for call in chunk.calls)])


def grounded(claims: Sequence[Claim], texts: Sequence[str]) -> list[Claim]:
    """Return the claims, each citing all entries that it may come from, judged by the entries' texts.

    A claim that cites nothing, or only entries without a word of it, cites the entries it shares most words with. Any
    other claim also cites the entries that hold values which its cited entries lack. A claim that shares no word with
    any entry stays unchanged: without citations it may come from all.
    """
    entries = [_marks(text) for text in texts]
    return [Claim(one.section, one.text, _line_sources(_marks(one.text), one.cites, entries)) for one in claims]


def _line_sources(
    marks: Collection[str], cites: tuple[int, ...], entries: Sequence[Collection[str]]
) -> tuple[int, ...]:
    held = {mark for n in cites for mark in entries[n] if mark in marks}
    values = {mark for mark in marks if _has_digit(mark) and mark not in held}
    added = [n for n, entry in enumerate(entries) if not values.isdisjoint(entry)]
    if not held:
        shared = [sum(mark in entry for mark in marks) for entry in entries]
        most = max(shared, default=0)
        added += [n for n, count in enumerate(shared) if count and 2 * count >= most]
    return tuple(dict.fromkeys((*cites, *sorted(added))))


def _marks(text: str) -> set[str]:
    """Return the words of a text that show its source: long ones, numbers, pairs of signs where no blanks are used."""
    found: set[str] = set()
    for word in COMPOUND_WORD.findall(text.casefold()):
        if is_unspaced(word):
            found.update(pairs(word))
        elif len(word) > 3 or _has_digit(word):
            found.add(word)
    return found - stop_words()


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))
