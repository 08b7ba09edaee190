"""JSON texts as records of leaves: the shape in which tools answer.

A record is an object with its scalar values, together with those of the plain
objects inside it (a name, a price table). Objects in lists and objects filed
under an identifier are records of their own. Nothing is interpreted: numbers
keep the spelling they had.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import TypeAlias

import msgspec

from memory_engine.compactors.extractive.entries import GAP
from memory_engine.compactors.extractive.sentences import clean, words
from memory_engine.compactors.extractive.words import DATE, VALUE_MARK, is_identifier, is_specific

Json: TypeAlias = "dict[str, Json] | list[Json] | str | bool | None"
"""Numbers are read as the text they were written in, so that they are quoted verbatim."""


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """One scalar value: the keys that lead to it inside its record, and its text."""

    keys: tuple[str, ...]
    text: str


class ScalarRecord(msgspec.Struct, frozen=True, gc=False):
    """Scalars that belong together; `label` is the key they were filed under, "" for the outermost."""

    label: str
    leaves: tuple[Leaf, ...]


class Value(msgspec.Struct, frozen=True, gc=False):
    """A leaf as it counts: the name of its key without positions, its words, and how likely it is needed again."""

    key: str
    words: tuple[str, ...]
    prior: float


class LinePart(msgspec.Struct, frozen=True, gc=False):
    """A part of a record's line. `below` is the part that must stand with it, -1 what the record hangs below.

    `prose` is the text of a leaf too long for a value.
    """

    text: str
    below: int
    value: Value | None = None
    prose: str = ""


class ToldRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as its line tells it: the leaf that names it first, the others as they were grouped.

    `identity` is its label and the leaf that names it. `uses` are the keys of all leaves with the terms by which they
    are taken up, `specific` the terms of the leaves that look like values.
    """

    label: str
    identity: tuple[str, str]
    uses: tuple[tuple[str, str], ...]
    specific: tuple[str, ...]
    parts: tuple[LinePart, ...]


