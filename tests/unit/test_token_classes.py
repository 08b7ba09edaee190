"""Counting tokens by classes of characters: near to real tokenizers for each kind of text, and the same everywhere."""

import random
import sys
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.token_kinds import kinds
from benchmarks.tokens import LEAST, MOST, TRUTH
from memory_engine.core.chunks import Chunk, ChunkType, Retention
from memory_engine.core.token_classes import BLOCK_BYTES, BLOCK_COSTS, CLASSES, COST_MAX, COSTS, count_by_classes
from memory_engine.core.tokens import EstimatedTokens, TokenCounter, estimate_chunk, recorded_tokens
from memory_engine.errors import MissingExtra
from memory_engine.llm import Tokenizer

if TYPE_CHECKING:
    from _typeshed import TraceFunction

KINDS = dict(kinds())


@cache
def tokenizer() -> TokenCounter:
    """The real one, if its table is on this machine."""
    try:
        return Tokenizer(TRUTH)
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_text_is_counted_on_the_safe_side(kind: str) -> None:
    """At least the tokens that o200k makes, at most 1.4 times as many: a budget holds, and little of it is wasted."""
    text = KINDS[kind]
    ratio = count_by_classes(text) / tokenizer().count(text)
    assert LEAST <= ratio <= MOST, f"{ratio:.2f}"


@pytest.mark.parametrize("character", ["-", "=", "_", "*", "#", " ", "\n", "a", "0", "🙂"])
def test_a_long_run_of_one_character_is_not_counted_as_nothing(character: str) -> None:
    """A ruler has a token for about sixty characters."""
    real, counted = (counter.count(character * 3_000) for counter in (tokenizer(), EstimatedTokens()))
    assert counted >= 0.9 * real


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), (" ", 1), ("\x00", 1), ("\ud800", 1), ("é", 1)])
def test_only_no_text_has_no_tokens(text: str, tokens: int) -> None:
    """Also a control character, and half of a character, is counted."""
    assert (count_by_classes(text) > 0) == (tokens > 0)


SAME = {
    "Never run migrations without asking me first.": 11,
    "Größe: 38,5 °C — für Ärztin Łucja": 20,
    "今天去北京。🙂": 9,
    '{"id":"9f1c","n":[1,22,333,4444]}\r\n': 21,
}


@pytest.mark.parametrize("text", SAME)
def test_the_count_is_the_same_on_every_machine(text: str) -> None:
    """Whole numbers all the way: a context of a log has the same size wherever it is built."""
    assert SAME[text] == count_by_classes(text)


@settings(max_examples=200)
@given(st.lists(st.text(max_size=80), max_size=12))
def test_parts_are_counted_as_their_whole(parts: list[str]) -> None:
    """But for the places where they meet: a budget can be divided, and its parts added up."""
    together = count_by_classes("".join(parts))
    apart = sum(count_by_classes(part) for part in parts)
    assert abs(apart - together) <= 4 * len(parts)


@pytest.mark.parametrize("kind", KINDS)
def test_paragraphs_are_counted_as_their_text(kind: str) -> None:
    """To a few percent: messages of a context are counted one by one."""
    text = KINDS[kind] * 4
    apart = sum(count_by_classes(text[at : at + 400]) for at in range(0, len(text), 400))
    assert apart == pytest.approx(count_by_classes(text), rel=0.03)


@settings(max_examples=100)
@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_a_longer_text_has_no_fewer_tokens(text: str, more: str) -> None:
    """What is added at the end takes nothing from what stands before it."""
    assert count_by_classes(text) <= count_by_classes(text + more)


def test_a_large_text_is_counted_in_blocks_as_its_parts() -> None:
    """Nothing is lost between two blocks, of a text in ASCII and of any other."""
    for text in ("The quay is closed. ", "Der Kai ist für Fähren gesperrt, 今天也是。 "):
        size = BLOCK_BYTES * 5 // len(text)
        expected = size * count_by_classes(text * 100) / 100
        assert count_by_classes(text * size) == pytest.approx(expected, rel=0.02)


def test_the_costs_can_be_told_by_a_byte() -> None:
    """A square table, a class for each byte, scripts in order and apart."""
    assert {len(CLASSES)} == {len(COSTS), *map(len, COSTS)}
    costs = [*(cost for row in COSTS for cost in row), *(cost for _, _, cost in BLOCK_COSTS)]
    assert 0 <= min(costs) <= max(costs) <= COST_MAX
    named = [byte for members in CLASSES for byte in members]
    assert len(named) == len(set(named))
    edges = [edge for first, end, _ in BLOCK_COSTS for edge in (first, end)]
    assert edges == sorted(edges)


def test_no_loop_goes_over_characters() -> None:
    """Python's own steps are as many for a long text as for a short one, up to the size of a block."""

    def steps(text: str) -> int:
        seen = 0

        def trace(_frame: FrameType, _event: str, _arg: object) -> "TraceFunction":
            nonlocal seen
            seen += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            count_by_classes(text)
        finally:
            sys.settrace(before)
        return seen

    assert steps("a b" * 10) == steps("a b" * 5_000)


def test_recorded_chunks_keep_their_measure() -> None:
    """A quarter of the bytes: logs of earlier releases reduce to the same bytes."""
    text = "0123456789abcdef" * 10
    chunk = Chunk(id="1.0", type=ChunkType.USER_MESSAGE, content=text, retention=Retention.BATCH_COMPRESSIBLE)
    assert (40, 40) == (recorded_tokens(text), estimate_chunk(chunk))
    assert 60 < EstimatedTokens().count(text)


def test_noise_is_counted_on_the_safe_side() -> None:
    """Random letters and digits of any mixture, as keys, names of pods and cursors are made of."""
    seeded = random.Random(5)
    for letters in ("abcdefghijklmnopqrstuvwxyz0123456789", "ABCDEFGHJKMNPQRSTVWXYZ0123456789", "abcdef0123456789-"):
        text = " ".join("".join(seeded.choices(letters, k=20)) for _ in range(100))
        assert LEAST <= count_by_classes(text) / tokenizer().count(text) <= MOST
