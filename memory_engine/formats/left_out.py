"""Providers' content that a request leaves out."""

import json
from collections.abc import Iterable

import msgspec

from memory_engine.core.chunks import Chunk
from memory_engine.formats.detection import Format
from memory_engine.formats.native import WHOLE, Json, from_native, is_whole, own_values
from memory_engine.formats.own import NotSent, accepted_blocks, own_blocks, typed
from memory_engine.formats.providers import PROVIDERS

THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
"""Types of blocks and items that hold reasoning."""
_OF_BLOCKS: tuple[Format, ...] = ("anthropic", "openai.responses", "gemini")
"""The forms whose responses are lists of blocks."""


def not_sent(
    chunks: Iterable[Chunk], newest: Iterable[Chunk], sent: Iterable[object], form: Format
) -> tuple[NotSent, ...]:
    """Return what a request leaves out: providers' own blocks, and the thinking of the `newest` response."""
    native = (chunk for chunk in chunks if chunk.native)
    own = [(chunk, values) for chunk in native if (values := list(own_values(chunk.native)))]
    thoughts = list(newest)
    if not own and not thoughts:
        return ()
    kinds = {one.get("type") for chunk in thoughts for one in _thoughts(chunk)}
    kinds |= {typed(value, form).get("type") for _, values in own for value in values}
    blocks = (block for block in sent if isinstance(block, dict) and block.get("type") in kinds)
    there = {_equality_key({key: block[key] for key in block if key != "cache_control"}) for block in blocks}
    found = [
        NotSent(chunk.id, str(value.get("type") or next(iter(value), "")), _omission_reason(chunk, form))
        for chunk, values in own
        for value, back in zip(values, _accepted_values(chunk, values, form), strict=True)
        if not there or _equality_key(back) not in there
    ]
    unsealed = (chunk for chunk in thoughts if there.isdisjoint(map(_equality_key, _thoughts(chunk))))
    why = "no provider can verify it here: it is not sealed for this one"
    return (*found, *(NotSent(chunk.id, str(_thoughts(chunk)[0].get("type", "thought")), why) for chunk in unsealed))


def _accepted_values(chunk: Chunk, values: Iterable[Json], form: Format) -> list[Json]:
    """The values as the provider takes them back."""
    return accepted_blocks([typed(one, form) for one in values], chunk, PROVIDERS[form].OWN)


def _omission_reason(chunk: Chunk, form: Format) -> str:
    is_own = bool(from_native(chunk.native, form))
    return "the provider refuses it here" if is_own else "only the provider that sent it can read it"


def _thoughts(chunk: Chunk) -> list[Json]:
    """The blocks that may be a thought, one for each provider."""
    made = [one for form in _OF_BLOCKS for one in own_blocks([chunk], PROVIDERS[form].OWN)]
    kept = from_native(chunk.native, "langchain").get("message")
    made += [entry[WHOLE] for entry in kept if is_whole(entry)] if isinstance(kept, list) else []
    known = [one for one in made if one.get("type") in THOUGHTS or one.get("thought") is True]
    return [*known, {"type": "thinking", "reasoning_content": chunk.text}]


def _equality_key(value: object) -> bytes:
    """A key that is the same for equal values, whatever the order of their keys."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value, sort_keys=True).encode()
