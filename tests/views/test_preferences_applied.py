"""Which preferences apply to a situation, why, and what their rules change."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import errors
from memory_engine import events as e
from memory_engine.events import RuleReference
from memory_engine.views.preferences.domain import Domain, Kind
from memory_engine.views.preferences.preference import AppliedRule, FailedRule, UnknownRule
from memory_engine.views.preferences.rules import Rules
from memory_engine.views.preferences.view import Preferences

KINDS = [
    Kind(
        "verbosity", description="How long answers are", default="balanced", flows=("report",), related={"depth": 0.8}
    ),
    Kind("depth", description="How technical explanations are", default=1, related={"formulas": 0.5}),
    Kind(
        "formulas", description="Whether equations are shown", default=True, related={"verbosity": 1.0, "notation": 1.0}
    ),
    Kind("notation", description="Style of mathematical signs", default="ISO"),
    Kind("chart_type", description="Kind of chart that shows results", flows=("report", "dashboard")),
    Kind("currency", description="Currency of amounts", default="EUR"),
]
DOMAIN = Domain(KINDS)
Found = list[tuple[str, float, tuple[str, ...]]]


async def found(preferences: Preferences, flow: str | None = None, query: str | None = None, hops: int = 2) -> Found:
    """What applies, as (key, score, why)."""
    applicable = await preferences.applicable(flow, query, hops=hops)
    return [(one.preference.key, one.score, one.why) for one in applicable]


# what applies


async def test_S3_inside_a_known_flow_preferences_are_found_by_id() -> None:
    """Those that the domain ties to the flow, if they have a value: stored or by default."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        assert [("verbosity", 1.0, ("id:report",))] == await found(preferences, "report", hops=0)
        await preferences.update("chart_type", "bar")
        assert ["chart_type", "verbosity"] == [key for key, _, _ in await found(preferences, "report", hops=0)]
        assert [] == await found(preferences, "unheard of")


async def test_S3_in_the_open_preferences_are_found_by_likeness() -> None:
    """Key, description and value are compared; the words that decided are told."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("chart_type", "bar")
        (key, score, why), *_ = await found(preferences, query="show results as a chart", hops=0)
        assert ("chart_type", True) == (key, 0.25 <= score < 1)
        assert f"similar {score:.2f}: chart, show, results" == why[0]


async def test_S3_relations_are_followed_from_what_was_found() -> None:
    """Each step leaves its share of the score, and says where it came from."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        verbosity, depth = ("id:report",), ("id:report", "related to verbosity ×0.8")
        formulas = (*depth, "related to depth ×0.5")
        assert [
            ("verbosity", 1.0, verbosity),
            ("depth", 0.8, depth),
            ("formulas", 0.4, formulas),
        ] == await found(engine.user("u1").preferences, "report")


@pytest.mark.parametrize(("hops", "count"), [(0, 1), (1, 2), (2, 3), (3, 4), (1_000, 4)])
async def test_S3_hops_are_bounded_and_cycles_end(hops: int, count: int) -> None:
    """A way back to where it began makes nothing better."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        assert count == len(await found(engine.user("u1").preferences, "report", hops=hops))


async def test_S3_the_best_way_to_a_preference_counts() -> None:
    """Also where it is longer, or where the preference is like the query itself."""
    kinds = [
        Kind("a", default=1, flows=("f",), related={"c": 0.1, "b": 0.9}),
        Kind("b", default=1, related={"c": 0.9}),
        Kind("c", default=1, description="penguins"),
    ]
    async with memory_engine.open(":memory:", domain=Domain(kinds)) as engine:
        preferences = engine.user("u1").preferences
        way = ("id:f", "related to a ×0.9", "related to b ×0.9")
        assert ("c", 0.81, way) == (await found(preferences, "f"))[-1]
        assert ("c", 0.1, ("id:f", "related to a ×0.1")) == (await found(preferences, "f", hops=1))[-1]
        key, _, why = (await found(preferences, query="penguins", hops=1))[0]
        assert ("c", "similar") == (key, why[0].split()[0])


async def test_S3_a_relation_leads_through_a_kind_without_a_value() -> None:
    """What has no value is not given, but it does not end the way."""
    kinds = [
        Kind("a", default=1, flows=("f",), related={"b": 0.5}),
        Kind("b", related={"c": 0.5}),
        Kind("c", default=3),
    ]
    async with memory_engine.open(":memory:", domain=Domain(kinds)) as engine:
        assert {"a": 1, "c": 3} == (await engine.user("u1").preferences.applicable("f")).values


async def test_S3_flow_and_query_together_find_what_either_finds() -> None:
    """What belongs to the flow applies wholly, however like the query it is."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        both = await found(engine.user("u1").preferences, "report", "currency of the amounts", hops=0)
        assert [("verbosity", 1.0, ("id:report",)), "currency"] == [both[0], both[1][0]]
        neither = await engine.user("u1").preferences.applicable()
        assert (0, "", "") == (len(neither), neither.how, neither.failure)


