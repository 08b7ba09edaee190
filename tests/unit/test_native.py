"""What a message says beyond our fields: kept, and laid over them again."""

import json

from hypothesis import given
from hypothesis import strategies as st

from memory_engine.formats.native import SAME, WHOLE, beyond, filled, from_native, is_equal, to_native

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
KEYS = st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=5
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def without_nulls(value: object) -> object:
    """The value as `native` can give it back: a key whose value is `null` says nothing."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return value


@given(OBJECTS, st.data())
def test_a_part_and_what_lies_beyond_it_are_the_whole(whole: dict[str, object], data: st.DataObject) -> None:
    """Whatever keys the fields hold, with the same value or a plain one instead."""
    known = data.draw(st.lists(st.sampled_from(sorted(whole)), unique=True) if whole else st.just([]))
    ours = {key: data.draw(st.just(whole[key]) | SCALARS) for key in known}
    more = beyond(whole, ours)
    found = filled(ours, {} if more is SAME else more)
    assert isinstance(found, dict)
    assert is_equal({key: found.get(key) for key in whole}, whole)


@given(st.lists(st.tuples(OBJECTS, st.booleans()), max_size=4))
def test_a_list_comes_back_block_by_block(blocks: list[tuple[dict[str, object], bool]]) -> None:
    """What the fields have no place for stands whole, at its place; the text is JSON and back."""
    whole = [block for block, _ in blocks]
    ours: list[dict[str, object] | None] = [{} if is_ours else None for _, is_ours in blocks]
    text = to_native("anthropic", beyond(whole, ours))
    kept = from_native(text, "anthropic").get("message", [{} for _ in blocks])
    made = filled([one for one in ours if one is not None], kept)
    assert isinstance(made, list)
    assert is_equal([without_nulls(one) for one in made], [without_nulls(one) for one in whole])


def test_strings_are_kept_byte_for_byte() -> None:
    """Signatures and encrypted thoughts are compared by their providers."""
    sealed = {"type": "redacted_thinking", "data": "EmwKAhgB/+==\u2028\x00é"}
    text = to_native("anthropic", beyond([sealed], [None]))
    assert {"message": [{WHOLE: sealed}]} == from_native(text, "anthropic")


def test_what_fits_no_more_is_left_out() -> None:
    """The list of a text that was cut into others is of no use; the other keys are."""
    more = {"id": "m1", "content": [{"citations": [1]}, {}]}
    assert {"id": "m1", "content": [{"type": "text"}]} == filled({"content": [{"type": "text"}]}, more)


def test_nothing_beyond_is_no_text() -> None:
    """Messages that the fields hold whole take no more room than before; `null` says nothing."""
    assert "" == to_native("openai.chat", beyond({"role": "user", "name": None}, {"role": "user"}))
    assert {} == from_native("", "openai.chat")


def test_a_native_that_is_redacted_or_of_another_format_holds_nothing() -> None:
    """Whatever text stands there."""
    for text in ("{}", "[redacted]", '{"anthropic":1}', json.dumps({"anthropic": {"message": []}}), "[]"):
        assert {} == from_native(text, "openai.chat")


def test_equal_is_meant_as_json() -> None:
    """Python takes `1`, `1.0` and `True` for one value; providers do not."""
    assert beyond({"a": 1}, {"a": True}) == {"a": 1}
    assert beyond({"a": [1]}, {"a": [1.0]}) == {"a": {WHOLE: [1]}}
