"""References in reruns: whatever an event names by seq or chunk id is found at its new place."""

from collections.abc import Iterator
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import EngineConfig, Event, Thread, UserMessage
from memory_engine import events as e
from memory_engine.events import BUILTIN_EVENTS
from memory_engine.replay.what_if import Change, InsertEvent
from memory_engine.replay.what_if.references import Places, references_of, renumbered
from tests.conversations import NEVER, call, log, turns
from tests.unit.test_events import SAMPLES
from tests.views.test_conversation_laws import SMALL as LIMITS
from tests.views.test_conversation_laws import STEP, forget

NOTHING = e.EventSkipped(skipped_type="nothing", skipped_id="-")
"""An event that nothing comes of: what changes where it is inserted are places only."""
NAMED = frozenset(
    "approvals base before after chunk_ids completed container covers cycle drawn_at drawn_from facts first forgotten "
    "insights insights_upto lines original parent_ids proposal question_at answer_at read seen seqs snippet source "
    "sources summaries upto".split()
)
"""What fields that may name other events are called."""
ELSEWHERE = {
    ("ScratchpadWritten", "cap"), ("Reach", "seqs"), ("Body", "lines"), ("PromotionDecided", "sources"),
    ("AgentMdPromoted", "sources"), ("FindingNoted", "sources"), ("PreferenceUpdated", "sources"),
    ("PlaybookPromoted", "sources"),
    ("PlaybookSaved", "sources"), ("MemoryAppended", "sources"), ("MemoryShared", "sources"),
    ("MemoryRecalled", "sources"), ("DocumentAdded", "source"), ("ExternalInject", "source"), ("SourceQuarantined", "source"),
    ("MemoryCompacted", "lines"), ("CompactionUndone", "restored"), ("RestoredChunk", "lines"),
    ("Replacement", "lines"), ("MemoryForget", "lines"), ("ItemSpan", "first"),
}  # fmt: skip
"""Fields of such names that hold event ids, numbers, places in other logs, texts, or structs of their own."""


def structs(cls: type[msgspec.Struct], seen: set[type]) -> Iterator[type[msgspec.Struct]]:
    """A class, and those of the structs inside."""
    if cls in seen:
        return
    seen.add(cls)
    yield cls
    for field in cast("msgspec.inspect.StructType", msgspec.inspect.type_info(cls)).fields:
        for inner in inside(field.type):
            yield from structs(inner, seen)


def inside(info: msgspec.inspect.Type) -> Iterator[type[msgspec.Struct]]:
    """The structs that a type holds."""
    match info:
        case msgspec.inspect.StructType(cls=cls):
            yield cls
        case msgspec.inspect.UnionType(types=types):
            for one in types:
                yield from inside(one)
        case msgspec.inspect.VarTupleType(item_type=item):
            yield from inside(item)


def test_every_field_that_may_name_an_event_is_known() -> None:
    """A new event whose field is called like a reference says whether it is one."""
    seen: set[type] = set()
    unknown = [
        (cls.__name__, name)
        for event in BUILTIN_EVENTS
        for cls in structs(event, seen)
        for name in cls.__struct_fields__
        if name in NAMED and name not in references_of(cls) and (cls.__name__, name) not in ELSEWHERE
    ]
    assert [] == unknown


@pytest.mark.parametrize("sample", SAMPLES, ids=[sample.event_type for sample in SAMPLES])
def test_nothing_moves_where_nothing_moved(sample: Event) -> None:
    """The very same event comes out, and where places move it is of the same class and can be recorded."""
    assert sample is renumbered(sample, Places(5), 6)
    places = Places()
    for seq in range(1, 20):
        places.put(seq, seq + 100)
    moved = renumbered(sample, places, 19)
    assert type(sample) is type(moved)
    assert msgspec.json.encode(moved)


def test_fields_of_a_plug_in_say_what_they_name() -> None:
    """By their roles whatever they are called; where they declare none, by the names that are usual."""

    class Inner(msgspec.Struct, frozen=True):
        row: e.ChunkId
        seqs: tuple[int, ...]

    class Noted(Event):
        at: e.Seq
        since: e.SeqBound
        chunk_id: e.Id
        inner: tuple[Inner, ...]

    places = Places(1)
    places.drop(2)
    places.put(3, 2)
    noted = Noted(at=3, since=2, chunk_id="3.0", inner=(Inner(row="3.0", seqs=(1, 2, 3)),))
    assert Noted(at=2, since=1, chunk_id="3.0", inner=(Inner("2.0", (1, 2)),)) == renumbered(noted, places, 4)


def test_what_has_no_place_is_left_out() -> None:
    """Of a list; a single reference is empty then, and a bound falls to the last event that has a place."""
    places = Places(2)
    places.drop(3)
    places.drop(4)
    places.put(5, 3)
    places.put(6, 9)
    forgotten = e.MemoryForget(chunk_ids=("2.0", "3.1", "5.0", "7.0", "no id", "0.1", "01.0"), seqs=(1, 4, 6, 8),
                               summaries=("4.0",), reach=(e.Reach(e.Destination("user", "u"), (3, 4, 5)),))  # fmt: skip
    moved = renumbered(forgotten, places, 7)
    assert (("2.0", "3.0", "no id", "0.1", "01.0"), (1, 9), (), forgotten.reach) == (
        moved.chunk_ids, moved.seqs, moved.summaries, moved.reach
    )  # fmt: skip
    compacted = e.MemoryCompacted(layer="episodic", upto=4, count=1, first=3, drawn_at=6)
    assert (2, 0, 9) == (
        (made := renumbered(compacted, places, 7)).upto, made.first, made.drawn_at
    )  # fmt: skip
    facts = e.FactsDelivered(facts=("0000000005.1", "0000000003.0", "else"))
    assert ("0000000003.1", "else") == renumbered(facts, places, 7).facts
    assert ("9", "x") == renumbered(e.AgentMdRemoved(lines=("6", "4", "x")), places, 7).lines


