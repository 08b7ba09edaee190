"""JSON texts as records of leaves: the form in which tools answer.

A record is an object with its scalar values, together with those of the plain objects inside it (a name, a price
table). Objects in lists and objects keyed by an identifier are records of their own. Nothing is interpreted: numbers
keep their spelling.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import TypeAlias

import msgspec

from memory_engine.compactors.extractive.words import (
    DATE,
    SIZE_MAX,
    VALUE_MARK,
    is_identifier,
    is_specific,
    refers,
    terms_of,
    value_worth_max,
    worth_max,
)
from memory_engine.language.sentences import GAP, clean, words

SHAPES_MAX = 1_024
Json: TypeAlias = "dict[str, Json] | list[Json] | str | bool | None"
"""A JSON value. Numbers are read as their source text, so that they are quoted verbatim."""


class ScalarRecord(msgspec.Struct, frozen=True, gc=False):
    """Scalars that belong together; `label` is the key of their object, `""` for the outermost."""

    label: str
    keys: tuple[tuple[str, ...], ...]
    """For each scalar, the keys that lead to it inside the record."""
    texts: tuple[str, ...]


class Value(msgspec.Struct, frozen=True, gc=False):
    """A leaf: its text for weighing and for display, and the facts that its shape reveals.

    `term` is the term by which the whole value is referred to later; `prior` is the probability that it is needed
    again. Covering its words is worth at most `worth_max`, unless a term in `values` was used later. It takes at least
    `chars_min` characters.
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


class LinePart(msgspec.Struct, frozen=True, gc=False):
    """A part of a record's line. `below` is the index of the part that must appear with it, -1 the record's parent.

    `key` is the name of its value's key without positions. `prose` is the text of a leaf that is too long for a value.
    """

    text: str
    below: int
    key: str = ""
    value: Value | None = None
    prose: str = ""


class ToldRecord(msgspec.Struct, gc=False):
    """A record in the form of its line: see `line_records`."""

    record: ScalarRecord
    identity: tuple[str, str]
    """Its label (the key of its object, `""` for the outermost) and the text that names it."""
    keys: tuple[str, ...]
    """Names of its scalars' keys."""
    values: tuple[Value, ...]
    named_by: int
    opening: str
    """Beginning of its line."""
    tells_prose: bool
    """Whether a scalar is too long for a value."""
    _parts: tuple[LinePart, ...] = ()

    @property
    def label(self) -> str:
        """Key of the record's object."""
        return self.record.label

    @property
    def name(self) -> Value:
        """Value that names the record."""
        return self.values[self.named_by]

    @property
    def key(self) -> str:
        """Name of the key of the value that names the record."""
        return self.keys[self.named_by]

    @property
    def parts(self) -> Sequence[LinePart]:
        """Parts of the line: first the leaf that names the record, then the others in groups. Made on first access."""
        if not self._parts:
            self._parts = tuple(_record_parts(self.record, self.values, self.named_by, self.opening))
        return self._parts


def _first_identifier(values: Sequence[Value]) -> int:
    """Return the index of the value that names a record: the first identifier, else 0."""
    for place, value in enumerate(values):
        if value.is_identifier:
            return place
    return 0


