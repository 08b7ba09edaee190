"""Applying rules to a situation: which conditions hold, what the functions change, what went wrong."""

import copy
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from memory_engine.projections.preferences.preference import Preference
from memory_engine.projections.preferences.rules import RuleFunction, holds, problem_with_condition


class AppliedRule(msgspec.Struct, frozen=True):
    """A rule that was applied: of which preference, which function, and what it changed."""

    key: str
    rule: str
    changes: Mapping[str, object]


class UnknownRule(msgspec.Struct, frozen=True):
    """A rule that the log names and this process does not know; nothing was done for it."""

    key: str
    rule: str


class FailedRule(msgspec.Struct, frozen=True):
    """A rule that could not be applied; the situation is without it."""

    key: str
    rule: str
    error: str


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The situation after the rules, and what became of each whose condition holds, in order.

    Rules that this process does not know are listed whether their condition holds or not.
    """

    situation: dict[str, object]
    applied: tuple[AppliedRule, ...] = ()
    unknown: tuple[UnknownRule, ...] = ()
    failed: tuple[FailedRule, ...] = ()


def apply_rules(
    situation: Mapping[str, object], preferences: Iterable[Preference], rules: Mapping[str, RuleFunction]
) -> Applied:
    """Apply the rules of preferences, the one set last having the last word.

    Conditions look at the situation as it was given, so which rules apply does not hang on
    their order: first the domain's defaults and the persona's (by key), then what is stored, by seq. Each
    function sees what the former ones changed.
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
