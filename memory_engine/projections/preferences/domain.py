"""The domain: which preferences there are, how they hang together, and the rules that they may name."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from memory_engine.errors import DomainError, InvalidIdentifier, PreferenceError
from memory_engine.events.preferences import RuleReference
from memory_engine.ids import check_identifier
from memory_engine.projections.preferences.kinds import TYPES, Kind, problem_with_value
from memory_engine.projections.preferences.rules import (
    RuleFunction,
    Rules,
    is_number,
    problem_with_condition,
    problem_with_function,
)

Undeclared = Literal["", "accept", "refuse"]
"""What happens to keys that no kind declares; empty: refused once any kind is declared."""


def _tuple(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    return tuple(kinds)


@frozen
class Domain:
    """Kinds of preferences, personas (named sets of values) and rule functions. All mistakes raise one `DomainError`.

    The empty domain takes any key with any JSON value. A user's persona is the value stored
    under `persona_key`; if personas are declared, that key is a choice among them.
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
    def from_toml(cls, source: str | Path, *, rules: Mapping[str, RuleFunction] | None = None) -> "Domain":
        """A domain from a TOML file, or from TOML itself (a text with a line break or a `=` in it).

        Raises `DomainError` listing every mistake with its place, `OSError` for a file that cannot be read.
        """
        from memory_engine.projections.preferences.domain_toml import read_domain

        is_text = isinstance(source, str) and ("\n" in source or "=" in source or not source)
        try:
            text = str(source) if is_text else Path(source).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise DomainError((f"TOML: {error}",)) from None
        return read_domain(text, Rules() if rules is None else rules)

    def kind(self, key: str) -> Kind | None:
        """What is declared under a key."""
        return self._by_key.get(key)

    def keys(self) -> tuple[str, ...]:
        """The declared keys, that of the personas among them."""
        return tuple(self._by_key)

    def of_flow(self, flow: str) -> tuple[str, ...]:
        """The keys that always apply in a flow."""
        return self._by_flow.get(flow, ())

    @property
    def accepts_undeclared(self) -> bool:
        """Whether keys that no kind declares may be set."""
        return self.undeclared == "accept" or (not self.undeclared and not self.kinds)

    def check(self, key: str, value: object, rule: RuleReference | None) -> None:
        """Raise `PreferenceError` for what may not be stored, `InvalidIdentifier` for a key no store can hold."""
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
    """What is wrong with a domain, each with its place; pure, for a domain under construction."""
    return [*_with_rules(domain), *_with_kinds(domain), *_with_personas(domain)]


def _with_rules(domain: Domain) -> Iterator[str]:
    for name, function in domain.rules.items():
        if problem := problem_with_function(function):
            yield f"rules.{name}: {problem}"
    if domain.undeclared not in ("", "accept", "refuse"):
        yield f"undeclared: {domain.undeclared!r} is none of 'accept', 'refuse'"


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
        yield f".type: {kind.type!r} is none of {', '.join(TYPES)}"
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
