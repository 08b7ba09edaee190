"""The choice of lines: what is made or weighed only when it may be the best changes nothing."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.compactors.extractive import Entry, actions, extract, speech
from memory_engine.compactors.extractive.actions import action_drafts
from memory_engine.compactors.extractive.coverage import LaterDraft, LineDraft, selecting
from memory_engine.compactors.extractive.entries import EntryKind
from memory_engine.compactors.extractive.speech import speech_drafts
from memory_engine.compactors.extractive.usage import InputReading, read_input
from memory_engine.core.slices import finish

VALUES = st.sampled_from(
    [
        "ORD-1001",
        "ORD-1002",
        "anna_77",
        "Kigali",
        "open",
        "12",
        "40.5",
        "2026-03-01",
        "a note on ORD-1001",
    ]
)
OBJECTS = st.dictionaries(st.sampled_from(["id", "owner", "item", "status", "amount"]), VALUES, max_size=5)
ANSWERS = st.one_of(
    OBJECTS,
    st.lists(OBJECTS, max_size=6),
    st.builds(lambda rows: {"total": len(rows), "rows": rows}, st.lists(OBJECTS, max_size=6)),
    st.just({"note": "It takes a while. " * 9}),
)
TURNS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), st.sampled_from(["Where is ORD-1001?", "Cancel it for anna_77.", "Thanks!"])),
        st.tuples(st.just("call"), st.tuples(OBJECTS, ANSWERS)),
    ),
    min_size=1,
    max_size=14,
)


def entries_of(turns: list[tuple[str, object]]) -> list[Entry]:
    """What was said, and calls with their results."""
    found: list[Entry] = []
    for number, (kind, said) in enumerate(turns):
        if kind == "user":
            found.append(Entry(id=f"{number}", kind="user", text=str(said)))
            continue
        assert isinstance(said, tuple)
        arguments, answer = map(json.dumps, said)
        call_id = f"call{number}"
        found.append(
            Entry(id=f"{number}.c", kind="tool_call", text="", name="get", call_id=call_id, arguments=arguments)
        )
        found.append(Entry(id=f"{number}.r", kind="tool_result", text=answer, name="get", call_id=call_id))
    return found


def chosen(drafts: list[LineDraft | LaterDraft], budget: float) -> list[list[str]]:
    """The texts of the chosen pieces."""
    return [[draft.pieces[place].text for place in places] for draft, places in finish(selecting(drafts, budget))]


@given(turns=TURNS, budget=st.floats(4, 300))
def test_lines_that_are_made_late_are_chosen_as_if_all_were_made_at_once(
    turns: list[tuple[str, object]], budget: float
) -> None:
    """A bound may only spare work: pieces, order and ties are those of the whole choice."""
    reading = finish(read_input(entries_of(turns), ()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actions, "ACTIONS_MIN", 0)
        later = [draft for _, draft in finish(action_drafts(reading))]
    said = [
        draft for n, entry in enumerate(reading.entries) if entry.kind == "user" for draft in speech_drafts(reading, n)
    ]
    at_once = [draft.make() if isinstance(draft, LaterDraft) else draft for draft in later]

    assert chosen([*at_once, *said], budget) == chosen([*later, *said], budget)


SAID = st.sampled_from(
    [
        "Where is ORD-1001? It was due on 2026-03-01.",
        "Cancel it for anna_77. But only if it is open!",
        "Yes.",
        "Thanks! I will pay 40.5 for ORD-1002, please confirm.",
        "ORD-1001 is open. ORD-1002 is open. They are in Kigali.",
        "I sent it to anna_77 on 2026-03-01.",
    ]
)


@given(
    said=st.lists(st.tuples(st.sampled_from(["user", "assistant", "todo", "other"]), SAID), min_size=1, max_size=24),
    budget=st.floats(4, 200),
)
def test_statements_that_are_weighed_late_are_chosen_as_if_all_were_weighed_at_once(
    said: list[tuple[EntryKind, str]], budget: float
) -> None:
    """The same lines, however many of the statements stand for an equal worth."""
    entries = [Entry(id=f"{n}", kind=kind, text=text) for n, (kind, text) in enumerate(said)]
    at_once = extract(entries, budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speech, "ENTRIES_MIN", 0)
        assert at_once == extract(entries, budget)


def test_most_statements_of_a_long_talk_are_never_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a budget has no room for is not weighed word by word."""
    weighed: list[int] = []
    speech_terms = speech.speech_terms

    def counted(reading: InputReading, index: int, said: Sequence[str], factor: float) -> dict[str, float]:
        weighed.append(index)
        return speech_terms(reading, index, said, factor)

    monkeypatch.setattr(speech, "speech_terms", counted)
    said = (f"The code is KEY-{n:08}." if n % 50 == 0 else f"We went on to room {n % 7} then." for n in range(1_000))
    assert extract([Entry(id=f"{n}", kind="user", text=text) for n, text in enumerate(said)], 60)
    assert 1_000 > 5 * len(weighed)


@pytest.mark.parametrize("budget", [60 + step / 4 for step in range(20)])
def test_most_lines_of_many_calls_are_never_made(budget: float) -> None:
    """What a budget has no room for is not weighed value by value, however little of it is left at the end."""
    turns = [("call", ({"id": f"ORD-{n}"}, {"status": "open", "owner": f"anna_{n}"})) for n in range(1_000, 1_400)]
    made = 0

    def counted(draft: LaterDraft) -> LaterDraft:
        def make() -> LineDraft:
            nonlocal made
            made += 1
            return draft.make()

        return LaterDraft(draft.rate_max, draft.chars_min, make)

    drafts = [draft for _, draft in finish(action_drafts(finish(read_input(entries_of([*turns]), ()))))]
    finish(selecting([counted(draft) for draft in drafts if isinstance(draft, LaterDraft)], budget))

    assert 400 == len(drafts)
    assert 400 > 20 * made
