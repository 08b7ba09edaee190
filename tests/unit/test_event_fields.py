"""How an event's fields are given, and what a wrong one is told."""

import pytest

from memory_engine import events as e
from memory_engine.events import Event


def test_an_event_takes_its_fields_by_position_too() -> None:
    """Type checkers read of it what holds: a line that they refuse here would fail the types."""
    assert e.UserMessage(content="Hi") == e.UserMessage("Hi")
    assert e.ToolError(call_id="c1", content="gone") == e.ToolError("c1", "gone")


@pytest.mark.parametrize("cls", [e.ToolError, e.SkillError, e.SubagentError])
def test_an_error_of_a_tool_names_the_field_that_was_meant(cls: type[Event]) -> None:
    """By what other libraries call it, by a likeness, or by all that there are."""
    for name, says in {
        "error": "'content'",
        "message": "'content'",
        "contents": "'content'",
        "zzz": "its fields",
    }.items():
        with pytest.raises(TypeError, match=f"{cls.__name__} has no field '{name}'.*{says}"):
            cls(call_id="c1", **{name: "gone"})
    with pytest.raises(TypeError, match="Missing required argument"):
        cls(call_id="c1")  # pyright: ignore[reportCallIssue]
