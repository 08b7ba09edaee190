"""Who speaks: the origin of a chunk, of a line of a summary, and of what is made of several.

A chunk's type says it, never its words nor the role under which a provider carries it: observations, notices of client
software and summaries of other tools are sent in user messages, and no person wrote them. An origin is carried, never
raised: what is made of several chunks has the lowest of their origins.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from memory_engine.core.chunks import Chunk, ChunkType

SPOKEN = frozenset({ChunkType.USER_MESSAGE, ChunkType.PARENT_MESSAGE})
"""Messages of a person or of the leading agent: a turn begins with one of these."""
PEOPLE = frozenset({ChunkType.USER_MESSAGE})
"""Messages of people alone."""
RESULTS = frozenset({ChunkType.ACTION_RESULT, ChunkType.ERROR, ChunkType.OBSERVATION})
"""What tools give back, with or without the id of a call."""


class Origin(StrEnum):
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


_RANKS: Mapping[Origin, int] = {
    Origin.OPERATOR: 4,
    Origin.PERSON: 3,
    Origin.AGENT: 2,
    Origin.CLIENT: 1,
    Origin.SUMMARY: 1,
    Origin.IMPORTED: 1,
    Origin.TOOL: 0,
}
_OF_TYPES: Mapping[str, Origin] = {
    ChunkType.SYSTEM: Origin.OPERATOR,
    ChunkType.USER_MESSAGE: Origin.PERSON,
    ChunkType.PARENT_MESSAGE: Origin.AGENT,
    ChunkType.AGENT_RESPONSE: Origin.AGENT,
    ChunkType.THINKING: Origin.AGENT,
    ChunkType.AGENT_ACTION: Origin.AGENT,
    ChunkType.CLARIFICATION: Origin.AGENT,
    ChunkType.TASK: Origin.AGENT,
    ChunkType.TODO_LIST: Origin.AGENT,
    ChunkType.TODO_ITEM: Origin.AGENT,
    ChunkType.SCRATCHPAD: Origin.AGENT,
    ChunkType.SNIPPET: Origin.AGENT,
    ChunkType.EXECUTION: Origin.AGENT,
    ChunkType.NOTICE: Origin.CLIENT,
    ChunkType.FOREIGN_SUMMARY: Origin.SUMMARY,
    ChunkType.RECALLED: Origin.IMPORTED,
}
_OF_SECTIONS: Mapping[str, Origin] = {"said": Origin.PERSON, "decided": Origin.AGENT}


def origin_of(chunk: Chunk) -> Origin:
    """The origin of a chunk's words; of a summary, the lowest of its lines. An unknown type counts as a tool's."""
    if chunk.type == ChunkType.COMPACTED:
        return lowest(origin_of_section(line.section) for line in chunk.lines)
    return _OF_TYPES.get(chunk.type, Origin.TOOL)


def origin_of_section(section: str) -> Origin:
    """The origin of a summary's line by its section: `said` holds people's words, `decided` the agent's."""
    return _OF_SECTIONS.get(section, Origin.TOOL)


def lowest(origins: Iterable[Origin]) -> Origin:
    """The lowest of some origins, the first of those that rank equal; of none, a tool's."""
    return min(origins, key=_RANKS.__getitem__, default=Origin.TOOL)