def read_json(text: str) -> Json:
    """The objects and lists of a JSON text; None where the text is anything else, however deep or broken."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value: Json = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return value


def told(value: Json) -> Iterator[ToldRecord]:
    """The records of a value as their lines tell them."""
    label = ""
    for record in records(value):
        yield _told(record, labelled=record.label != label)
        label = record.label


def records(value: Json) -> Iterator[ScalarRecord]:
    """The records of a value in reading order, the enclosing one first; a stack, not recursion."""
    waiting: list[tuple[str, Json]] = [("", value)]
    while waiting:
        label, node = waiting.pop()
        inner: list[tuple[str, Json]] = []
        if isinstance(node, dict):
            leaves = _object_leaves(node, inner)
        elif isinstance(node, list):
            leaves = [Leaf((), _scalar(item)) for item in node if not isinstance(item, dict | list)]
            inner = [(label, item) for item in node if isinstance(item, dict | list)]
        else:
            leaves = [Leaf((), _scalar(node))]
        kept = tuple(_join_names([leaf for leaf in leaves if leaf.text.strip()]))
        if kept:
            yield ScalarRecord(label, kept)
        waiting.extend(reversed(inner))


def _object_leaves(node: dict[str, Json], inner: list[tuple[str, Json]]) -> list[Leaf]:
    """The scalars of an object and of the plain objects in it; other values go to `inner`."""
    leaves: list[Leaf] = []
    for key, child in node.items():
        if not isinstance(child, dict | list):
            leaves.append(Leaf((key,), _scalar(child)))
        elif isinstance(child, dict) and not is_identifier(key) and _is_plain(child):
            leaves.extend(Leaf((key, below), _scalar(leaf)) for below, leaf in child.items())
        else:
            inner.append((key, child))
    return leaves


def _join_names(leaves: list[Leaf]) -> list[Leaf]:
    """Neighbours like first_name and last_name as one leaf: half a name identifies nobody."""
    joined: list[Leaf] = []
    for leaf in leaves:
        if joined and _is_name(leaf) and _is_name(joined[-1]):
            shared = set(leaf.keys[-1].split("_")) & set(joined[-1].keys[-1].split("_"))
            if len(shared) == 1 and leaf.keys[:-1] == joined[-1].keys[:-1]:
                joined[-1] = Leaf((*leaf.keys[:-1], *shared), f"{joined[-1].text} {leaf.text}")
                continue
        joined.append(leaf)
    return joined


def _is_name(leaf: Leaf) -> bool:
    return bool(leaf.keys) and leaf.text.istitle() and leaf.text.isalpha()


def _is_plain(node: dict[str, Json]) -> bool:
    return not any(isinstance(child, dict | list) for child in node.values())


def _scalar(node: Json) -> str:
    """The text of a scalar; "" for null, which says nothing."""
    if isinstance(node, bool):
        return "true" if node else "false"
    return node if isinstance(node, str) else ""


# How a record is told.

LONG_VALUE_CHARS = 100
DATE_CHARS_MAX = 10
LIKELY = 0.6
UNLIKELY = 0.15
"""How likely a value of its shape is needed again, before its key has shown it."""


class _Shape(msgspec.Struct, frozen=True, gc=False):
    """What the keys of a record say, one for each leaf: tools answer in the same shapes again and again."""

    names: tuple[str, ...]
    """Under which the usefulness of a key is counted, without positions or identifiers."""
    shown: tuple[str, ...]
    """The parts of a key that distinguish it from its neighbours; "" for none."""


@lru_cache(maxsize=1_024)
def _shape(label: str, keys: tuple[tuple[str, ...], ...]) -> _Shape:
    label = "" if is_identifier(label) else label
    parts = [part for path in keys if path for part in dict.fromkeys(path[-1].split("_"))]
    shared = {part for part, times in Counter(parts).items() if times > 1}
    return _Shape(
        tuple(["\x00".join((label, *path)) for path in keys]),
        tuple([_distinct(clean(path[-1]), shared) if path else "" for path in keys]),
    )


def _distinct(key: str, shared: Collection[str]) -> str:
    """A key without the parts that tell nothing inside its record, as more than one key has them."""
    return "_".join([part for part in key.split("_") if part not in shared]) or key


def _told(record: ScalarRecord, *, labelled: bool) -> ToldRecord:
    leaves = record.leaves
    shape = _shape(record.label, tuple([leaf.keys for leaf in leaves]))
    at = next((n for n, leaf in enumerate(leaves) if is_identifier(leaf.text)), 0)
    first = leaves[at]
    label = f"{clean(record.label)} " if labelled and record.label not in first.text else ""
    parts = [LinePart(f"; {label}{_shown(first, shape.shown[at])}", -1, _value(shape.names[at], first.text))]
    told = f"{record.label} {first.text}"
    group, group_at = "", 0
    for n, leaf in enumerate(leaves):
        is_inner = len(leaf.keys) > 1
        if is_inner and leaf.keys[0] != group:
            group, group_at = leaf.keys[0], len(parts)
            parts.append(LinePart(f" {clean(group)}", 0))
        if len(leaf.text) > LONG_VALUE_CHARS:
            parts.append(LinePart("", 0, None, leaf.text))
        elif n != at and leaf.text not in told:
            below = group_at if is_inner and _needs_key(leaf.text) else 0
            parts.append(LinePart(f" {_shown(leaf, shape.shown[n])}", below, _value(shape.names[n], leaf.text)))
    terms = [VALUE_MARK + leaf.text.lower() for leaf in leaves]
    return ToldRecord(
        record.label,
        (record.label, first.text),
        tuple(zip(shape.names, terms, strict=True)),
        tuple([term for leaf, term in zip(leaves, terms, strict=True) if is_specific(leaf.text)]),
        tuple(parts),
    )


def _value(name: str, text: str) -> Value:
    is_date = len(text) <= DATE_CHARS_MAX and DATE.match(text) is not None
    prior = LIKELY if is_date or is_identifier(text) else UNLIKELY
    return Value(name, tuple(words(text[:LONG_VALUE_CHARS])), prior)


def _shown(leaf: Leaf, key: str) -> str:
    """The value, after the part of its key that distinguishes it, where it needs a key."""
    text = clean(leaf.text[: 2 * LONG_VALUE_CHARS])
    if len(text) > LONG_VALUE_CHARS:
        text = f"{text[:LONG_VALUE_CHARS].rstrip()} {GAP}"
    return f"{key} {text}" if leaf.keys and _needs_key(text) else text


def _needs_key(text: str) -> bool:
    """Numbers, dates and plain words mean nothing without their key; names and identifiers do."""
    return not (is_identifier(text) or text[:1].isupper() or " " in text)
