"""Likeness of texts: by words without a model, by an embedder's vectors, and an index kept in step with a view."""

import asyncio
import math
import random
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine import errors
from memory_engine.llm.vectors import checked_vector
from memory_engine.recall import LexicalIndex, Match, TextIndex, Vector
from memory_engine.recall.likeness import Corpus, Thresholds
from memory_engine.storage.vectors.exact import ExactIndex

REQUESTS = {
    "spike": "why did users spike on Nov 3rd",
    "churn": "which customers churned last month",
    "refund": "cancel my reservation and refund the ticket",
    "bag": "add a checked bag to my booking",
}


def lexical(texts: Mapping[str, str]) -> LexicalIndex:
    """An index of these texts."""
    index = LexicalIndex()
    for key, text in texts.items():
        index.put(key, text)
    return index


def keys(matches: Sequence[Match]) -> list[str]:
    """Which entries matched, best first."""
    return [match.key for match in matches]


# words


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("why was there a spike of users in June?", "spike"),
        ("CHURNED CUSTOMERS", "churn"),
        ("I want to cancel a ticket and get a refund", "refund"),
        ("adding bags", "bag"),
        ("cancelation, reservaton", "refund"),
    ],
)
def test_the_likest_text_comes_first(query: str, expected: str) -> None:
    """Case, endings and misspellings do not hide it."""
    assert expected == lexical(REQUESTS).search(query, 3)[0].key


def test_a_text_is_wholly_like_itself_and_not_at_all_like_another_matter() -> None:
    """The score is 1 for the text itself; what shares nothing is not found."""
    index = lexical(REQUESTS)
    best = index.search(REQUESTS["churn"], 1)[0]
    assert ("churn", 1.0) == (best.key, best.score)
    assert [] == index.search("football", 10)


def test_a_match_names_the_words_that_both_have() -> None:
    """They come in the order of the entry, as the query writes them; words of little meaning are not among them."""
    assert ("refunds", "tickets") == lexical(REQUESTS).search("tickets: what about the refunds", 1)[0].shared


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("回答は簡潔にしてください", "簡潔な回答"),
        ("请用简体中文回答所有问题", "用中文回答"),
        ("보고서는 매주 월요일에 보내 주세요", "월요일 보고서"),
        ("रिपोर्ट हिन्दी में लिखें", "हिन्दी रिपोर्ट"),
        ("اكتب التقارير باللغة العربية", "التقارير العربية"),
        ("Résumé immédiat des chiffres", "resume immediat"),
        ("ภาษาไทยเท่านั้น", "ภาษาไทย"),
        ("🚢 shipping dates", "shipping date"),
    ],
)
def test_any_script_is_compared(text: str, query: str) -> None:
    """Scripts without blanks are compared by pairs of signs, accents do not count."""
    index = lexical({**REQUESTS, "it": text})
    best = index.search(query, 1)[0]
    assert ("it", True) == (best.key, best.score > 0.3)


@pytest.mark.parametrize("text", ["", " \n", "\x00", "\ud800", "...", "a" * 1_000_000, "word " * 200_000, "\u202eabc"])
def test_any_text_can_be_put_and_searched(text: str) -> None:
    """Empty, huge and hostile texts do no harm and hide no other."""
    index = lexical({**REQUESTS, "odd": text})
    assert ("spike", len(REQUESTS) + 1) == (index.search("users spike", 5)[0].key, len(index))
    assert all(0 < match.score <= 1 for match in index.search(text, 5))


def test_words_of_little_meaning_count_where_there_are_no_others() -> None:
    """Among texts of telling words they are passed over."""
    index = lexical({"who": "who are you", "users": "who are the users"})
    assert ["who"] == keys(index.search("who are you", 5))
    assert ["users"] == keys(index.search("what are users", 5))


def test_a_replaced_or_removed_text_is_not_found_again() -> None:
    """Its words lead to it no longer; removing what is not there does nothing."""
    index = lexical(REQUESTS)
    index.put("bag", "upgrade my seat")
    index.remove("spike")
    index.remove("spike")
    assert ([], [], ["bag"], 3) == (
        index.search("bag", 5), index.search("spike", 5), keys(index.search("seats", 5)), len(index)
    )  # fmt: skip


def test_equal_scores_come_in_order_of_keys_also_past_the_limit() -> None:
    """Of many equal entries the first keys are given."""
    index = lexical({f"k{n:04}": "the same text" for n in range(999, -1, -1)})
    assert ["k0000", "k0001", "k0002"] == keys(index.search("same text", 3))


def test_threshold_and_limit_bound_what_is_found() -> None:
    """Nothing under the threshold, no more than the limit."""
    index = lexical(REQUESTS)
    found = index.search("cancel my booking", 5)
    assert (["refund", "bag"], found[:1]) == (sorted(keys(found), reverse=True), index.search("cancel my booking", 1))
    assert [] == index.search("cancel my booking", 5, threshold=0.99)
    assert [] == index.search("cancel my booking", 0)


