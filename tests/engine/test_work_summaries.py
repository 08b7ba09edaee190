"""What a summary tells of an agent that works on files and commands, whatever its tools are called."""

import json

import pytest

import memory_engine
from memory_engine import CompactionPolicy, ContextPolicy
from memory_engine.compactors.extractive import Entry, Line, extract, render
from memory_engine.core.events.base import SummaryLine

CODE = """class Ledger:
    def __init__(self, rows):
        self.rows = rows

    def balance(self):
        return sum(row.amount for row in self.rows)

    def clear(self):
        self.rows = []"""


def call(number: int, name: str, arguments: object, result: str, *, failed: bool = False) -> list[Entry]:
    """A call and its result."""
    asked = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [
        Entry(id=f"c{number}", kind="tool_call", text="", name=name, call_id=str(number), arguments=asked),
        Entry(id=f"r{number}", kind="tool_result", text=result, name=name, call_id=str(number), failed=failed),
    ]


def told(lines: tuple[Line, ...], section: str) -> list[str]:
    """The texts of a section's lines."""
    return [line.text for line in lines if line.section == section]


def numbered(first: int, last: int, sign: str = "\t") -> str:
    """A listing with line numbers."""
    return "\n".join(f"{n}{sign}    rows[{n}] = load({n})" for n in range(first, last + 1))


READS = [
    ("read_file", {"path": "shop/ledger.py", "start": 10, "end": 40}, numbered(10, 40)),
    ("öffne", {"datei": "shop/ledger.py", "ab": 10, "bis": 40}, numbered(10, 40, "→")),
    ("Lesen", {"args": {"file_path": "shop/ledger.py", "offset": 10, "limit": 31}}, numbered(10, 40, ": ")),
    ("bash", {"command": "sed -n 10,40p shop/ledger.py"}, numbered(1, 31)),
    ("exec", {"cmd": ["bash", "-lc", "cat shop/ledger.py | sed -n '10,40p'"]}, CODE),
    ("view", '{"path": "shop/ledger.py", "view_range": [10, 40]}', f"Lines 10-40:\n{numbered(10, 40)}"),
]


@pytest.mark.parametrize(("name", "arguments", "result"), READS)
def test_a_file_that_was_read_is_a_path_and_its_lines(name: str, arguments: object, result: str) -> None:
    """Never its text, and by whatever tool it was read."""
    lines = extract(call(1, name, arguments, result), 400)
    assert ["shop/ledger.py: read 10-40"] == told(lines, "files")
    assert "load(" not in render(lines)


def test_readings_of_one_file_are_one_line_with_joined_ranges() -> None:
    """A line cites every call and result that it stands for."""
    entries = [
        *call(1, "read", {"path": "shop/ledger.py", "start": 1, "end": 30}, numbered(1, 30)),
        *call(2, "read", {"path": "shop/ledger.py", "start": 80, "end": 99}, numbered(80, 99)),
        *call(3, "read", {"path": "./shop/ledger.py", "start": 20, "end": 50}, numbered(20, 50)),
    ]
    [line] = extract(entries, 400)
    assert "shop/ledger.py: read 1-50, 80-99" == line.text
    assert ("c1", "r1", "c2", "r2", "c3", "r3") == line.sources


def test_a_short_path_that_ends_one_long_path_is_the_same_file() -> None:
    """Tools answer with whole paths where agents write short ones."""
    entries = [
        *call(1, "show", {"path": "shop/ledger.py"}, CODE),
        *call(2, "change", {"path": "/srv/app/shop/ledger.py", "old": "rows = []", "new": "rows = list()"}, "ok"),
    ]
    [line] = extract(entries, 400)
    assert "/srv/app/shop/ledger.py: read all of 7 lines; edited: `rows = []` => `rows = list()`" == line.text


