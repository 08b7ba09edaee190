"""W3: what people said is stored from time to time, so that another process need not read the whole log for it."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Event, Thread, ToolCall
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.store import snapshots
from memory_engine.store.protocol import ProjectionChange
from memory_engine.views.brief import reading
from memory_engine.views.brief.reading import VIEW
from memory_engine.views.brief.standing import settle
from memory_engine.views.brief.talk import Talk

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
WORDS = "boat red never sell blue paint the today crate K-7 loft please actually not thanks why? FW-12".split()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store a talk after few events."""
    monkeypatch.setattr(reading, "STORED_EVERY", 20)


def crates(first: int, last: int) -> list[Event]:
    """Requests, each served by a call and answered."""
    events: list[Event] = []
    for n in range(first, last):
        events.append(e.UserMessage(content=f"Carry crate K-{n} to the loft, please."))
        events.append(e.LlmToolCall(calls=(ToolCall.create(f"c{n}", "carry", {"crate": f"K-{n}"}),)))
        events.append(e.ToolResult(call_id=f"c{n}", content="done"))
        events.append(e.LlmTextResponse(content=f"K-{n} is up. Shall I carry K-{n + 1} too?"))
    return events


async def rows_of(engine: Engine, thread_id: str) -> dict[str, bytes]:
    """The stored talks of a thread, by key."""
    await kernel_of(engine).tasks.wait()
    _, rows = await kernel_of(engine).store.rows(snapshots.PROJECTION, snapshots.VERSION, thread_id)
    return {key: value for key, value in rows.items() if key.startswith(f"view/{VIEW}:")}


@pytest.fixture
async def path(tmp_path: Path) -> str:
    """A database with a thread whose talk is stored."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path, config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(e.UserMessage(content="Never sell the red boat."))
        await thread.dispatch_all(crates(0, 12))
        await thread.brief.read()
        assert 1 == len(await rows_of(engine, "t"))
    return path


async def test_another_process_goes_on_from_the_stored_talk(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads only later events, also for a log that is too long to be read for a context, and finds the same."""
    monkeypatch.setattr(reading, "UNREAD_MAX", 20)
    taken: list[int] = []
    real = Talk.take

    def take(talk: Talk, seq: int, event: Event) -> None:
        taken.append(seq)
        real(talk, seq, event)

    monkeypatch.setattr(Talk, "take", take)
    async with memory_engine.open(path, config=NEVER) as engine:
        thread = engine.thread("t")
        await thread.dispatch_all(crates(12, 14))
        assert "Never sell the red boat." in str((await thread.context(2_000)).messages)
        assert {50, 51, 53, 54, 55, 57} == set(taken)
        found = await thread.brief.read()
        await engine.transfer.import_log(await exported(thread, Path(path)), thread_id="anew", scopes="as exported")
        anew = await engine.thread("anew").brief.read()
    assert [(o.seq, o.n, o.status, o.worth) for o in found] == [(o.seq, o.n, o.status, o.worth) for o in anew]


async def exported(thread: Thread, path: Path) -> Path:
    """A file with the log of a thread."""
    target = path.with_suffix(".jsonl")
    await thread.replay.export(target)
    return target


async def test_a_stored_talk_that_is_not_whole_is_passed_over(path: str) -> None:
    """So is one of another log. The log is read instead."""
    async with memory_engine.open(path, config=NEVER) as engine:
        good = (await engine.thread("t").brief.read()).as_data()
        ((key, value),) = (await rows_of(engine, "t")).items()
    rows = msgspec.msgpack.decode(value, type=dict[str, bytes])
    for spoilt in (
        b"",
        value[:-9],
        msgspec.msgpack.encode(rows | {"talk": rows["talk"].replace(b"red boat", b"new boat")}),
        msgspec.msgpack.encode(rows | {"hash": b"x" * 32}),
    ):
        async with memory_engine.open(path, config=NEVER) as engine:
            change = ProjectionChange(snapshots.PROJECTION, snapshots.VERSION, {key: spoilt}, 0)
            await kernel_of(engine).store.write_projection("t", change)
            assert good == (await engine.thread("t").brief.read()).as_data()


