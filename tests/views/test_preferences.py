"""Preferences of a user: set, removed, seeded, rolled back to defaults, and made again from the log."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, NewEvent, errors
from memory_engine import events as e
from memory_engine.events import RuleReference
from memory_engine.views.preferences.domain import Domain, Kind

DOMAIN = Domain(
    [
        Kind("verbosity", type="choice", allowed=("concise", "balanced", "detailed"), default="balanced"),
        Kind("technical_depth", type="number", default=1),
        Kind("time_horizon", type="text", seed="30 days"),
        Kind("alerts", type="boolean", seed=False),
        Kind("dashboard"),
    ],
    personas={
        "data_practitioner": {"verbosity": "detailed", "technical_depth": 3},
        "data_savvy": {"technical_depth": 2},
        "data_consumer": {"verbosity": "concise", "technical_depth": 0, "time_horizon": "a year"},
    },
)
HOSTILE = [
    "u1",
    "U1",
    "u1 ",
    "u%",
    "u_",
    "../u1",
    "u1/x",
    "u1:x",
    "'; DROP TABLE events; --",
    "ü",
    "u\u0308",
    "*",
    "💥",
]


async def test_S2_a_preference_is_set_and_read(engine: Engine) -> None:
    """Any key takes any JSON value where no domain says otherwise; the latest value holds."""
    preferences = engine.user("u1").preferences
    values: tuple[object, ...] = (
        "concise",
        3,
        1.5,
        True,
        None,
        ["a", {"b": []}],
        {"": {}},
        "💥\u202e" * 9,
        "",
        "\x00",
    )
    for value in values:
        await preferences.update("preference key", value)
        assert value == await preferences.get("preference key")
    assert (None, 7) == (await preferences.get("other"), await preferences.get("other", 7))


async def test_S2_preferences_hold_across_conversations_and_restarts(tmp_path: Path) -> None:
    """They are the user's, whatever threads come and go."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        await engine.create_thread("t", user_id="u1")
        first = await engine.user("u1").preferences.update("verbosity", "concise", reason="said so")
    async with memory_engine.open(path) as engine:
        assert first == await engine.user("u1").preferences.find("verbosity")
        assert (await engine.verify())[0].ok


async def test_S2_a_preference_knows_where_it_is_from(engine: Engine) -> None:
    """Origin, reason, sources, event and time lead back to the log."""
    user = engine.user("u1")
    await user.preferences.update("a", 1)
    event = e.PreferenceUpdated(key="b", value=2, origin="promotion", reason="seen often", sources=("s1", "s2"))
    receipt = await user.dispatch(NewEvent(event, id="p1", causation_id="c1"))
    found = await user.preferences.find("b")
    assert found is not None
    assert ("promotion", "seen often", ("s1", "s2"), 2, "p1", "c1", receipt.recorded_at) == (
        found.origin, found.reason, found.sources, found.seq, found.event_id, found.causation_id, found.updated_at
    )  # fmt: skip


async def test_S2_users_do_not_see_each_other(engine: Engine) -> None:
    """Ids are exact, also those that look like patterns, paths or statements; the same id under a tenant is another."""
    users = [engine.user(name) for name in HOSTILE] + [engine.user("u1", tenant_id="acme")]
    for n, user in enumerate(users):
        assert {} == await user.preferences.all()
        await user.preferences.update("n", n)
    assert list(range(len(users))) == [await user.preferences.get("n") for user in users]


async def test_S2_reading_a_new_users_preferences_makes_no_thread() -> None:
    """Until something is set there is nothing to keep."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        assert ("balanced", False) == (await preferences.get("verbosity"), await preferences.remove("verbosity"))
        assert [] == await engine.threads()


async def test_S2_defaults_hold_until_a_value_is_set_and_after_it_is_removed() -> None:
    """Stored before persona before default; a removal says whether there was anything to remove."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        values = [await preferences.get("verbosity")]
        await preferences.update("persona", "data_consumer")
        values.append(await preferences.get("verbosity"))
        await preferences.update("verbosity", "detailed")
        values.append(await preferences.get("verbosity"))
        assert (True, False) == (await preferences.remove("verbosity"), await preferences.remove("verbosity"))
        values.append(await preferences.get("verbosity"))
        assert ["balanced", "concise", "detailed", "concise"] == values