EDITS = [
    {"path": "shop/ledger.py", "old_string": "self.rows = []", "new_string": "self.rows.clear()"},
    {"datei": "shop/ledger.py", "vorher": "self.rows = []  # leer", "nachher": "self.rows = ()  # leer"},
    {"file": "shop/ledger.py", "edits": [{"search": "self.rows = []", "replace": "self.rows.clear()"}]},
    {"patch": "*** Begin Patch\n*** Update File: shop/ledger.py\n@@\n-self.rows = []\n+self.rows.clear()\n"},
    {"command": "cat >> shop/ledger.py <<'END'\nself.rows.clear()\nEND"},
]


@pytest.mark.parametrize("arguments", EDITS)
def test_a_file_that_was_changed_tells_what_changed(arguments: object) -> None:
    """The line before and after, or the first line that came."""
    [line] = told(extract(call(1, "do", arguments, "done"), 400), "files")
    assert line.startswith("shop/ledger.py: edited: `self.rows")


def test_an_edit_that_failed_is_told_until_one_works() -> None:
    """It is no change, and the last state stands."""
    edit = {"path": "a/b.py", "old": "x = 1", "new": "x = 2"}
    failed = call(1, "edit", edit, "Error: no such text in a/b.py", failed=True)
    assert ["a/b.py: edit failed: Error: no such text in a/b.py"] == told(extract(failed, 400), "files")
    again = [*failed, *call(2, "edit", edit, "1 replacement")]
    assert ["a/b.py: edited: `x = 1` => `x = 2`"] == told(extract(again, 400), "files")


RUNS = [
    (
        "..F\nFAILED tests/test_till.py::test_sum - assert 3 == 4\n==== 1 failed, 41 passed in 3.21s ====",
        "1 failed, 41 passed; tests/test_till.py::test_sum - assert 3 == 4",
    ),
    (
        "FAIL: test_sum (till.Sums)\nTraceback (most recent call last):\nAssertionError: 3 != 4\n"
        "Ran 42 tests in 0.2s\nFAILED (failures=1)",
        "FAILED (failures=1); test_sum (till.Sums) - AssertionError: 3 != 4",
    ),
    ("--- FAIL: TestSum (0.00s)\n    till_test.go:9: expected 4\nFAIL\tshop/till\t0.01s", "FAIL shop/till; TestSum"),
    (
        "running 2 tests\ntest till::sum ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored",
        "test result: FAILED. 1 passed, 1 failed, 0 ignored; till::sum",
    ),
    (
        "  1) test sum (Till.SumTest)\n     ** (RuntimeError) too few\n42 tests, 1 failure",
        "42 tests, 1 failure; test sum",
    ),
]


@pytest.mark.parametrize(("output", "outcome"), RUNS)
def test_a_run_of_tests_tells_what_failed_and_why(output: str, outcome: str) -> None:
    """In the forms of several runners, under any tool's name."""
    [line] = told(extract(call(1, "ausführen", {"befehl": "make check && ./run -q"}, output), 400), "tests")
    assert line.startswith("make check && ./run -q ✗ ")
    assert all(part in line for part in outcome.split("; "))


def test_a_later_run_that_passes_takes_the_failure_away() -> None:
    """Of the same command, and of one that runs all that the earlier one ran."""
    entries = [
        *call(
            1, "sh", {"command": "pytest -q tests/test_till.py"}, "FAILED tests/test_till.py::test_a - boom\n1 failed"
        ),
        *call(2, "sh", {"command": "pytest -q"}, "44 passed in 2.1s"),
    ]
    assert ["pytest -q → 44 passed"] == told(extract(entries, 400), "tests")


def test_a_failure_is_told_once() -> None:
    """By the last run that has it."""
    failure = "FAILED tests/test_till.py::test_a - boom\n"
    entries = [
        *call(1, "sh", {"command": "pytest -q"}, f"{failure}1 failed, 9 passed"),
        *call(2, "sh", {"command": "pytest -q tests/test_till.py"}, f"{failure}1 failed"),
    ]
    assert [
        "pytest -q ✗ 1 failed, 9 passed",
        "pytest -q tests/test_till.py ✗ 1 failed; tests/test_till.py::test_a - boom",
    ] == told(extract(entries, 400), "tests")