async def test_what_was_forgotten_is_in_no_stored_talk(path: str) -> None:
    """Not a word of it: what was stored before goes, and nothing is stored after."""
    async with memory_engine.open(path, config=NEVER) as engine:
        thread = engine.thread("t")
        await thread.forget(seqs=[1])
        assert {} == await rows_of(engine, "t")
        await thread.dispatch_all(crates(12, 30))
        assert "boat" not in str((await thread.brief.read()).as_data())
        assert {} == await rows_of(engine, "t")


async def test_what_was_erased_is_in_no_file(path: str) -> None:
    """No word of the stored talk is left, in whatever form it was kept."""
    async with memory_engine.open(path, config=NEVER) as engine:
        await engine.thread("t").admin.erase(seqs=[1])
        assert {} == await rows_of(engine, "t")
    files = [one.read_bytes() for one in Path(path).parent.iterdir() if one.name.startswith(Path(path).name)]
    assert not any(b"boat" in content for content in files)


async def test_a_forgotten_question_is_not_shown_with_its_answer(engine: Engine) -> None:
    """Now and in the past; nor is a forgotten correction shown with what it corrected."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all(
        [
            e.UserMessage(content="Move the archive to another shelf."),
            e.LlmTextResponse(content="Is shelf BX-41 free?"),
            e.UserMessage(content="Certainly not."),
            e.UserMessage(content="Use code QX-7 only."),
            e.UserMessage(content="Actually use QX-9, not QX-7."),
        ]
    )
    assert "BX-41" in str((await thread.brief.read()).as_data())
    await thread.forget(seqs=[2, 5])
    for at in (None, 5, 3):
        found = str((await thread.brief.read(at=at)).as_data())
        assert (False, False) == ("BX-41" in found, "QX-9" in found)


async def test_a_fork_goes_on_from_the_talk_of_its_past(path: str) -> None:
    """And stores its own beyond it."""
    async with memory_engine.open(path, config=NEVER) as engine:
        fork = await engine.thread("t").fork()
        await fork.dispatch_all(crates(20, 30))
        texts = [one.text for one in await fork.brief.read()]
        assert "Never sell the red boat." in texts
        assert 1 == len(await rows_of(engine, fork.id))


async def test_an_engine_that_only_reads_stores_nothing(path: str) -> None:
    """It finds what others stored."""
    async with memory_engine.open(path, config=NEVER) as engine:
        await engine.thread("t").dispatch_all(crates(12, 30))
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        assert "Never sell the red boat." in [one.text for one in await engine.thread("t").brief.read()]
    async with memory_engine.open(path, config=NEVER) as engine:
        assert 1 == len(await rows_of(engine, "t"))


TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
EVENTS = st.one_of(
    st.builds(lambda text, name: e.UserMessage(content=text, name=name), TEXTS, st.sampled_from(("", "Ann"))),
    st.builds(lambda text: e.LlmTextResponse(content=text), TEXTS),
    st.builds(lambda text: e.LlmToolCall(calls=(ToolCall.create("c", "find", {"what": text}),)), TEXTS),
    st.just(e.ThreadCleared()),
    st.builds(lambda seq: e.MemoryForget(seqs=(seq,)), st.integers(1, 20)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=40), st.lists(st.booleans(), min_size=40, max_size=40))
def test_a_talk_that_was_stored_goes_on_like_one_that_was_not(events: list[Event], stored: list[bool]) -> None:
    """However often, and wherever."""
    plain, kept = Talk(), Talk()
    for seq, event in enumerate(events, 1):
        for talk in (plain, kept):
            talk.take(seq, event)
            settle(talk)
        if stored[seq - 1]:
            kept = msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=Talk)
    assert plain == kept
