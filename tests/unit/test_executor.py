"""The executor: what each operation does, and that every one which does not fit is a typed error."""

from collections.abc import Sequence

import pytest

from memory_engine import errors
from memory_engine.core.chunks import Chunk, Retention
from memory_engine.core.executor import BATCH_DEPTH_MAX, apply, check_ids, describe
from memory_engine.core.operations import Add, Batch, BatchReplace, Delete, Operation, Reorder, Replace, Update
from memory_engine.core.state import State

# The state that operations meet: three chunks at the top, the second a container of two; one is CRITICAL.
SHAPE = ("1.0", "1.1", "1.1/1.2", "1.1/1.3", "1.4")


def chunk(id: str, type: str = "note", *, container: bool = False, critical: bool = False) -> Chunk:
    """A chunk with its id for content."""
    retention = Retention.CRITICAL if critical else Retention.BATCH_COMPRESSIBLE
    return Chunk(id=id, type=type, content=id, is_container=container, retention=retention)


def given() -> State:
    """The state of SHAPE."""
    chunks = [
        chunk("1.0"),
        chunk("1.1", container=True),
        chunk("1.2"),
        chunk("1.3"),
        chunk("1.4", critical=True),
    ]
    operations = [Add(c.id, container="1.1" if c.id in ("1.2", "1.3") else "") for c in chunks]
    return apply(State(), operations, chunks, seq=1)


def shape(state: State) -> tuple[str, ...]:
    """The chunks in order, those in a container as `container/chunk`."""
    return tuple(f"{p.container}/{p.chunk.id}" if p.container else p.chunk.id for p in state.placed())


def after(*operations: Operation, chunks: Sequence[Chunk] = ()) -> tuple[str, ...]:
    """What the given state becomes by the event at seq 2."""
    return shape(apply(given(), operations, chunks, seq=2))


NEW = chunk("2.0")
BOX = chunk("2.1", container=True)

VALID: list[tuple[str, Operation, list[Chunk], tuple[str, ...]]] = [
    ("add at the end", Add("2.0"), [NEW], (*SHAPE, "2.0")),
    ("add first", Add("2.0", first=True), [NEW], ("2.0", *SHAPE)),
    ("add before", Add("2.0", before="1.1"), [NEW], ("1.0", "2.0", *SHAPE[1:])),
    ("add after a container", Add("2.0", after="1.1"), [NEW], (*SHAPE[:4], "2.0", "1.4")),
    ("add a child", Add("2.0", container="1.1"), [NEW], (*SHAPE[:4], "1.1/2.0", "1.4")),
    ("add a first child", Add("2.0", container="1.1", first=True), [NEW],
     (*SHAPE[:2], "1.1/2.0", *SHAPE[2:])),
    ("add between children", Add("2.0", container="1.1", after="1.2"), [NEW],
     (*SHAPE[:3], "1.1/2.0", *SHAPE[3:])),
    ("update", Update("1.0", "2.0"), [NEW], ("2.0", *SHAPE[1:])),
    ("update a container", Update("1.1", "2.1"), [BOX], ("1.0", "2.1", "2.1/1.2", "2.1/1.3", "1.4")),
    ("update a child", Update("1.3", "2.0"), [NEW], (*SHAPE[:3], "1.1/2.0", "1.4")),
    ("delete", Delete("1.0"), [], SHAPE[1:]),
    ("delete a container", Delete("1.1"), [], ("1.0", "1.4")),
    ("delete a child", Delete("1.2"), [], ("1.0", "1.1", "1.1/1.3", "1.4")),
    ("delete what is CRITICAL", Delete("1.4"), [], SHAPE[:4]),
    ("reorder to the end", Reorder("1.0"), [], (*SHAPE[1:], "1.0")),
    ("reorder first", Reorder("1.4", first=True), [], ("1.4", *SHAPE[:4])),
    ("reorder before", Reorder("1.4", before="1.1"), [], ("1.0", "1.4", *SHAPE[1:4])),
    ("reorder to where it stands", Reorder("1.1", after="1.0"), [], SHAPE),
    ("reorder a container after", Reorder("1.1", after="1.4"), [], ("1.0", "1.4", *SHAPE[1:4])),
    ("reorder a child", Reorder("1.2"), [], ("1.0", "1.1", "1.1/1.3", "1.1/1.2", "1.4")),
    ("replace", Replace("1.0", "2.0"), [chunk("2.0", "other")], ("2.0", *SHAPE[1:])),
    ("replace a container", Replace("1.1", "2.0"), [NEW], ("1.0", "2.0", "1.4")),
    ("replace many by one", BatchReplace(("1.1", "1.0"), ("2.0",)), [NEW], ("2.0", "1.4")),
    ("replace many by two", BatchReplace(("1.0", "1.1"), ("2.0", "2.1")), [NEW, BOX], ("2.0", "2.1", "1.4")),
    ("replace by nothing", BatchReplace(("1.0", "1.1")), [], ("1.4",)),
    ("replace children", BatchReplace(("1.2", "1.3"), ("2.0",)), [NEW], ("1.0", "1.1", "1.1/2.0", "1.4")),
    ("batch", Batch((Delete("1.0"), Add("2.0", first=True))), [NEW], ("2.0", *SHAPE[1:])),
    ("batch on its own chunk", Batch((Add("2.1"), Add("2.0", container="2.1"))), [NEW, BOX],
     (*SHAPE, "2.1", "2.1/2.0")),
    ("batches in batches", Batch((Batch((Batch((Delete("1.0"),)),)), Delete("1.4"))), [], SHAPE[1:4]),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "chunks", "expected"), [v[1:] for v in VALID], ids=[v[0] for v in VALID])
