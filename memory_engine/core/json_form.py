"""The JSON form of values, as `--json` prints it, the inspector sends it and a report's `as_data()` gives it.

Attrs classes and structs become objects of their public fields, in order; enumerations their values, bytes
hexadecimal, moments ISO 8601 with their offset, sequences and sets lists. The payload of an event, a chunk and a view's
row have a form already, that of the log (`msgspec.to_builtins`, which leaves out fields with their default value).
"""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from enum import Enum
from typing import ClassVar

import attrs
import msgspec

_PLAIN = frozenset({type(None), bool, int, float, str})


class JsonForm:
    """A value that gives itself as plain JSON values.

    A class whose object differs from its fields declares that once: in `json_names` (fields and properties in order,
    with blanks between), or in its own `as_data`.
    """

    __slots__ = ()
    json_names: ClassVar[str] = ""

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return named(self, self.json_names)


def as_data(value: object) -> object:
    """A value as plain JSON values. Raises `TypeError` for one that has no JSON form, naming its type."""
    if type(value) in _PLAIN:
        return value
    match value:
        case JsonForm():
            return value.as_data()
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case str():
            return str(value)
        case Mapping():
            return {str(key): as_data(one) for key, one in value.items()}
        case Sequence() | Set():
            return [as_data(one) for one in value]
    return named(value)


def named(value: object, names: str = "") -> dict[str, object]:
    """An object of these fields and properties of a value (default: its public fields), in order."""
    return {name: as_data(getattr(value, name)) for name in names.split() or _fields(type(value))}


def _fields(cls: type) -> tuple[str, ...]:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    if attrs.has(cls):
        return tuple(one.name for one in attrs.fields(cls) if not one.name.startswith("_"))
    raise TypeError(f"{cls.__name__} has no JSON form: it is neither an attrs class nor a struct")
