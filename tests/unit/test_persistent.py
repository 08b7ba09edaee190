"""Persistent structures against their models: a dict, and a sorted list. Old values never change."""

from collections.abc import Sequence
from itertools import count

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine.core.persistent import PersistentMap, SortedSequence


class Item(msgspec.Struct, frozen=True):
    """Something with a place."""

    key: bytes
    value: int = 0


def sequence(keys: Sequence[int]) -> SortedSequence[Item]:
    """A sequence of items at these numbers."""
    draft = SortedSequence[Item]().draft()
    for number in keys:
        draft.insert(Item(number.to_bytes(4, "big")))
    return draft.freeze()


def numbers(items: SortedSequence[Item]) -> list[int]:
    """The numbers that a sequence holds, in its order."""
    return [int.from_bytes(item.key, "big") for item in items]


STEPS = st.lists(st.tuples(st.sampled_from("set drop freeze".split()), st.integers(0, 30)), max_size=60)
MOVES = st.lists(
    st.tuples(st.sampled_from("insert append remove clear replace freeze".split()), st.integers(0, 2000)), max_size=120
)


@given(STEPS)
def test_a_map_is_a_dict(steps: list[tuple[str, int]]) -> None:
    """After any steps it answers as a dict does, and every value frozen on the way still does."""
    model: dict[str, int] = {}
    current = PersistentMap[int]()
    frozen: list[tuple[PersistentMap[int], dict[str, int]]] = []
    draft = current.draft()
    for step, number in steps:
        key = f"k{number}"
        match step:
            case "set":
                draft.set(key, number)
                model[key] = number
            case "drop":
                draft.drop(key)
                model.pop(key, None)
            case _:
                current = draft.freeze()
                frozen.append((current, dict(model)))
                draft = current.draft()
    assert sorted(model) == sorted(draft.keys())
    assert all((key in model) == (key in list(draft.near([key]))) for key in (f"k{n}" for n in range(31)))
    frozen.append((draft.freeze(), model))
    for value, expected in frozen:
        assert sorted(expected) == sorted(value.keys())
        assert all((key in expected) == (key in list(value.near([key]))) for key in (f"k{n}" for n in range(31)))
        found = {f"k{n}": value.get(f"k{n}") for n in range(31) if value.get(f"k{n}") is not None}
        assert (expected, len(expected)) == (found, len(value))


def test_a_map_grows_without_losing_a_key() -> None:
    """20,000 keys are all there, through every doubling, and the map before them is still empty."""
    empty = PersistentMap[int]()
    draft = empty.draft()
    for n in range(20_000):
        draft.set(str(n), n)
    grown = draft.freeze()
    assert all(n == grown.get(str(n)) for n in range(20_000))
    assert len(set(grown.keys())) == len(list(grown.keys())) == 20_000
    near = list(grown.near(["7", "8", "7"]))
    assert {"7", "8"} <= set(near)
    assert len(set(near)) == len(near) < 2_000
    assert (20_000, 0, None) == (len(grown), len(empty), empty.get("1"))


@settings(max_examples=60)
@given(st.integers(0, 1500), MOVES)
def test_a_sequence_is_a_sorted_list(size: int, moves: list[tuple[str, int]]) -> None:
    """After any moves it is the sorted list, and every value frozen on the way is as it was."""
    start = sequence(range(0, 2 * size, 2))
    model = dict.fromkeys(range(0, 2 * size, 2), 0)
    frozen = [(start, sorted(model.items()))]
    draft = start.draft()
    fresh = count(1)
    for move, number in moves:
        key = number.to_bytes(4, "big")
        if move == "freeze":
            frozen.append((draft.freeze(), sorted(model.items())))
            draft = frozen[-1][0].draft()
        elif move == "insert" and number not in model:
            draft.insert(Item(key, model.setdefault(number, next(fresh))))
        elif move == "append" and number > max(model, default=-1):
            draft.append(Item(key, model.setdefault(number, next(fresh))))
        elif move == "remove" and number in model:
            draft.remove(key)
            del model[number]
        elif move == "clear":
            gone = [other for other in model if number <= other < 2 * number]
            draft.remove_all([other.to_bytes(4, "big") for other in gone])
            for other in gone:
                del model[other]
        elif move == "replace" and number in model:
            model[number] = next(fresh)
            draft.replace(Item(key, model[number]))
    frozen.append((draft.freeze(), sorted(model.items())))
    for value, expected in frozen:
        assert expected == [(int.from_bytes(item.key, "big"), item.value) for item in value]
        assert (len(expected), expected[::-1]) == (
            len(value),
            [(int.from_bytes(item.key, "big"), item.value) for item in reversed(value)],
        )


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=700))
def test_neighbours_are_those_of_the_list(keys: set[int]) -> None:
    """The keys before and after each item are its neighbours', across all blocks; the ends have none."""
    draft = sequence(sorted(keys)).draft()
    ordered = [n.to_bytes(4, "big") for n in sorted(keys)]
    before = [None, *ordered[:-1]]
    after = [*ordered[1:], None]
    assert before == [draft.key_before(key) for key in ordered]
    assert after == [draft.key_after(key) for key in ordered]
    assert (ordered[0], ordered[-1]) == (draft.first_key(), draft.last_key())


@given(st.permutations(range(600)))
@settings(max_examples=10)
def test_the_order_of_insertion_does_not_matter(order: list[int]) -> None:
    """Whatever comes first, the sequence is in order of keys."""
    assert list(range(600)) == numbers(sequence(order))


def test_a_sequence_can_be_emptied_and_filled_again() -> None:
    """Removing all items leaves a sequence without ends that takes new ones."""
    draft = sequence(range(600)).draft()
    for n in range(600):
        draft.remove(n.to_bytes(4, "big"))
    ends = draft.first_key(), draft.last_key(), len(draft)
    draft.insert(Item(b"\x00\x00\x00\x05"))
    assert ((None, None, 0), [5]) == (ends, numbers(draft.freeze()))


@given(st.sets(st.integers(0, 1_200), min_size=1), st.sets(st.integers(0, 1_200), min_size=1))
def test_many_items_are_removed_as_one_by_one(gone: set[int], changed: set[int]) -> None:
    """Wherever they stand, also in blocks that were changed before; the older value keeps them."""
    before = sequence(range(1_201))
    draft = before.draft()
    for n in changed:
        draft.replace(Item(n.to_bytes(4, "big"), 1))
    draft.remove_all([n.to_bytes(4, "big") for n in gone])
    left = sorted(set(range(1_201)) - gone)
    draft.insert(Item((5_000).to_bytes(4, "big")))
    after = draft.freeze()
    assert ([*left, 5_000], list(range(1_201))) == (numbers(after), numbers(before))
    assert [n in changed for n in left] == [item.value == 1 for item in after][:-1]