def test_an_operation_does_what_it_says(operation: Operation, chunks: list[Chunk], expected: tuple[str, ...]) -> None:
    """Each operation, at the top, in a container and within batches."""
    assert expected == after(operation, chunks=chunks)


def nested(depth: int) -> Operation:
    """A DELETE within so many batches."""
    operation: Operation = Delete("1.0")
    for _ in range(depth):
        operation = Batch((operation,))
    return operation


INVALID: list[tuple[str, Operation, list[Chunk], Exception]] = [
    ("add what is there", Add("1.0"), [], errors.DuplicateChunk("ADD", "1.0")),
    ("add what is not carried", Add("2.0"), [], errors.UndeclaredChunk("ADD", "2.0")),
    ("add into nothing", Add("2.0", container="9.9"), [NEW], errors.UnknownChunk("ADD", "9.9")),
    ("add into no container", Add("2.0", container="1.0"), [NEW], errors.NotAContainer("ADD", "1.0")),
    ("add into itself", Add("2.1", container="2.1"), [BOX], errors.UnknownChunk("ADD", "2.1")),
    ("add beside nothing", Add("2.0", after="9.9"), [NEW], errors.UnknownChunk("ADD", "9.9")),
    ("add beside itself", Add("2.0", before="2.0"), [NEW], errors.UnknownChunk("ADD", "2.0")),
    ("add beside a child", Add("2.0", after="1.2"), [NEW], errors.ForeignAnchor("ADD", "2.0", "1.2")),
    ("add a child beside the top", Add("2.0", container="1.1", before="1.0"), [NEW],
     errors.ForeignAnchor("ADD", "2.0", "1.0")),
    ("add before and after", Add("2.0", before="1.0", after="1.1"), [NEW],
     errors.ConflictingPosition("ADD", "2.0")),
    ("add first and after", Add("2.0", after="1.1", first=True), [NEW],
     errors.ConflictingPosition("ADD", "2.0")),
    ("carry and not place", Delete("1.0"), [NEW], errors.UnplacedChunk("2.0")),
    ("update nothing", Update("9.9", "2.0"), [NEW], errors.UnknownChunk("UPDATE", "9.9")),
    ("update by what is there", Update("1.0", "1.4"), [], errors.DuplicateChunk("UPDATE", "1.4")),
    ("update by itself", Update("1.0", "1.0"), [], errors.DuplicateChunk("UPDATE", "1.0")),
    ("update by nothing", Update("1.0", "2.0"), [], errors.UndeclaredChunk("UPDATE", "2.0")),
    ("update the type", Update("1.0", "2.0"), [chunk("2.0", "other")],
     errors.TypeChanged("1.0", "note", "other")),
    ("update children away", Update("1.1", "2.0"), [NEW], errors.NotAContainer("UPDATE", "2.0")),
    ("delete nothing", Delete("9.9"), [], errors.UnknownChunk("DELETE", "9.9")),
    ("reorder nothing", Reorder("9.9"), [], errors.UnknownChunk("REORDER", "9.9")),
    ("reorder beside nothing", Reorder("1.0", after="9.9"), [], errors.UnknownChunk("REORDER", "9.9")),
    ("reorder beside itself", Reorder("1.0", before="1.0"), [],
     errors.ForeignAnchor("REORDER", "1.0", "1.0")),
    ("reorder out of the container", Reorder("1.2", after="1.0"), [],
     errors.ForeignAnchor("REORDER", "1.2", "1.0")),
    ("reorder two ways", Reorder("1.0", after="1.4", first=True), [],
     errors.ConflictingPosition("REORDER", "1.0")),
    ("replace nothing", Replace("9.9", "2.0"), [NEW], errors.UnknownChunk("REPLACE", "9.9")),
    ("replace by what is there", Replace("1.0", "1.4"), [], errors.DuplicateChunk("REPLACE", "1.4")),
    ("replace none", BatchReplace((), ("2.0",)), [NEW], errors.EmptyBatch("BATCH_REPLACE")),
    ("replace one twice", BatchReplace(("1.0", "1.0")), [], errors.RepeatedChunk("BATCH_REPLACE", "1.0")),
    ("replace across containers", BatchReplace(("1.0", "1.2")), [], errors.ScatteredBatch("1.0", "1.2")),
    ("replace a container and its child", BatchReplace(("1.1", "1.2")), [],
     errors.ScatteredBatch("1.1", "1.2")),
    ("replace what is CRITICAL", BatchReplace(("1.0", "1.4")), [], errors.CriticalChunk("1.4")),
    ("replace by one twice", BatchReplace(("1.0",), ("2.0", "2.0")), [NEW],
     errors.UndeclaredChunk("BATCH_REPLACE", "2.0")),
    ("replace what is not there", BatchReplace(("1.0", "9.9")), [],
     errors.UnknownChunk("BATCH_REPLACE", "9.9")),
    ("batch of nothing", Batch(()), [], errors.EmptyBatch("BATCH")),
    ("batch without end", nested(BATCH_DEPTH_MAX + 1), [], errors.NestedTooDeep(BATCH_DEPTH_MAX)),
    ("batch that fails late", Batch((Delete("1.0"), Delete("1.0"))), [],
     errors.UnknownChunk("DELETE", "1.0")),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "chunks", "error"), [v[1:] for v in INVALID], ids=[v[0] for v in INVALID])
