"""The extractive compactor: what it keeps, what it drops, and the laws it obeys for any input."""

# ruff: noqa: RUF001 - texts of several languages carry their own punctuation

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine.compactors.extractive import Entry, Line, extract, render
from memory_engine.compactors.extractive.entries import SECTIONS, tokens
from memory_engine.compactors.extractive.structured import read_json, records
from memory_engine.compactors.extractive.usage import pair_calls
from memory_engine.language.sentences import SENTENCE_CHARS_MAX, statements

ROOT = Path(__file__).resolve().parents[2]
KINDS = st.sampled_from(
    [
        "user", "assistant", "thinking", "tool_call", "tool_result", "error",
        "task", "todo", "question", "system", "summary", "other",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(st.characters(), max_size=120),
    st.sampled_from(
        ["", "\x00", "\ud800x", "9" * 5000, "{" * 60, '{"a": {"b": [1, null, {"c": "D-4"}]}}', "今天去北京。"]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=12,
    ).map(json.dumps),
)
ENTRIES = st.lists(
    st.builds(
        Entry,
        id=st.sampled_from(["a", "b", "c", "d"]),
        kind=KINDS,
        text=TEXTS,
        speaker=st.sampled_from(["", "Ana", "小明"]),
        name=st.sampled_from(["", "search"]),
        call_id=st.sampled_from(["", "1", "2"]),
        arguments=TEXTS,
        failed=st.booleans(),
        at=st.sampled_from(["", "2024-05-01T10:00:00", "2024-05-02", "8 May"]),
    ),
    max_size=12,
)
LINES = st.lists(st.builds(Line, section=st.sampled_from(SECTIONS), text=TEXTS, sources=st.just(("old",))), max_size=3)


def call(number: int, name: str, arguments: object, result: str, *, failed: bool = False) -> list[Entry]:
    """A tool call and its result."""
    asked = json.dumps(arguments)
    return [
        Entry(id=f"c{number}", kind="tool_call", text="", name=name, call_id=str(number), arguments=asked),
        Entry(id=f"r{number}", kind="tool_result", text=result, name=name, call_id=str(number), failed=failed),
    ]


def texts(lines: tuple[Line, ...], section: str = "") -> str:
    """The texts of a section's lines, or of all lines."""
    return "\n".join(line.text for line in lines if section in ("", line.section))


# Laws.


@given(ENTRIES, st.floats(0, 200), LINES)
@settings(max_examples=300, deadline=None)
def test_any_input_gives_citing_lines_within_the_budget(
    entries: list[Entry], budget: float, earlier: list[Line]
) -> None:
    """Whatever the input, the lines fit, are single lines, can be written out, and cite what exists."""
    lines = extract(entries, budget, earlier=earlier)
    known = {entry.id for entry in entries} | {"old"}
    assert sum(map(tokens, lines)) <= budget
    for line in lines:
        assert line.sources
        assert known.issuperset(line.sources)
        assert line.text == " ".join(line.text.split())
        assert line.text.encode("utf-8")


@given(ENTRIES, st.floats(0, 200))
@settings(max_examples=50, deadline=None)
def test_the_same_input_gives_the_same_lines(entries: list[Entry], budget: float) -> None:
    """Extraction is a function of its input."""
    assert extract(entries, budget) == extract(list(entries), budget)


def test_the_seed_of_hashing_does_not_show() -> None:
    """Two interpreters with different hash seeds print equal bytes."""
    program = (
        "from memory_engine.compactors.extractive import Entry, extract, render;"
        "e=[Entry(id=str(i),kind='user',text=f'The box K{i} of Maria stands near the old harbour {i}.')"
        " for i in range(30)];print(render(extract(e,90),cite=True))"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0]
    assert printed[0] == printed[1]


@pytest.mark.parametrize("budget", [-1, 0, 1, 5])
def test_a_tiny_budget_is_never_exceeded(budget: float) -> None:
    """With next to no room there is at most one short line."""
    lines = extract([Entry(id="a", kind="user", text="My code is X9 and I live in Oslo.")], budget)
    assert sum(map(tokens, lines)) <= max(0, budget)


def test_nothing_in_nothing_out() -> None:
    """No entries give no lines and an empty text."""
    assert () == extract([], 100)
    assert "" == render(())


@pytest.mark.parametrize("unit", ["x", ".", "a.", "> ", "- ", "\n", "['", '{"a":', "汉", "1-"])
def test_a_long_monotonous_text_takes_linear_time(unit: str) -> None:
    """A quarter of a megabyte of any one thing is read well within the test's time limit."""
    extract([Entry(id="a", kind="tool_result", text=unit * (250_000 // len(unit)))], 100)


# Actions.


def test_a_call_becomes_an_action_with_arguments_and_values() -> None:
    """A line says what was called, with what, and what came back, and cites both."""
    lines = extract(call(1, "find_order", {"order": "ORD-77"}, '{"total": "129.90", "status": "shipped"}'), 60)
    assert ("completed_actions", ("c1", "r1")) == (lines[0].section, lines[0].sources)
    assert "find_order: ORD-77 → total 129.90 status shipped" == lines[0].text


def test_a_failure_is_an_attempted_approach() -> None:
    """A failed call stands under the attempts, its error with it."""
    lines = extract(call(1, "deploy", {"host": "web-3"}, "Error: port 8080 in use"), 60)
    assert "deploy: web-3 ✗ Error: port 8080 in use" == texts(lines, "attempted_approaches")


@pytest.mark.parametrize("result", ['{"success": false, "host": "web-3"}', '{"error": "port 8080 in use"}'])
def test_a_result_whose_fields_tell_of_a_failure_is_one(result: str) -> None:
    """Structured answers say in a field that they are errors."""
    assert "deploy" in texts(extract(call(1, "deploy", {"host": "web-3"}, result), 60), "attempted_approaches")


def test_a_long_value_says_that_it_was_shortened() -> None:
    """A record named by a long text shows its beginning, and that there is more."""
    (line,) = extract(call(1, "get", {}, json.dumps({"note": "x" * 150 + "7"})), 400)
    assert line.text.startswith(f"get → {'x' * 100} …")


def test_equal_retries_become_one_line_that_cites_all() -> None:
    """Three equal failures are told once, with their number."""
    entries = [entry for i in range(3) for entry in call(i, "ping", {"host": "db-1"}, "Error: timeout")]
    (line,) = extract(entries, 100)
    assert "ping (×3): db-1 ✗ Error: timeout" == line.text
    assert ("c0", "r0", "c1", "r1", "c2", "r2") == line.sources


def test_a_repeated_call_id_pairs_each_result_with_its_own_call() -> None:
    """Ids may be used again: a result belongs to the latest open call."""
    entries = call(1, "a", {}, "one") + call(1, "b", {}, "two")
    assert [(0, 1), (2, 3)] == [(action.call, action.outcome) for action in pair_calls(entries)]


def test_values_that_later_calls_use_come_before_their_like() -> None:
    """Of fifty equal-looking records the one used later is kept first."""
    listed = json.dumps([{"id": f"SKU-{n:04}", "price": 100 + n} for n in range(50)])
    entries = call(1, "list_items", {}, listed) + call(2, "reserve", {"item": "SKU-0031"}, "ok")
    kept = texts(extract(entries, 25))
    assert "SKU-0031" in kept
    assert "SKU-0007" not in kept


def test_a_later_record_of_the_same_thing_wins() -> None:
    """What an update returned is kept rather than what it replaced."""
    entries = call(1, "get", {"id": "RES-88"}, '{"id": "RES-88", "cabin": "economy", "seat": "31C"}')
    entries += call(2, "update", {"id": "RES-88"}, '{"id": "RES-88", "cabin": "business", "seat": "02A"}')
    kept = texts(extract(entries, 10))
    assert "02A" in kept
    assert "31C" not in kept


def test_a_call_without_result_is_the_current_state() -> None:
    """What is still running is neither done nor failed."""
    entries = [Entry(id="c", kind="tool_call", text="", name="build", arguments='{"target": "arm64"}')]
    assert "build (no result yet): arm64" == texts(extract(entries, 40), "current_state")


def test_a_long_list_of_equals_still_leaves_something() -> None:
    """Where no record stands out, the budget is used all the same."""
    listed = json.dumps([{"id": f"A{n:05}", "price": n} for n in range(5000)])
    assert 500 < sum(map(tokens, extract(call(1, "dump", {}, listed), 1000)))


# Speech.


def test_what_is_specific_outlives_pleasantries() -> None:
    """A fact is kept, greetings are not."""
    said = [
        "Hi there! How are you?",
        "Great, thanks!",
        "My passport number is L8839201 and I fly to Lima.",
        "Cool!",
    ]
    entries = [Entry(id=str(i), kind="user", speaker="Ana", text=text) for i, text in enumerate(said)]
    (line,) = extract(entries, 15)
    assert "L8839201" in line.text
    assert ("2",) == line.sources


def test_a_sentence_is_kept_whole_or_not_at_all() -> None:
    """Word for word, whatever the budget: a sentence that does not fit is left out, never trimmed."""
    said = "I do not want the insurance for this trip because it is too expensive for us."
    kept = {texts(extract([Entry(id="a", kind="user", text=said)], budget)) for budget in range(40)}
    assert {"", f"User: {said}"} == kept


def test_a_short_answer_keeps_what_was_asked() -> None:
    """A person's answer that means nothing alone tells in its own line what the agent asked, with both sources."""
    entries = [
        Entry(id="q", kind="assistant", text="Which hotel would you like to book in Lisbon?"),
        Entry(id="a", kind="user", text="Casa Azul"),
        Entry(id="z", kind="assistant", text="Done."),
    ]
    line = extract(entries, 60)[0]
    told = "User: Casa Azul (← Assistant: Which hotel would you like to book in Lisbon?)"
    assert ("said", told, ("a", "q")) == (line.section, line.text, line.sources)


def test_the_open_question_is_a_next_step() -> None:
    """What was asked last waits for an answer."""
    entries = [
        Entry(id="u", kind="user", text="Move my booking KX42 to Friday."),
        Entry(id="a", kind="assistant", text="The fee is $75. Shall I charge card 4421 for it?"),
    ]
    assert "charge card 4421" in texts(extract(entries, 80), "next_steps")


def talk(*said: tuple[str, str]) -> list[Entry]:
    """Entries of a user (`u`) and an assistant (`a`)."""
    kinds = {"u": "user", "a": "assistant"}
    return [Entry(id=str(n), kind=kinds[who], text=text) for n, (who, text) in enumerate(said)]  # type: ignore[arg-type]


def test_an_answered_question_is_no_next_step() -> None:
    """Once somebody else has said something, nobody waits for it any more."""
    entries = talk(
        ("u", "Move my booking KX42 to Friday."),
        ("a", "Shall I charge card 4421 for the fee of $75?"),
        ("u", "Charge the card 9907 instead."),
        ("a", "Card 9907 was charged with $75."),
    )
    assert "" == texts(extract(entries, 200), "next_steps")


def test_a_question_in_return_is_no_answer() -> None:
    """Both questions wait."""
    entries = talk(("u", "Can you move my booking KX42 to Friday?"), ("a", "To which Friday, May 2 or May 9?"))
    lines = extract(entries, 200)
    assert "KX42" in texts(lines, "asked")
    assert "May 9" in texts(lines, "next_steps")


@pytest.mark.parametrize(
    ("promise", "report"),
    [
        ("I will send the contract for Hansen tomorrow.", "The contract for Hansen is sent."),
        ("Ich schicke morgen den Vertrag für Hansen.", "Der Vertrag für Hansen ist geschickt."),
        ("Voy a enviar mañana el contrato de Hansen.", "El contrato de Hansen está enviado."),
        ("我会把海森的合同寄给你。", "海森的合同寄出了。"),
    ],
)
def test_a_promise_is_a_next_step_until_it_is_kept(promise: str, report: str) -> None:
    """A report about the same matter takes it off the list; a denial does not."""
    promised = talk(("u", promise), ("a", "Wir reden über K-77."))
    assert promise in texts(extract(promised, 200), "asked")
    assert "" == texts(extract([*promised, *talk(("u", report))], 200), "asked")


def test_what_is_not_done_yet_is_still_to_be_done() -> None:
    """A report that denies closes nothing."""
    entries = talk(
        ("u", "I will send the contract for Hansen tomorrow."),
        ("a", "I noted K-77."),
        ("u", "The contract for Hansen is not sent yet."),
    )
    assert "I will send the contract" in texts(extract(entries, 200), "asked")


def test_a_sentence_that_points_back_stays_with_the_one_before() -> None:
    """In a talk with an agent, nobody has to guess who "she" is."""
    entries = talk(
        ("u", "Dr. Okafor reviews the X-rays in room 12. She leaves for Lagos on 2026-03-31 with flight LH568."),
        ("a", "Noted."),
    )
    for budget in range(10, 60):
        kept = texts(extract(entries, budget))
        assert ("Lagos" in kept) <= ("Dr. Okafor" in kept)


def test_a_condition_on_what_was_said_before_stays_with_it() -> None:
    """Behind an "if", too, a pointer is kept with what it points to."""
    entries = talk(
        (
            "u",
            "Am liebsten der Gasthof Adler in Hinterzarten. Wenn der nicht frei ist, dann das Hotel Sonne am 14. Juni.",
        ),
        ("a", "Notiert."),
    )
    for budget in range(10, 60):
        kept = texts(extract(entries, budget))
        assert ("Sonne" in kept) <= ("Adler" in kept)


def test_pleasantries_are_left_out_where_there_is_room() -> None:
    """A budget is no reason to keep what says nothing."""
    entries = talk(
        ("u", "My passport number is L8839201."),
        ("a", "Perfect, thank you so much!"),
        ("u", "Muchas gracias, muy amable."),
    )
    assert ["User: My passport number is L8839201."] == [line.text for line in extract(entries, 500)]


def test_the_last_todo_list_wins() -> None:
    """Open items are next steps, done items are done, and an older list yields."""
    entries = [
        Entry(id="1", kind="todo", text="- [ ] write parser\n- [ ] ship release 2.1"),
        Entry(id="2", kind="assistant", text="The parser is written."),
        Entry(id="3", kind="todo", text="- [x] write parser\n- [ ] ship release 2.1"),
    ]
    lines = extract(entries, 40)
    assert "ship release 2.1" in texts(lines, "next_steps")
    assert "write parser" in texts(lines, "completed_actions")


def test_the_caption_of_a_picture_is_kept() -> None:
    """A bracketed annotation is a sentence of its own."""
    assert ["Look!", "[image: a red kite]"] == [s.text for s in statements("Look! [image: a red kite]")]


def test_lines_of_several_days_carry_their_dates() -> None:
    """A date stands before the first line of each day where the budget allows."""
    entries = [
        Entry(id="1", kind="user", text="Rent the blue van in Porto.", at="2024-05-01T09:00:00Z"),
        Entry(id="2", kind="user", text="The van costs 310 euros.", at="2024-05-02T09:00:00Z"),
        *(Entry(id=str(i), kind="user", text=f"Box {i} is packed.", at="2024-05-02T10:00:00Z") for i in range(3, 9)),
    ]
    kept = texts(extract(entries, 200), "said")
    assert "[2024-05-01] User: " in kept
    assert "[2024-05-02] User: " in kept


@pytest.mark.parametrize(
    ("said", "needle"),
    [
        (["你好！", "你好，最近怎么样？", "我的航班是CA1831，九月三日飞上海。", "好的，谢谢！"], "CA1831"),
        (
            ["こんにちは。", "元気ですか？", "会議は渋谷ヒカリエの7階で、担当は田中さんです。", "はい。"],
            "渋谷ヒカリエ",
        ),
        (["مرحبا", "كيف حالك؟", "رقم الحجز هو ZX5512 في فندق المنار بمدينة طنجة.", "شكرا"], "ZX5512"),
        (
            [
                "Hallo!",
                "Wie geht es dir?",
                "Der Schlüssel liegt bei Frau Brandt in der Ahornstraße 14.",
                "Gut.",
            ],
            "Ahornstraße",
        ),
    ],
)
def test_facts_are_kept_in_any_language(said: list[str], needle: str) -> None:
    """Chinese, Japanese, Arabic and German keep the fact and drop the greeting."""
    entries = [Entry(id=str(i), kind="user", text=text) for i, text in enumerate(said)]
    kept = texts(extract(entries, 20))
    assert needle in kept
    assert said[0] not in kept


# Earlier summaries.


def test_an_earlier_line_keeps_its_sources() -> None:
    """A line whose originals are out of reach is carried on as it is."""
    old = Line("key_information", "User: passport L8839201", ("e1", "e2"))
    assert old in extract([Entry(id="n", kind="user", text="Book the hotel Miramar.")], 60, earlier=[old])


def test_an_earlier_state_yields_to_a_later_one() -> None:
    """Where there is room for one of them, the later state stays."""
    old = Line("current_state", "Assistant: waiting for approval", ("e1",))
    entries = [
        Entry(id="u", kind="user", text="Approved, go on."),
        Entry(id="a", kind="assistant", text="Approval received, deploying."),
    ]
    kept = texts(extract(entries, 16, earlier=[old]))
    assert "Approv" in kept
    assert "waiting" not in kept


# Parts.


def test_what_is_too_long_for_a_sentence_is_excerpted_and_says_so() -> None:
    """No word of a text without stops is lost, and each part but the first and last shows that the text goes on."""
    text = "word " * 300
    cut = [statement.text for statement in statements(text)]
    assert all(len(part) <= SENTENCE_CHARS_MAX for part in cut)
    assert text.split() == [word for part in cut for word in part.split() if word != "…"]
    assert ["word … …", "… … word"] == [f"{cut[0][:4]} … {cut[0][-1]}", f"{cut[-1][0]} … {cut[-1][-4:]}"]


def test_json_numbers_keep_their_spelling() -> None:
    """A value is quoted as it was written, however large."""
    (record,) = records(read_json('{"id": 12345678901234567890, "rate": 1.50}'))
    assert ("12345678901234567890", "1.50") == record.texts


@pytest.mark.parametrize("text", ["{broken", "[" * 100_000, "plain", "", '{"n": 1e999}x'])
def test_what_is_not_json_is_text(text: str) -> None:
    """Broken or endless JSON is no error."""
    assert read_json(text) is None


def test_the_summary_has_its_headings_in_order() -> None:
    """Sections stand in their order, empty ones are left out, and citations come only when asked for."""
    lines = [Line("next_steps", "pay", ("b",)), Line("completed_actions", "booked", ("a", "b"))]
    expected = "## Progress Summary\n\n### Completed Actions\n\n- booked\n\n### Next Steps\n\n- pay\n"
    assert expected == render(lines)
    assert "- booked [a, b]\n" in render(lines, cite=True)


SAID_ONCE = [
    "I never eat fish.",
    "I prefer window seats.",
    "I am allergic to nuts.",
    "Ich esse nie Fisch.",
    "我对花生过敏。",
]


@pytest.mark.parametrize("said_once", SAID_ONCE)
@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_what_is_said_once_stands_out_of_many_requests_alike(said_once: str, share: float) -> None:
    """However many values the requests have, which differ by these alone."""
    entries: list[Entry] = []
    for n in range(300):
        request = f"Please book a table for {n % 8 + 2} on 2026-{n % 12 + 1:02}-{n % 28 + 1:02} at {17 + n % 5}:30."
        entries += [
            Entry(id=f"{n}.0", kind="user", text=said_once if n == 3 else request),
            Entry(id=f"{n}.1", kind="assistant", text=f"I have booked the table, the code is R{n * 7919 % 90000}."),
        ]
    tokens = sum(len(entry.text) for entry in entries) / 4
    assert f"User: {said_once}" in [line.text for line in extract(entries, tokens * share)]


ABOUT_SHIPS = """The harbour opens at dawn. Two cranes are being repaired this week. Nobody has seen the pilot since
Tuesday. We should ask whether the crew wants to stay. A barge with timber waits outside. Its captain called twice and
was rather angry. The storm will pass by noon, they say. Perhaps the ferry can take the passengers. I would rather wait
than hurry. The lighthouse keeper has a new dog. Could you send me the list of berths? The last one was out of date. My
brother works in the customs office. He told me that papers are often missing. Let us meet there at nine."""


FACTS = ["The limit for {} is 4{} euros.", "{} darf auf keinen Fall Zugang {} bekommen.", "No nuts for me."]


@pytest.mark.parametrize("fact", FACTS)
def test_a_few_facts_of_one_form_count_each(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each were like no other, and so does what is said again and again."""
    entries: list[Entry] = []
    for n, other in enumerate(statements(ABOUT_SHIPS)):
        for text in (fact.format(f"Anna{n}", n), other.text):
            entries.append(Entry(id=f"{len(entries)}.0", kind="user", text=text))
    lines = extract(entries, 150)
    monkeypatch.setattr("memory_engine.compactors.extractive.speech.ALIKE_EXPONENT", 0.0)
    assert lines == extract(entries, 150)