COMMANDS = [
    ("git status --short", "", "git status --short → no output"),
    ("rg -n round_up src", "src/a.py:3:round_up(x)\nsrc/a.py:9:round_up(y)\nsrc/b.py:1:round_up", "3 hits in 2 files"),
    ("ls -F src", "a.py\nb.py\nc/", "3 found: a.py, b.py, c/"),
    ("git diff", "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b", "changes in 1: x.py +1/-1"),
    ("make all", "cc -c a.c\n" * 30 + "a.c:7: error: unknown type 'till'\n", "a.c:7: error: unknown type 'till'"),
    ("./migrate --dry-run", "Exit code 3\nlock is held by pid 88", "✗ exit 3: lock is held by pid 88"),
]


@pytest.mark.parametrize(("command", "output", "outcome"), COMMANDS)
def test_a_command_tells_its_outcome(command: str, output: str, outcome: str) -> None:
    """As one short line, the command whole."""
    [line] = told(extract(call(1, "terminal", {"command": command}, output), 400), "commands")
    assert line.startswith(command)
    assert outcome in line


def test_a_long_command_loses_its_middle_and_no_word() -> None:
    """Its beginning and its end stay."""
    files = [f"packages/shop/till_{n}/ledger.py" for n in range(40)]
    [line] = told(extract(call(1, "sh", {"command": f"git add {' '.join(files)} && git push"}, ""), 400), "commands")
    assert line.startswith("git add packages/shop/till_0/ledger.py")
    assert "&& git push → no output" in line
    assert {"git", "add", "…", "&&", "push", "→", "no", "output", *files} >= set(line.split())


def test_equal_commands_are_one_line_with_the_last_outcome() -> None:
    """And say how often."""
    entries = [*call(1, "sh", {"command": "./till"}, "closed"), *call(2, "sh", {"command": "./till"}, "open")]
    assert ["./till (×2) → open"] == told(extract(entries, 400), "commands")


def test_an_exit_code_beside_the_output_is_a_failure() -> None:
    """Where a tool answers with JSON around what was printed."""
    result = json.dumps({"stdout": "", "stderr": "fatal: no upstream", "exit_code": 128})
    [line] = told(extract(call(1, "shell", {"command": "git push"}, result), 400), "commands")
    assert "git push ✗ exit 128: fatal: no upstream" == line


def test_an_observation_of_a_call_in_text_is_paired_with_it() -> None:
    """A loop without structured calls writes its command into a fence at the end of its answer."""
    entries = [
        Entry(id="a", kind="assistant", text="Let's look at the till first.\n```\ncat shop/till.py\n```"),
        Entry(id="o", kind="tool_result", text=CODE),
    ]
    assert ["shop/till.py: read all of 7 lines"] == [line.text for line in extract(entries, 400)]


@pytest.mark.parametrize(
    "rule",
    [
        "Never send the ledger to the bank before the audit.",
        "Die Kasse darf nur Frau Ott öffnen.",
        "No incluyas los precios de compra.",
        "未经许可不得更改税率。",
    ],
)
def test_a_rule_in_a_file_stays_under_the_name_of_the_file(rule: str) -> None:
    """Word for word, as the words of a tool and never of a person."""
    text = f"# Shop\n\n- {rule}\n- Contact: the office\n"
    lines = extract(call(1, "open", {"path": "docs/HOUSE.md"}, text), 400)
    [line] = told(lines, "quoted")
    assert line.startswith("docs/HOUSE.md says: ")
    assert rule in line


