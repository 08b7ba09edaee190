"""JSON texts as records of leaves: the shape in which tools answer.

A record is an object with its scalar values, together with those of the plain
objects inside it (a name, a price table). Objects in lists and objects filed
under an identifier are records of their own. Nothing is interpreted: numbers
keep the spelling they had.
"""

import json
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from memory_engine.compactors.extractive.words import is_identifier

Json: TypeAlias = "dict[str, Json] | list[Json] | str | bool | None"
"""Numbers are read as the text they were written in, so that they are quoted verbatim."""


class Leaf(msgspec.Struct, frozen=True):
    """One scalar value: the keys that lead to it inside its record, and its text."""

    keys: tuple[str, ...]
    text: str


class ScalarRecord(msgspec.Struct, frozen=True):
    """Scalars that belong together; `label` is the key they were filed under, "" for the outermost."""

    label: str
    leaves: tuple[Leaf, ...]


def read_json(text: str) -> Json:
    """The objects and lists of a JSON text; None where the text is anything else, however deep or broken."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value: Json = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return value


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


def identity(record: ScalarRecord) -> Leaf:
    """The leaf that a record is called by: its first identifier, or else its first leaf."""
    return next((leaf for leaf in record.leaves if is_identifier(leaf.text)), record.leaves[0])


def _is_plain(node: dict[str, Json]) -> bool:
    return not any(isinstance(child, dict | list) for child in node.values())


def _scalar(node: Json) -> str:
    """The text of a scalar; "" for null, which says nothing."""
    if isinstance(node, bool):
        return "true" if node else "false"
    return node if isinstance(node, str) else ""
