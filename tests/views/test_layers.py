"""Memory in four layers: what goes in, what comes out, what goes, and that all of it comes from the log."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.core.clock import to_datetime
from memory_engine.core.tokens import estimate_text
from memory_engine.testing import ManualClock
from memory_engine.views.layers.entries import KnowledgeEntry, MemoryEntry

LAYERS: list[e.Layer] = ["working", "episodic", "semantic", "procedural"]


async def contents(thread: Thread, layer: e.Layer, *, at: int | None = None) -> list[str]:
    """What a layer's entries say."""
    return [entry.content for entry in await thread.memory.entries(layer, at=at)]


async def test_L1_id_and_time_are_filled_in() -> None:
    """An entry needs a content alone; its id is its event's, its time the engine's."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        thread = await engine.create_thread("t")
        entry = await thread.memory.append("episodic", "Agent analyzed src/")
        assert ("Agent analyzed src/", entry.event_id) == (entry.content, entry.id)
        assert to_datetime(clock.us) == entry.timestamp
        assert [entry] == await thread.memory.entries("episodic")


async def test_L1_id_time_and_metadata_of_the_caller_are_kept() -> None:
    """What the caller gives stands, also a time before 1970; the entry still names its event."""
    moment = datetime(1969, 7, 20, 20, 17, tzinfo=UTC)
    given_ = MemoryEntry(content="landed", id="entry-1", timestamp=moment, metadata={"agentId": "agent-001"})
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        entry = await thread.memory.append("episodic", given_)
        assert ("entry-1", moment, {"agentId": "agent-001"}, 1) == (
            entry.id, entry.timestamp, entry.metadata, entry.seq
        )  # fmt: skip


async def test_L1_a_mapping_without_content_becomes_one() -> None:
    """`{iteration, action, result}` is an entry: rendered for reading, kept as metadata."""
    fields = {
        "iteration": 42,
        "action": "analyzed dataset",
        "result": "found 3 anomalies",
        "timestamp": 1_700_000_000_000,
    }
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        entry = await thread.memory.append("episodic", fields)
        assert "iteration: 42, action: analyzed dataset, result: found 3 anomalies" == entry.content
        assert {"iteration": 42, "action": "analyzed dataset", "result": "found 3 anomalies"} == entry.metadata
        assert datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) == entry.timestamp


async def test_L1_working_memory_holds_the_last_fifty() -> None:
    """The oldest go first; the log keeps them; another bound may be set."""
    for config, bound in ((EngineConfig(), 50), (EngineConfig(working_entries_max=3), 3)):
        async with memory_engine.open(":memory:", config=config) as engine:
            thread = await engine.create_thread("t")
            for n in range(60):
                await thread.memory.append("working", str(n))
            assert [str(n) for n in range(60 - bound, 60)] == await contents(thread, "working")
            assert 60 == (await thread.info()).events


async def test_L1_working_memory_is_of_the_run(tmp_path: Path) -> None:
    """It is there after a restart, and gone with the session; the other layers stay."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        for layer in LAYERS:
            await thread.memory.append(layer, layer)
    async with memory_engine.open(path) as engine:
        thread = engine.thread("t")
        assert ["working"] == await contents(thread, "working")
        await thread.admin.end_session()
        assert [[], ["episodic"], ["semantic"], ["procedural"]] == [await contents(thread, layer) for layer in LAYERS]


async def test_L1_semantic_entries_stand_under_their_key(engine: Engine) -> None:
    """The key is that of the metadata, else the entry's id; the later entry of a key gives the value."""
    memory = (await engine.create_thread("t")).memory
    await memory.append("semantic", "CSV", metadata={"key": "dataset-format"})
    await memory.append("semantic", "comma", id="separator")
    await memory.learn("dataset-format", "CSV, semicolon-delimited")
    await memory.learn({"key": "owner", "value": "Ana"})
    await memory.learn(KnowledgeEntry(key="rows", value="12,000"))
    known = [await memory.recall(key) for key in ("dataset-format", "separator", "owner", "rows")]
    assert ["CSV, semicolon-delimited", "comma", "Ana", "12,000"] == [k.value for k in known if k is not None]
    assert None is await memory.recall("nothing")
    assert 4 == (await memory.get_stats()).semantic_entry_count


