"""Who speaks: the origin of a chunk, of a line of a summary, and of what is made of several.

A chunk's type says it, never its words nor the role under which a provider carries it: observations, notices of client
software and summaries of other tools are sent in user messages, and no person wrote them. An origin is carried, never
raised: what is made of several chunks has the lowest of their origins.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import Event, EventRole
from memory_engine.core.events.messages import UserMessage

SPOKEN = frozenset({ChunkType.USER_MESSAGE, ChunkType.PARENT_MESSAGE})
"""Messages of a person or of the leading agent: a turn begins with one of these."""
HEARD = SPOKEN | {ChunkType.NOTICE, ChunkType.FOREIGN_SUMMARY}
"""These, and what the client sends in between: the agent works on the newest of them."""
PEOPLE = frozenset({ChunkType.USER_MESSAGE})
"""Messages of people alone."""
RESULTS = frozenset({ChunkType.ACTION_RESULT, ChunkType.ERROR, ChunkType.OBSERVATION})
"""What tools give back, with or without the id of a call."""


class Speaker(StrEnum):
    """Where words come from, from the highest to the lowest.

    `OPERATOR`: the instructions of whoever runs the agent. `CLIENT`, `SUMMARY` and `IMPORTED` rank equal: notices of
    client software, summaries that another tool wrote, and what was drawn from other threads. `TOOL` covers results,
    files, injected notes and sub-agents, and all that is unknown.
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
    """The origin of a chunk's words; of a summary, the lowest of its lines. An unknown type counts as a tool's."""
    if chunk.type == ChunkType.COMPACTED:
        return lowest(origin_of_section(line.section) for line in chunk.lines)
    return _OF_TYPES.get(chunk.type, Speaker.TOOL)


def role_of(event: Event) -> EventRole:
    """The role of an event; of a message of the user role that no person wrote, `tool` or `other`."""
    if isinstance(event, UserMessage) and event.origin:
        return "tool" if event.origin == "tool" else "other"
    return event.event_role


def origin_of_section(section: str) -> Speaker:
    """The origin of a summary's line by its section: `said` holds people's words, `decided` the agent's."""
    return _OF_SECTIONS.get(section, Speaker.TOOL)


def lowest(origins: Iterable[Speaker]) -> Speaker:
    """The lowest of some origins, the first of those that rank equal; of none, a tool's."""
    return min(origins, key=_RANKS.__getitem__, default=Speaker.TOOL)