words = st.lists(st.sampled_from(["chart", "charts", "region", "revenue", "bag", "用中文", "x"]), max_size=5).map(
    " ".join
)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | words), max_size=20), words)
@settings(max_examples=60)
def test_what_is_found_hangs_on_the_entries_alone(changes: list[tuple[str, str | None]], query: str) -> None:
    """After any puts and removals an index answers as a new one with the same entries does."""
    index, model = LexicalIndex(), dict[str, str]()
    for key, text in changes:
        if text is None:
            index.remove(key)
            model.pop(key, None)
        else:
            index.put(key, text)
            model[key] = text
    fresh = lexical({key: model[key] for key in sorted(model)})
    assert (fresh.search(query, 10), len(model)) == (index.search(query, 10), len(index))


def test_common_features_are_skipped_where_entries_are_many() -> None:
    """What most entries have tells none from another; what few have finds them."""
    texts = {f"k{n:05}": f"report of region {n}" for n in range(5_000)} | {"rare": "report of churn"}
    assert "rare" == lexical(texts).search("report of churn", 1)[0].key


# vectors


def test_the_nearest_vectors_come_first_by_cosine() -> None:
    """Length does not count; of equal ones the first key comes first."""
    index = ExactIndex(2)
    for key, vector in {"east": (9.0, 0.0), "north": (0.0, 0.1), "b": (1.0, 1.0), "a": (3.0, 3.0)}.items():
        index.put(key, vector)
    assert [("east", 1.0), ("a", 0.707107), ("b", 0.707107)] == index.search((5.0, 0.0), 3)
    assert [("b", 0.707107), ("north", 0.0)] == index.search((1.0, 0.0), 5, keys=["north", "b", "unknown"])


def test_vectors_are_replaced_and_removed() -> None:
    """The others stay where they are, however many come and go."""
    index = ExactIndex(3)
    rng = random.Random(7)
    model: dict[str, list[float]] = {}
    for _ in range(300):
        key = f"k{rng.randrange(60)}"
        if rng.random() < 0.4:
            index.remove(key)
            model.pop(key, None)
        else:
            model[key] = [rng.gauss(0, 1) for _ in range(3)]
            index.put(key, model[key])
    query = [1.0, -2.0, 0.5]
    best = min((-round(_cosine(query, vector), 4), key) for key, vector in model.items())
    found = index.search(query, 1)[0]
    assert (len(model), best) == (len(index), (-round(found[1], 4), found[0]))


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(map(lambda a, b: a * b, left, right)) / (math.hypot(*left) * math.hypot(*right))


@pytest.mark.parametrize("vector", [(1e300, 1e300), (1e-300, 1e-300), (3, 3)])
def test_very_large_and_small_numbers_keep_their_direction(vector: tuple[float, float]) -> None:
    """Their squares would be infinite or zero."""
    index = ExactIndex(2)
    index.put("k", vector)
    assert [("k", 1.0)] == index.search((1.0, 1.0), 1)


def test_a_vector_of_length_zero_is_like_nothing() -> None:
    """Its cosine to all is 0."""
    index = ExactIndex(2)
    index.put("zero", (0.0, 0.0))
    assert [("zero", 0.0)] == index.search((1.0, 0.0), 1)
    assert [("zero", 0.0)] == index.search((0.0, 0.0), 1)


@pytest.mark.parametrize("vector", [(1.0,), (1.0, 2.0, 3.0), (), (math.nan, 1.0), (1.0, math.inf)])
def test_what_is_no_vector_is_refused(vector: tuple[float, ...]) -> None:
    """A wrong size or a number that is none is an error that says so, by index and by check alike."""
    index = ExactIndex(2)
    for act in (
        lambda: index.put("k", vector),
        lambda: index.search(vector, 1),
        lambda: checked_vector(vector, 2, "m"),
    ):
        with pytest.raises(errors.InvalidVector, match=r"numbers instead of 2|finite|number \d is"):
            act()
    assert 0 == len(index)


def test_without_numpy_the_error_names_the_extra() -> None:
    """What is missing is said when vectors are first wanted."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from memory_engine.storage.vectors.exact import ExactIndex\n"
        "try:\n    ExactIndex(2)\nexcept Exception as error:\n    print(type(error).__name__, error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ("MissingExtra", True) == (out.split()[0], "'.[vectors]'" in out)


# an index over a view

SENSES = (("price", "cost", "expensive"), ("flight", "plane"), ("short", "concise", "brief"))


class SenseEmbedder:
    """Words of one sense share a dimension; counts what it is asked, and fails when it is told to."""

    def __init__(self, name: str = "senses") -> None:
        self.name = name
        self.dimension = len(SENSES)
        self.asked: list[str] = []
        self.broken = False
        self.gives: Sequence[Vector] | None = None

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One number a sense."""
        await asyncio.sleep(0)
        if self.broken:
            raise errors.ModelError(self.name, "unavailable", "no route")
        self.asked += texts
        if self.gives is not None:
            return self.gives
        return [[float(sum(word in text for word in sense)) for sense in SENSES] for text in texts]

    async def aclose(self) -> None:
        """Nothing to close."""