async def test_S2_all_lists_what_holds_with_its_origin() -> None:
    """In order of keys: stored, of the persona, of the domain."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("dashboard", {"rows": 3})
        await preferences.update("persona", "data_savvy")
        found = await preferences.all()
        assert [
            ("dashboard", {"rows": 3}, "explicit", "dashboard", 1),
            ("persona", "data_savvy", "explicit", "persona", 2),
            ("technical_depth", 2, "persona", "technical_depth", 0),
            ("verbosity", "balanced", "default", "verbosity", 0),
        ] == [(key, p.value, p.origin, p.kind, p.seq) for key, p in found.items()]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("verbosity", "chatty", "not among the allowed values; use one of 'concise', 'balanced', 'detailed'"),
        ("technical_depth", "3", "it is a text, not a number"),
        ("technical_depth", True, "it is true or false, not a number"),
        ("technical_depth", float("nan"), "JSON cannot hold it"),
        ("time_horizon", None, "it is null, not a text"),
        ("alerts", 1, "it is a number, not true or false"),
        ("dashboard", {"at": {1, 2}}, "JSON cannot hold it"),
        ("persona", "expert", "not among the allowed values; use one of 'data_practitioner'"),
        ("verbositty", "concise", "the domain declares no such key; use one of 'verbosity'"),
    ],
)
async def test_S2_what_the_domain_does_not_allow_is_refused(key: str, value: object, why: str) -> None:
    """The error names key, value and what is allowed; nothing is written."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        with pytest.raises(errors.PreferenceError, match=why) as caught:
            await engine.user("u1").preferences.update(key, value)
        assert (key, 0) == (caught.value.key, len(await engine.threads()))


@pytest.mark.parametrize("key", ["", "\x00", "\ud800", "k" * 5_000])
async def test_S2_a_key_that_no_store_can_hold_is_refused(engine: Engine, key: str) -> None:
    """Empty, NUL, lone surrogate, too long: a typed error before anything is written."""
    with pytest.raises(errors.InvalidIdentifier):
        await engine.user("u1").preferences.update(key, 1)


@pytest.mark.parametrize("value", [float("inf"), {1: 2}, "\ud800", object()])
async def test_S2_a_value_that_json_cannot_hold_is_refused(engine: Engine, value: object) -> None:
    """Without a domain the log itself refuses it."""
    with pytest.raises(errors.InvalidEvent):
        await engine.user("u1").preferences.update("key", value)


async def test_S2_an_update_needs_a_value_or_a_rule(engine: Engine) -> None:
    """Null is a value; nothing is none."""
    preferences = engine.user("u1").preferences
    with pytest.raises(errors.PreferenceError, match="neither a value nor a rule"):
        await preferences.update("key")
    assert None is (await preferences.update("key", None)).value


async def test_S2_a_domain_may_take_keys_it_does_not_declare() -> None:
    """What it does declare is still checked."""
    domain = Domain([Kind("n", type="number")], undeclared="accept")
    async with memory_engine.open(":memory:", domain=domain) as engine:
        preferences = engine.user("u1").preferences
        assert ("", "n") == ((await preferences.update("x", "y")).kind, (await preferences.update("n", 1)).kind)
        with pytest.raises(errors.PreferenceError):
            await preferences.update("n", "one")


async def test_S2_what_is_stored_outlives_the_domain_it_was_declared_by(tmp_path: Path) -> None:
    """A kind that is gone, or that became stricter, takes no stored value away."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path, domain=DOMAIN) as engine:
        await engine.user("u1").preferences.update("verbosity", "concise")
        await engine.user("u1").preferences.update("persona", "data_savvy")
    stricter = Domain([Kind("verbosity", type="choice", allowed=("long", "short"), default="long")])
    async with memory_engine.open(path, domain=stricter) as engine:
        found = await engine.user("u1").preferences.all()
        assert {"persona": "data_savvy", "verbosity": "concise"} == {key: p.value for key, p in found.items()}


async def test_S2_the_same_event_id_sets_a_preference_once(engine: Engine) -> None:
    """The second call gives what stands; another value under the id is an error."""
    preferences = engine.user("u1").preferences
    first = await preferences.update("a", 1, event_id="x")
    assert first == await preferences.update("a", 1, event_id="x")
    with pytest.raises(errors.IdempotencyConflict):
        await preferences.update("a", 2, event_id="x")


async def test_S2_many_tasks_update_at_once(engine: Engine) -> None:
    """Every update is in the log, and the last one holds."""
    user = engine.user("u1")
    await asyncio.gather(*(user.preferences.update("n", n) for n in range(50)))
    last = (await user.replay.latest(1))[0].event
    assert isinstance(last, e.PreferenceUpdated)
    assert (50, last.value) == ((await user.info()).events, await user.preferences.get("n"))


# onboarding


async def test_S2_onboarding_seeds_what_is_left_open() -> None:
    """Answers, the persona, and the domain's seeds where neither answer nor persona says anything."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        made = await preferences.seed({"dashboard": [1]}, persona="data_consumer")
        assert {"alerts": False, "dashboard": [1], "persona": "data_consumer"} == {p.key: p.value for p in made}
        assert {"onboarding"} == {p.origin for p in made}
        assert ("a year", "concise") == (await preferences.get("time_horizon"), await preferences.get("verbosity"))


