"""States: values that share what did not change, and answer the same however they came about."""

import pytest

from memory_engine.core.chunks import Category, Chunk, Retention
from memory_engine.core.executor import apply
from memory_engine.core.operations import Add, Delete, Reorder, Update
from memory_engine.core.state import Placed, State, Tally


def chunk(id: str, *, name: str = "", tokens: int = 1, container: bool = False) -> Chunk:
    """A chunk with its id for content."""
    return Chunk(id=id, type="note", content=id, name=name, tokens=tokens, is_container=container)


def with_chunks(*chunks: Chunk) -> State:
    """A state of these chunks at the top, at seq 1."""
    return apply(State(), [Add(c.id) for c in chunks], chunks, seq=1)


def reloaded(state: State) -> State:
    """The state as it is made again from its rows, in the order in which a store gives them."""
    draft = State().draft()
    for placed in sorted(state.placed(), key=lambda p: (p.container, p.key)):
        draft.insert(placed)
    return draft.freeze(state.seq)


def test_the_empty_state_has_nothing() -> None:
    """At seq 0 there are no chunks, no names and nothing to count."""
    state = State()
    assert (0, Tally(), None, None, []) == (
        state.seq, state.tally, state.last(), state.named("task"), list(state.everything())
    )  # fmt: skip


def test_an_older_state_stays_as_it_was() -> None:
    """What is done to a draft is not seen in the state it was drawn from."""
    before = with_chunks(chunk("1.0"), chunk("1.1", container=True))
    seen = list(before.placed())
    child, second = chunk("2.0"), chunk("2.1")
    after = apply(before, [Add("2.0", container="1.1"), Delete("1.0"), Add("2.1")], (child, second), seq=2)
    assert (seen, ["1.1", "2.0", "2.1"]) == (list(before.placed()), [c.id for c in after.everything()])


def test_children_stand_after_their_container() -> None:
    """`chunks` gives the top, `children` what is inside, `everything` both in order."""
    box, inner = chunk("1.0", container=True), chunk("1.1")
    state = apply(State(), [Add("1.0"), Add("1.2"), Add("1.1", container="1.0")], (box, inner, chunk("1.2")), seq=1)
    assert ["1.0", "1.2"] == [c.id for c in state.chunks()]
    assert ["1.1"] == [c.id for c in state.children("1.0")]
    assert ["1.0", "1.1", "1.2"] == [c.id for c in state.everything()]


def test_the_tally_counts_what_is_compactable() -> None:
    """Only working-flow chunks that a compactor may take count towards a threshold."""
    chunks = [
        Chunk(id="1.0", type="a", tokens=1),
        Chunk(id="1.1", type="a", tokens=2, retention=Retention.CRITICAL),
        Chunk(id="1.2", type="a", tokens=4, retention=Retention.DISPOSABLE),
        Chunk(id="1.3", type="a", tokens=8, retention=Retention.EPHEMERAL),
        Chunk(id="1.4", type="a", tokens=16, category=Category.MEMORY),
    ]
    state = with_chunks(*chunks)
    assert Tally(chunks=5, tokens=31, compactable=2, compactable_tokens=5) == state.tally
    assert Tally() == apply(state, [Delete(c.id) for c in chunks], (), seq=2).tally


def test_a_name_moves_on_with_an_update() -> None:
    """The new version bears the name, the old id is gone."""
    state = with_chunks(chunk("1.0", name="task"))
    after = apply(state, [Update("1.0", "2.0")], (chunk("2.0", name="task"),), seq=2)
    named = after.named("task")
    assert named is not None
    assert ("2.0", None) == (named.id, after.get("1.0"))


@pytest.mark.parametrize("gone", ["1.0", "1.1"])
def test_a_name_borne_twice_passes_to_the_other(gone: str) -> None:
    """When one of two chunks of a name goes, the name is the other's: reloading would find it there too."""
    state = with_chunks(chunk("1.0", name="todo:a"), chunk("1.1", name="todo:a"))
    after = apply(state, [Delete(gone)], (), seq=2)
    assert {"1.0", "1.1"} - {gone} == {c.id for c in [after.named("todo:a")] if c is not None}


@pytest.mark.parametrize("operations", [(), (Delete("1.2"),), (Reorder("1.0"),), (Reorder("1.2", first=True),)])
def test_a_name_is_the_same_ones_after_a_reload(operations: tuple[Delete | Reorder, ...]) -> None:
    """Who bears a name that several chunks have does not depend on the order in which they came."""
    state = with_chunks(*(chunk(f"1.{n}", name="n") for n in range(3)))
    after = apply(state, operations, (), seq=2)
    assert reloaded(after).named("n") == after.named("n")