def read_json(text: str) -> Json:
    """Return the objects and lists of a JSON text; `None` for any other text, however deep or broken."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value: Json = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return value


def line_records(value: Json) -> Iterator[ToldRecord]:
    """Yield the records of a value in the form that their lines show."""
    label = ""
    for record in records(value):
        yield _line_record(record, labelled=record.label != label)
        label = record.label


def _line_record(record: ScalarRecord, *, labelled: bool) -> ToldRecord:
    texts = record.texts
    values = tuple(map(_VALUES.__getitem__, texts))
    at = _first_identifier(values)
    shape = _shape(record.label, record.keys)
    label = f"{clean(record.label)} " if labelled and record.label not in texts[at] else ""
    # a record's only identifier names it without a key; among several, each key says which one it is
    keys = record.keys[at]
    is_plain = len(keys) < 2 and values[at].is_identifier and sum([value.is_identifier for value in values]) == 1
    key = " ".join([*map(clean, keys[:-1]), shape.shown[at]])
    opening = f"; {label}{values[at].shown if is_plain else _keyed_value(keys, key, values[at])}"
    tells_prose = max(map(len, texts)) > LONG_VALUE_CHARS
    return ToldRecord(record, (record.label, texts[at]), shape.names, values, at, opening, tells_prose)


def records(value: Json) -> Iterator[ScalarRecord]:
    """Yield the records of a value in reading order, the enclosing one first. Uses a stack, not recursion."""
    waiting: list[tuple[str, Json]] = [("", value)]
    while waiting:
        label, node = waiting.pop()
        inner: list[tuple[str, Json]] = []
        if isinstance(node, dict):
            keys, texts = _object_scalars(node, inner)
        elif isinstance(node, list):
            texts = [_scalar(item) for item in node if type(item) not in _BRANCHES]
            keys = [()] * len(texts)
            inner = [(label, item) for item in node if type(item) in _BRANCHES]
        else:
            keys, texts = [()], [_scalar(node)]
        if not all(map(str.strip, texts)):
            told = [n for n, text in enumerate(texts) if text.strip()]
            keys, texts = [keys[n] for n in told], [texts[n] for n in told]
        if texts:
            yield _with_names_joined(label, tuple(keys), texts)
        waiting.extend(reversed(inner))


_BRANCHES = frozenset((dict, list))


def _object_scalars(node: dict[str, Json], inner: list[tuple[str, Json]]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the scalars of an object and of the plain objects in it, with their keys; add other values to `inner`."""
    if _is_plain(node):
        return list(zip(node)), [_scalar(child) for child in node.values()]
    keys: list[tuple[str, ...]] = []
    texts: list[str] = []
    for key, child in node.items():
        if type(child) not in _BRANCHES or not child:
            keys.append((key,))
            texts.append(_scalar(child))
        elif isinstance(child, dict) and not is_identifier(key) and _is_plain(child):
            keys.extend((key, below) for below in child)
            texts.extend(map(_scalar, child.values()))
        else:
            inner.append((key, child))
    return keys, texts


def _with_names_joined(label: str, keys: tuple[tuple[str, ...], ...], texts: list[str]) -> ScalarRecord:
    """Return a record that joins neighbours like first_name and last_name: half a name identifies no one."""
    if not _may_be_names(keys):
        return ScalarRecord(label, keys, tuple(texts))
    joined, told = list(keys[:1]), texts[:1]
    for path, text in zip(keys[1:], texts[1:], strict=True):
        shared = _shared_part(path, joined[-1])
        if shared is not None and _is_name(text) and _is_name(told[-1]):
            joined[-1] = (*path[:-1], shared)
            told[-1] = f"{told[-1]} {text}"
        else:
            joined.append(path)
            told.append(text)
    return ScalarRecord(label, tuple(joined), tuple(told))


@lru_cache(maxsize=SHAPES_MAX)
def _may_be_names(keys: tuple[tuple[str, ...], ...]) -> bool:
    return any(_shared_part(path, before) is not None for before, path in pairwise(keys))


def _shared_part(path: tuple[str, ...], before: tuple[str, ...]) -> str | None:
    """Return the only part that the keys of two neighbours have in common, or `None`."""
    if not path or path[:-1] != before[:-1]:
        return None
    shared = set(path[-1].split("_")) & set(before[-1].split("_"))
    return shared.pop() if len(shared) == 1 else None


def _is_name(text: str) -> bool:
    return text.istitle() and text.isalpha()


def _is_plain(node: dict[str, Json]) -> bool:
    return _BRANCHES.isdisjoint(map(type, node.values()))


def _scalar(node: Json) -> str:
    """Return the text of a scalar; `""` for null, which has no information. An empty list is information."""
    if isinstance(node, str):
        return node
    if isinstance(node, list | dict):
        return "[]"
    return "" if node is None else "true" if node else "false"


# The text form of a record.

LONG_VALUE_CHARS = 100
DATE_CHARS_MAX = 10
VALUES_MAX = 16_384
LIKELY = 0.6
UNLIKELY = 0.15
"""Probabilities that a value of some shape is needed again, before its key has shown it."""


