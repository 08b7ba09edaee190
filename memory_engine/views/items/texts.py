"""The texts of a value that search is to find: those at paths such as `title`, `author.name` or `tags[*]`."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from memory_engine.views.items.events import WHOLE

_STEP = re.compile(r"\{(?P<some>[^{}]*)\}|\[(?P<place>[^\[\]]*)\]|(?P<name>[^.\[\]{}]+)")
"""A step of a path: some of several fields, a place in a list, a field."""


def texts_of(value: object, paths: Iterable[str]) -> Iterator[str]:
    """The texts at these paths, in order; a path that leads nowhere gives none."""
    for path in paths:
        for found in (value,) if path in (WHOLE, "") else _at(value, list(_STEP.finditer(path))):
            said = _said(found)
            if said.strip():
                yield said


def _at(value: object, steps: Sequence[re.Match[str]]) -> Iterator[object]:
    if not steps:
        yield value
        return
    for found in _next(value, steps[0]):
        yield from _at(found, steps[1:])


def _next(value: object, step: re.Match[str]) -> Iterator[object]:
    name, place, some = step.group("name", "place", "some")
    if some is not None:
        for path in some.split(","):
            yield from _at(value, list(_STEP.finditer(path.strip())))
    elif isinstance(value, dict):
        if name == "*":
            yield from (one for _, one in sorted(value.items()))
        elif name in value:
            yield value[name]
    elif isinstance(value, list | tuple):
        if "*" in (name, place):
            yield from value
        elif place is not None and re.fullmatch(r"-?\d{1,9}", place) and -len(value) <= int(place) < len(value):
            yield value[int(place)]


def _said(value: object) -> str:
    """A value as a person reads it, the fields in order of their names, as the log keeps them."""
    match value:
        case None:
            return ""
        case str():
            return value
        case dict():
            return "\n".join(f"{name}: {said}" for name, one in sorted(value.items()) if (said := _said(one)))
        case list() | tuple():
            return ", ".join(said for one in value if (said := _said(one)))
    return json.dumps(value)