async def test_S3_limit_and_threshold_bound_what_is_found() -> None:
    """Equal scores come in order of keys."""
    async with memory_engine.open(":memory:") as engine:
        preferences = engine.user("u1").preferences
        for n in range(9, -1, -1):
            await preferences.update(f"k{n}", "penguins")
        assert ["k0", "k1", "k2"] == list((await preferences.applicable(query="penguins", limit=3)).values)
        assert 0 == len(await preferences.applicable(query="penguins", threshold=0.999))
        assert 0 == len(await preferences.applicable(query="penguins", limit=0))
        assert 0 == len(await preferences.applicable(query=""))


async def test_S3_the_index_follows_every_change() -> None:
    """What is set, changed, removed, or set by a persona, is found as it is now."""
    domain = Domain([Kind("diet", default="meat")], personas={"p": {"diet": "tofu"}}, undeclared="accept")
    async with memory_engine.open(":memory:", domain=domain) as engine:
        preferences = engine.user("u1").preferences

        async def now(query: str) -> dict[str, object]:
            return (await preferences.applicable(query=query, threshold=0.2)).values

        assert {"diet": "meat"} == await now("meat")
        await preferences.update("persona", "p")
        assert ({"diet": "tofu"}, {}) == (await now("tofu"), await now("meat"))
        await preferences.update("diet", "fish")
        assert ({"diet": "fish"}, {}) == (await now("fish"), await now("tofu"))
        await preferences.remove("diet")
        assert ({"diet": "tofu"}, {}) == (await now("tofu"), await now("fish"))


async def test_S3_users_are_searched_apart() -> None:
    """Likeness never reaches another user's preferences, whatever the ids look like."""
    async with memory_engine.open(":memory:") as engine:
        names = ["u1", "u1/x", "u1 ", "%", "*"]
        for name in names:
            await engine.user(name).preferences.update("penguin", name)
        for name in names:
            assert {"penguin": name} == (await engine.user(name).preferences.applicable(query="penguins")).values


