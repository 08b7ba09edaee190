"""JSON texts as records of leaves: the shape in which tools answer.

A record is an object with its scalar values, together with those of the plain
objects inside it (a name, a price table). Objects in lists and objects filed
under an identifier are records of their own. Nothing is interpreted: numbers
keep the spelling they had.
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
"""Numbers are read as the text they were written in, so that they are quoted verbatim."""


class ScalarRecord(msgspec.Struct, frozen=True, gc=False):
    """Scalars that belong together; `label` is the key they were filed under, "" for the outermost."""

    label: str
    keys: tuple[tuple[str, ...], ...]
    """Of each scalar: the keys that lead to it inside the record."""
    texts: tuple[str, ...]


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


class LinePart(msgspec.Struct, frozen=True, gc=False):
    """A part of a record's line. `below` is the part that must stand with it, -1 what the record hangs below.

    `key` is the name of its value's key without positions. `prose` is the text of a leaf too long for a value.
    """

    text: str
    below: int
    key: str = ""
    value: Value | None = None
    prose: str = ""


class ToldRecord(msgspec.Struct, gc=False):
    """A record as its line tells it: see `told`."""

    record: ScalarRecord
    identity: tuple[str, str]
    """Its label (the key it was filed under, "" for the outermost) and the text that names it."""
    keys: tuple[str, ...]
    """The names of its scalars' keys."""
    values: tuple[Value, ...]
    named_by: int
    opening: str
    """How its line begins."""
    tells_prose: bool
    """Whether a scalar is too long for a value."""
    _parts: tuple[LinePart, ...] = ()

    @property
    def label(self) -> str:
        """The key it was filed under."""
        return self.record.label

    @property
    def name(self) -> Value:
        """The value that names it."""
        return self.values[self.named_by]

    @property
    def key(self) -> str:
        """The name of the key of the value that names it."""
        return self.keys[self.named_by]

    @property
    def parts(self) -> Sequence[LinePart]:
        """The leaf that names it first, the others as they were grouped: made when they are first asked for."""
        if not self._parts:
            self._parts = tuple(_parts(self.record, self.values, self.named_by, self.opening))
        return self._parts


def _first_identifier(values: Sequence[Value]) -> int:
    """The place of the value that names a record: the first one if none is an identifier."""
    for place, value in enumerate(values):
        if value.is_identifier:
            return place
    return 0


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


def _told(record: ScalarRecord, *, labelled: bool) -> ToldRecord:
    texts = record.texts
    values = tuple(map(_VALUES.__getitem__, texts))
    at = _first_identifier(values)
    shape = _shape(record.label, record.keys)
    label = f"{clean(record.label)} " if labelled and record.label not in texts[at] else ""
    # a record's only identifier names it without a word; of several each says which it is
    keys = record.keys[at]
    is_plain = len(keys) < 2 and values[at].is_identifier and sum([value.is_identifier for value in values]) == 1
    key = " ".join([*map(clean, keys[:-1]), shape.shown[at]])
    opening = f"; {label}{values[at].shown if is_plain else _shown(keys, key, values[at])}"
    tells_prose = max(map(len, texts)) > LONG_VALUE_CHARS
    return ToldRecord(record, (record.label, texts[at]), shape.names, values, at, opening, tells_prose)


def records(value: Json) -> Iterator[ScalarRecord]:
    """The records of a value in reading order, the enclosing one first; a stack, not recursion."""
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
    """The scalars of an object and of the plain objects in it, with their keys; other values go to `inner`."""
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
    """A record, neighbours like first_name and last_name being one scalar: half a name identifies nobody."""
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
    """The one part that the keys of two neighbours have in common."""
    if not path or path[:-1] != before[:-1]:
        return None
    shared = set(path[-1].split("_")) & set(before[-1].split("_"))
    return shared.pop() if len(shared) == 1 else None


def _is_name(text: str) -> bool:
    return text.istitle() and text.isalpha()


def _is_plain(node: dict[str, Json]) -> bool:
    return _BRANCHES.isdisjoint(map(type, node.values()))


def _scalar(node: Json) -> str:
    """The text of a scalar; "" for null, which says nothing. That a list is empty says something."""
    if isinstance(node, str):
        return node
    if isinstance(node, list | dict):
        return "[]"
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


@lru_cache(maxsize=SHAPES_MAX)
def _shape(label: str, keys: tuple[tuple[str, ...], ...]) -> _Shape:
    label = "" if is_identifier(label) else label
    return _Shape(
        tuple(["\x00".join((label, *path)) for path in keys]),
        tuple([clean(path[-1]) if path else "" for path in keys]),
    )


def _parts(record: ScalarRecord, values: Sequence[Value], at: int, opening: str) -> Iterator[LinePart]:
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
            yield LinePart(f" {_shown(keys, shape.shown[n], values[n])}", below, shape.names[n], values[n])
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
    said = tuple(words(text[:LONG_VALUE_CHARS])) or (text[:LONG_VALUE_CHARS],)
    if said == (text,) and text.isascii():  # most values: what is known of the word holds for the value
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


def _shown(keys: tuple[str, ...], key: str, value: Value) -> str:
    """The value after its key: "via ORD" says what "ORD" does not."""
    return f"{key} {value.shown}" if keys else value.shown
