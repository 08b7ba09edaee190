"""Passages whose words are not indexed yet: a look-up reads their texts for the terms that it needs."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import UserMessage
from memory_engine.engine import kernel_of
from memory_engine.language.text import STEM_CHANGES_MAX, TermsSought, stem, terms
from memory_engine.store.passages import LookUp

ROOTS = "skies dying lying tied sensible plan generous ration hop city were feet geese go run ab y use".split()
ENDINGS = "  s es ed ing ies ied ly ational ization bility iveness fulness ogist ement al y e".split(" ")
WORDS = st.one_of(
    st.builds(lambda root, ending: root + ending, st.sampled_from(ROOTS), st.sampled_from(ENDINGS)),
    st.sampled_from("The a not don't user_id 7:30 3rd 1,000 Größe 東京都 e-mail went Ann's naïve … x".split()),
    st.text("abcdeilnorsty", min_size=1, max_size=70),
)
TEXTS = st.lists(WORDS, max_size=20).map(" ".join)


@given(TEXTS, st.lists(WORDS, max_size=6))
@settings(max_examples=600)
def test_a_text_is_read_for_some_terms_as_for_all(text: str, asked: Sequence[str]) -> None:
    """As many terms, and the wanted ones in their places."""
    wanted = frozenset(term for word in asked for term in terms(word))
    whole, read = terms(text), TermsSought(wanted).read(text)
    assert [term if term in wanted else "" for term in whole] == [term if term in wanted else "" for term in read]


@given(WORDS)
@settings(max_examples=600)
def test_a_stem_changes_its_word_at_the_end(word: str) -> None:
    """What `TermsSought` counts on."""
    if word.isascii() and word.isalpha() and word.islower():
        found = stem(word)
        assert word.startswith(found[: max(1, len(found) - STEM_CHANGES_MAX)])


@pytest.mark.parametrize("seed", range(3))
async def test_a_look_up_finds_the_same_when_it_reads_for_its_terms(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passages, counts and rows, at the end and at earlier seqs."""
    chance = random.Random(seed)
    vocabulary = [root + ending for root in ROOTS for ending in ENDINGS]
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.search("anything")
        await thread.dispatch_all(
            [UserMessage(content=" ".join(chance.choices(vocabulary, k=chance.randint(1, 12)))) for _ in range(200)]
        )
        passages = kernel_of(engine).store.passages
        for upto in (0, 0, 0, 120):
            asked = terms(" ".join(chance.sample(vocabulary, 5)))
            wanted = LookUp(terms=tuple(dict.fromkeys(asked)), upto=upto)
            looked = []
            for few in (0, 1_000):
                monkeypatch.setattr("memory_engine.storage.passage_words.FEW", few)
                looked.append(await passages.look_up(thread.id, wanted))
            assert looked[1] == looked[0]
            assert looked[0].unindexed > 100
            assert looked[0].chosen
