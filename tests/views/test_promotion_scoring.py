"""The criteria of promotion: what a snippet's wording and its company say for it, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.views.promotion.judge import Judge, preference_key, route_by_wording
from memory_engine.views.promotion.scorers import (
    Explicit,
    Frequency,
    PromotionContext,
    Salience,
    Score,
    Scorer,
    Surprisal,
)
from memory_engine.views.promotion.wording import same_text, says_the_same
from memory_engine.views.scratchpad.view import Snippet

HOSTILE = ("", " ", "\x00", "🎉🎉", "a" * 50_000, "1" * 50_000, "日" * 50_000, "." * 50_000, "a@" * 20_000, "\u202eabc")


def snippet(text: str, seq: int = 1, flow: str = "", *, recalled: bool = False) -> Snippet:
    """A snippet as the scratchpad gives it."""
    return Snippet(id=f"{seq}.0", text=text, flow=flow, seq=seq, recalled=recalled)


def among(*texts: str) -> PromotionContext:
    """A context of these snippets; the first is the one that is judged."""
    return PromotionContext(snippets=[snippet(text, n + 1) for n, text in enumerate(texts)])


async def passes(scorer: Scorer, text: str, *others: str) -> bool:
    """Whether a snippet reaches the threshold."""
    score = await scorer.score(snippet(text), among(text, *others))
    return score.value >= scorer.threshold


@pytest.mark.parametrize(
    "text",
    [
        "Revenue dips every Sunday",
        "Always filter out test accounts before counting active users",
        "Weekend dips happen because stores are closed on Sundays",
        "Amounts in the orders table are stored in cents",
        "Q4 revenue usually peaks in the second week",
        "Customers should be joined on user_id",
        "The user prefers short answers",
        "Der Umsatz sinkt jeden Sonntag",
        "Le chiffre d'affaires baisse chaque dimanche",
        "Los ingresos bajan cada domingo",
        "Выручка обычно падает в выходные",
        "周日收入总是下降",
        "日曜日の売上は必ず下がる",
        "Parcels above 30 kg leave by truck",
        "Large withdrawals need approval by the branch",
        "Table stays joins guests on guest_no",
        "Code 7 in the reason column means unknown; leave it out",
        "Do not trust the field age before 2019",
        "The user wants all dates as ISO 8601",
        "Reklamationen werden innerhalb von 24 Stunden beantwortet",
        "Los descuentos grandes necesitan la firma de dirección",
        "Elle préfère les listes",
    ],
)
async def test_S5_a_principle_is_salient(text: str) -> None:
    """Wording that reaches beyond the case passes, in several languages."""
    assert await passes(Salience(), text)


@pytest.mark.parametrize(
    "text",
    [
        "There are 100 rows in the table",
        "All 100 rows had a null price",
        "Order 12345 was shipped on 2024-05-01",
        "All tests passed today",
        "The query took 3 seconds",
        "The report has three sections",
        "Checked the orders table, nothing to report",
        "churn was 5% in March",
        "Der Bericht hat drei Teile",
        "The last 30 rows contain 4 empty names",
        "Turnover in H1 2024 was 900,000 USD",
        "Signups spiked in Portugal",
        "Customers in this file are all from 2023",
        "The user wants a refund for order 4411",
        "- **Passengers:** Liam Khan, James Kim",
        "Las últimas 30 filas tienen 4 duplicados",
        "The order has been successfully placed, and everybody should see it when they log in",
        "",
    ],
)
async def test_S5_a_detail_is_not_salient(text: str) -> None:
    """What speaks of one case, with its numbers and dates, does not pass."""
    assert not await passes(Salience(), text)


@pytest.mark.parametrize(
    "text",
    [
        "If you need anything else, let me know whenever it suits you.",
        "Would you prefer a window seat, or should it always be the aisle?",
        "Please confirm if the tulips should stay, because I will always plant all of them.",
        "Feel free to come back every day. Thank you, it means a lot.",
        "That must have been a shock.",
        "Der Auftrag ist angelegt. Sagen Sie mir jederzeit, wenn Sie immer noch etwas brauchen.",
    ],
)
async def test_S5_an_answers_courtesies_are_no_principle(text: str) -> None:
    """Offers, questions and thanks hold in general and under conditions, and teach nothing."""
    assert not await passes(Salience(), text)


async def test_S5_a_principle_among_courtesies_is_salient() -> None:
    """Only the sentences around it are left out."""
    assert await passes(Salience(), "Thank you. Refunds usually take a week because banks are slow. Anything else?")
    assert await passes(Salience(), "Customers who reach out by phone usually pay late, thanks to old contracts.")


async def test_S5_salience_explains_itself() -> None:
    """The reason quotes the wording that speaks for it and the specifics that speak against it."""
    text = "Every Sunday order 4711 usually fails"
    score = await Salience().score(snippet(text), among(text))
    assert "'every sunday'" in score.reason
    assert "'usually'" in score.reason
    assert "'4711'" in score.reason


@pytest.mark.parametrize(
    "text",
    [
        "Surprisingly, churn fell after the price increase",
        "Contrary to the plan, France grew faster than Germany",
        "Der Umsatz ist unerwartet gestiegen",
        "意外的是,法国的注册量下降了",
    ],
)
async def test_S5_an_unexpected_finding_is_surprising(text: str) -> None:
    """Wording of surprise passes by itself."""
    assert await passes(Surprisal(), text)


async def test_S5_new_words_make_an_extreme_finding_surprising() -> None:
    """A spike is surprising among texts about something else, and less so among many of the kind."""
    spike = "Signups spiked in Portugal after the festival"
    alike = [f"Signups spiked in Portugal after the festival number {n}" for n in range(6)]
    unlike = ["Revenue is stable", "The table has three columns", "Churn is low in Spain", "Margins look fine"]
    scores = [(await Surprisal().score(snippet(spike), among(spike, *others))).value for others in (unlike, alike)]
    assert scores[0] >= 0.5 > scores[1]


async def test_S5_new_words_alone_are_no_surprise() -> None:
    """A plain statement in words of its own does not pass."""
    others = ("Revenue is stable", "The table has three columns", "Churn is low in Spain")
    assert not await passes(Surprisal(), "Lisbon opened another office near the harbour", *others)


async def test_S5_what_was_promoted_before_is_no_news() -> None:
    """The texts that stand in the targets count as known."""
    text = "Signups spiked in Portugal after the festival"
    others = [snippet(other, n) for n, other in enumerate(("Revenue is stable", "Churn is low", "Margins are fine"), 2)]
    new = PromotionContext(snippets=[snippet(text), *others])
    known = PromotionContext(snippets=[snippet(text), *others], promoted=[text] * 3)
    assert (await Surprisal().score(snippet(text), new)).value > (await Surprisal().score(snippet(text), known)).value


@pytest.mark.parametrize(
    ("flows", "value"),
    [(("a",), 0.0), (("a", "a"), 0.0), (("a", "b"), 0.5), (("a", "b", "c"), 0.6667), (("", ""), 0.5), (("", "a"), 0.5)],
)
async def test_S5_frequency_counts_analyses(flows: tuple[str, ...], value: float) -> None:
    """Distinct flows count, and writes without a flow; one flow that repeats itself is one analysis."""
    written = [snippet("Revenue dips every Sunday.", n, flow) for n, flow in enumerate(flows, 1)]
    assert value == (await Frequency().score(written[0], PromotionContext(snippets=written))).value


async def test_S5_recalled_snippets_do_not_repeat_a_finding() -> None:
    """What memory wrote back is no second finding."""
    written = [snippet("Revenue dips", 1, "a"), snippet("Revenue dips", 2, "b", recalled=True)]
    assert (await Frequency().score(written[0], PromotionContext(snippets=written))).value == 0.0


async def test_S5_explicit_is_who_was_asked_for() -> None:
    """1 for a snippet that somebody asked for, else 0."""
    context = PromotionContext(snippets=[snippet("a", 1), snippet("b", 2)], requested=frozenset({"1.0"}))
    scores = [(await Explicit().score(one, context)).value for one in context.snippets]
    assert [1.0, 0.0] == scores


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Revenue dips every Sunday", "revenue  dips every sunday."),
        ("Revenue dips every Sunday", "The revenue dips every Sunday"),
        ("Revenue dips sharply every Sunday", "Revenues dip every Sunday"),
        ("売上が減る", "売上が大きく減る"),
    ],
)
def test_S5_near_duplicates_say_the_same(one: str, other: str) -> None:
    """Case, endings, small words and added words leave it the same statement."""
    assert says_the_same(one, other)
    assert says_the_same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Revenue dips on Sundays", "Revenue does not dip on Sundays"),
        ("Revenue is higher in the north than anywhere else", "Revenue is lower in the north than anywhere else"),
        ("Marketing spend drives signups", "Signups drive marketing spend"),
        ("The margin is 5", "The margin is -5"),
        ("Table A has 5 rows", "Table B has 5 rows"),
        ("C is fast", "C++ is fast"),
        ("Turn the cache on before loading", "Turn the cache off before loading"),
        ("The successful runs were slow", "The successive runs were slow"),
    ],
)
def test_S5_opposites_do_not_say_the_same(one: str, other: str) -> None:
    """A denial, another number, a swapped word or another order is another statement."""
    assert not says_the_same(one, other)
    assert not says_the_same(other, one)


@given(st.text(max_size=60), st.text(max_size=60))
def test_S5_saying_the_same_is_mutual(one: str, other: str) -> None:
    """Any text says the same as itself, and two texts agree on whether they do."""
    assert says_the_same(one, one)
    assert says_the_same(one, other) == says_the_same(other, one)
    assert same_text(same_text(one)) == same_text(same_text(same_text(one)))


@pytest.mark.parametrize("text", HOSTILE)
async def test_S5_any_text_has_scores(text: str) -> None:
    """Empty, huge or strange texts are judged like others, in time."""
    context = among(text, "a", "b", text, "c")
    for scorer in (Salience(), Surprisal(), Frequency(), Explicit()):
        assert 0.0 <= (await scorer.score(snippet(text), context)).value <= 1.0


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_S5_a_score_is_a_fraction(value: float) -> None:
    """A scorer of one's own cannot score outside of 0 to 1."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        Score(value=value, reason="")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("The user prefers short answers", "preferences"),
        ("User wants tables instead of charts", "preferences"),
        ("Always show me the median first", "preferences"),
        ("I prefer dark mode", "preferences"),
        ("Your booking can be changed because it is flexible", "preferences"),
        ("Die Nutzerin bevorzugt kurze Antworten", "preferences"),
        ("L’utilisateur préfère les tableaux", "preferences"),
        ("用户喜欢简短的回答", "preferences"),
        ("Revenue dips every Sunday", "agent_md"),
        ("Users prefer dark mode", "agent_md"),
        ("Every user prefers fast pages", "agent_md"),
        ("The user table is always stale", "agent_md"),
    ],
)
def test_S5_the_way_of_working_of_one_user_is_a_preference(text: str, target: str) -> None:
    """What one user likes goes to the preferences; what holds for the business, users at large included, does not."""
    assert target == route_by_wording(snippet(text)).target


@given(st.text(max_size=200))
def test_S5_a_text_has_one_key(text: str) -> None:
    """A preference's key follows from the text, and differs where the text does."""
    assert preference_key(text) == preference_key(f"  {text.upper().lower()} ") or same_text(text) != same_text(
        text.upper().lower()
    )
    assert preference_key(text).startswith("promoted:")
    assert preference_key(text) != preference_key(text + " x")
    assert len(preference_key(text).encode()) <= 80


async def test_S5_a_scorer_that_fails_stops_the_judging() -> None:
    """What a scorer raises reaches the caller as it is."""

    class Broken:
        criterion = "salience"
        name = "broken"
        threshold = 0.5

        async def score(self, _snippet: Snippet, _context: PromotionContext) -> Score:
            raise LookupError("no idea")

    with pytest.raises(LookupError, match="no idea"):
        await Judge([Broken()]).judge([snippet("a")], among("a"), {})
