"""Order keys: between any two there is another, and appending keeps them short."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memory_engine.core.persistent import ZERO, key_after, key_before, key_between

# Where to insert next, as a share of the sequence: mostly ends, as states grow.
PLACES = st.lists(st.floats(0, 1) | st.sampled_from((0.0, 1.0)), max_size=80)


def grown(places: list[float]) -> list[bytes]:
    """Insert a key at each place and return them in their intended order."""
    keys: list[bytes] = []
    for place in places:
        at = round(place * len(keys))
        low = keys[at - 1] if at else None
        high = keys[at] if at < len(keys) else None
        keys.insert(at, key_between(low, high))
    return keys


def test_the_first_key_is_zero() -> None:
    """An empty sequence begins at ZERO."""
    assert ZERO == key_between(None, None)


@given(PLACES)
def test_insertion_keeps_the_order(places: list[float]) -> None:
    """Wherever keys are inserted, comparing bytes gives the intended order and none comes twice."""
    keys = grown(places)
    assert sorted(set(keys)) == keys


@given(PLACES)
def test_there_is_always_a_key_between(places: list[float]) -> None:
    """Between any two neighbours there is another, which no fraction ending in zero could shadow."""
    for low, high in pairwise(grown(places)):
        between = key_between(low, high)
        assert low < between < high
        assert not (len(between) > 1 + abs(between[0] - 0x80) and between.endswith(b"\x00"))


@given(st.integers(0, 70_000))
def test_appending_and_prepending_are_inverse(count: int) -> None:
    """The key after the key before is the key itself, on both sides of ZERO."""
    key = ZERO
    for _ in range(count % 600):
        key = key_after(key)
    assert key == key_before(key_after(key)) == key_after(key_before(key))


def test_appending_costs_three_bytes_for_long() -> None:
    """65,000 keys in a row are in order and none is longer than three bytes."""
    keys = [ZERO]
    for _ in range(65_000):
        keys.append(key_between(keys[-1], None))
    assert keys == sorted(keys)
    assert 3 == max(map(len, keys))


def test_prepending_costs_three_bytes_for_long() -> None:
    """The same towards the front, across every change of length."""
    keys = [ZERO]
    for _ in range(65_000):
        keys.append(key_between(None, keys[-1]))
    assert keys[::-1] == sorted(keys)
    assert 3 == max(map(len, keys))


def test_halving_one_gap_grows_by_a_byte_in_eight() -> None:
    """Always inserting at one place takes a byte more for every seven or eight insertions."""
    low, high = ZERO, key_after(ZERO)
    for _ in range(800):
        high = key_between(low, high)
    assert low < high
    assert len(high) <= 800 // 7 + 2


def test_a_thousand_random_moves_keep_the_order() -> None:
    """Moving items about, as REORDER does, never makes two keys meet."""
    chance = random.Random(7)
    keys = grown([1.0] * 50)
    for _ in range(1000):
        keys.pop(chance.randrange(len(keys)))
        at = chance.randrange(len(keys) + 1)
        low = keys[at - 1] if at else None
        keys.insert(at, key_between(low, keys[at] if at < len(keys) else None))
    assert keys == sorted(set(keys))