RULES = [
    "Never send the ledger to the bank before the audit.",
    "An order that is older than 5 days must be asked about.",
    "The till may only be opened by Ms Ott.",
    "Screenshots of the till must not leave the office.",
    "Each export has to carry the initials of its author.",
    "Refunds over 400 euros are never paid without a second name.",
    "You must close the till before you count it.",
]


def test_every_rule_of_a_list_under_a_heading_stays() -> None:
    """A heading is no part of a sentence, and rules have more room than other sentences."""
    text = "# How we work\n\n" + "".join(f"- {rule}\n" for rule in RULES)
    [line] = told(extract(call(1, "open", {"path": "docs/HOUSE.md"}, text), 1_000), "quoted")
    assert [] == [rule for rule in RULES if rule not in line]
    assert "How we work" not in line


def test_rules_of_files_stay_when_summaries_are_merged() -> None:
    """Quotations take what more urgent lines leave of the budget, however old they are."""
    earlier = tuple(Line("quoted", f"docs/HOUSE{n}.md says: {rule}", (f"{n}.0",)) for n, rule in enumerate(RULES))
    lines = extract(call(1, "read", {"path": "tax.py"}, CODE), 400, earlier=earlier)
    assert {line.text for line in earlier} == set(told(lines, "quoted"))


def test_code_and_licences_are_not_quoted() -> None:
    """Comments must and shall a lot."""
    licence = "Copyright Ott. THE SOFTWARE IS PROVIDED AS IS, WITHOUT WARRANTY OF ANY KIND, AND SHALL NOT BE SOLD."
    entries = [
        *call(1, "open", {"path": "LICENSE"}, f"{licence}\n{licence}"),
        *call(
            2, "open", {"path": "till.py"}, '"""You must never call this twice.\n\nIt may fail if the till is open."""'
        ),
    ]
    assert [] == told(extract(entries, 400), "quoted")


def test_people_and_agent_are_told_apart_by_section() -> None:
    """Whose words a line holds is its kind."""
    entries = [
        Entry(id="u", kind="user", text="Never touch the tax table of the Berlin shop."),
        *call(1, "read", {"path": "tax.py"}, CODE),
        Entry(
            id="a", kind="assistant", text="The Berlin shop keeps its own rates, so I changed the Hamburg table alone."
        ),
        Entry(id="v", kind="user", text="Fine, the Hamburg rates are confirmed by Ms Ott."),
        Entry(id="b", kind="assistant", text="Then the work on the Hamburg rates is complete."),
    ]
    lines = extract(entries, 400)
    assert {"u", "v"} == {source for line in lines if line.section in ("said", "asked") for source in line.sources}
    assert {"a", "b"} == {source for line in lines if line.section == "decided" for source in line.sources}


def test_an_empty_result_is_said_and_is_no_completed_action() -> None:
    """Nobody takes a search without a hit for one with an answer."""
    [line] = extract(call(1, "find_trains", {"to": "ULM", "day": "2031-04-02"}, "[]"), 400)
    assert ("attempted_approaches", "find_trains (empty result): to ULM day 2031-04-02") == (line.section, line.text)


def test_values_stand_behind_their_whole_keys() -> None:
    """Two accounts, two balances: each says which."""
    result = json.dumps({"balance_source": 120, "balance_target": 990, "from": "ULM", "via": "FRA", "holds": []})
    [line] = extract(call(1, "transfer", {"source": "acc-11", "target": "acc-12"}, result), 400)
    assert line.text.startswith("transfer: source acc-11 target acc-12 → ")
    assert all(
        told in line.text for told in ("balance_source 120", "balance_target 990", "from ULM", "via FRA", "holds []")
    )


def test_announcements_of_calls_are_left_out() -> None:
    """The call tells them."""
    entries = [
        Entry(
            id="a", kind="assistant", text="Let me look at the till. The shop uses two of them since the move to Ulm."
        ),
        *call(1, "read", {"path": "till.py"}, CODE),
    ]
    assert ["Assistant: The shop uses two of them since the move to Ulm."] == told(extract(entries, 400), "decided")


