"""Domains as TOML."""

import tomllib
from collections.abc import Callable, Mapping
from typing import Literal, cast

from memory_engine.errors import DomainError
from memory_engine.events.preferences import RuleReference
from memory_engine.projections.preferences.domain import Domain, Undeclared
from memory_engine.projections.preferences.kinds import RELATION_WEIGHT, Kind, PreferenceType
from memory_engine.projections.preferences.rules import RuleFunction

Table = Mapping[str, object]
Shape = Literal["a text", "a list of texts", "a list", "a table", "texts or a table"]


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_SHAPES: dict[Shape, Callable[[object], bool]] = {
    "a text": lambda value: isinstance(value, str),
    "a list of texts": _is_texts,
    "a list": lambda value: isinstance(value, list),
    "a table": lambda value: isinstance(value, dict),
    "texts or a table": lambda value: _is_texts(value) or isinstance(value, dict),
}
_DOMAIN: dict[str, Shape] = {
    "kinds": "a table",
    "personas": "a table",
    "undeclared": "a text",
    "persona_key": "a text",
}
_KIND: dict[str, Shape | None] = {
    "name": "a text",
    "description": "a text",
    "type": "a text",
    "allowed": "a list",
    "default": None,
    "seed": None,
    "flows": "a list of texts",
    "related": "texts or a table",
    "rule": "a table",
}
_RULE: dict[str, Shape] = {"name": "a text", "arguments": "a table", "when": "a table"}


def read_domain(text: str, rules: Mapping[str, RuleFunction]) -> Domain:
    """The domain that a TOML text declares. Raises `DomainError` listing every mistake with its place."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DomainError((f"TOML: {error}",)) from None
    reading = _Reading()
    top = reading.checked("", table, _DOMAIN)
    kinds = [reading.kind(f"kinds.{key}", key, value) for key, value in _table(top.get("kinds")).items()]
    personas = _table(top.get("personas"))
    for name, values in personas.items():
        if not isinstance(values, dict):
            reading.problems.append(f"personas.{name}: must be a table, not {values!r}")
    try:
        domain = Domain(
            kinds,
            personas={name: values for name, values in personas.items() if isinstance(values, dict)},
            rules=rules,
            undeclared=cast("Undeclared", top.get("undeclared", "")),  # the domain checks it
            persona_key=str(top.get("persona_key", "persona")),
        )
    except DomainError as error:
        raise DomainError((*reading.problems, *error.problems)) from None
    if reading.problems:
        raise DomainError(tuple(reading.problems))
    return domain


class _Reading:
    """Collects what does not have the shape it should have; the rest is read."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def checked(self, place: str, table: Table, shapes: Mapping[str, Shape | None]) -> dict[str, object]:
        """What of the table is known and of the right shape."""
        good: dict[str, object] = {}
        for key, value in table.items():
            where = f"{place}.{key}" if place else key
            shape = shapes.get(key)
            if key not in shapes:
                self.problems.append(f"{where}: unknown; there are {', '.join(shapes)}")
            elif shape is not None and not _SHAPES[shape](value):
                self.problems.append(f"{where}: must be {shape}, not {value!r}")
            else:
                good[key] = value
        return good

    def kind(self, place: str, key: str, value: object) -> Kind:
        """A kind; what of it cannot be used is left out."""
        if not isinstance(value, dict):
            self.problems.append(f"{place}: must be a table, not {value!r}")
        read = self.checked(place, _table(value), _KIND)
        related = read.get("related", {})
        if isinstance(related, list):
            related = dict.fromkeys(related, RELATION_WEIGHT)
        return Kind(
            key,
            name=str(read.get("name", "")),
            description=str(read.get("description", "")),
            type=cast("PreferenceType", read.get("type", "json")),  # the domain checks it
            allowed=_items(read.get("allowed")),
            default=read.get("default"),
            seed=read.get("seed"),
            flows=cast("tuple[str, ...]", _items(read.get("flows"))),  # their shape was checked
            related=cast("Mapping[str, float]", related),  # the domain checks the weights
            rule=self.rule(f"{place}.rule", read["rule"]) if "rule" in read else None,
        )

    def rule(self, place: str, value: object) -> RuleReference:
        """A reference to a rule function."""
        read = self.checked(place, _table(value), _RULE)
        return RuleReference(
            name=str(read.get("name", "")),
            arguments=dict(_table(read.get("arguments"))),
            when=dict(_table(read.get("when"))),
        )


def _table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list) else ()
