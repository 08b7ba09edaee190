"""What the embedded compactor makes of a focus and of instructions: they rank lines, and change nothing else."""

import json
import random
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, Event, LlmTextResponse, UserMessage
from memory_engine.compactors.extractive import Entry, Line, actions, extract, speech
from memory_engine.compactors.extractive.entries import EntryKind, tokens
from memory_engine.compactors.extractive.focus import Priorities

SUBJECTS = {
    "the repair of the roof": ("The roofer wants {} euros for the new roof.", "I noted offer {} for the roof."),
    "the unpaid invoice": ("Invoice {} is still not paid.", "A reminder for {} euros went out about the invoice."),
    "the trip to Lisbon": ("The flight to Lisbon may cost {} euros.", "The trip to Lisbon is booked under {}."),
    "the slow server": ("The server answers in {} ms only.", "The log of the server names query {}."),
}


def talk(turns: int) -> tuple[list[Event], dict[str, list[str]]]:
    """Turns of a person and an agent about several subjects in turn, and the value that each text holds."""
    drawn = random.Random(7)
    said: list[Event] = []
    values: dict[str, list[str]] = {subject: [] for subject in SUBJECTS}
    for n in range(turns):
        subject = list(SUBJECTS)[n % len(SUBJECTS)]
        for kind, form in zip((UserMessage, LlmTextResponse), SUBJECTS[subject], strict=True):
            values[subject].append(f"{drawn.choice('KLMN')}-{drawn.randrange(10_000, 99_999)}")
            said.append(kind(content=f"{form.format(values[subject][-1])} That is what Maria told me on the phone."))
    return said, values


async def summary_of(said: Sequence[Event], *, focus: str = "", instructions: str = "") -> tuple[str, int]:
    """The summary of a new thread of these events, as text, and its tokens."""
    policy = CompactionPolicy(enabled=False, keep_recent=0, instructions=instructions)
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all(said)
        report = await thread.compact(focus=focus)
        assert (await thread.replay.verify()).ok
        [summary] = [await thread.replay.chunk(chunk_id) for chunk_id in report.new_chunks]
        return summary.text, report.tokens_after


def share(values: Sequence[str], text: str) -> float:
    """The share of the values that a text holds."""
    return sum(value in text for value in values) / len(values)


async def test_a_focus_keeps_the_values_of_its_subject() -> None:
    """Of forty turns about four subjects, many more of one's values; the others pay for it, not the budget."""
    said, values = talk(40)
    plain, plain_tokens = await summary_of(said)
    shares: list[tuple[float, float, float]] = []
    for subject, its in values.items():
        focused, focused_tokens = await summary_of(said, focus=subject)
        told, _ = await summary_of(said, instructions=f"Keep each figure about {subject}.")
        assert focused_tokens <= plain_tokens * 1.05
        assert focused == (await summary_of(said, focus=subject))[0]
        shares.append((share(its, plain), share(its, told), share(its, focused)))
    assert all(before <= with_instructions < with_focus for before, with_instructions, with_focus in shares)
    before, with_instructions, with_focus = (sum(column) / len(shares) for column in zip(*shares, strict=True))
    assert before < 0.25
    assert 0.5 < with_instructions < 0.8 < with_focus


async def test_without_a_term_that_tells_the_summary_is_the_same() -> None:
    """Nothing asked, function words alone, or what no text holds or each one does: the same bytes."""
    said, _ = talk(40)
    plain, _ = await summary_of(said)
    for focus in ("", " ", "about the, of und für", "zeppelins", "what Maria told on the phone"):
        assert plain == (await summary_of(said, focus=focus))[0]
    assert plain == (await summary_of(said, instructions="And the zeppelins!"))[0]


def kept(lines: Sequence[Line]) -> str:
    """The texts of lines."""
    return "\n".join(line.text for line in lines)