def test_a_state_made_again_from_its_rows_is_equal() -> None:
    """Chunks, keys, containers and counters are all there is to a state."""
    box = chunk("1.0", container=True)
    state = apply(State(), [Add("1.0"), Add("1.1", container="1.0"), Add("1.2", first=True)],
                  (box, chunk("1.1"), chunk("1.2")), seq=1)  # fmt: skip
    assert state == reloaded(state)
    assert state != apply(state, [Reorder("1.0", first=True)], (), seq=1)


def test_what_came_of_others_and_what_an_event_made_is_found_without_reading_all() -> None:
    """The same as by reading all at the top, in its order, of a draft and of its state, also after removals."""
    state = with_chunks(*(chunk(f"1.{n}") for n in range(5)), chunk("1.5", container=True))
    state = apply(state, [Add("2.0", container="1.5"), Add("2.1")], (chunk("2.0"), chunk("2.1")), seq=2)
    state = apply(state, [Update("1.4", "12.0"), Update("1.3", "12.1")], (chunk("12.0"), chunk("12.1")), seq=12)
    draft = state.draft()
    for gone in ("12.1", "2.1"):
        placed = draft.placed_at(gone)
        assert placed is not None
        draft.remove(placed)
    for view in (state, draft):
        top = list(view.chunks())
        assert [one.id for one in top if one.parent_ids or one.lines or one.is_container] == view.derived()
        for seqs in ({1}, {2, 12}, {1, 2, 3, 12}, set[int]()):
            assert [one.id for one in top if int(one.id.partition(".")[0]) in seqs] == view.made_by(seqs)
    assert ["12.1", "12.0", "1.5"] == state.derived()
    assert ["1.0", "12.0", "2.1"] == state.in_order(["2.1", "2.0", "12.0", "9.9", "1.0"])


def test_a_state_is_no_key() -> None:
    """States are compared, never hashed."""
    with pytest.raises(TypeError):
        hash(State())


def test_what_was_touched_is_what_has_to_be_written() -> None:
    """A draft names each chunk whose row changes: its new place, or that it is gone."""
    state = with_chunks(chunk("1.0"), chunk("1.1"), chunk("1.2"))
    draft = state.draft()
    one, two = draft.placed_at("1.0"), draft.placed_at("1.1")
    assert one is not None
    assert two is not None
    draft.remove(one)
    draft.move(two, b"\x90")
    assert {"1.0": None, "1.1": Placed(two.chunk, b"\x90")} == draft.touched


def test_many_chunks_are_removed_as_one_by_one() -> None:
    """Names, tally, places and what has to be written are the same, whether many go together or each alone."""
    made = [chunk(f"1.{n}", name=f"name {n % 7}" if n % 3 == 0 else "", tokens=n) for n in range(600)]
    state = with_chunks(*made)
    gone = [placed for placed in state.placed() if placed.chunk.tokens % 4]
    together, alone = state.draft(), state.draft()
    together.remove_all(gone, "")
    for placed in gone:
        alone.remove(placed)
    assert (list(alone.touched.items()), alone.tally) == (list(together.touched.items()), together.tally)
    names = [f"name {n}" for n in range(7)]
    assert [alone.bearers(name) for name in names] == [together.bearers(name) for name in names]
    assert alone.freeze(2) == together.freeze(2)


def test_a_state_knows_whether_an_event_changed_it() -> None:
    """One that brings no operations leaves the chunks as they were."""
    state = with_chunks(chunk("1.0"))
    same, other = apply(state, (), (), seq=2), apply(state, [Delete("1.0")], (), seq=2)
    assert (True, False) == (same.has_chunks_of(state), other.has_chunks_of(state))


def test_a_chunk_at_the_end_is_what_a_draft_makes_of_it() -> None:
    """However many there are: the same order, keys, counts, and neighbours to be found."""
    state, draft = State(), State().draft()
    for seq in range(1, 1_200):
        added = chunk(f"{seq}.0", tokens=seq)
        state, placed = state.appended(added, seq)
        draft.append(added)
        assert draft.placed_at(added.id) == placed
    expected = draft.freeze(1_199)
    assert (expected, expected.made_by([7, 900])) == (state, state.made_by([7, 900]))
    assert [c.id for c in expected.newest()] == [c.id for c in state.newest()]
