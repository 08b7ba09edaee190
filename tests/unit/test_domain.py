"""The domain: declared kinds, personas and rules; every mistake is named with its place."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from memory_engine import errors
from memory_engine.events import RuleReference
from memory_engine.views.preferences.domain import Domain, Kind
from memory_engine.views.preferences.rules import Rules, holds, problem_with_condition

SAMPLE = """
persona_key = "persona"

[kinds.verbosity]
name = "Verbosity"
description = "How long answers are"
type = "choice"
allowed = ["concise", "balanced", "detailed"]
default = "balanced"
seed = "balanced"
flows = ["answer", "report"]
related = { technical_depth = 0.8 }

[kinds.technical_depth]
type = "number"
default = 1

[kinds.time_horizon]
type = "text"
related = ["verbosity"]
rule = { name = "fill_slot", arguments = { slot = "period" }, when = { period = { exists = false } } }

[personas.data_consumer]
verbosity = "concise"
technical_depth = 0
"""


def fill_slot(_situation: Mapping[str, object], arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Fill the named slot with the preference's value."""
    return {str(arguments["slot"]): arguments["value"]}


RULES = Rules({"fill_slot": fill_slot})


def problems(make: Callable[[], object]) -> tuple[str, ...]:
    """What a domain is refused for."""
    with pytest.raises(errors.DomainError) as caught:
        make()
    return caught.value.problems


def from_toml(text: str) -> Domain:
    """The domain of a TOML text, with the rules of this page."""
    return Domain.from_toml(text, rules=RULES)


def test_a_domain_reads_from_toml() -> None:
    """A text and the same in Python give the same domain."""
    verbosity = Kind(
        "verbosity",
        name="Verbosity",
        description="How long answers are",
        type="choice",
        allowed=("concise", "balanced", "detailed"),
        default="balanced",
        seed="balanced",
        flows=("answer", "report"),
        related={"technical_depth": 0.8},
    )
    rule = RuleReference("fill_slot", {"slot": "period"}, {"period": {"exists": False}})
    expected = Domain(
        [
            verbosity,
            Kind("technical_depth", type="number", default=1),
            Kind("time_horizon", type="text", related={"verbosity": 0.5}, rule=rule),
        ],
        personas={"data_consumer": {"verbosity": "concise", "technical_depth": 0}},
        rules=RULES,
    )
    assert expected == from_toml(SAMPLE)