class _Shape(msgspec.Struct, frozen=True, gc=False):
    """Facts about the keys of a record, one per leaf. Cached, because tools answer in the same shapes repeatedly."""

    names: tuple[str, ...]
    """Names under which the usefulness of a key is counted, without positions or identifiers."""
    shown: tuple[str, ...]
    """The parts of a key that distinguish it from its neighbours; `""` for a key without such parts."""


@lru_cache(maxsize=SHAPES_MAX)
def _shape(label: str, keys: tuple[tuple[str, ...], ...]) -> _Shape:
    label = "" if is_identifier(label) else label
    return _Shape(
        tuple(["\x00".join((label, *path)) for path in keys]),
        tuple([clean(path[-1]) if path else "" for path in keys]),
    )


def _record_parts(record: ScalarRecord, values: Sequence[Value], at: int, opening: str) -> Iterator[LinePart]:
    shape = _shape(record.label, record.keys)
    yield LinePart(opening, -1, shape.names[at], values[at])
    named = f"{record.label} {record.texts[at]}"
    group, group_at, count = "", 0, 1
    for n, (keys, text) in enumerate(zip(record.keys, record.texts, strict=True)):
        is_inner = len(keys) > 1
        if is_inner and keys[0] != group:
            group, group_at = keys[0], count
            yield LinePart(f" {clean(group)}", 0)
            count += 1
        if len(text) > LONG_VALUE_CHARS:
            yield LinePart("", 0, prose=text)
            count += 1
        elif n != at and text not in named:
            below = group_at if is_inner else 0
            yield LinePart(f" {_keyed_value(keys, shape.shown[n], values[n])}", below, shape.names[n], values[n])
            count += 1


class _Values(dict[str, Value]):
    """Cache of the values of leaves by their texts, because tools repeat the same values. Bounded."""

    def __missing__(self, text: str) -> Value:
        found = _scalar_value(text)
        if len(text) <= LONG_VALUE_CHARS:
            if len(self) >= VALUES_MAX:
                self.clear()
            self[text] = found
        return found


_VALUES = _Values()


def _scalar_value(text: str) -> Value:
    said = tuple(words(text[:LONG_VALUE_CHARS])) or (text[:LONG_VALUE_CHARS],)
    if said == (text,) and text.isascii():  # most values: the facts about the word hold for the value
        return _word_value(text, said)
    specific = is_specific(text)
    is_id = specific and refers(text)
    shown = clean(text[: 2 * LONG_VALUE_CHARS])
    if len(shown) > LONG_VALUE_CHARS:
        stop = shown.rfind(" ", LONG_VALUE_CHARS // 2, LONG_VALUE_CHARS)
        shown = f"{shown[: stop if stop > 0 else LONG_VALUE_CHARS].rstrip()} {GAP}"
    return Value(
        VALUE_MARK + text.lower(),
        said,
        tuple([term for term in chain.from_iterable(map(terms_of, said)) if term[0] == VALUE_MARK]),
        shown,
        LIKELY if is_id or (specific and _is_date(text)) else UNLIKELY,
        sum(map(worth_max, said)),
        len(shown) + 1,
        specific,
        is_id,
    )


def _word_value(word: str, said: tuple[str, ...]) -> Value:
    term = VALUE_MARK + word.lower()
    if not is_specific(word):
        return Value(term, said, (), word, UNLIKELY, SIZE_MAX, len(word) + 1, False, False)
    is_id = refers(word)
    return Value(
        term,
        said,
        (term,),
        word,
        LIKELY if is_id or _is_date(word) else UNLIKELY,
        value_worth_max(word),
        len(word) + 1,
        True,
        is_id,
    )


def _is_date(text: str) -> bool:
    return len(text) <= DATE_CHARS_MAX and DATE.match(text) is not None


def _keyed_value(keys: tuple[str, ...], key: str, value: Value) -> str:
    """Return the value after its key: "via ORD" says more than "ORD"."""
    return f"{key} {value.shown}" if keys else value.shown