LANGUAGES = {
    "German": ("Angebote für die Dächer", "Das Dach kostet nach Angebot {} Euro.", "Der Zug nach Kiel hat Wagen {}."),
    "Chinese": ("屋顶的维修", "屋顶的维修报价是{}元。", "去上海的火车票号码是{}。"),
    "Arabic": (
        "قطار الشمال",
        "قطار الشمال يصل غدا في المساء ورقم العربة {} كما قيل لنا.",
        "تكلفة إصلاح السقف {} ريال.",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_focus_in_any_language(language: str) -> None:
    """Terms are those of the search, so endings and scripts without blanks are no obstacle."""
    focus, about, other = LANGUAGES[language]
    entries = [
        Entry(id=f"{n}", kind="user", text=(about if n % 5 == 0 else other).format(70_000 + n)) for n in range(30)
    ]
    wanted = [f"{70_000 + n}" for n in range(0, 30, 5)]
    budget = sum(tokens(Line("said", f"User: {entry.text}", ("0",))) for entry in entries[::5])
    plain, focused = extract(entries, budget), extract(entries, budget, priorities=Priorities(focus))
    assert 1.0 == share(wanted, kept(focused)) > share(wanted, kept(plain))


def called(n: int, name: str, arguments: object, result: str) -> list[Entry]:
    """A call and its result."""
    asks = Entry(id=f"{n}.c", kind="tool_call", text="", name=name, call_id=f"{n}", arguments=json.dumps(arguments))
    return [asks, Entry(id=f"{n}.r", kind="tool_result", text=result, name=name, call_id=f"{n}")]


def test_a_focus_on_a_tool_or_an_argument_keeps_the_results() -> None:
    """A line of a call is about what was called for: all its values rise, though none of them is the term itself."""
    entries = [
        entry
        for n in range(40)
        for entry in called(
            n, f"get_{'invoice' if n % 8 == 0 else 'parcel'}", {"page": n}, json.dumps({"ref": f"X-{5_000 + n}"})
        )
    ]
    wanted = [f"X-{5_000 + n}" for n in range(0, 40, 8)]
    plain, focused = extract(entries, 60), extract(entries, 60, priorities=Priorities("unpaid invoices"))
    assert 1.0 == share(wanted, kept(focused)) > share(wanted, kept(plain))


def test_a_focus_on_a_file_raises_its_line_but_not_over_a_failed_test() -> None:
    """A file that was read comes before others that were changed; what failed last stays first."""
    entries = called(99, "run", {"command": "pytest -q"}, "FAILED tests/till.py::test_sum - assert 3 == 4\n1 failed")
    for n in range(12):
        entries += called(n, "edit", {"path": f"shop/part{n}.py", "old_string": "a = 1", "new_string": "a = 2"}, "ok")
    entries += called(50, "read", {"path": "shop/invoices.py"}, "def total():\n    return 1\n" * 9)
    plain, focused = extract(entries, 50), extract(entries, 50, priorities=Priorities("How invoices are summed"))
    assert "shop/invoices.py" not in kept(plain)
    assert "shop/invoices.py" in kept(focused)
    assert all("pytest -q ✗" in kept(lines) for lines in (plain, focused))


@pytest.mark.parametrize("budget", range(60, 400, 20))
def test_open_ends_lose_no_place_to_a_focus(budget: int) -> None:
    """To-dos, an open question and a call without a result that a summary holds, it holds with a focus too."""
    entries = [
        Entry(id=f"{n}", kind="user" if n % 2 else "assistant", text=f"The roof of house {n} takes {900 + n} tiles.")
        for n in range(40)
    ]
    entries += called(70, "get_weather", {"city": "Oslo"}, '{"wind": 7}')
    entries += called(71, "build", {"target": "arm64"}, "")[:1]
    entries += [Entry(id="t", kind="todo", text="- [ ] call Ann about the keys\n- [ ] pay the customs office")]
    entries += [Entry(id="q", kind="user", text="When does the ferry to Bergen leave?")]
    ends = ("call Ann", "customs office", "build (no result yet)", "ferry to Bergen")
    plain = kept(extract(entries, budget))
    focused = kept(extract(entries, budget, priorities=Priorities("the roof", "Keep every tile.")))
    assert [end for end in ends if end in plain] == [end for end in ends if end in plain and end in focused]


SAID = st.sampled_from(
    [
        "Where is ORD-1001? It was due on 2026-03-01.",
        "Cancel it for anna_77. But only if it is open!",
        "Yes.",
        "I will pay 40.5 for ORD-1002, please confirm.",
        "ORD-1001 is open. They are in Kigali.",
    ]
)
ANSWER = st.fixed_dictionaries(
    {"id": st.sampled_from(["ORD-1001", "ORD-1002"]), "town": st.sampled_from(["Kigali", "Ulm"])}
)
TURN = st.one_of(st.tuples(st.sampled_from(["user", "assistant", "todo"]), SAID), st.tuples(st.just("call"), ANSWER))
WORDS = st.sampled_from(["", "Kigali", "ORD-1001", "the payment of ORD-1002", "get", "open orders of anna_77"])


@given(said=st.lists(TURN, min_size=1, max_size=20), budget=st.floats(4, 200), focus=WORDS, instructions=WORDS)
def test_priorities_keep_the_budget_and_the_choice(
    said: list[tuple[EntryKind | Literal["call"], str | dict[str, str]]], budget: float, focus: str, instructions: str
) -> None:
    """The lines fit as before, are the same each time, and the same if they are made and weighed only when needed."""
    entries: list[Entry] = []
    for n, (kind, what) in enumerate(said):
        if kind == "call":
            entries += called(n, "get", {"page": n}, json.dumps(what))
        else:
            entries.append(Entry(id=f"{n}", kind=kind, text=str(what)))
    priorities = Priorities(focus, instructions)
    lines = extract(entries, budget, priorities=priorities)
    assert sum(map(tokens, lines)) <= budget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actions, "ACTIONS_MIN", 0)
        patch.setattr(speech, "ENTRIES_MIN", 0)
        assert lines == extract(entries, budget, priorities=priorities)
    earlier = [Line("said", "User: The orders go to Kigali.", ("0",)), Line("next_steps", "Pay ORD-1002.", ("0",))]
    assert sum(map(tokens, extract(entries, budget, earlier=earlier, priorities=priorities))) <= budget