@pytest.mark.parametrize("give", [str, Path])
def test_a_domain_reads_from_a_file(give: Callable[[Path], str | Path], tmp_path: Path) -> None:
    """A path may be text or a `Path`; a byte order mark at its beginning is no mistake."""
    path = tmp_path / "domain.toml"
    path.write_text(SAMPLE, encoding="utf-8-sig")
    assert from_toml(SAMPLE) == Domain.from_toml(give(path), rules=RULES)


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    """It is not read as an empty domain."""
    with pytest.raises(FileNotFoundError):
        Domain.from_toml(tmp_path / "nothing.toml")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[kinds.a\n", "TOML: Expected"),
        ("kind = 1\n", "kind: unknown; there are kinds, personas"),
        ("kinds = 1\n", "kinds: must be a table"),
        ("[kinds]\na = 1", "kinds.a: must be a table"),
        ("[kinds.a]\ndefualt = 1", "kinds.a.defualt: unknown; there are name"),
        ("[kinds.a]\ndescription = 1", "kinds.a.description: must be a text, not 1"),
        ("[kinds.a]\nflows = 'report'", "kinds.a.flows: must be a list of texts"),
        ("[kinds.a]\nflows = ['']", "kinds.a.flows: a flow without a name"),
        ("[kinds.a]\ntype = 'enum'", "kinds.a.type: 'enum' is not one of choice, text"),
        ("[kinds.a]\ntype = 'choice'", "kinds.a.allowed: a choice needs values"),
        ("[kinds.a]\ntype = 'choice'\nallowed = ['x']\ndefault = 'y'", "kinds.a.default: 'y': it is not among"),
        ("[kinds.a]\ntype = 'choice'\nallowed = [1]\ndefault = true", "kinds.a.default: True: it is not among"),
        ("[kinds.a]\ntype = 'number'\nseed = 'many'", "kinds.a.seed: 'many': it is a text, not a number"),
        ("[kinds.a]\ntype = 'number'\ndefault = true", "kinds.a.default: True: it is true or false, not a number"),
        ("[kinds.a]\ntype = 'number'\ndefault = nan", "kinds.a.default: nan: JSON cannot hold it"),
        ("[kinds.a]\ntype = 'text'\nallowed = [3]", "kinds.a.allowed: 3: it is a number, not a text"),
        ("[kinds.a]\ndefault = 2024-01-01", "kinds.a.default"),
        ("[kinds.a]\nrelated = ['b']", "kinds.a.related: 'b' is not declared"),
        ("[kinds.a]\nrelated = { a = 1.5 }", "kinds.a.related.a: a weight is above 0 and at most 1, not 1.5"),
        ("[kinds.a]\nrelated = { a = 'x' }", "kinds.a.related.a: a weight"),
        ("[kinds.a]\nrelated = 3", "kinds.a.related: must be texts or a table"),
        ("[kinds.a]\nrule = {}", "kinds.a.rule: a rule without the name of a function"),
        ("[kinds.a]\nrule = { name = 'shout' }", "kinds.a.rule: no rule 'shout' is registered"),
        ("[kinds.a]\nrule = { name = 'fill_slot', when = { n = { x = 1 } } }", "kinds.a.rule: slot 'n': 'x' is not"),
        ("[kinds.a]\nrule = { name = 'fill_slot', if = {} }", "kinds.a.rule.if: unknown"),
        ("[kinds.a]\n[personas.p]\nb = 1", "personas.p.b: not declared"),
        ("[kinds.a]\ntype = 'text'\n[personas.p]\na = 1", "personas.p.a: 1: it is a number, not a text"),
        ("[kinds.persona]\ntype = 'number'\n[personas.p]", "personas.p: as a value of 'persona'"),
        ("[personas]\np = 1", "personas.p: must be a table"),
        ("undeclared = 'maybe'\n", "undeclared: 'maybe' is not one of"),
        ('[kinds.""]\n', "kinds.: key '' is not usable: it is empty"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, place: str) -> None:
    """One mistake, one line that says where and what."""
    found = problems(lambda: from_toml(text))
    assert (1, True) == (len(found), found[0].startswith(place)), found


def test_a_file_that_is_no_text_is_a_mistake_too(tmp_path: Path) -> None:
    """Nothing is guessed of what its bytes might mean."""
    path = tmp_path / "domain.toml"
    path.write_bytes(b"[kinds.a]\ndefault = '\xff'")
    assert "TOML" == problems(lambda: Domain.from_toml(path))[0].partition(": ")[0]


def test_all_mistakes_are_listed_at_once() -> None:
    """Those of the shape and those of the meaning, each on a line of the message."""
    text = "[kinds.a]\ntype = 'enum'\ncolour = 1\n[kinds.b]\nrelated = ['c']\n[personas.p]\nz = 1"
    with pytest.raises(errors.DomainError) as caught:
        from_toml(text)
    assert ["kinds.a.colour", "kinds.a.type", "kinds.b.related", "personas.p.z"] == [
        problem.partition(": ")[0] for problem in caught.value.problems
    ]
    assert 5 == len(str(caught.value).splitlines())


def test_python_is_checked_as_toml_is() -> None:
    """A domain that is put together wrongly never exists."""

    async def later(_situation: Mapping[str, object], _arguments: Mapping[str, object]) -> Mapping[str, object]:
        return {}

    kinds = [Kind("a", type="boolean", default="yes"), Kind("a"), Kind("b", related={"x": 0.5})]
    found = problems(lambda: Domain(kinds, rules={"later": later}))  # type: ignore[dict-item]  # what it must refuse
    assert ["rules.later", "kinds.a.default", "kinds.a", "kinds.b.related"] == [p.partition(": ")[0] for p in found]


def test_relations_may_run_in_a_circle() -> None:
    """A cycle is no mistake."""
    domain = Domain([Kind("a", related={"b": 1.0}), Kind("b", related={"a": 0.5, "b": 1.0})])
    assert ("a", "b") == domain.keys()


def test_a_flow_may_be_given_as_one_text() -> None:
    """It is not taken for a list of letters."""
    assert ("a",) == Domain([Kind("a", flows="report")]).of_flow("report")


def test_a_rule_is_registered_once() -> None:
    """The later would silently win."""
    rules = Rules()
    rules.rule("fill")(fill_slot)
    with pytest.raises(errors.DuplicateRegistration, match="fill"):
        rules.rule("fill")(fill_slot)
    assert (["fill"], fill_slot) == (list(rules), rules["fill"])


# conditions

SITUATION: dict[str, object] = {
    "n": 5,
    "name": "Anna",
    "tags": ["a", "b"],
    "on": True,
    "none": None,
    "deep": {"x": [1]},
}


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, True),
        ({"n": 5, "name": "Anna"}, True),
        ({"n": 5, "name": "Bob"}, False),
        ({"n": 5.0}, True),
        ({"on": 1}, False),
        ({"n": [4, 5]}, True),
        ({"n": [4, 6]}, False),
        ({"n": []}, False),
        ({"tags": ["b", "c"]}, True),
        ({"tags": ["c"]}, False),
        ({"tags": {"eq": ["a", "b"]}}, True),
        ({"n": {"gt": 3, "le": 5}}, True),
        ({"n": {"gt": 3, "lt": 5}}, False),
        ({"name": {"ge": "An"}}, True),
        ({"name": {"gt": 3}}, False),
        ({"on": {"gt": 0}}, False),
        ({"n": {"ne": 5}}, False),
        ({"missing": {"ne": 5}}, True),
        ({"n": {"not_in": [1, 2]}}, True),
        ({"missing": {"not_in": [1]}}, True),
        ({"missing": {"exists": False}}, True),
        ({"none": {"exists": True}}, True),
        ({"none": None}, True),
        ({"missing": None}, False),
        ({"missing": {"lt": 3}}, False),
        ({"deep": {"eq": {"x": [1]}}}, True),
        ({"deep": {"eq": {"x": [True]}}}, False),
        ({"n": {}}, True),
    ],
)
def test_S4_a_condition_holds_when_all_of_it_does(when: dict[str, object], expected: bool) -> None:
    """Equality, membership and comparison, each as the guide says; a missing slot meets little."""
    assert ("", expected) == (problem_with_condition(when), holds(when, SITUATION))


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"n": {"near": 3}}, "'near' is not one of gt, ge, lt, le, ne, in, not_in, exists"),
        ({"n": {"gt": [3]}}, "'gt' compares numbers or texts"),
        ({"n": {"gt": True}}, "'gt' compares numbers or texts"),
        ({"n": {"in": 3}}, "'in' takes a list"),
        ({"n": {"exists": "yes"}}, "'exists' is true or false"),
    ],
)
def test_S4_a_condition_that_means_nothing_is_named(when: dict[str, object], why: str) -> None:
    """Slot and operator are in the message."""
    assert f"slot 'n': {why}" == problem_with_condition(when)[: len(why) + len("slot 'n': ")]
