"""Arguments of the public face, checked before anything is done with them: a wrong one is named, never guessed at."""

import os
from collections.abc import Collection, Mapping
from math import isfinite
from pathlib import Path
from typing import TypeVar

import msgspec

from memory_engine.errors import InvalidArgument

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
PathLike = str | os.PathLike[str]
"""The place of a file or a folder: a text, a `pathlib.Path`, or another object that knows its path."""
COUNT_MAX = (1 << 63) - 1
"""The greatest whole number that every store can hold."""


def checked_count(what: str, value: int, *, least: int = 0) -> int:
    """A whole number from `least` on. Raises `InvalidArgument`."""
    if type(value) is not int or not least <= value <= COUNT_MAX:
        raise InvalidArgument(what, value, f"give a whole number from {least} on")
    return value


def checked_limit(value: int | None) -> int | None:
    """How many to give at most; `None`: all. Raises `InvalidArgument`."""
    return None if value is None else checked_count("limit", value)


def checked_text(what: str, value: str) -> str:
    """A text, which may be empty. Raises `InvalidArgument`."""
    if not isinstance(value, str):
        raise InvalidArgument(what, value, "give a text")
    return value


def checked_name(what: str, value: str | None) -> str | None:
    """A text, or `None` where it may be left out. Raises `InvalidArgument`."""
    return None if value is None else checked_text(what, value)


def checked_flag(what: str, value: bool) -> bool:
    """`True` or `False`. Raises `InvalidArgument`."""
    return checked_type(what, value, bool, give="True or False")


def checked_path(what: str, value: PathLike) -> str:
    """A path as a text. Raises `InvalidArgument`."""
    given: object = value
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidArgument(what, value, "give a path: a text, or a `pathlib.Path`")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument(what, value, "no file can have this name here: give a text that can be encoded") from None
    return path


def checked_file(what: str, value: PathLike) -> Path:
    """The path of a file or a folder. Raises `InvalidArgument`."""
    return Path(checked_path(what, value))


def checked_type(what: str, value: T, kind: type | tuple[type, ...], *, give: str) -> T:
    """A value of one of these types; `give` says what to give instead of another. Raises `InvalidArgument`."""
    if not isinstance(value, kind):
        raise InvalidArgument(what, value, f"give {give}")
    return value


def checked_number(what: str, value: object) -> float:
    """A number. Raises `InvalidArgument`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InvalidArgument(what, value, "give a number")
    return value


def checked_function(what: str, value: T) -> T:
    """A function. Raises `InvalidArgument`."""
    if not callable(value):
        raise InvalidArgument(what, value, "give a function")
    return value


def checked_call(what: str, value: T | None) -> T | None:
    """A function, or `None` where it may be left out. Raises `InvalidArgument`."""
    return None if value is None else checked_function(what, value)


def checked_list(what: str, values: Collection[T], kind: type | tuple[type, ...], *, each: str) -> tuple[T, ...]:
    """Several values of a type: a list or another collection, and not a text or a mapping. Raises `InvalidArgument`."""
    given: object = values
    if isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping):
        found = tuple(values)
        if all(isinstance(value, kind) for value in found):
            return found
    raise InvalidArgument(what, values, f"give a list of {each}")


def set_tuples(struct: msgspec.Struct, *names: str) -> None:
    """Make tuples of these fields, where a list was given for one: for `__post_init__`, before the struct is shared."""
    for name in names:
        value = getattr(struct, name)
        if type(value) is list:
            msgspec.structs.force_setattr(struct, name, tuple(value))


def with_tuples(struct: S, *names: str) -> S:
    """The struct, with tuples in these fields where it holds a list: for types of which there are too many to look."""
    lists = {name: value for name in names if type(value := getattr(struct, name)) is list}
    if not lists:
        return struct
    return msgspec.structs.replace(struct, **{name: tuple(value) for name, value in lists.items()})