def corpus(texts: Mapping[str, str]) -> Corpus:
    """A corpus whose tokens are the texts."""
    return Corpus(texts, texts.__getitem__)


TRAVEL = {"a": "what does the plane cost", "b": "a brief answer", "c": "book a plane"}


async def found(index: TextIndex, query: str, texts: Mapping[str, str], threshold: float = 0.6) -> list[str]:
    """The keys that match."""
    return keys(await index.search(query, corpus(texts), limit=10, threshold=threshold))


async def test_an_embedder_finds_what_shares_no_word() -> None:
    """The match says that vectors decided."""
    index = TextIndex(SenseEmbedder(), ExactIndex)
    matches = await index.search("concise please", corpus(TRAVEL), limit=5, threshold=0.6)
    assert [Match("b", 1.0, how="embedding")] == matches


async def test_only_what_changed_is_embedded_again() -> None:
    """New, changed and dropped entries are followed; the rest is left alone."""
    embedder = SenseEmbedder()
    index = TextIndex(embedder, ExactIndex)
    await found(index, "flight", TRAVEL)
    embedder.asked.clear()
    changed = {"a": "short", "c": TRAVEL["c"], "d": "price"}
    assert ["d"] == await found(index, "expensive", changed)
    assert ["short", "price", "expensive"] == embedder.asked
    assert [] == await found(index, "flight", {})


async def test_another_model_embeds_all_again() -> None:
    """Vectors of two models are never compared."""
    embedder = SenseEmbedder()
    index = TextIndex(embedder, ExactIndex)
    await found(index, "flight", TRAVEL)
    embedder.name = "other"
    embedder.asked.clear()
    assert ["c", "a"] == await found(index, "flight", TRAVEL)
    assert sorted([*TRAVEL.values(), "flight"]) == sorted(embedder.asked)


async def test_where_the_embedder_fails_words_decide() -> None:
    """Every match says why; when the embedder is back, vectors decide again."""
    embedder = SenseEmbedder()
    index = TextIndex(embedder, ExactIndex)
    embedder.broken = True
    matches = await index.search("a brief plane", corpus(TRAVEL), limit=5, threshold=0.1)
    assert [("lexical", True)] * 3 == [(match.how, "no route" in match.failure) for match in matches]
    embedder.broken = False
    assert ["b"] == await found(index, "concise", TRAVEL)


@pytest.mark.parametrize("gives", [[[1.0, 2.0]], [[math.nan] * 3] * 3, [[1.0] * 4] * 3, []])
async def test_what_an_embedder_gives_is_checked(gives: list[list[float]]) -> None:
    """Too few vectors, the wrong size or numbers that are none are an error, not a wrong answer."""
    embedder = SenseEmbedder()
    embedder.gives = gives
    with pytest.raises(errors.InvalidVector, match="senses"):
        await found(TextIndex(embedder, ExactIndex), "flight", TRAVEL)


async def test_each_way_of_comparing_has_a_threshold_of_its_own() -> None:
    """A pair says what counts by words and what by vectors; a number is for both."""
    least = Thresholds(lexical=1.1, embedding=0.6)
    assert [] == await TextIndex().search("plane", corpus(TRAVEL), limit=5, threshold=least)
    assert ["c"] == keys(
        await TextIndex(SenseEmbedder(), ExactIndex).search("plane", corpus(TRAVEL), limit=1, threshold=least)
    )


async def test_a_query_that_no_encoding_holds_is_still_compared() -> None:
    """A lone surrogate reaches no embedder."""
    embedder = SenseEmbedder()
    assert ["c"] == (await found(TextIndex(embedder, ExactIndex), "flight \ud800", TRAVEL))[:1]
    assert "flight ?" == embedder.asked[-1]


async def test_searches_at_the_same_time_each_see_their_own_corpus() -> None:
    """One waits for the other while texts are embedded."""
    index = TextIndex(SenseEmbedder(), ExactIndex)
    queries: list[Mapping[str, str]] = [TRAVEL, {"x": "plane"}, TRAVEL]
    expected: list[Collection[str]] = [["c", "a"], ["x"], ["c", "a"]]
    assert expected == await asyncio.gather(*(found(index, "flight", texts) for texts in queries))


async def test_a_search_that_is_cancelled_leaves_a_sound_index() -> None:
    """What was embedded is kept, the rest follows with the next search."""
    index = TextIndex(SenseEmbedder(), ExactIndex)
    many = {f"k{n:03}": "plane" for n in range(200)}
    task = asyncio.create_task(found(index, "flight", many))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 10 == len(await found(index, "flight", many))
