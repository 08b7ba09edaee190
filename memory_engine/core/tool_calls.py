"""The canonical form of a tool call's parameters, which shows that two calls are the same."""

import json
import math
from collections.abc import Mapping
from hashlib import sha256

from memory_engine.core.arguments import checked_text
from memory_engine.errors import InvalidParameters

_DEPTH_MAX = 64


def canonical(tool: str, parameters: Mapping[str, object]) -> str:
    """The parameters as compact JSON with sorted keys, characters as themselves.

    The order of keys does not matter. Values are compared as JSON writes them: `1`, `1.0`, `true` and
    `"1"` are four values, a list and a tuple are one. Raises `InvalidParameters` for values that JSON cannot
    hold exactly: NaN, infinities, keys that are not texts, lone surrogates, other objects; and for anything but
    a mapping.
    """
    checked_text("tool", tool)
    _check_is_mapping(tool, parameters)
    _check_argument(tool, "$", parameters, 0)
    plain = _plain_json(parameters)
    try:
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        raise InvalidParameters(tool, "$", "a lone surrogate is not a character") from None
    except ValueError as error:  # an integer of more digits than Python writes
        raise InvalidParameters(tool, "$", str(error)) from None
    return text


def cache_key(tool: str, parameters: str) -> str:
    """32 hexadecimal digits for a tool and the canonical text of its parameters."""
    return sha256(f"{len(tool)}:{tool}{parameters}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _check_is_mapping(tool: str, parameters: object) -> None:
    if not isinstance(parameters, Mapping):
        raise InvalidParameters(tool, "$", f"a {type(parameters).__name__} is not a mapping of names to values")


def _check_argument(tool: str, where: str, value: object, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise InvalidParameters(tool, where, f"it is nested more than {_DEPTH_MAX} deep")
    match value:
        case float() if not math.isfinite(value):
            raise InvalidParameters(tool, where, f"{value} is not a JSON number")
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise InvalidParameters(tool, where, f"the key {key!r} is not a text")
                _check_argument(tool, f"{where}.{key}", inner, depth + 1)
        case list() | tuple():
            for n, inner in enumerate(value):
                _check_argument(tool, f"{where}[{n}]", inner, depth + 1)
        case None | str() | int() | float():
            pass
        case _:
            raise InvalidParameters(tool, where, f"a {type(value).__name__} is not a JSON value")


def _plain_json(value: object) -> object:
    """Mappings of any kind as dictionaries: the standard library's encoder takes no other."""
    match value:
        case Mapping():
            return {key: _plain_json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain_json(inner) for inner in value]
    return value