async def test_S2_onboarding_twice_changes_nothing() -> None:
    """The second time there is no event; a new answer replaces the earlier one."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        user = engine.user("u1")
        await user.preferences.seed({"verbosity": "concise"}, persona="data_savvy")
        events = (await user.info()).events
        assert () == await user.preferences.seed({"verbosity": "concise"}, persona="data_savvy")
        assert events == (await user.info()).events
        assert ["verbosity"] == [p.key for p in await user.preferences.seed({"verbosity": "detailed"})]


async def test_S2_onboarding_does_not_overwrite_what_was_set_otherwise() -> None:
    """Explicit and promoted values stay, also one that is set while onboarding is under way."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        user = engine.user("u1")
        await user.preferences.update("verbosity", "detailed")
        await user.preferences.update("technical_depth", 5, origin="promotion")
        await user.preferences.seed({"verbosity": "concise", "technical_depth": 0, "alerts": True})
        late = e.PreferenceUpdated(key="verbosity", value="concise", origin="onboarding")
        await user.dispatch(late)
        assert ["detailed", 5, True] == [
            await user.preferences.get(k) for k in ("verbosity", "technical_depth", "alerts")
        ]


async def test_S2_onboarding_stores_all_or_nothing() -> None:
    """One wrong answer, and none is stored."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        with pytest.raises(errors.PreferenceError, match="verbosity"):
            await engine.user("u1").preferences.seed({"alerts": True, "verbosity": "?"})
        with pytest.raises(errors.PreferenceError, match="persona"):
            await engine.user("u1").preferences.seed(persona="expert")
        assert [] == await engine.threads()


async def test_S2_another_persona_changes_what_was_not_set() -> None:
    """The persona's values are looked up, not copied."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        await preferences.seed(persona="data_practitioner")
        before = await preferences.get("technical_depth")
        await preferences.update("persona", "data_consumer")
        assert (3, 0) == (before, await preferences.get("technical_depth"))


# going back, forgetting


async def test_X4_preferences_are_read_as_of_an_earlier_seq() -> None:
    """One, all, and those that apply; the persona is the one of that time."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        preferences = engine.user("u1").preferences
        await preferences.update("persona", "data_practitioner")
        await preferences.update("dashboard", "sales")
        await preferences.update("persona", "data_consumer")
        await preferences.remove("dashboard")
        then, now = await preferences.all(at=2), await preferences.all()
        assert (3, 0) == (then["technical_depth"].value, now["technical_depth"].value)
        assert (["dashboard"], []) == (
            [key for key in then if key not in now],
            [key for key in now if key not in {*then, "time_horizon"}],
        )
        assert (None, "sales") == (
            await preferences.find("dashboard", at=1),
            getattr(await preferences.find("dashboard", at=3), "value", None),
        )
        assert ({}, {"dashboard": "sales"}) == (
            (await preferences.applicable(query="dashboard")).values,
            (await preferences.applicable(query="dashboard", at=3)).values,
        )


async def test_X7_a_forgotten_preference_is_gone_everywhere(tmp_path: Path) -> None:
    """By the id of the event that set it; one that replaced it meanwhile stays. It stays gone after a restart."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        user = engine.user("u1")
        secret = await user.preferences.update("secret", "the colour of the vault")
        old = await user.preferences.update("city", "Rome")
        await user.preferences.update("city", "Oslo")
        assert ["secret"] == list((await user.preferences.applicable(query="vault colour")).values)
        await user.forget(event_ids=[secret.event_id, old.event_id])
        assert ["city"] == list(await user.preferences.all())
        assert 0 == len(await user.preferences.applicable(query="vault colour"))
    async with memory_engine.open(path) as engine:
        user = engine.user("u1")
        assert (None, "Oslo") == (await user.preferences.get("secret"), await user.preferences.get("city"))
        assert (await user.replay.verify()).ok


