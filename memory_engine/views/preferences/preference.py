"""A preference, stored, and effective for a user: stored, of their persona, or the domain's default.

Which preferences apply is found by id in a known flow, by likeness to a query, and along relations from those; then
their rules change a situation, and rules that failed are listed.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from memory_engine.core.codec import encode_json
from memory_engine.core.lazy import regex
from memory_engine.llm.vectors import Match
from memory_engine.recall.likeness import Corpus
from memory_engine.views.preferences.domain import Domain, Kind
from memory_engine.views.preferences.fold import Preference
from memory_engine.views.preferences.rules import RuleFunction, holds, problem_with_condition


class Standing:
    """A user's preferences under a domain: for each key the stored row, else the persona's value, else the default."""

    def __init__(self, domain: Domain, row: Callable[[str], Preference | None]) -> None:
        self._domain = domain
        self._row = row

    def get(self, key: str) -> Preference | None:
        """The preference under a key."""
        row, kind = self._row(key), self._domain.kind(key)
        if row is not None:
            return of_row(row, kind)
        if key in (values := self.persona_values()):
            return _of_domain(key, values[key], "persona", kind)
        if kind is not None and kind.default is not None:
            return _of_domain(key, kind.default, "default", kind)
        return None

    def persona_values(self) -> dict[str, object]:
        """The values of the user's persona."""
        key = self._domain.persona_key
        row, kind = self._row(key), self._domain.kind(key)
        name = row.value if row is not None else kind.default if kind is not None else None
        return dict(self._domain.personas.get(name, {})) if isinstance(name, str) else {}

    def keys(self, stored: Iterable[str]) -> list[str]:
        """The keys that have a value, in order, given those that are stored."""
        defaults = (kind.key for kind in self._domain.kinds if kind.default is not None)
        return sorted({*stored, *self.persona_values(), *defaults})


def of_row(row: Preference, kind: Kind | None) -> Preference:
    """A stored preference; without a rule of its own it acts by that of its kind."""
    return row if row.rule or kind is None else replace(row, rule=kind.rule)


def line_of(key: str, value: object, reason: str) -> str:
    """A preference as an item of a block. Its later lines are indented, so that none looks like another item."""
    told = f"{value_text(value)} ({reason})" if reason else value_text(value)
    return "\n  ".join(f"- {key}: {told}".splitlines())


def value_text(value: object) -> str:
    """A preference's value as text: JSON, unless it is a text."""
    return value if isinstance(value, str) else encode_json(value).decode()


def _of_domain(key: str, value: object, origin: Literal["persona", "default"], kind: Kind | None) -> Preference:
    rule, name = (kind.rule, kind.key) if kind is not None else (None, "")
    return Preference(key=key, value=value, rule=rule, kind=name, origin=origin)


HOPS = 2
LIMIT = 20
SHOWN_WORDS_MAX = 6
SCORE_DIGITS = 6

_ROW = msgspec.json.Decoder(Preference)
_WITHIN_WORDS = regex(r"(?<=[a-z0-9])(?=[A-Z])")


class ApplicablePreference(msgspec.Struct, frozen=True):
    """A preference that applies: `score` from 0 to 1, and the steps that led to it, in order."""

    preference: Preference
    score: float
    why: tuple[str, ...]


class Applicable(msgspec.Struct, frozen=True):
    """The preferences that apply, highest score first, equal ones by key.

    `how` says how a query was compared: `"embedding"`, `"lexical"`, or empty if nothing was similar; `failure` says why
    only words were compared although there is an embedder.
    """

    found: tuple[ApplicablePreference, ...] = ()
    how: str = ""
    failure: str = ""

    def __iter__(self) -> Iterator[ApplicablePreference]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def values(self) -> dict[str, object]:
        """The values by key, in the same order."""
        return {one.preference.key: one.preference.value for one in self.found}


class Reached(msgspec.Struct, frozen=True):
    """A key on the way: how strongly it applies, and by which steps."""

    score: float
    why: tuple[str, ...]


def starts(domain: Domain, flow: str | None, matches: list[Match]) -> dict[str, Reached]:
    """The keys to start from: those of the flow, which need no likeness, and those similar to the query."""
    found = {match.key: Reached(match.score, (_similar(match),)) for match in matches}
    by_id = domain.of_flow(flow) if flow is not None else ()
    return {**found, **{key: Reached(1.0, (f"id:{flow}",)) for key in by_id}}


def _similar(match: Match) -> str:
    words = ", ".join(match.shared[:SHOWN_WORDS_MAX])
    by = "embedding" if match.how == "embedding" else words or "spelling"
    return f"similar {match.score:.2f}: {by}"