class Senses:
    """An embedder with two senses; it fails when it is told to."""

    name = "senses"
    dimension = 2
    broken = False
    pause: asyncio.Event | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Food in one dimension, money in the other."""
        if self.broken:
            raise errors.ModelError(self.name, "unavailable", "no route")
        if self.pause is not None:
            await self.pause.wait()
        food, money = ("meal", "hungry", "tofu"), ("currency", "price", "EUR")
        return [[float(any(w in t for w in food)), float(any(w in t for w in money))] for t in texts]

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_S3_an_embedder_finds_by_meaning_and_words_stand_in_for_it() -> None:
    """The result says by what it was found, and why words had to do."""
    embedder = Senses()
    async with memory_engine.open(":memory:", domain=DOMAIN, embedder=embedder) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("chart_type", "meal")
        hungry = await preferences.applicable(query="I am hungry")
        assert ({"chart_type": "meal"}, "embedding", "") == (hungry.values, hungry.how, hungry.failure)
        assert ("similar 1.00: embedding",) == hungry.found[0].why
        embedder.broken = True
        charts = await preferences.applicable(query="chart of results")
        assert (["chart_type"], "lexical", True) == (list(charts.values), charts.how, "no route" in charts.failure)


async def test_S3_what_is_given_is_of_one_moment() -> None:
    """A change while the query is embedded neither breaks the search nor mixes into its answer."""
    embedder = Senses()
    async with memory_engine.open(":memory:", embedder=embedder) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("diet", "tofu")
        embedder.pause = asyncio.Event()
        searching = asyncio.create_task(preferences.applicable(query="meal"))
        await asyncio.sleep(0)
        await preferences.remove("diet")
        embedder.pause.set()
        assert {"diet": "tofu"} == (await searching).values
        assert {} == (await preferences.applicable(query="meal")).values


# what rules change

RULES = Rules()


@RULES.rule("fill")
def fill(situation: Mapping[str, object], arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Fill a slot that is empty."""
    slot = str(arguments["slot"])
    return {} if situation.get(slot) else {slot: arguments["value"]}


