"""What the benches of contexts are made of: agents' sessions, truncation, what counts as shown."""

from benchmarks.agent_sessions import TICKETS, sessions
from benchmarks.agent_workspace import FUNCTIONS_A_THING
from benchmarks.briefs import FILE, Rule, cases, kept, talk
from benchmarks.truncation import newest, tokens_of
from benchmarks.usefulness import cuts, said

FUNCTIONS = 8 * FUNCTIONS_A_THING


def test_a_session_is_the_same_each_time() -> None:
    """A number gives one session of more than 60,000 tokens, which the projects take in turn."""
    (one,) = sessions(1, first=3)
    (again,) = sessions(1, first=3)
    assert one == again
    assert "meter 3" == one.name
    assert 60_000 < tokens_of(one.messages)
    assert TICKETS <= len(one.requests)


def test_each_call_of_a_session_has_its_result() -> None:
    """The results of a response's calls follow it, in order."""
    (session,) = sessions(1)
    waiting: list[object] = []
    for message in session.messages:
        if message["role"] == "tool":
            assert waiting.pop(0) == message["tool_call_id"]
            continue
        assert not waiting
        calls = message.get("tool_calls", [])
        assert isinstance(calls, list)
        waiting = [call["id"] for call in calls]


def test_an_agent_repairs_what_it_is_asked_to() -> None:
    """No edit fails, and of the whole suite fewer and fewer tests are red."""
    (session,) = sessions(1)
    results = [str(message["content"]) for message in session.messages if message["role"] == "tool"]
    assert not any(text.startswith("error") for text in results)
    ends = [text.splitlines()[-1].split() for text in results]
    red = [int(end[0]) for end in ends if end[1:2] == ["failed,"] and int(end[0]) + int(end[2]) == FUNCTIONS]
    assert red == sorted(red, reverse=True)
    assert red[0] > red[-1]


def test_truncation_keeps_the_instructions_and_the_newest_that_fit() -> None:
    """It takes no result without its call."""
    (session,) = sessions(1)
    for budget in (1_000, 8_000):
        shown = newest(session.messages, budget)
        assert session.messages[0] == shown[0]
        assert shown[1]["role"] != "tool"
        assert session.messages[-len(shown) + 1 :] == shown[1:]
        assert tokens_of(shown) <= budget


def test_names_count_only_if_they_stand_far_back() -> None:
    """They stand in the session before the cut, and not in its newest 4,000 tokens."""
    (session,) = sessions(1)
    found = cuts(session)
    assert any(cut.far for cut in found.values())
    at, cut = max(found.items())
    near = str(newest(session.messages[:at], 4_000))
    assert not any(f" {name} " in near for name in cut.far)


def test_a_request_is_said_sentence_by_sentence() -> None:
    """Line breaks do not matter; a sentence that is missing does."""
    assert 1 == said("Fix it. Then stop.", "- Fix\n  it.\n- Then stop.")
    assert 0.5 == said("Fix it. Then stop.", "Fix it.")


def test_rules_of_a_file_count_under_its_name() -> None:
    """In a result whose call names it, or in a line that does."""
    rule = Rule("en", "limit", "Nothing over 12 MB.")
    call = {"id": "c", "function": {"name": "read_file", "arguments": f'{{"path": "{FILE}"}}'}}
    result = {"role": "tool", "tool_call_id": "c", "content": f"- {rule.text}"}
    assert kept("list", rule, [{"role": "assistant", "tool_calls": [call]}, result])
    assert not kept("list", rule, [result])
    assert kept("list", rule, [{"role": "user", "content": f"{FILE} says: {rule.text}"}])
    assert kept("short", rule, [result])


def test_each_rule_is_stated_once() -> None:
    """In each of the ways, word for word, by a person or in the file's text."""
    for source in ("short", "long", "list", "prose"):
        for case in cases(source)[:3]:
            runs = [run for _, run in zip(range(2 * len(case.rules) + 2), talk(case), strict=False)]
            said_or_read = "\n".join(str(message["content"]) for run in runs for message in run)
            assert [1] * len(case.rules) == [said_or_read.count(rule.text) for rule in case.rules]
