"""The domain: which preferences there are, of which kinds, how they hang together, and the rules they may name.

It may be written as TOML.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Literal, cast, get_args

import msgspec
from attrs import field, frozen

from memory_engine.core.arguments import PathLike, checked_file
from memory_engine.core.bounded import read_file
from memory_engine.core.codec import encode_json
from memory_engine.core.ids import check_identifier
from memory_engine.errors import DomainError, InvalidIdentifier, PreferenceError
from memory_engine.views.preferences.events import RuleReference
from memory_engine.views.preferences.rules import (
    RuleFunction,
    Rules,
    is_number,
    problem_with_condition,
    problem_with_function,
    same,
)

PreferenceType = Literal["choice", "text", "number", "boolean", "json"]
TYPES: tuple[PreferenceType, ...] = get_args(PreferenceType)
RELATION_WEIGHT = 0.5
"""The share of a score that a relation keeps by default."""


def _value_tuple(values: Iterable[object]) -> tuple[object, ...]:
    return tuple(values)


def _name_tuple(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@frozen
class Kind:
    """One kind of preference, found by its key.

    `allowed` are the values of a choice (for other types a restriction; empty: none). `default` applies while nothing
    is stored; onboarding stores `seed` for a user who does not answer; `None`: no default, no seed. `flows` are those
    in which the preference always applies. `related` leads to other keys, each with the share of a score that remains
    after the step (above 0, up to 1). `rule` says how a value of this kind acts, unless the preference has its own.
    """

    key: str
    description: str = field(default="", kw_only=True)
    name: str = field(default="", kw_only=True)
    type: PreferenceType = field(default="json", kw_only=True)
    allowed: tuple[object, ...] = field(default=(), kw_only=True, converter=_value_tuple)
    default: object = field(default=None, kw_only=True)
    seed: object = field(default=None, kw_only=True)
    flows: tuple[str, ...] = field(default=(), kw_only=True, converter=_name_tuple)
    related: Mapping[str, float] = field(factory=dict, kw_only=True)
    rule: RuleReference | None = field(default=None, kw_only=True)


def problem_with_value(kind: Kind, value: object) -> str:
    """Why a preference of this kind cannot have this value; empty if it can."""
    match kind.type:
        case "text" if not isinstance(value, str):
            return f"it is {_type_phrase(value)}, not a text"
        case "number" if not is_number(value):
            return f"it is {_type_phrase(value)}, not a number"
        case "boolean" if not isinstance(value, bool):
            return f"it is {_type_phrase(value)}, not true or false"
    if not _is_json(value):
        return "JSON cannot hold it"
    if kind.allowed and not any(same(value, one) for one in kind.allowed):
        return "it is not among the allowed values"
    return ""


def _is_json(value: object) -> bool:
    """Whether the value survives JSON unchanged."""
    if isinstance(value, float) and not isfinite(value):
        return False
    try:
        return same(msgspec.json.decode(encode_json(value)), value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return False


def _type_phrase(value: object) -> str:
    names: dict[type, str] = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names.get(type(value), f"a {type(value).__name__}")


Undeclared = Literal["", "accept", "refuse"]
"""How keys that no kind declares are treated; empty: refused once any kind is declared."""


def _tuple(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    return tuple(kinds)


@frozen
class Domain:
    """Kinds of preferences, personas (named sets of values) and rule functions. One `DomainError` lists all mistakes.

    The empty domain takes any key with any JSON value. A user's persona is the value stored under `persona_key`; if
    personas are declared, that key is a choice among them.
    """

    kinds: tuple[Kind, ...] = field(default=(), converter=_tuple)
    personas: Mapping[str, Mapping[str, object]] = field(factory=dict, kw_only=True)
    rules: Mapping[str, RuleFunction] = field(factory=Rules, kw_only=True)
    undeclared: Undeclared = field(default="", kw_only=True)
    persona_key: str = field(default="persona", kw_only=True)
    _by_key: dict[str, Kind] = field(init=False, eq=False, repr=False, factory=dict)
    _by_flow: dict[str, tuple[str, ...]] = field(init=False, eq=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        problems = problems_of(self)
        if problems:
            raise DomainError(tuple(problems))
        self._by_key.update((kind.key, kind) for kind in self.kinds)
        if self.personas:
            which = Kind(self.persona_key, description="Who the user is", type="choice", allowed=tuple(self.personas))
            self._by_key.setdefault(self.persona_key, which)
        for kind in self.kinds:
            for flow in kind.flows:
                self._by_flow[flow] = (*self._by_flow.get(flow, ()), kind.key)

    @classmethod
    def from_toml(cls, source: PathLike, *, rules: Mapping[str, RuleFunction] | None = None) -> "Domain":
        """A domain from a TOML file, or from TOML itself (a text with a line break or a `=` in it).

        Raises `DomainError` listing every mistake with its place, `OSError` for a file that cannot be read.
        """
        is_text = isinstance(source, str) and ("\n" in source or "=" in source or not source)
        try:
            text = str(source) if is_text else read_file(checked_file("source", source)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DomainError((f"TOML: {error}",)) from None
        return read_domain(text, Rules() if rules is None else rules)

    def kind(self, key: str) -> Kind | None:
        """The kind declared under a key."""
        return self._by_key.get(key)

    def keys(self) -> tuple[str, ...]:
        """The declared keys, including the persona key."""
        return tuple(self._by_key)

    def of_flow(self, flow: str) -> tuple[str, ...]:
        """The keys that always apply in a flow."""
        return self._by_flow.get(flow, ())

    @property
    def accepts_undeclared(self) -> bool:
        """Whether keys that no kind declares may be set."""
        return self.undeclared == "accept" or (not self.undeclared and not self.kinds)

    def check(self, key: str, value: object, rule: RuleReference | None) -> None:
        """Raise `PreferenceError` for a value that may not be stored, `InvalidIdentifier` for an impossible key."""
        check_identifier("preference key", key)
        kind = self.kind(key)
        if kind is None and not self.accepts_undeclared:
            raise PreferenceError(key, value, "the domain declares no such key", self.keys())
        if kind is not None and not (value is None and rule is not None):
            problem = problem_with_value(kind, value)
            if problem:
                raise PreferenceError(key, value, problem, kind.allowed)
        if rule is not None:
            problem, known = _problem_with_rule(rule, self.rules)
            if problem:
                raise PreferenceError(key, rule.name, problem, known)


def _problem_with_rule(rule: RuleReference, rules: Mapping[str, RuleFunction]) -> tuple[str, tuple[str, ...]]:
    """Why a rule cannot be applied, and the names that could be meant."""
    if not rule.name:
        return "a rule without the name of a function", tuple(rules)
    if rule.name not in rules:
        return f"no rule {rule.name!r} is registered: give it to the domain with `rules=`", tuple(rules)
    return problem_with_condition(rule.when), ()


def problems_of(domain: Domain) -> list[str]:
    """The mistakes of a domain, each with its place; pure, for a domain under construction."""
    return [*_with_rules(domain), *_with_kinds(domain), *_with_personas(domain)]


def _with_rules(domain: Domain) -> Iterator[str]:
    for name, function in domain.rules.items():
        if problem := problem_with_function(function):
            yield f"rules.{name}: {problem}"
    if domain.undeclared not in ("", "accept", "refuse"):
        yield f"undeclared: {domain.undeclared!r} is not one of 'accept', 'refuse'"


def _with_kinds(domain: Domain) -> Iterator[str]:
    declared: set[str] = set()
    keys = {kind.key for kind in domain.kinds} | ({domain.persona_key} if domain.personas else set())
    for kind in domain.kinds:
        place = f"kinds.{kind.key}"
        if kind.key in declared:
            yield f"{place}: declared twice"
        declared.add(kind.key)
        try:
            check_identifier("key", kind.key)
        except InvalidIdentifier as error:
            yield f"{place}: {error}"
        yield from (f"{place}{problem}" for problem in _with_kind(kind, keys, domain.rules))


def _with_kind(kind: Kind, keys: set[str], rules: Mapping[str, RuleFunction]) -> Iterator[str]:
    if kind.type not in TYPES:
        yield f".type: {kind.type!r} is not one of {', '.join(TYPES)}"
        return
    if kind.type == "choice" and not kind.allowed:
        yield ".allowed: a choice needs values to choose from"
    for place, value in (("default", kind.default), ("seed", kind.seed)):
        if value is not None and (problem := problem_with_value(kind, value)):
            yield f".{place}: {value!r}: {problem}"
    for value in kind.allowed if kind.type != "choice" else ():
        if problem := problem_with_value(kind, value):
            yield f".allowed: {value!r}: {problem}"
    if not all(kind.flows):
        yield ".flows: a flow without a name"
    for key, weight in kind.related.items():
        if key not in keys:
            yield f".related: {key!r} is not declared"
        if not is_number(weight) or not 0 < weight <= 1:
            yield f".related.{key}: a weight is above 0 and at most 1, not {weight!r}"
    if kind.rule is not None and (problem := _problem_with_rule(kind.rule, rules)[0]):
        yield f".rule: {problem}"


def _with_personas(domain: Domain) -> Iterator[str]:
    kinds = {kind.key: kind for kind in domain.kinds}
    which = kinds.get(domain.persona_key)
    for name, values in domain.personas.items():
        place = f"personas.{name}"
        if not name:
            yield "personas: one has no name"
        if which is not None and which.type in TYPES and (problem := problem_with_value(which, name)):
            yield f"{place}: as a value of {domain.persona_key!r}: {problem}"
        for key, value in values.items():
            kind = kinds.get(key)
            if kind is None and not domain.accepts_undeclared:
                yield f"{place}.{key}: not declared"
            elif kind is not None and kind.type in TYPES and (problem := problem_with_value(kind, value)):
                yield f"{place}.{key}: {value!r}: {problem}"


Table = Mapping[str, object]
ValueShape = Literal["a text", "a list of texts", "a list", "a table", "texts or a table"]


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_SHAPES: dict[ValueShape, Callable[[object], bool]] = {
    "a text": lambda value: isinstance(value, str),
    "a list of texts": _is_texts,
    "a list": lambda value: isinstance(value, list),
    "a table": lambda value: isinstance(value, dict),
    "texts or a table": lambda value: _is_texts(value) or isinstance(value, dict),
}
_DOMAIN: dict[str, ValueShape] = {
    "kinds": "a table",
    "personas": "a table",
    "undeclared": "a text",
    "persona_key": "a text",
}
_KIND: dict[str, ValueShape | None] = {
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
_RULE: dict[str, ValueShape] = {"name": "a text", "arguments": "a table", "when": "a table"}


def read_domain(text: str, rules: Mapping[str, RuleFunction]) -> Domain:
    """The domain that a TOML text declares. Raises `DomainError` listing every mistake with its place."""
    import tomllib  # only a domain that is declared in a file needs it

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DomainError((f"TOML: {error}",)) from None
    reading = _TableReader()
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


class _TableReader:
    """Collects values of a wrong shape as mistakes; reads the rest."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def checked(self, place: str, table: Table, shapes: Mapping[str, ValueShape | None]) -> dict[str, object]:
        """The known values of the table that have the right shape."""
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
        """A kind, without the values that cannot be used."""
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
            allowed=_items_of_list(read.get("allowed")),
            default=read.get("default"),
            seed=read.get("seed"),
            flows=cast("tuple[str, ...]", _items_of_list(read.get("flows"))),  # their shape was checked
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


def _items_of_list(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list) else ()