async def test_L1_a_fact_says_which_event_it_is_from(thread: Thread) -> None:
    """Provenance of what is recalled leads to the event."""
    learned = await thread.memory.learn("k", "v")
    (event,) = await thread.replay.latest(1)
    assert (learned, event.id, event.seq) == (await thread.memory.recall("k"), learned.event_id, learned.seq)


async def test_L1_rules_have_a_condition_and_an_action(engine: Engine) -> None:
    """A procedural entry is a rule: when its condition holds, do its content."""
    memory = (await engine.create_thread("t")).memory
    await memory.append("procedural", "roll back", metadata={"condition": "a deployment fails"})
    await memory.append("procedural", "ask first", condition="a file is deleted")
    assert [("a deployment fails", "roll back"), ("a file is deleted", "ask first")] == [
        (rule.condition, rule.action) for rule in await memory.rules()
    ]


async def test_L1_stats_count_every_layer(engine: Engine) -> None:
    """Tokens of working memory as contexts count them; entries, facts, rules; bytes that grow."""
    memory = (await engine.create_thread("t")).memory
    assert 0 == (await memory.get_stats()).total_storage_bytes
    noted = "The side door is opened with the short key."
    await memory.append("working", noted)
    for n in range(3):
        await memory.append("episodic", f"did {n}")
    await memory.learn("k", "v")
    await memory.append("procedural", "act", condition="now")
    stats = await memory.get_stats()
    assert (estimate_text(noted), 3, 1, 1) == (
        stats.working_memory_tokens, stats.episodic_entry_count, stats.semantic_entry_count,
        stats.procedural_rule_count,
    )  # fmt: skip
    before = stats.total_storage_bytes
    await memory.append("episodic", "x" * 1_000)
    assert before + 1_000 < (await memory.get_stats()).total_storage_bytes


async def test_L1_clear_empties_one_layer_or_all(thread: Thread) -> None:
    """The log keeps what they held, and time travel shows it."""
    for layer in LAYERS:
        await thread.memory.append(layer, layer)
    await thread.memory.clear("episodic")
    assert [["working"], [], ["semantic"], ["procedural"]] == [await contents(thread, layer) for layer in LAYERS]
    await thread.memory.clear()
    assert [[], [], [], []] == [await contents(thread, layer) for layer in LAYERS]
    assert [["working"], ["episodic"], ["semantic"], ["procedural"]] == [
        await contents(thread, layer, at=4) for layer in LAYERS
    ]
    assert (await thread.replay.verify()).ok


async def test_L1_remove_takes_single_entries(thread: Thread) -> None:
    """By id; of a key, what was learned since the removal was asked for would stay."""
    memory = thread.memory
    for layer in LAYERS:
        await memory.append(layer, "a", id="x")
        await memory.append(layer, "b", id="y")
        assert 1 == await memory.remove("x", layer)
        assert ["b"] == await contents(thread, layer)
    with pytest.raises(errors.UnknownMemory, match="'x'"):
        await memory.remove("x", "working")
    old = (await memory.learn("k", "old")).seq
    await memory.learn("k", "new")
    await thread.dispatch(e.MemoryRemoved(layer="semantic", seqs=(old,)))
    assert ["b", "new"] == await contents(thread, "semantic")


async def test_L1_forgetting_reaches_every_layer(thread: Thread) -> None:
    """Entries whose events are forgotten are in no layer, no search, and cannot be opened."""
    for layer in LAYERS:
        await thread.memory.append(layer, f"secret {layer}")
        assert 1 == len(await thread.memory.search(layer, "secret"))
    ids = [event.id async for event in thread.events()]
    await thread.forget(event_ids=ids)
    assert [[], [], [], []] == [await contents(thread, layer) for layer in LAYERS]
    assert [] == await thread.memory.search(None, "secret", mode="keyword")
    with pytest.raises(errors.UnknownMemory):
        await thread.memory.open(ids[1])
    assert (await thread.replay.verify()).ok


