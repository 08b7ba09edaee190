"""Laws of all views together: whatever happens, each equals its rebuild, now and at any seq of the past."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Event, Thread
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import StorageBusy
from memory_engine.projections.rebuild import rows_at
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.thread import handle_of
from memory_engine.views.layers.events import LayerLine
from memory_engine.wiring import builtin_projections

VIEWS = [projection.name for projection in builtin_projections()]
AWKWARD = ("", "\0", "שלום עולם", "👩‍👩‍👧", "always show totals", "é" * 400, "x" * 5_000)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.integers(0, 6).map(AWKWARD.__getitem__)
NAMES = st.sampled_from(["a", "b", "ö", "%", "a/b"])
FEW = st.integers(0, 3)
SEQS = st.integers(0, 12)
VALUES = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | TEXTS | st.lists(TEXTS, max_size=2)
DICTS = st.dictionaries(NAMES, VALUES, max_size=2)
LAYERS = st.sampled_from(["working", "episodic", "semantic", "procedural"])
DESTINATIONS = st.builds(e.Destination, st.sampled_from(["user", "tenant", "agent"]), NAMES, NAMES)
IDS = st.lists(st.sampled_from([f"{seq}.0" for seq in range(1, 9)]), max_size=3).map(tuple)
CALLS = st.lists(st.builds(e.PlaybookCall, NAMES, DICTS), max_size=2).map(tuple)

LINES = st.lists(st.builds(LayerLine, TEXTS, st.lists(SEQS, max_size=2).map(tuple)), max_size=2).map(tuple)
PLACE = st.integers(-1, 9)
KEYS = st.sampled_from(["k1", "k2", "k1:1"])
PASSAGES = st.lists(st.builds(e.DocumentPassage, KEYS, text=TEXTS), max_size=2).map(tuple)
SPLICES = st.lists(st.builds(e.DocumentSplice, PLACE, st.lists(KEYS, max_size=2).map(tuple), PASSAGES), max_size=2).map(
    tuple
)

SAID: list[st.SearchStrategy[Event]] = [
    st.builds(e.UserMessage, content=TEXTS),
    st.builds(e.LlmTextResponse, content=TEXTS),
    st.builds(e.MemoryForget, seqs=st.lists(SEQS, max_size=3).map(tuple)),
    st.builds(e.SessionStarted, session_id=NAMES),
    st.builds(e.SessionEnded),
]
CONVERSATION: list[st.SearchStrategy[Event]] = [
    *SAID,
    st.builds(e.ScratchpadWritten, content=TEXTS, flow=NAMES, read=IDS, cap=FEW, recalled=st.booleans()),
    st.builds(e.ScratchpadRemoved, chunk_ids=IDS, all=st.booleans()),
    st.builds(e.CycleStarted, question=TEXTS, question_at=PLACE),
    st.builds(e.ExchangeFinished, question=TEXTS, answer=TEXTS, short=TEXTS, cycle=SEQS, answer_at=PLACE),
    st.builds(e.SummaryRolled, content=TEXTS, covers=st.lists(SEQS, max_size=3).map(tuple), base=SEQS, forgotten=SEQS),
    st.builds(e.ToolResultCached, tool=NAMES, parameters=st.just("{}"), result=TEXTS, duration=st.integers(-1, 3)),
    st.builds(e.ToolCacheHit, key=NAMES),
    st.builds(e.ToolCacheDropped, keys=st.lists(NAMES, max_size=2).map(tuple), all=st.booleans()),
    st.builds(
        e.ScreenInjected,
        content=TEXTS,
        results=st.lists(
            st.builds(
                e.ProactiveResult, tool=NAMES, parameters=st.just("{}"), result=TEXTS, call_id=NAMES, duration=FEW
            ),
            max_size=2,
        ).map(tuple),
        session_id=NAMES,
    ),
    st.builds(e.ReportSaved, title=TEXTS),
    st.builds(e.FlowCompleted, flow_id=NAMES, flow_dact=NAMES, user_query=TEXTS, slots=DICTS, tool_calls=CALLS),
    st.builds(e.FeedbackGiven, satisfied=st.booleans(), flow_id=st.just("") | NAMES),
]
OWNED: list[st.SearchStrategy[Event]] = [
    *SAID,
    st.builds(e.PreferenceUpdated, key=NAMES, value=VALUES),
    st.builds(e.PreferenceRemoved, key=NAMES),
    st.builds(e.AgentMdUploaded, content=TEXTS),
    st.builds(e.AgentMdPromoted, content=TEXTS, sources=st.lists(NAMES, max_size=2).map(tuple)),
    st.builds(e.AgentMdRemoved, lines=st.lists(st.sampled_from("1234"), max_size=2).map(tuple)),
    st.builds(e.PlaybookSaved, flow_dact=NAMES, user_query=TEXTS, slots=DICTS, tool_calls=CALLS, outcome=TEXTS),
    st.builds(e.PlaybookRemoved, playbook_id=NAMES | st.sampled_from("1234")),
    st.builds(e.MemoryAppended, layer=LAYERS, content=TEXTS, key=NAMES, condition=TEXTS, metadata=DICTS, capacity=FEW),
    st.builds(e.MemoryRemoved, layer=LAYERS, seqs=st.lists(SEQS, max_size=2).map(tuple)),
    st.builds(e.MemoryCompacted, layer=LAYERS, upto=SEQS, count=FEW, first=SEQS, drawn_at=SEQS, lines=LINES),
    st.builds(e.MemoryCleared, layers=st.lists(LAYERS, min_size=1, max_size=2).map(tuple)),
    st.builds(e.MemoryGranted, grantee=DESTINATIONS, layers=st.lists(LAYERS, min_size=1, max_size=2).map(tuple)),
    st.builds(e.MemoryRevoked, grantee=DESTINATIONS),
    st.builds(e.DocumentAdded, document_id=NAMES, title=TEXTS, splices=SPLICES, digest=NAMES),
    st.builds(e.DocumentRemoved, document_id=NAMES, seqs=st.lists(SEQS, max_size=2).map(tuple)),
]
EVENTS = st.lists(st.one_of(*CONVERSATION, *OWNED[5:]), max_size=14)
CLEARED: list[st.SearchStrategy[Event]] = [st.builds(e.ThreadCleared)] * 8
EVENTS_AND_CLEARINGS = st.lists(st.one_of(*CONVERSATION, *OWNED[5:], *CLEARED), max_size=14)
CONFIG = EngineConfig(compaction=CompactionPolicy(threshold=5, tokens_min=0, keep_recent=1))
UNCOMPACTED = EngineConfig(compaction=CompactionPolicy(enabled=False))

Snapshot = dict[str, dict[str, object]]


async def views(thread: Thread, at: int | None = None) -> Snapshot:
    """The rows of every view."""
    return {name: await thread.views.read(name, at=at) for name in VIEWS}


async def recorded_views(thread: Thread, seq: int) -> Snapshot:
    """The rows of every view that the log alone gives, forgotten ones too."""
    reader = handle_of(thread).kernel.reader
    found = {one.name: await rows_at(one, reader, thread.id, seq) for one in handle_of(thread).kernel.projections}
    return {name: dict(found[name].items()) for name in VIEWS}


async def snapshots(thread: Thread, events: Sequence[Event]) -> dict[int, Snapshot]:
    """Dispatch the events one by one; what the views held after each."""
    taken = {0: await views(thread)}
    for event in events:
        await thread.dispatch(event)
        await thread.compaction.settle()
        seq = (await thread.info()).events
        taken[seq] = await views(thread)
    return taken


@settings(max_examples=60)
@given(EVENTS)
async def test_every_view_equals_its_past_and_its_rebuild(events: Sequence[Event]) -> None:
    """At any seq a view folded from the log is what it was then; a rebuild changes nothing; verify agrees.

    What is shown is the same where nothing was forgotten since.
    """
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread()
        taken = await snapshots(thread, events)
        forgotten = (await kernel_of(engine).reader.forgotten(thread.id)).mark
        for seq, expected in taken.items():
            assert expected == await recorded_views(thread, seq)
            if seq >= forgotten:
                assert expected == await views(thread, at=seq)
        last = await views(thread)
        await thread.replay.rebuild()
        assert last == await views(thread)
        report = await thread.replay.verify()
        assert report.ok, report.divergence


@settings(max_examples=40)
@given(EVENTS, st.integers(0, 14))
async def test_every_view_of_a_fork_is_that_of_its_past(events: Sequence[Event], cut: int) -> None:
    """A fork shows what its thread showed there, but for what it forgot since, and then goes its own way."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread()
        taken = await snapshots(thread, events)
        at = sorted(taken)[cut % len(taken)]
        fork = await thread.fork(at=at)
        if (await fork.info()).events == at:  # else it begins by forgetting
            assert taken[at] == await views(fork)
        await fork.dispatch_all(events[:3])
        await fork.compaction.settle()
        assert max(taken) == (await thread.info()).events
        assert (await fork.replay.verify()).ok


