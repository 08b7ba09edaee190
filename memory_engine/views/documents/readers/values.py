"""JSON as a reader sees it: a line for each value, with its path before it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import TypeGuard

from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits, json_values
from memory_engine.views.documents.readers.document import Loaded, Unreadable, check_limit
from memory_engine.views.documents.readers.outline import Blocks
from memory_engine.views.documents.readers.text import decoded

KEY_CHARS_MAX = 80
PATH_KEYS_MAX = 8
"""Of a deeper path its last keys are shown."""
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""Numbers as they are written: `1.10` stays so."""


def read_json(content: bytes, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Loaded:
    """A JSON file. The elements of a list are apart by blank lines. Raises `Unreadable`, naming line and column."""
    text = decoded(content)
    check_limit(json_values(text), limits, "json_values", "values or more")
    return _json_document(iter([_parsed(text, "")]), path, limits)


def read_json_lines(content: bytes, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Loaded:
    """A file with a JSON value on each line, read as a list of them. Raises `Unreadable`, naming the line."""
    text = decoded(content)
    check_limit(json_values(text), limits, "json_values", "values or more")
    lines = ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())
    return _json_document((_parsed(line, f"line {n}") for n, line in lines), path, limits)


def _json_document(values: Iterator[object], path: str, limits: ReadingLimits) -> Loaded:
    blocks = Blocks(limits)
    for value in values:
        for begins, line in _value_lines(value):
            if begins:
                blocks.gap()
            blocks.put(line, "row")
    title = PurePath(path).stem
    return Loaded(id=path, title=title, format="json", sections=blocks.outline.sections(title), source=path)


def _parsed(text: str, place: str) -> object:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg}", place or f"line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise Unreadable("its values are nested too deep", place) from None


def _value_lines(value: object) -> Iterator[tuple[bool, str]]:
    """The lines of a value, and whether each begins an element of a list, or what follows a list.

    A path says `[]` for an element's place: with its number, one element more would change the lines of all after it.
    """
    waiting: list[tuple[tuple[str, ...], object, bool]] = [((), value, True)]
    begins = True
    while waiting:
        path, found, is_first = waiting.pop()
        begins = begins or is_first
        if isinstance(found, Mapping):
            waiting += reversed(list(_members(path, found)))
        elif _is_list_of_objects(found):
            waiting += reversed([(_member_path(path, "[]") if path else (), one, True) for one in found])
        elif text := _value_text(found):
            named = ".".join(path).replace(".[]", "[]")
            yield begins, f"{named}: {text}" if named else text
            begins = False


def _members(path: tuple[str, ...], found: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object, bool]]:
    follows_list = False
    for key, value in found.items():
        yield _member_path(path, " ".join(_replace_surrogates(key).split())[:KEY_CHARS_MAX]), value, follows_list
        follows_list = _is_list_of_objects(value)


def _member_path(path: tuple[str, ...], key: str) -> tuple[str, ...]:
    return (*path[1 - PATH_KEYS_MAX :], key)


def _is_list_of_objects(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value)


def _value_text(value: object) -> str:
    """A value as text: a list of plain values with commas, nothing for null and for what is empty."""
    match value:
        case list():
            return ", ".join(filter(None, map(_value_text, value)))
        case bool():
            return "true" if value else "false"
        case str():
            return _replace_surrogates(value).strip()
        case _:
            return ""


def _replace_surrogates(text: str) -> str:
    """The text with question marks for halves of characters."""
    return text.encode("utf-8", "replace").decode()