async def test_L1_every_kind_of_thread_has_memory(tmp_path: Path) -> None:
    """Conversations, users, tenants and agents remember, each for itself, across restarts."""
    path = str(tmp_path / "log.db")
    for count in (1, 2):
        async with memory_engine.open(path) as engine:
            if count == 1:
                await engine.create_thread("t")
            threads = [engine.thread("t"), engine.user("u"), engine.tenant("u"), engine.agent("u")]
            for n, thread in enumerate(threads):
                await thread.memory.append("episodic", f"{n} {count}")
            assert [[f"{n} {c}" for c in range(1, count + 1)] for n in range(4)] == [
                await contents(thread, "episodic") for thread in threads
            ]


async def test_L1_memory_of_a_scope_without_events_is_empty(engine: Engine) -> None:
    """Reading makes no thread: nothing is known, nothing found, nothing to compact."""
    memory = engine.agent("nobody").memory
    assert ([], [], None, []) == (
        await memory.entries("episodic"), await memory.search(None, "x"), await memory.recall("k"),
        await memory.search("episodic", last=5),
    )  # fmt: skip
    assert 0 == (await memory.compact("episodic")).covered == (await memory.get_stats()).total_storage_bytes
    assert [] == await engine.threads()


WRONG: list[tuple[type[Exception], Callable[[Thread], Awaitable[object]]]] = [
    (errors.InvalidMemory, lambda t: t.memory.append("long-term", "x")),  # type: ignore[arg-type]
    (errors.InvalidMemory, lambda t: t.memory.append("episodic", {})),
    (errors.InvalidMemory, lambda t: t.memory.append("episodic", {"content": "x", "timestamp": 1_700_000_000})),
    (errors.InvalidMemory, lambda t: t.memory.append("episodic", "x", timestamp=datetime(2024, 1, 1))),  # noqa: DTZ001
    (errors.InvalidMemory, lambda t: t.memory.append("episodic", {"content": "x", "timestamp": 1e300})),
    (errors.InvalidMemory, lambda t: t.memory.append("episodic", {"content": "x", "timestamp": float("nan")})),
    (errors.InvalidEvent, lambda t: t.dispatch(e.MemoryAppended(layer="episodic", content="x", timestamp_us=10**30))),
    (errors.InvalidEvent, lambda t: t.dispatch(e.MemoryCompacted(layer="episodic", upto=10**30, count=1))),
    (errors.InvalidEvent, lambda t: t.memory.append("episodic", "x\ud800")),
    (errors.InvalidEvent, lambda t: t.memory.append("episodic", "x", metadata={"n": float("nan")})),
    (errors.InvalidEvent, lambda t: t.memory.append("episodic", "x", metadata={"when": timedelta(1)})),
    (errors.InvalidIdentifier, lambda t: t.memory.learn("", "v")),
    (errors.InvalidIdentifier, lambda t: t.memory.learn("a\x00b", "v")),
    (errors.InvalidIdentifier, lambda t: t.memory.append("semantic", "v", metadata={"key": "x" * 5_000})),
    (errors.InvalidMemory, lambda t: t.memory.learn("k")),
    (errors.InvalidMemory, lambda t: t.memory.search("episodic", "x", 0)),
    (errors.InvalidMemory, lambda t: t.memory.search("episodic", last=0)),
    (errors.InvalidMemory, lambda t: t.memory.search("episodic", "x", mode="vector")),  # type: ignore[arg-type]
    (errors.InvalidMemory, lambda t: t.memory.compact("episodic", keep_last=-1)),
    (errors.UnknownMemory, lambda t: t.memory.open("nothing")),
]


@pytest.mark.parametrize(("error", "call"), WRONG)
async def test_L1_what_memory_cannot_take_is_a_typed_error(
    thread: Thread, error: type[Exception], call: Callable[[Thread], Awaitable[object]]
) -> None:
    """It says what was wrong, and nothing was written."""
    with pytest.raises(error):
        await call(thread)
    assert 0 == (await thread.info()).events