def test_what_is_counted_back_leads_to_the_same_event() -> None:
    """As it was, where the distance is; else as a seq."""
    places = Places(3)
    places.put(4, 4)
    places.put(5, 6)
    started = e.CycleStarted(question="why?", question_at=-1)
    assert (-1, 4, 0) == (
        renumbered(started, places, 4).question_at,
        renumbered(started, places, 5).question_at,
        renumbered(e.CycleStarted(question="why?"), places, 5).question_at,
    )
    assert -1 == renumbered(started, places, 0).question_at


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=14), st.data())
async def test_moving_everything_changes_nothing_that_is_told(
    steps: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    """Turns, findings, cached results and forgetting: an event that says nothing, put anywhere, is not noticed."""
    async with memory_engine.open(":memory:", config=EngineConfig(conversation=LIMITS)) as engine:
        thread = await engine.create_thread("t")
        for what, one, other in steps:
            if what == "turn":
                await thread.dispatch(UserMessage(content=one))
                await thread.conversation.prepare_messages(one)
                await thread.conversation.finalize_cycle(one, other)
            elif what == "ask":
                await thread.conversation.prepare_messages(one)
            elif what == "note":
                await thread.scratchpad.write(one)
                await thread.scratchpad.read()
            elif what == "cache":
                await thread.tool_cache.add(one, {"x": other}, other, 2)
            else:
                await forget(thread, int(one))
            await thread.compaction.settle()
        head = (await thread.info()).events
        places = data.draw(st.lists(st.integers(0, head), min_size=1, max_size=4), "places")
        report = await thread.replay.what_if(Change(edits=[InsertEvent(after, NOTHING) for after in places]))
        fork = engine.thread(report.fork_id)
        assert ((), len(places)) == (report.refused, report.events.inserted)
        assert await told(thread) == await told(fork)
        assert (await fork.replay.verify()).ok


async def told(thread: Thread) -> list[object]:
    """All that a conversation's memory says, without places."""
    return [
        await thread.conversation.messages(),
        [(one.question, one.answer, one.finished_at) for one in await thread.conversation.exchanges()],
        [snippet.text for snippet in await thread.scratchpad.read()],
        [(entry.tool, entry.result, entry.remaining) for entry in await thread.tool_cache.entries()],
        (await thread.context()).messages,
    ]


async def test_layers_lines_and_patterns_keep_their_references() -> None:
    """Entries that were removed, lines that were taken away, shares that were revoked: as there, at other places."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        tenant = engine.tenant("acme")
        for n in range(6):
            await tenant.memory.append("episodic", f"entry {n}" + " and more" * 20)
        entries = await tenant.memory.entries("episodic")
        await tenant.memory.remove(entries[1].id, "episodic")
        await tenant.memory.compact("episodic", keep_last=2)
        promoted = [await tenant.dispatch(e.AgentMdPromoted(content=f"Line {n}.")) for n in range(3)]
        await tenant.agent_md.remove(promoted[1].seq)
        thread = engine.thread(tenant.id)
        report = await thread.replay.what_if(Change(edits=[InsertEvent(n, NOTHING) for n in (0, 3, 7, 8)]))
        fork = engine.thread(report.fork_id)
        assert 4 == report.events.inserted
        for layer in ("episodic", "semantic"):
            assert [entry.content for entry in await thread.memory.entries(layer)] == [
                entry.content for entry in await fork.memory.entries(layer)
            ]
        assert (await thread.views.read("agent_md")).keys() == (await fork.view("agent_md")).keys()
        assert (await fork.replay.verify()).ok


async def test_marks_and_references_move_with_their_chunks() -> None:
    """Critical chunks, shortened results and forgotten ones are the same ones."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([*turns(3), *call("c1", "long " * 9_000), *turns(1, start=6)])
        await thread.compaction.mark_critical("2.0")
        await thread.compaction.offload()
        await thread.forget(chunk_ids=["3.0"])
        report = await thread.replay.what_if(Change(edits=[InsertEvent(1, NOTHING), InsertEvent(3, NOTHING)]))
        fork = engine.thread(report.fork_id)
        before, after = list((await thread.state()).chunks()), list((await fork.state()).chunks())
        assert [(c.text[:300], c.retention) for c in before] == [(c.text[:300], c.retention) for c in after]
        opened = next(c for c in after if "more characters" in c.text)
        assert (await fork.compaction.open(opened.text.rpartition('open("')[2].rstrip('")]'))).text.startswith(
            "long long"
        )
        assert ["memory_mark_critical", "results_offloaded", "memory_forget"] == [
            one.type for one in (await log(fork))[8:]
        ]