def test_what_does_not_fit_is_refused(operation: Operation, chunks: list[Chunk], error: Exception) -> None:
    """The error is of its own class and names what is wrong; the state is as it was."""
    state = given()
    before = list(state.placed())
    with pytest.raises(type(error)) as caught:
        apply(state, [operation], chunks, seq=2)
    assert (str(error), SHAPE, before) == (str(caught.value), shape(state), list(state.placed()))


def test_every_invalid_operation_is_in_the_table() -> None:
    """No class of error is without a case."""
    cases = {type(error) for _, _, _, error in INVALID} | {errors.ForeignChunkId, errors.StaleEvent}
    cases |= {errors.UnknownTask, errors.UnknownItem}
    assert set(errors.InvalidOperation.__subclasses__()) == cases


@pytest.mark.parametrize("id", ["", "2", "2.", "1.0", "20.0", "2.x", "2.0.0", "2.-1", " 2.0", "2.00", "2.٣", "02.0"])
def test_a_chunk_id_is_derived_from_its_event(id: str) -> None:
    """Only `<seq>.<n>`, written in the one way that storage gives back, is an id of that event."""
    with pytest.raises(errors.ForeignChunkId):
        check_ids([chunk("2.0"), chunk(id)], seq=2)


def test_a_critical_chunk_is_not_compacted_with_its_container() -> None:
    """However deep it stands, BATCH_REPLACE refuses to take it along."""
    chunks = [chunk("1.0", container=True), chunk("1.1", container=True), chunk("1.2", critical=True)]
    operations = [Add("1.0"), Add("1.1", container="1.0"), Add("1.2", container="1.1")]
    state = apply(State(), operations, chunks, seq=1)
    with pytest.raises(errors.CriticalChunk, match=r"'1\.2'"):
        apply(state, [BatchReplace(("1.0",))], (), seq=2)


def test_the_new_leads_back_to_what_it_replaces() -> None:
    """UPDATE, REPLACE and BATCH_REPLACE fill in `parent_ids`; what a reducer gave stays."""
    own = Chunk(id="2.2", type="note", parent_ids=("7.7",))
    operations = (Update("1.0", "2.0"), BatchReplace(("1.1",), ("2.1",)), Replace("1.4", "2.2"))
    state = apply(given(), operations, (NEW, BOX, own), seq=2)
    assert [("1.0",), ("1.1",), ("7.7",)] == [c.parent_ids for c in state.everything()]


def test_an_update_keeps_the_place_of_nested_containers() -> None:
    """A new version of a container keeps children and their children."""
    outer, inner, leaf = chunk("1.0", container=True), chunk("1.1", container=True), chunk("1.2")
    operations = [Add("1.0"), Add("1.1", container="1.0"), Add("1.2", container="1.1")]
    state = apply(State(), operations, [outer, inner, leaf], seq=1)
    state = apply(state, [Update("1.0", "2.0")], [chunk("2.0", container=True)], seq=2)
    assert ("2.0", "2.0/1.1", "1.1/1.2") == shape(state)
    assert 0 == len(apply(state, [Delete("2.0")], (), seq=3))


def test_a_deleted_containers_children_are_not_found_again() -> None:
    """What goes with a container is unknown afterwards, to its name too."""
    state = apply(given(), [Delete("1.1")], (), seq=2)
    assert [None, None, None] == list(map(state.get, ("1.1", "1.2", "1.3")))
    assert [] == list(state.children("1.1"))


def test_operations_describe_themselves() -> None:
    """Each operation has a line for people."""
    batch = Batch((Add("2.0"), Update("1.0", "2.1"), Replace("1.1", "2.2"), Delete("1.4"), Reorder("1.2")))
    assert "BATCH [ADD 2.0; UPDATE 1.0 -> 2.1; REPLACE 1.1 -> 2.2; DELETE 1.4; REORDER 1.2]" == describe(batch)
    assert "BATCH_REPLACE 1.0, 1.1 -> nothing" == describe(BatchReplace(("1.0", "1.1")))
