"""Rules: registered functions that change slots or a template when their condition holds."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeGuard, TypeVar

from memory_engine.errors import DuplicateRegistration

Ordered = TypeVar("Ordered", float, str)

RuleFunction = Callable[[Mapping[str, object], Mapping[str, object]], Mapping[str, object]]
"""Pure: `(situation, arguments)` → the slots that change, with their new values.

The situation holds slots by name; the text of a response template is under `"template"`.
The arguments are the rule's own, and under `"value"` the value of the preference, if it has one.
"""


class Rules(Mapping[str, RuleFunction]):
    """Rule functions by name. The name is what the log holds; a function may move and change.

    rules = Rules()

    @rules.rule("default_slot")
    def default_slot(situation, arguments): ...

    domain = Domain(rules=rules)
    """

    def __init__(self, functions: Mapping[str, RuleFunction] = MappingProxyType({})) -> None:
        self._functions = dict(functions)

    def rule(self, name: str) -> Callable[[RuleFunction], RuleFunction]:
        """Register a function under a name. Raises `DuplicateRegistration` if the name is taken."""

        def add(function: RuleFunction) -> RuleFunction:
            if name in self._functions:
                raise DuplicateRegistration("rule", name)
            self._functions[name] = function
            return function

        return add

    def __getitem__(self, name: str) -> RuleFunction:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)


def problem_with_function(function: object) -> str:
    """Why this cannot be a rule function; empty if it can."""
    if not callable(function):
        return f"a {type(function).__name__} is not a function"
    if inspect.iscoroutinefunction(function):
        return "it is asynchronous; a rule is pure and returns at once"
    return ""


_COMPARISONS = ("gt", "ge", "lt", "le")
OPERATORS = (*_COMPARISONS, "ne", "in", "not_in", "exists")


def problem_with_condition(when: Mapping[str, object]) -> str:
    """Why a condition cannot be evaluated, naming the slot; empty if it can."""
    for slot, wanted in when.items():
        for name, operand in _operations(wanted):
            if name not in (*OPERATORS, "eq"):
                return f"slot {slot!r}: {name!r} is not one of {', '.join(OPERATORS)}"
            if name in _COMPARISONS and not _is_comparable(operand):
                return f"slot {slot!r}: {name!r} compares numbers or texts, not {operand!r}"
            if name in ("in", "not_in") and not isinstance(operand, list | tuple):
                return f"slot {slot!r}: {name!r} takes a list, not {operand!r}"
            if name == "exists" and not isinstance(operand, bool):
                return f"slot {slot!r}: 'exists' is true or false, not {operand!r}"
    return ""


def holds(when: Mapping[str, object], situation: Mapping[str, object]) -> bool:
    """Whether the situation meets every part of a condition (an empty one always).

    A part is `slot: value` (equal), `slot: [values]` (one of them; where the slot itself is a list: equal to it, or one
    of its items among them) or `slot: {operator: operand, ...}` (all of the operators). A missing slot meets only
    `{"exists": false}`, `ne` and `not_in`. 1 and true are not equal; comparing a number with a text is never met.
    """
    return all(
        _meets(slot in situation, situation.get(slot), name, operand)
        for slot, wanted in when.items()
        for name, operand in _operations(wanted)
    )


def _operations(wanted: object) -> list[tuple[str, object]]:
    """A part of a condition as (name of the operator, operand)."""
    match wanted:
        case Mapping():
            return [(str(name), operand) for name, operand in wanted.items()]
        case list() | tuple():
            return [("in", wanted)]
    return [("eq", wanted)]


def _meets(is_there: bool, value: object, name: str, operand: object) -> bool:
    match name:
        case "exists":
            return is_there is operand
        case "ne":
            return not (is_there and same(value, operand))
        case "not_in":
            return not (is_there and _is_among(value, operand))
        case "eq":
            return is_there and same(value, operand)
        case "in":
            return is_there and _is_among(value, operand)
    return is_there and _compares(value, name, operand)


def _compares(value: object, name: str, operand: object) -> bool:
    if is_number(value) and is_number(operand):
        return _is_in_order(value, name, operand)
    return isinstance(value, str) and isinstance(operand, str) and _is_in_order(value, name, operand)


def _is_in_order(left: Ordered, name: str, right: Ordered) -> bool:
    match name:
        case "gt":
            return left > right
        case "ge":
            return left >= right
        case "lt":
            return left < right
    return left <= right


def _is_among(value: object, operand: object) -> bool:
    if not isinstance(operand, list | tuple):
        return False
    if isinstance(value, list | tuple):
        return same(value, operand) or any(_is_among(item, operand) for item in value)
    return any(same(value, item) for item in operand)


def same(left: object, right: object) -> bool:
    """Whether two values are the same JSON: true is not 1, 1 is 1.0, a list is a tuple."""
    match left, right:
        case (bool(), _) | (_, bool()):
            return left is right
        case (list() | tuple(), list() | tuple()):
            return len(left) == len(right) and all(map(same, left, right))
        case (Mapping(), Mapping()):
            return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return left == right


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a JSON number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_comparable(value: object) -> bool:
    return is_number(value) or isinstance(value, str)