async def test_X1_rebuilt_preferences_are_the_same() -> None:
    """Rows are made from the log alone."""
    async with memory_engine.open(":memory:", domain=DOMAIN) as engine:
        user = engine.user("u1")
        await user.preferences.seed({"verbosity": "concise"}, persona="data_savvy")
        await user.preferences.update("dashboard", {"a": [1, 2]}, reason="asked")
        before = await user.preferences.all()
        await user.replay.rebuild()
        assert (before, True) == (await user.preferences.all(), (await user.replay.verify()).ok)


KEYS = st.sampled_from(["a", "b", "ü", "a/b"])
CHANGES = st.one_of(
    st.tuples(st.just("set"), KEYS, st.one_of(st.none(), st.integers(-5, 5), st.text("ab", max_size=3))),
    st.tuples(st.just("onboard"), KEYS, st.booleans()),
    st.tuples(st.just("remove"), KEYS, st.none()),
    st.tuples(st.just("forget"), KEYS, st.integers(1, 12)),
)


@given(st.lists(CHANGES, max_size=12))
@settings(max_examples=40)
def test_the_fold_is_a_dictionary(changes: list[tuple[str, str, object]]) -> None:
    """Any sequence of events gives the latest values, onboarding's only over onboarding's, none that is forgotten."""
    asyncio.run(_follow(changes))


async def _follow(changes: list[tuple[str, str, object]]) -> None:
    model: dict[str, tuple[object, str, int]] = {}
    async with memory_engine.open(":memory:") as engine:
        user = engine.user("u1")
        for seq, (what, key, value) in enumerate(changes, 1):
            match what:
                case "set":
                    await user.dispatch(e.PreferenceUpdated(key=key, value=value))
                    model[key] = (value, "explicit", seq)
                case "onboard":
                    await user.dispatch(e.PreferenceUpdated(key=key, value=value, origin="onboarding"))
                    if model.get(key, (None, "onboarding", 0))[1] == "onboarding":
                        model[key] = (value, "onboarding", seq)
                case "remove":
                    await user.dispatch(e.PreferenceRemoved(key=key))
                    model.pop(key, None)
                case _:
                    assert isinstance(value, int)
                    await user.dispatch(e.MemoryForget(seqs=(value,)))
                    model = {k: v for k, v in model.items() if v[2] != value}
        found = await user.preferences.all()
        assert {key: model[key] for key in sorted(model)} == {k: (p.value, p.origin, p.seq) for k, p in found.items()}


async def test_a_rule_of_the_log_is_read_as_it_was_written() -> None:
    """Name, arguments and condition come back."""
    rule = RuleReference("fill", {"slot": "x", "deep": {"a": [1]}}, {"n": {"gt": 3}})
    async with memory_engine.open(":memory:") as engine:
        user = engine.user("u1")
        await user.dispatch(e.PreferenceUpdated(key="k", rule=rule))
        found = await user.preferences.find("k")
        assert found is not None
        assert (rule, None) == (found.rule, found.value)


SECRETS: list[tuple[str, object]] = [
    ("note", "the wifi password is hunter2"),
    ("api-key", "abcdef123456"),
    ("login", {"user": "app", "password": "hunter2"}),
]


@pytest.mark.parametrize(("key", "value"), SECRETS)
async def test_S3_an_agent_sets_no_preference_that_tells_a_secret(engine: Engine, key: str, value: object) -> None:
    """It is refused without being repeated, and nothing is written; a person may keep it all the same."""
    preferences = engine.user("u").preferences
    with pytest.raises(errors.PreferenceError, match="it tells a secret") as refused:
        await preferences.update(key, value, origin="agent")
    assert "hunter2" not in str(refused.value)
    assert {} == await preferences.all()
    assert value == (await preferences.update(key, value)).value