# Earlier summaries.


def test_a_persons_line_of_an_earlier_summary_is_never_stale() -> None:
    """However much work comes, and whatever it was filed under before."""
    rule = Line("said", "User: Never touch the tax table of the Berlin shop.", ("9.0",))
    old = Line("current_state", "Ms Ott: The Hamburg rates are confirmed.", ("8.0",))
    entries = [entry for n in range(60) for entry in call(n, "read", {"path": f"m{n}.py"}, f"{CODE}\n# {n}")]
    lines = extract(entries, 400, earlier=[rule, old])
    assert rule in lines
    assert old in lines


def test_what_a_person_asked_before_is_said_once_more_has_happened() -> None:
    """It no longer waits, but stays theirs."""
    asked = Line("asked", "User: Which shop is open on Sunday?", ("9.0",))
    lines = extract(
        [Entry(id="a", kind="assistant", text="The Ulm shop opens at nine on Sundays.")], 400, earlier=[asked]
    )
    assert ["User: Which shop is open on Sunday?"] == told(lines, "said")


def test_earlier_lines_of_work_go_on_with_new_ones() -> None:
    """A file's line takes in what was read and changed since."""
    earlier = [
        Line("files", "till.py: read 1-40; edited ×2: `a` => `b`", ("1.0",)),
        Line("commands", "./till (×3) ✗ exit 1", ("2.0",)),
    ]
    entries = [
        *call(1, "read", {"path": "till.py", "start": 41, "end": 60}, numbered(41, 60)),
        *call(2, "sh", {"command": "./till"}, "open"),
    ]
    lines = extract(entries, 400, earlier=earlier)
    assert ["till.py: read 1-60; edited ×2: `a` => `b`"] == told(lines, "files")
    assert ["./till (×4) → open"] == told(lines, "commands")
    assert ("1.0", "c1", "r1") == next(line.sources for line in lines if line.section == "files")


def test_work_leaves_room_and_people_keep_theirs() -> None:
    """A rule and a hundred files: the rule is there, and no budget is filled with code."""
    rule = "Never run the nightly export without asking me first."
    entries = [Entry(id="u", kind="user", text=rule)]
    entries += [entry for n in range(100) for entry in call(n, "read", {"path": f"mod/m{n}.py"}, f"{CODE}\n# {n}")]
    for budget in (60, 200, 2_000):
        lines = extract(entries, budget)
        assert any(rule in line.text for line in lines)
        assert "self.rows" not in render(lines)
        assert sum(len(line.text) for line in lines) < 4_000


async def test_a_thread_of_work_is_summarised_in_its_kinds() -> None:
    """What the engine records holds the sections, and a context shows their headings."""
    policy = CompactionPolicy(enabled=False, keep_recent=0)
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread(policy=policy)
        await thread.record({"role": "user", "content": "Please repair the till. Keep its public names as they are."})
        arguments = json.dumps({"path": "till.py"})
        function = {"name": "read", "arguments": arguments}
        await thread.record(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            }
        )
        await thread.record({"role": "tool", "tool_call_id": "1", "content": f"{CODE}\n" * 20})
        await thread.record({"role": "assistant", "content": "The till of Ulm adds up again."})
        await thread.record({"role": "user", "content": "Good, thanks."})
        await thread.record({"role": "assistant", "content": "Done."})
        await thread.compact()
        [summary, *_] = [chunk for chunk in (await thread.state()).chunks() if chunk.lines]
        context = await thread.context(policy=ContextPolicy(blocks=()))
    kept = {(line.section, line.text) for line in summary.lines}
    assert ("said", "User: Keep its public names as they are.") in kept or any(
        "public names" in text for _, text in kept
    )
    assert any(section == "files" and text.startswith("till.py: read all") for section, text in kept)
    assert "### Files" in str(context.messages[0]["content"])
    assert all(isinstance(line, SummaryLine) for line in summary.lines)
