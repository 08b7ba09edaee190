"""The brief of a thread that goes on for ever: what is kept of it does not grow with its log."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Event, ToolCall
from memory_engine import events as e
from memory_engine.thread import handle_of
from memory_engine.views.brief import reading, standing, talk
from memory_engine.views.brief.standing import closed_of, first_of, open_of, settle, spent_of
from memory_engine.views.brief.talk import Talk

NEVER = EngineConfig(compaction=CompactionPolicy(enabled=False))
WORDS = "kiln glaze never fire blue the today pot K-7 shelf please actually not thanks why? FW-12 ok".split()


@pytest.fixture(autouse=True)
def _tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep little of a talk, so that a short one reaches every bound."""
    for module, name, bound in (
        (standing, "STANDING_MAX", 12),
        (standing, "UNREVIEWED_MAX", 24),
        (standing, "SPENT_MAX", 12),
        (talk, "TERMS_MAX", 60),
        (talk, "CYCLES_MAX", 20),
    ):
        monkeypatch.setattr(module, name, bound)


def pots(first: int, last: int) -> list[Event]:
    """Requests about ever new things, of which some are dealt with, some answered and some never; with cycles."""
    events: list[Event] = []
    for n in range(first, last):
        events.append(e.UserMessage(content=f"Fire pot K-{n} in kiln Q{n}x, please. Never glaze batch B-{n} twice."))
        events.append(e.CycleStarted(question=f"Fire pot K-{n}?", question_at=-1))
        if n % 3:
            events.append(e.LlmToolCall(calls=(ToolCall.create(f"c{n}", "fire", {"pot": f"K-{n}", "kiln": f"Q{n}x"}),)))
            events.append(e.ToolResult(call_id=f"c{n}", content="done"))
        events.append(e.LlmTextResponse(content=f"K-{n} is fired at {n} degrees. Shall I look at shelf S-{n}?"))
    return events


async def test_a_later_message_costs_no_lasting_memory() -> None:
    """After 1,800 requests the talk is as large as after 600, here and where it is stored."""
    sizes: list[int] = []
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(e.UserMessage(content="Keep the workshop tidy, and never sell the red bowl."))
        for first in range(1_000, 2_800, 200):  # numbers of as many digits: each message is as long as the others
            await thread.dispatch_all(pots(first, first + 200))
            await thread.brief.read()
            sizes.append(len(msgspec.msgpack.encode(reading._cache_of(handle_of(thread)).now)))
        assert "never sell the red bowl" in " ".join(one.text for one in await thread.brief.read())
    assert max(sizes[:3]) * 1.1 > max(sizes[3:])


def test_what_still_applies_is_the_same_as_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements that were dealt with long ago are dropped; the rulings on all that are kept do not change by that."""
    monkeypatch.setattr(standing, "STANDING_MAX", 10_000)
    monkeypatch.setattr(standing, "UNREVIEWED_MAX", 10_000)
    monkeypatch.setattr(talk, "TERMS_MAX", 10_000)
    served = [event for event in pots(0, 200) if not isinstance(event, e.CycleStarted)]
    bounded, spent = _judged(served)
    monkeypatch.setattr(standing, "SPENT_MAX", 10_000)
    unbounded, every = _judged(served)
    assert unbounded == bounded
    assert spent
    assert every[-len(spent) :] == spent


def _judged(events: list[Event]) -> tuple[list[object], list[object]]:
    """The open, standing and first statements with their rulings; and the spent ones."""
    said = Talk()
    for seq, event in enumerate(events, 1):
        said.take(seq, event)
        settle(said)
    kept = [(one.said.key, one.ruling, one.said.later) for found in (open_of, closed_of) for one in found(said)]
    return [*kept, *((one.said.key, one.said.statement.text) for one in first_of(said))], [
        (one.said.key, one.ruling) for one in spent_of(said)
    ]


TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=10).map(" ".join)
EVENTS = st.one_of(
    st.builds(lambda text, name: e.UserMessage(content=text, name=name), TEXTS, st.sampled_from(("", "Ann"))),
    st.builds(lambda text: e.LlmTextResponse(content=text), TEXTS),
    st.builds(lambda text: e.LlmToolCall(calls=(ToolCall.create("c", "find", {"what": text}),)), TEXTS),
    st.builds(lambda at: e.CycleStarted(question="Well?", question_at=at), st.integers(-3, -1)),
    st.just(e.ThreadCleared()),
    st.builds(lambda seq: e.MemoryForget(seqs=(seq,)), st.integers(1, 60)),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, min_size=20, max_size=90), st.integers(1, 9))
def test_every_reader_keeps_the_same_of_a_long_talk(events: list[Event], every: int) -> None:
    """Stored and read on or not; and all that the talk names is there."""
    for name in ("STANDING_MAX", "UNREVIEWED_MAX", "SPENT_MAX"):
        setattr(standing, name, 4)  # until `_tight` takes it back
    plain, kept = Talk(), Talk()
    for seq, event in enumerate(events, 1):
        for one in (plain, kept):
            one.take(seq, event)
            settle(one)
        if seq % every == 0:
            kept = msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=Talk)
        found = [*open_of(plain), *closed_of(plain), *spent_of(plain), *first_of(plain)]
        assert all(plain.message(one.said).statements[one.said.n] is one.said for one in found)
        assert all(plain.statement(key) for keys in plain.by_term.values() for key in keys)
        assert len(plain.heard) <= 8 + 4 + 4 + 1
    assert (plain, list(plain.counts), list(plain.vocabulary)) == (kept, list(kept.counts), list(kept.vocabulary))
