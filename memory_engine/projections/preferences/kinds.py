"""Kinds of preferences: what a domain declares of one, and which values it takes."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Literal, get_args

import msgspec
from attrs import field, frozen

from memory_engine.codec import encode_json
from memory_engine.events.preferences import RuleReference
from memory_engine.projections.preferences.rules import is_number, same

PreferenceType = Literal["choice", "text", "number", "boolean", "json"]
TYPES: tuple[PreferenceType, ...] = get_args(PreferenceType)
RELATION_WEIGHT = 0.5
"""What a relation keeps of a score, where its declaration says nothing."""


def _values(values: Iterable[object]) -> tuple[object, ...]:
    return tuple(values)


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@frozen
class Kind:
    """One kind of preference, found by its key.

    `allowed` are the values of a choice (for other types a restriction, empty: none). `default`
    is what holds while nothing is stored, `seed` what onboarding stores for a user who does not
    answer; `None` is no default and no seed. `flows` are those in which the preference always applies.
    `related` leads to other keys, each with the share of a score that is left behind the step
    (above 0, up to 1). `rule` says how a value of this kind acts, unless the preference has its own.
    """

    key: str
    description: str = field(default="", kw_only=True)
    name: str = field(default="", kw_only=True)
    type: PreferenceType = field(default="json", kw_only=True)
    allowed: tuple[object, ...] = field(default=(), kw_only=True, converter=_values)
    default: object = field(default=None, kw_only=True)
    seed: object = field(default=None, kw_only=True)
    flows: tuple[str, ...] = field(default=(), kw_only=True, converter=_names)
    related: Mapping[str, float] = field(factory=dict, kw_only=True)
    rule: RuleReference | None = field(default=None, kw_only=True)


def problem_with_value(kind: Kind, value: object) -> str:
    """Why a preference of this kind cannot have this value; empty if it can."""
    match kind.type:
        case "text" if not isinstance(value, str):
            return f"it is {_named(value)}, not a text"
        case "number" if not is_number(value):
            return f"it is {_named(value)}, not a number"
        case "boolean" if not isinstance(value, bool):
            return f"it is {_named(value)}, not true or false"
    if not _is_json(value):
        return "JSON cannot hold it"
    if kind.allowed and not any(same(value, one) for one in kind.allowed):
        return "it is not among the allowed values"
    return ""


def _is_json(value: object) -> bool:
    """Whether the value comes back from JSON as it was."""
    if isinstance(value, float) and not isfinite(value):
        return False
    try:
        return same(msgspec.json.decode(encode_json(value)), value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return False


def _named(value: object) -> str:
    names: dict[type, str] = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names.get(type(value), f"a {type(value).__name__}")