@settings(max_examples=25)
@given(EVENTS, st.integers(0, 14), st.booleans())
async def test_every_view_outlives_its_process(events: Sequence[Event], cut: int, looks: bool) -> None:
    """Closed and opened again at any place, read before or not, the views are those of an engine that ran through."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "m.db")
        async with memory_engine.open(path, config=CONFIG) as engine:
            thread = await engine.create_thread("t")
            await each(thread, events[:cut])
            if looks:
                await views(thread)
        async with memory_engine.open(path, config=CONFIG) as engine:
            thread = engine.thread("t")
            await each(thread, events[cut:])
            through = await views(thread)
            assert through == await views(thread, at=(await thread.info()).events)
            assert (await thread.replay.verify()).ok


@settings(max_examples=25)
@given(EVENTS, st.integers(1, 14), st.sampled_from(["before", "after"]))
async def test_every_view_survives_a_failed_commit(events: Sequence[Event], commit: int, when: str) -> None:
    """A commit that fails, or whose outcome is lost, leaves each view as the log says."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store, config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        store.fail(StorageBusy("busy", 0.0), commit=commit, when=when)  # type: ignore[arg-type]
        for number, event in enumerate(events):
            try:
                await thread.dispatch(event, event_id=f"e{number}")
            except StorageBusy:
                await thread.dispatch(event, event_id=f"e{number}")
        await thread.compaction.settle()
        head = (await thread.info()).events
        assert await views(thread) == await views(thread, at=head)
        assert (await thread.replay.verify()).ok


@settings(max_examples=40)
@given(EVENTS_AND_CLEARINGS, st.integers(0, 4), st.integers(1, 6))
async def test_every_view_is_the_same_however_its_events_were_committed(
    events: Sequence[Event], alone: int, batch: int
) -> None:
    """One by one, or several in one commit: what a commit does to a row is the sum of what its events do."""
    async with memory_engine.open(":memory:", config=UNCOMPACTED) as engine:
        thread = await engine.create_thread()
        await each(thread, events[:alone])
        for first in range(alone, len(events), batch):
            await thread.dispatch_all(events[first : first + batch])
        held = {one.name: (await thread.views.rows(one)).encoded() for one in handle_of(thread).kernel.projections}
        head = await handle_of(thread).last_seq()
        made = {
            one.name: await rows_at(one, kernel_of(engine).reader, thread.id, head)
            for one in handle_of(thread).kernel.projections
        }
        assert {name: rows.encoded() for name, rows in made.items()} == held
        assert (await thread.replay.verify()).ok


async def each(thread: Thread, events: Sequence[Event]) -> None:
    """Dispatch one by one."""
    for event in events:
        await thread.dispatch(event)
    await thread.compaction.settle()
