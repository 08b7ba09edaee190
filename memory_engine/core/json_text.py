"""JSON texts of other programs, read within limits."""

import json
from typing import NoReturn

from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits, json_values


class BrokenText(Exception):
    """The text is not JSON from here on. `line` is counted from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse(text: str, line: int, limits: ReadingLimits = DEFAULT_LIMITS) -> object:
    """The one JSON value of `text`, which is on `line`. Raises `BrokenText`."""
    check_values(text, line, limits)
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BrokenText(line + error.lineno - 1, f"not JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise BrokenText(line, f"not JSON: {error}") from None
    except RecursionError:
        raise BrokenText(line, "not usable: its values are nested too deep") from None


def check_values(text: str, line: int, limits: ReadingLimits) -> None:
    """Raise `BrokenText` for JSON with so many values that it would take a hundred times its length of memory."""
    if len(text) > limits.json_values and (count := json_values(text)) > limits.json_values:
        why = f"not usable: it has {count:,} values or more; the limit is {limits.json_values:,}"
        raise BrokenText(line, f"{why}; if you trust the file, raise it: limits=ReadingLimits(json_values=…)")