@RULES.rule("shorten")
def shorten(situation: Mapping[str, object], arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Keep the first sentences of a template."""
    count = arguments.get("sentences", 1)
    assert isinstance(count, int)
    return {"template": ". ".join(str(situation["template"]).split(". ")[:count])}


@RULES.rule("append")
def append(situation: Mapping[str, object], arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Add to the slot `s`."""
    return {"s": f"{situation.get('s', '')}{arguments['value']}"}


@RULES.rule("odd")
def odd(situation: Mapping[str, object], arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Do what a rule must not do."""
    match arguments["value"]:
        case "raise":
            raise ValueError("too odd")
        case "write":
            situation["s"] = 1  # type: ignore[index]  # what must not work
        case "spoil":
            arguments["list"].append(3)  # type: ignore[attr-defined]  # what must not be seen again
            return {"s": arguments["list"]}
    return 3  # type: ignore[return-value]  # what must be refused


WITH_RULES = Domain(
    [
        Kind("period", type="text", rule=RuleReference("fill", {"slot": "period"}), flows=("report",)),
        Kind("brevity", rule=RuleReference("shorten"), flows=("answer",)),
    ],
    rules=RULES,
    undeclared="accept",
)


async def test_S4_a_rule_changes_slots_and_templates() -> None:
    """A value acts by the rule of its kind; what is given stays as it is."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("period", "30 days")
        await preferences.update("brevity", rule=RuleReference("shorten", {"sentences": 2}))
        situation = {"metric": "revenue", "template": "One. Two. Three"}
        done = await preferences.apply(situation)
        assert {"metric": "revenue", "template": "One. Two", "period": "30 days"} == done.situation
        assert [
            AppliedRule("period", "fill", {"period": "30 days"}),
            AppliedRule("brevity", "shorten", {"template": "One. Two"}),
        ] == list(done.applied)
        assert {"metric": "revenue", "template": "One. Two. Three"} == situation


async def test_S4_a_rule_applies_when_its_condition_holds() -> None:
    """The condition looks at the situation as it was given, not at what other rules made of it."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("first", "a", rule=RuleReference("append", when={"rows": {"gt": 100}}))
        await preferences.update("second", "b", rule=RuleReference("append", when={"s": "a"}))
        assert {"rows": 500, "s": "a"} == (await preferences.apply({"rows": 500})).situation
        assert {"rows": 5} == (await preferences.apply({"rows": 5})).situation
        assert {"s": "ab"} == (await preferences.apply({"s": "a"})).situation


async def test_S4_the_rule_set_last_has_the_last_word() -> None:
    """In the order of the log, whatever the keys; an update puts it last again."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        preferences = engine.user("u1").preferences
        for key in "zma":
            await preferences.update(key, key, rule=RuleReference("append"))
        assert {"s": "zma"} == (await preferences.apply({})).situation
        await preferences.update("z", "z", rule=RuleReference("append"))
        assert {"s": "maz"} == (await preferences.apply({})).situation


async def test_S4_rules_of_a_flow_or_a_query_are_applied() -> None:
    """With either, only what applies there acts."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("period", "30 days")
        await preferences.update("brevity", 1)
        given = {"template": "One. Two"}
        assert {**given, "period": "30 days"} == (await preferences.apply(given, flow="report")).situation
        assert {"template": "One"} == (await preferences.apply(given, query="brevity please")).situation
        assert given == (await preferences.apply(given, flow="other")).situation


async def test_S4_a_rule_that_this_process_does_not_know_is_reported(tmp_path: Path) -> None:
    """It is neither guessed nor passed over in silence; the others are applied."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path, domain=WITH_RULES) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("a", "x", rule=RuleReference("append"))
        await preferences.update("b", 1, rule=RuleReference("fill", {"slot": "n"}))
    fewer = Domain(rules={"fill": fill})
    async with memory_engine.open(path, domain=fewer) as engine:
        done = await engine.user("u1").preferences.apply({})
        assert ({"n": 1}, (UnknownRule("a", "append"),), ()) == (done.situation, done.unknown, done.failed)
        found = await engine.user("u1").preferences.find("a")
        assert found is not None
        assert RuleReference("append") == found.rule


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("raise", "ValueError: too odd"),
        ("write", "TypeError: 'mappingproxy' object does not support item assignment"),
        ("number", "TypeError: a rule returns the changed slots by name, not 3"),
    ],
)
async def test_S4_a_rule_that_fails_is_reported_and_changes_nothing(value: str, error: str) -> None:
    """The others are applied."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("bad", value, rule=RuleReference("odd"))
        await preferences.update("good", "x", rule=RuleReference("append"))
        done = await preferences.apply({"s": "-"})
        assert ({"s": "-x"}, (FailedRule("bad", "odd", error),)) == (done.situation, done.failed)


async def test_S4_a_rule_cannot_spoil_its_own_arguments() -> None:
    """They are the same at the next time."""
    rule = RuleReference("odd", {"list": [1, 2]})
    domain = Domain([Kind("k", default="spoil", rule=rule)], rules=RULES)
    async with memory_engine.open(":memory:", domain=domain) as engine:
        done = [(await engine.user("u1").preferences.apply({})).situation for _ in range(2)]
        assert [{"s": [1, 2, 3]}] * 2 == done


async def test_S4_a_rule_that_cannot_be_applied_is_not_set() -> None:
    """A name that is not registered, a condition that means nothing: refused before anything is written."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        preferences = engine.user("u1").preferences
        for rule, why in (
            (RuleReference("shout"), "with `rules=`; use one of 'fill', 'shorten'"),
            (RuleReference(""), "a rule without the name of a function"),
            (RuleReference("fill", when={"n": {"near": 3}}), "slot 'n': 'near' is not one of"),
        ):
            with pytest.raises(errors.PreferenceError, match=why):
                await preferences.update("k", 1, rule=rule)
        assert [] == await engine.threads()


async def test_S4_a_condition_of_the_log_that_means_nothing_is_reported() -> None:
    """A rule that another version wrote is not taken to hold."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        user = engine.user("u1")
        rule = RuleReference("append", when={"n": {"near": 3}})
        await user.dispatch(e.PreferenceUpdated(key="k", value="x", rule=rule))
        done = await user.preferences.apply({"n": 3})
        assert ({"n": 3}, ["slot 'n': 'near' is not one of"]) == (done.situation, [f.error[:30] for f in done.failed])


async def test_S4_applying_writes_nothing() -> None:
    """It is a reading."""
    async with memory_engine.open(":memory:", domain=WITH_RULES) as engine:
        user = engine.user("u1")
        await user.preferences.update("period", "30 days")
        await user.preferences.apply({}, flow="report", query="period")
        assert 1 == (await user.info()).events
