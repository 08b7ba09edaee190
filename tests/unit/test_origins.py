"""Who speaks: the origin of chunks, of a summary's lines, and of what is made of several."""

import pytest

from memory_engine import events as e
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.origins import SPOKEN, Speaker, lowest, origin_of, origin_of_section
from memory_engine.testing import given

BY_ORIGIN = [
    (e.UserMessage(content="a"), Speaker.PERSON),
    (e.UserMessage(content="a", origin="tool"), Speaker.TOOL),
    (e.UserMessage(content="a", origin="client"), Speaker.CLIENT),
    (e.UserMessage(content="a", origin="summary"), Speaker.SUMMARY),
    (e.LlmTextResponse(content="a"), Speaker.AGENT),
    (e.ToolResult(call_id="c", content="a"), Speaker.TOOL),
    (e.ExternalInject(content="a", source="mail"), Speaker.TOOL),
]


@pytest.mark.parametrize(("event", "origin"), BY_ORIGIN)
def test_the_type_of_a_chunk_says_who_speaks(event: e.Event, origin: Speaker) -> None:
    """Only a person's message is a person's, whatever role carries the others."""
    (chunk,) = given().when(event).then().chunks
    assert (origin, origin is Speaker.PERSON) == (origin_of(chunk), chunk.type in SPOKEN)


def test_a_line_keeps_its_origin_by_its_section() -> None:
    """`said` is a person's, `decided` the agent's, every other section a tool's."""
    assert [Speaker.PERSON, Speaker.AGENT, Speaker.TOOL] == [
        origin_of_section(section) for section in ("said", "decided", "current_state")
    ]


def test_a_summary_has_the_lowest_origin_of_its_lines() -> None:
    """A line of a tool's words makes the whole a tool's; an unknown type of chunk is one too."""
    said = (SummaryLine("said", "No migrations."), SummaryLine("decided", "Use Alembic."))
    assert Speaker.AGENT == origin_of(Chunk(id="3.0", type=ChunkType.COMPACTED, lines=said))
    mixed = (*said, SummaryLine("files", "a.py"))
    assert Speaker.TOOL == origin_of(Chunk(id="3.0", type=ChunkType.COMPACTED, lines=mixed))
    assert Speaker.TOOL == origin_of(Chunk(id="3.0", type="of_a_plugin", content="a"))


def test_an_origin_is_never_raised() -> None:
    """What is made of several has the lowest origin; what is made of nothing is a tool's."""
    assert Speaker.CLIENT == lowest([Speaker.PERSON, Speaker.CLIENT, Speaker.AGENT])
    assert Speaker.TOOL == lowest([Speaker.TOOL, Speaker.OPERATOR]) == lowest([])