TEXTS = ["", " ", "\x00", "🙂" * 100, "שלום עולם", "a\nb", "x" * 1_000_000]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
async def test_L1_any_text_comes_back(tmp_path: Path, text: str) -> None:
    """Empty, NUL, emoji, right-to-left, a megabyte: as content, metadata and fact."""
    async with memory_engine.open(str(tmp_path / "log.db")) as engine:
        thread = await engine.create_thread("t")
        await thread.memory.append("episodic", text, metadata={"of": text})
        await thread.memory.learn("k", text)
        (entry,) = await thread.memory.entries("episodic")
        known = await thread.memory.recall("k")
        assert (text, {"of": text}, text) == (entry.content, entry.metadata, known.value if known else None)
        assert 1 == len(await thread.memory.search("episodic", last=1))


async def test_L1_what_is_given_back_cannot_change_what_is_kept(thread: Thread) -> None:
    """A changed metadata mapping is the caller's own."""
    entry = await thread.memory.append("episodic", "x", metadata={"tags": ["a"]})
    entry.metadata["tags"].append("b")  # type: ignore[attr-defined]
    (again,) = await thread.memory.entries("episodic")
    assert {"tags": ["a"]} == again.metadata


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(LAYERS), st.integers(0, 4)),
        st.tuples(st.just("clear"), st.sampled_from(LAYERS), st.just(0)),
        st.tuples(st.just("remove"), st.sampled_from(LAYERS), st.integers(0, 12)),
        st.tuples(st.just("forget"), st.just("working"), st.integers(0, 12)),
        st.tuples(st.just("compact"), st.sampled_from(LAYERS), st.integers(0, 4)),
        st.tuples(st.just("session"), st.just("working"), st.just(0)),
    ),
    max_size=14,
)


class Model:
    """Four lists that do what the layers should; `None` stands for what a summary covers."""

    def __init__(self) -> None:
        self.lists: dict[str, list[tuple[int, str, str]]] = {layer: [] for layer in LAYERS}
        self.covered: dict[str, int] = dict.fromkeys(LAYERS, 0)

    def append(self, layer: str, seq: int, key: str) -> None:
        """One entry; a key once, working memory the last five, its summary counted."""
        held = self.lists[layer]
        if layer == "semantic":
            held[:] = [one for one in held if one[1] != key]
        held.append((seq, key, f"{layer} {seq}"))
        if layer == "working":
            room = 5 - bool(self.covered[layer])
            if len(held) > room:
                if self.covered[layer]:
                    self.covered[layer] = 0
                del held[: len(held) - 5]

    def drop(self, layers: list[e.Layer], seq: int) -> None:
        """The entries of one event."""
        for layer in layers:
            self.lists[layer][:] = [one for one in self.lists[layer] if one[0] != seq]

    def clear(self, layer: str) -> None:
        """A layer."""
        self.lists[layer].clear()
        self.covered[layer] = 0

    def compact(self, layer: str, keep: int) -> None:
        """All but the last."""
        held = self.lists[layer]
        older = max(0, len(held) - keep)
        if older and layer != "semantic":
            self.covered[layer] += older if layer in ("working", "episodic") else 0
            del held[:older]


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
async def test_L1_the_folds_are_the_model(actions: list[tuple[str, e.Layer, int]]) -> None:
    """Whatever is appended, removed, forgotten, cleared and compacted: rows, model and a replay agree."""
    model = Model()
    async with memory_engine.open(":memory:", config=EngineConfig(working_entries_max=5)) as engine:
        thread = await engine.create_thread("t")
        memory = thread.memory
        for action, layer, number in actions:
            head = (await thread.info()).events
            if action == "append":
                entry = await memory.append(layer, f"{layer} {head + 1}", key=f"k{number}", condition="c")
                model.append(layer, entry.seq, f"k{number}")
            elif action == "clear":
                await memory.clear(layer)
                model.clear(layer)
            elif action == "remove":
                await thread.dispatch(e.MemoryRemoved(layer=layer, seqs=(number,)))
                model.drop([layer], number)
            elif action == "forget":
                await thread.dispatch(e.MemoryForget(seqs=(number,)))
                model.drop(LAYERS, number)
            elif action == "compact":
                await memory.compact(layer, keep_last=number)
                model.compact(layer, number)
            else:
                await thread.admin.end_session()
                model.clear("working")
        for layer in LAYERS:
            entries = await memory.entries(layer)
            assert [content for _, _, content in model.lists[layer]] == [e.content for e in entries if not e.count]
        assert (await thread.replay.verify()).ok
