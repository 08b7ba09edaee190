"""What became of chunks, and what they were made of, told by operations and chunks alone."""

from collections.abc import Callable

import pytest

from memory_engine import Add, Batch, BatchReplace, Chunk, ContextRecalled, Delete, Operation, Replace, Update
from memory_engine.core.codec import ReductionRecord, encode_json
from memory_engine.core.lineage import (
    Carriers,
    Descent,
    Fate,
    Successors,
    Taken,
    covered,
    heirs,
    is_covering,
    may_take,
    opened,
    place,
    taken_chunks,
)
from memory_engine.events import MemoryRecalled


def chunk(chunk_id: str, *parents: str, type: str = "note") -> Chunk:
    """A chunk made of others."""
    return Chunk(id=chunk_id, type=type, parent_ids=parents)


def summary(chunk_id: str, *parents: str) -> Chunk:
    """A summary of others."""
    return chunk(chunk_id, *parents, type="compacted")


def live(*chunk_ids: str) -> Callable[[str], object]:
    """The look-up of a state that holds these chunks."""

    def found(chunk_id: str) -> str | None:
        return chunk_id if chunk_id in chunk_ids else None

    return found


STEPS: list[tuple[Operation, list[Taken]]] = [
    (Add("2.0"), []),
    (Update("1.0", by="2.0"), [Taken("1.0", ("2.0",))]),
    (Replace("1.0", by="2.0"), [Taken("1.0", ("2.0",))]),
    (Delete("1.0"), [Taken("1.0")]),
    (BatchReplace(("1.0", "1.1"), ()), [Taken("1.0", (), ("1.0", "1.1")), Taken("1.1", (), ("1.0", "1.1"))]),
    (Batch((Delete("1.0"), Batch((Update("1.1", by="2.0"),)))), [Taken("1.0"), Taken("1.1", ("2.0",))]),
]


@pytest.mark.parametrize(("operation", "gone"), STEPS, ids=[type(operation).__name__ for operation, _ in STEPS])
def test_an_operation_names_the_chunks_that_it_takes(operation: Operation, gone: list[Taken]) -> None:
    """Each with those that took its place, and with those that went together with it; inside a BATCH too."""
    assert gone == list(taken_chunks([operation]))


@pytest.mark.parametrize("operation", [operation for operation, gone in STEPS if gone])
def test_an_encoded_record_that_takes_a_chunk_is_seen_as_one(operation: Operation) -> None:
    """The look at the bytes passes over no record that takes anything."""
    assert may_take(encode_json(ReductionRecord((operation,), ())))
    assert not may_take(encode_json(ReductionRecord((Add("2.0"),), ())))


def test_the_fate_of_a_chunk_is_followed_from_version_to_version() -> None:
    """Up to the one that is live, the summary that covers it, or the event that took it."""
    known = Successors()
    known.note(2, [Update("1.0", by="2.0"), Delete("1.1")])
    known.note(3, [BatchReplace(("2.0", "1.2"), ("3.0",))])
    known.note(4, [BatchReplace(("1.3",), ())])
    assert Fate("live", "2.0") == known.fate("1.0", live("2.0"))
    assert Fate("covered", seq=3) == known.fate("1.0", live("3.0"))
    assert [Fate("gone", seq=2), Fate("gone", seq=4), Fate("gone")] == [
        known.fate(one, live()) for one in ("1.1", "1.3", "9.9")
    ]
    assert ["3.0", "3.0", ""] == [known.standing(one, live("3.0")) for one in ("1.0", "1.2", "1.1")]
    known.note_restored(5, [("1.0", "5.0")])
    assert Fate("live", "5.0") == known.fate("1.0", live("5.0"))


def test_what_a_chunk_carries_is_known_at_any_remove() -> None:
    """A version of a version is one, and what a summary covers stays covered in its versions."""
    known = Carriers({"1.0", "1.1", "1.2"})
    known.note([Update("1.0", by="2.0")], [chunk("2.0", "1.0")])
    known.note([BatchReplace(("2.0", "1.1"), ("3.0",))], [summary("3.0", "2.0", "1.1")])
    known.note([Update("3.0", by="4.0")], [summary("4.0", "3.0"), chunk("4.1", "9.9")])
    both = {"1.0": True, "1.1": True}
    assert {"2.0": {"1.0": False}, "3.0": both, "4.0": both} == known.carried


def test_a_batch_of_one_that_is_no_summary_is_a_version() -> None:
    """A chunk covers what it took the place of if it is a summary, or took the place of several."""
    assert [True, True, False, False] == [
        is_covering(summary("2.0"), "1.0", ("1.0",)),
        is_covering(chunk("2.0"), "1.0", ("1.0", "1.1")),
        is_covering(chunk("2.0"), "1.0", ("1.0",)),
        is_covering(summary("2.0"), "1.0", ()),
    ]
    assert {"1.0": ["2.0", "2.1"]} == heirs(
        [BatchReplace(("1.0", "1.1"), ("2.0",))], [chunk("2.1", "1.0", "1.9")], ["1.0", "1.5"]
    )


def test_a_summary_is_opened_in_its_place() -> None:
    """Through summaries of summaries, in order, each chunk once."""
    known = {one.id: one for one in (chunk("1.0"), chunk("2.0", "1.0"), chunk("3.0"), summary("4.0", "1.0", "2.0"))}
    known["5.0"] = summary("5.0", "4.0", "3.0", "1.0")
    assert ["1.0", "2.0", "3.0"] == [one.id for one in opened(["5.0"], known)]
    assert [("4.0", "3.0", "1.0"), ()] == [covered(known["5.0"]), covered(known["2.0"])]


def test_whatever_is_made_of_a_chunk_descends_from_it() -> None:
    """By its id or by its event's, from parent to parent; a parent may be any text that a reducer wrote."""
    known = Descent(seqs={7}, chunks={"1.0"})
    made = [chunk("8.0", "2.0", "1.0"), chunk("8.1", "7.3"), chunk("8.2", "8.1"), chunk("8.3", "odd", "", "1" * 99)]
    assert ["8.0", "8.1", "8.2"] == [one.id for one in known.follow(made)]
    assert [True, True, False, False] == [known.has(one) for one in ("8.2", "7.9", "8.3", "7x")]


def test_an_event_of_any_thread_names_its_sources_by_their_ids() -> None:
    """So what another thread took over is known by the ids of the events alone."""
    known = Descent(events={"said"})
    assert known.is_source_of(MemoryRecalled(content="x", query="q", sources=("other", "said")), 3)
    assert not known.is_source_of(MemoryRecalled(content="x", query="q", sources=("other",)), 3)
    assert not known.is_source_of(ContextRecalled(content="x", request="1.0"), 3)


@pytest.mark.parametrize("text", ["", "x", "1", "1.x", "1.0.0", "-1.0", "1." + "0" * 60, "\u0661.0"])
def test_a_text_that_is_no_chunks_id_has_no_place(text: str) -> None:
    """It comes before every chunk, whatever it is."""
    assert (0, 0) == place(text)
    assert (12, 3) == place("12.3")
