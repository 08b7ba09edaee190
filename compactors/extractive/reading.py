"""What must be known of the whole input before any part of it can be weighed."""

from collections.abc import Sequence

import msgspec

from memory_engine.compactors.extractive.calls import Action, pair_calls
from memory_engine.compactors.extractive.entries import Entry, Kind, Line
from memory_engine.compactors.extractive.function_words import FunctionWords
from memory_engine.compactors.extractive.sentences import split_sentences
from memory_engine.compactors.extractive.structured import read_json, records
from memory_engine.compactors.extractive.usage import Usage

AGENT_KINDS: frozenset[Kind] = frozenset(("assistant", "thinking", "tool_call", "tool_result", "error"))
SAID_KINDS: frozenset[Kind] = frozenset(
    ("user", "assistant", "thinking", "task", "todo", "question", "system", "summary", "other")
)


class Reading(msgspec.Struct, frozen=True):
    """What is known of the whole input while its entries are read one by one."""

    entries: Sequence[Entry]
    actions: tuple[Action, ...]
    usage: Usage
    function_words: FunctionWords
    has_agent: bool
    """Whether an agent takes part: then what its user says weighs more than what it says itself."""
    closing: frozenset[int]
    """Places of the last thing each side said: the state of the conversation."""
    last_todo: int
    seen: set[str]
    """Sentences met so far, for marking repetitions down."""


def read(entries: Sequence[Entry], earlier: Sequence[Line]) -> Reading:
    """Everything that must be known of the whole before its parts can be weighed."""
    usage = Usage(entries, [line.text for line in earlier])
    for index, entry in enumerate(entries):
        value = read_json(entry.text) if entry.kind in ("tool_result", "error") else None
        if value is not None:
            usage.learn_keys(index, records(value))
    said = [entry for entry in entries if entry.kind in SAID_KINDS]
    passages = [sentence.text for entry in said for sentence in split_sentences(entry.text)]
    return Reading(
        entries=entries,
        actions=pair_calls(entries),
        usage=usage,
        function_words=FunctionWords(passages),
        has_agent=any(entry.kind in AGENT_KINDS for entry in entries),
        closing=_closing(entries),
        last_todo=max((i for i, entry in enumerate(entries) if entry.kind == "todo"), default=-1),
        seen=set(),
    )


def _closing(entries: Sequence[Entry]) -> frozenset[int]:
    """Places of the last thing that each of the last two voices said."""
    found: dict[tuple[str, str], int] = {}
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.kind in ("user", "assistant", "thinking", "task", "other"):
            found.setdefault((entry.kind, entry.speaker), index)
        if len(found) == 2:
            break
    return frozenset(found.values())
