"""Origins: who said a chunk, a line of a summary, or content made from several chunks.

The origin is determined by a chunk's type, never by its words or by the role that a provider gives it: observations,
notices of client software and summaries of other tools are sent in user messages, although no person wrote them. An
origin is inherited and never raised: content made from several chunks has the lowest of their origins.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import Event, EventRole
from memory_engine.core.events.messages import UserMessage

SPOKEN = frozenset({ChunkType.USER_MESSAGE, ChunkType.PARENT_MESSAGE})
"""Messages of a person or of the leading agent: a turn begins with one of these."""
HEARD = SPOKEN | {ChunkType.NOTICE, ChunkType.FOREIGN_SUMMARY}
"""`SPOKEN`, and messages that the client sends in between: the agent works on the newest of these."""
PEOPLE = frozenset({ChunkType.USER_MESSAGE})
"""Messages of people only."""
RESULTS = frozenset({ChunkType.ACTION_RESULT, ChunkType.ERROR, ChunkType.OBSERVATION})
"""Results of tools, with or without the id of a call."""


class Speaker(StrEnum):
    """Origins of words, from the highest to the lowest.

    `OPERATOR` is the instructions of whoever runs the agent. `CLIENT`, `SUMMARY` and `IMPORTED` have equal rank:
    notices of client software, summaries that another tool wrote, and content from other threads. `TOOL` covers
    results, files, injected notes and sub-agents, and everything unknown.
    """

    OPERATOR = "operator"
    PERSON = "person"
    AGENT = "agent"
    CLIENT = "client"
    SUMMARY = "summary"
    IMPORTED = "imported"
    TOOL = "tool"


_RANKS: Mapping[Speaker, int] = {
    Speaker.OPERATOR: 4,
    Speaker.PERSON: 3,
    Speaker.AGENT: 2,
    Speaker.CLIENT: 1,
    Speaker.SUMMARY: 1,
    Speaker.IMPORTED: 1,
    Speaker.TOOL: 0,
}
_OF_TYPES: Mapping[str, Speaker] = {
    ChunkType.SYSTEM: Speaker.OPERATOR,
    ChunkType.USER_MESSAGE: Speaker.PERSON,
    ChunkType.PARENT_MESSAGE: Speaker.AGENT,
    ChunkType.AGENT_RESPONSE: Speaker.AGENT,
    ChunkType.THINKING: Speaker.AGENT,
    ChunkType.AGENT_ACTION: Speaker.AGENT,
    ChunkType.CLARIFICATION: Speaker.AGENT,
    ChunkType.TASK: Speaker.AGENT,
    ChunkType.TODO_LIST: Speaker.AGENT,
    ChunkType.TODO_ITEM: Speaker.AGENT,
    ChunkType.SCRATCHPAD: Speaker.AGENT,
    ChunkType.SNIPPET: Speaker.AGENT,
    ChunkType.EXECUTION: Speaker.AGENT,
    ChunkType.NOTICE: Speaker.CLIENT,
    ChunkType.FOREIGN_SUMMARY: Speaker.SUMMARY,
    ChunkType.RECALLED: Speaker.IMPORTED,
}
_OF_SECTIONS: Mapping[str, Speaker] = {"said": Speaker.PERSON, "decided": Speaker.AGENT}


def origin_of(chunk: Chunk) -> Speaker:
    """Return the origin of a chunk's words; for a summary, the lowest of its lines. Unknown types count as `TOOL`."""
    if chunk.type == ChunkType.COMPACTED:
        return lowest(origin_of_section(line.section) for line in chunk.lines)
    return _OF_TYPES.get(chunk.type, Speaker.TOOL)


def role_of(event: Event) -> EventRole:
    """Return the role of an event; `tool` or `other` for a message of the user role that no person wrote."""
    if isinstance(event, UserMessage) and event.origin:
        return "tool" if event.origin == "tool" else "other"
    return event.event_role


def origin_of_section(section: str) -> Speaker:
    """Return the origin of a summary's line by its section: `said` contains people's words, `decided` the agent's."""
    return _OF_SECTIONS.get(section, Speaker.TOOL)


def lowest(origins: Iterable[Speaker]) -> Speaker:
    """Return the lowest origin, the first among those of equal rank; `TOOL` if there are none."""
    return min(origins, key=_RANKS.__getitem__, default=Speaker.TOOL)
