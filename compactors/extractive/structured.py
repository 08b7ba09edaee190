"""JSON texts as records of leaves: the shape in which tools answer.

A record is an object with its scalar values, together with those of the plain
objects inside it (a name, a price table). Objects in lists and objects filed
under an identifier are records of their own. Nothing is interpreted: numbers
keep the spelling they had.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import msgspec

from memory_engine.compactors.extractive.entries import GAP
from memory_engine.compactors.extractive.sentences import clean, words
from memory_engine.compactors.extractive.words import (
    DATE,
    VALUE_MARK,
    is_identifier,
    is_specific,
    refers,
    terms_of,
    worth_max,
)

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
    """The text of a leaf as it counts and as it is told, and what its shape says of it.

    `term` is the one by which the whole is taken up, `prior` how likely it is needed again. Covering its words is worth
    `worth_max` at most, unless a term in `values` was taken up; it takes `chars_min` characters at least.
    """

    term: str
    words: tuple[str, ...]
    values: tuple[str, ...]
    shown: str
    prior: float
    worth_max: float
    chars_min: int
    is_specific: bool
    is_identifier: bool
    needs_key: bool
    """Numbers, dates and plain words mean nothing without their key; names and identifiers do."""


class LinePart(msgspec.Struct, frozen=True, gc=False):
    """A part of a record's line. `below` is the part that must stand with it, -1 what the record hangs below.

    `key` is the name of its value's key without positions. `prose` is the text of a leaf too long for a value.
    """

    text: str
    below: int
    key: str = ""
    value: Value | None = None
    prose: str = ""


class ToldRecord:
    """A record as its line tells it.

    `identity` is its label (the key it was filed under, "" for the outermost) and the text that names it. `keys` are
    the names of its leaves' keys, and `values` their values. Its line
    begins with its `opening`. It `tells_prose` if a leaf is too long for a value.
    """

    __slots__ = (
        "_named_by",
        "_parts",
        "_record",
        "identity",
        "keys",
        "label",
        "opening",
        "tells_prose",
        "values",
    )

    def __init__(self, record: ScalarRecord, *, labelled: bool) -> None:
        leaves = record.leaves
        self._record = record
        self._parts: tuple[LinePart, ...] = ()
        self.label = record.label
        self.values = [_VALUES[leaf.text] for leaf in leaves]
        self._named_by = at = next((n for n, value in enumerate(self.values) if value.is_identifier), 0)
        self.identity = record.label, leaves[at].text
        shape = _shape(record.label, tuple([leaf.keys for leaf in leaves]))
        self.keys = shape.names
        shown_label = f"{clean(record.label)} " if labelled and record.label not in leaves[at].text else ""
        self.opening = f"; {shown_label}{_shown(leaves[at], shape.shown[at], self.values[at])}"
        self.tells_prose = any(len(leaf.text) > LONG_VALUE_CHARS for leaf in leaves)

    @property
    def name(self) -> Value:
        """The value that names it."""
        return self.values[self._named_by]

    @property
    def key(self) -> str:
        """The name of the key of the value that names it."""
        return self.keys[self._named_by]

    @property
    def parts(self) -> Sequence[LinePart]:
        """The leaf that names it first, the others as they were grouped: made when they are first asked for."""
        if not self._parts:
            self._parts = tuple(_parts(self._record, self.values, self._named_by, self.opening))
        return self._parts


_BRANCHES = (dict, list)


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
        yield ToldRecord(record, labelled=record.label != label)
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
            leaves = [Leaf((), _scalar(item)) for item in node if not isinstance(item, _BRANCHES)]
            inner = [(label, item) for item in node if isinstance(item, _BRANCHES)]
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
        if not isinstance(child, _BRANCHES):
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
    return not any(isinstance(child, _BRANCHES) for child in node.values())


def _scalar(node: Json) -> str:
    """The text of a scalar; "" for null, which says nothing."""
    if isinstance(node, str):
        return node
    return "" if node is None else "true" if node else "false"


# How a record is told.

LONG_VALUE_CHARS = 100
DATE_CHARS_MAX = 10
VALUES_MAX = 16_384
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


def _parts(record: ScalarRecord, values: Sequence[Value], at: int, opening: str) -> Iterator[LinePart]:
    leaves, first = record.leaves, record.leaves[at]
    shape = _shape(record.label, tuple([leaf.keys for leaf in leaves]))
    yield LinePart(opening, -1, shape.names[at], values[at])
    named = f"{record.label} {first.text}"
    group, group_at, count = "", 0, 1
    for n, leaf in enumerate(leaves):
        is_inner = len(leaf.keys) > 1
        if is_inner and leaf.keys[0] != group:
            group, group_at = leaf.keys[0], count
            yield LinePart(f" {clean(group)}", 0)
            count += 1
        if len(leaf.text) > LONG_VALUE_CHARS:
            yield LinePart("", 0, prose=leaf.text)
            count += 1
        elif n != at and leaf.text not in named:
            below = group_at if is_inner and _needs_key(leaf.text) else 0
            yield LinePart(f" {_shown(leaf, shape.shown[n], values[n])}", below, shape.names[n], values[n])
            count += 1


class _Values(dict[str, Value]):
    """The values of leaves by their texts: tools answer with the same ones again and again. Bounded."""

    def __missing__(self, text: str) -> Value:
        found = _value(text)
        if len(text) <= LONG_VALUE_CHARS:
            if len(self) >= VALUES_MAX:
                self.clear()
            self[text] = found
        return found


_VALUES = _Values()


def _value(text: str) -> Value:
    said = tuple(words(text[:LONG_VALUE_CHARS]))
    terms = list(chain.from_iterable(map(terms_of, said)))
    is_word = said == (text,) and text.isascii()  # most values: what is known of the word holds for the value
    specific = terms[0][0] == VALUE_MARK if is_word else is_specific(text)
    is_id = specific and refers(text)
    is_date = specific and not is_id and len(text) <= DATE_CHARS_MAX and DATE.match(text) is not None
    shown = text if is_word else clean(text[: 2 * LONG_VALUE_CHARS])
    if len(shown) > LONG_VALUE_CHARS:
        shown = f"{shown[:LONG_VALUE_CHARS].rstrip()} {GAP}"
    return Value(
        VALUE_MARK + text.lower(),
        said,
        tuple([term for term in terms if term[0] == VALUE_MARK]),
        shown,
        LIKELY if is_date or is_id else UNLIKELY,
        sum(map(worth_max, said)),
        len(shown) + 1,
        specific,
        is_id,
        not (is_id or _stands_alone(shown)) if shown is text else _needs_key(shown),
    )


def _shown(leaf: Leaf, key: str, value: Value) -> str:
    """The value, after the part of its key that distinguishes it, where it needs a key."""
    return f"{key} {value.shown}" if leaf.keys and value.needs_key else value.shown


def _needs_key(text: str) -> bool:
    return not (_stands_alone(text) or is_identifier(text))


def _stands_alone(text: str) -> bool:
    return text[:1].isupper() or " " in text