def follow(found: Mapping[str, Reached], domain: Domain, hops: int) -> dict[str, Reached]:
    """All that at most `hops` relations lead to, each with its best way.

    A step leaves a share of the score, at most all of it, so a cycle never raises a score, and the walk ends.
    """
    best = dict(found)
    frontier = dict(found)
    for _ in range(hops):
        reached: dict[str, Reached] = {}
        for key in sorted(frontier):
            kind = domain.kind(key)
            for other, weight in sorted(kind.related.items()) if kind is not None else ():
                score = round(frontier[key].score * weight, SCORE_DIGITS)
                if score > (best[other].score if other in best else 0.0):
                    step = f"related to {key} ×{weight:g}"
                    best[other] = reached[other] = Reached(score, (*frontier[key].why, step))
        frontier = reached
    return best


def ranked(
    reached: Mapping[str, Reached], preference: Callable[[str], Preference | None], limit: int
) -> tuple[ApplicablePreference, ...]:
    """Those that have a value, best first."""
    found: list[ApplicablePreference] = []
    for key, way in sorted(reached.items(), key=lambda item: (-item[1].score, item[0])):
        if len(found) >= limit:
            break
        if (holds := preference(key)) is not None:
            found.append(ApplicablePreference(holds, way.score, way.why))
    return tuple(found)


def corpus(domain: Domain, stored: Mapping[str, bytes], standing: Standing) -> Corpus:
    """The texts that a query is compared with: stored rows (encoded), and values that hold without being stored."""
    others = {key: standing.get(key) for key in standing.keys(()) if key not in stored}
    tokens: dict[str, object] = {**others, **stored}

    def text(key: str) -> str:
        token = tokens[key]
        row = _ROW.decode(token) if isinstance(token, bytes) else token
        return preference_text(row, domain.kind(key)) if isinstance(row, Preference) else ""

    return Corpus(tokens, text)


def preference_text(preference: Preference, kind: Kind | None) -> str:
    """A preference in words: key, name, description, value, and the name of its rule."""
    key = _WITHIN_WORDS.sub(" ", preference.key)
    told = (kind.name, kind.description) if kind is not None else ()
    value = preference.value
    said = value if isinstance(value, str) else "" if value is None else encode_json(value).decode()
    rule = preference.rule.name if preference.rule is not None else ""
    return ". ".join(filter(None, (key.replace("_", " "), *told, said, rule)))


def decoded(stored: Mapping[str, bytes]) -> Callable[[str], Preference | None]:
    """Reads rows out of encoded ones."""

    def row(key: str) -> Preference | None:
        encoded = stored.get(key)
        return _ROW.decode(encoded) if encoded is not None else None

    return row


class AppliedRule(msgspec.Struct, frozen=True):
    """A rule that was applied: its preference, its function, and the slots that it changed."""

    key: str
    rule: str
    changes: Mapping[str, object]


class UnknownRule(msgspec.Struct, frozen=True):
    """A rule that the log names but this process does not know; it was not applied."""

    key: str
    rule: str


class FailedRule(msgspec.Struct, frozen=True):
    """A rule that could not be applied; the situation does not include it."""

    key: str
    rule: str
    error: str


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The situation after the rules, and the outcome of each whose condition holds, in order.

    Rules that this process does not know are listed whether their condition holds or not.
    """

    situation: dict[str, object]
    applied: tuple[AppliedRule, ...] = ()
    unknown: tuple[UnknownRule, ...] = ()
    failed: tuple[FailedRule, ...] = ()


def apply_rules(
    situation: Mapping[str, object], preferences: Iterable[Preference], rules: Mapping[str, RuleFunction]
) -> Applied:
    """Apply the rules of preferences; the one set last wins.

    Conditions see the original situation, so their order does not decide which rules apply. The order: first the
    domain's defaults and the persona's (by key), then stored ones, by seq. Each function sees what the earlier ones
    changed.
    """
    changed = dict(situation)
    applied: list[AppliedRule] = []
    unknown: list[UnknownRule] = []
    failed: list[FailedRule] = []
    for preference in sorted(preferences, key=lambda one: (one.seq, one.key)):
        rule, key = preference.rule, preference.key
        if rule is None:
            continue
        function = rules.get(rule.name)
        if function is None:
            unknown.append(UnknownRule(key, rule.name))
            continue
        try:
            if (problem := problem_with_condition(rule.when)) or not holds(rule.when, situation):
                failed += [FailedRule(key, rule.name, problem)] if problem else []
                continue
            arguments = {} if preference.value is None else {"value": preference.value}
            changes = _called(function, changed, copy.deepcopy({**arguments, **rule.arguments}))
        except Exception as error:  # the boundary to user code: one rule must not take the others with it
            failed.append(FailedRule(key, rule.name, f"{type(error).__name__}: {error}"))
            continue
        changed.update(changes)
        applied.append(AppliedRule(key, rule.name, changes))
    return Applied(situation=changed, applied=tuple(applied), unknown=tuple(unknown), failed=tuple(failed))


def _called(
    function: RuleFunction, situation: Mapping[str, object], arguments: Mapping[str, object]
) -> dict[str, object]:
    changes: object = function(MappingProxyType(dict(situation)), arguments)
    if not isinstance(changes, Mapping) or not all(isinstance(slot, str) for slot in changes):
        raise TypeError(f"a rule returns the changed slots by name, not {changes!r}")
    return dict(changes)
