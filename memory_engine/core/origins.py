"""Origins: who said a chunk, a line of a summary, or content made from several chunks.

The origin is determined by a chunk's type, never by its words or by the role that a provider gives it: observations,
notices of client software and summaries of other tools are sent in user messages, although no person wrote them. An
origin is inherited and never raised: content made from several chunks has the lowest of their origins.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile

from msgspec.structs import replace

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import Event, EventRole, SummaryLine, UnknownEvent
from memory_engine.core.events.messages import UserMessage
from memory_engine.core.sections import DECIDED
from memory_engine.core.sections import PEOPLE as PEOPLE_SECTIONS

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

    `OPERATOR` is the instructions of whoever runs the agent. `CLIENT`, `SUMMARY`, `IMPORTED` and `PATTERN` have equal
    rank: notices of client software, summaries that another tool wrote, content from other threads or systems, and
    patterns of other tenants. So have `TOOL` and `DOCUMENT`, the lowest: a tool's covers results, injected notes and
    sub-agents, and everything unknown.
    """

    OPERATOR = "operator"
    PERSON = "person"
    AGENT = "agent"
    CLIENT = "client"
    SUMMARY = "summary"
    IMPORTED = "imported"
    PATTERN = "pattern"
    TOOL = "tool"
    DOCUMENT = "document"


_SPEAKERS = tuple(one.value for one in Speaker)
_RANKS: Mapping[Speaker, int] = {
    Speaker.OPERATOR: 4,
    Speaker.PERSON: 3,
    Speaker.AGENT: 2,
    Speaker.CLIENT: 1,
    Speaker.SUMMARY: 1,
    Speaker.IMPORTED: 1,
    Speaker.PATTERN: 1,
    Speaker.TOOL: 0,
    Speaker.DOCUMENT: 0,
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
_OF_EVENTS: Mapping[str, Speaker] = {
    "parent_agent_message": Speaker.AGENT,
    "llm_subagent_message": Speaker.TOOL,
    "session_started": Speaker.OPERATOR,
    "agent_md_uploaded": Speaker.OPERATOR,
    "preference_updated": Speaker.PERSON,
    "brief_pinned": Speaker.PERSON,
    "document_added": Speaker.DOCUMENT,
    "pattern_published": Speaker.PATTERN,
    **dict.fromkeys(
        (
            "task_started", "task_completed", "task_abandoned", "task_terminated", "todo_set", "todo_expanded",
            "scratchpad_written", "report_saved", "finding_noted", "agent_md_promoted", "memory_appended",
            "memory_file_written", "playbook_saved", "item_put",
        ),
        Speaker.AGENT,
    ),
}  # fmt: skip
_OF_ROLES: Mapping[str, Speaker] = {"user": Speaker.PERSON, "assistant": Speaker.AGENT}
_NAMED: Mapping[str, Speaker] = {
    "explicit": Speaker.PERSON,
    "onboarding": Speaker.PERSON,
    "promotion": Speaker.AGENT,
    **{one.value: one for one in Speaker},
}
"""Origins that events name in a field of theirs."""
UNATTRIBUTED = "key_information"
"""Section of a line that claims to be a person's words, but was drawn from a tool's output."""
SPOKEN_SECTIONS = frozenset({*PEOPLE_SECTIONS, DECIDED})
_OF_SECTIONS: Mapping[str, Speaker] = {"said": Speaker.PERSON, "decided": Speaker.AGENT}


def origin_of(chunk: Chunk) -> Speaker:
    """Return the origin of a chunk's words; for a summary, the lowest of its lines. Unknown types count as `TOOL`."""
    if chunk.type == ChunkType.COMPACTED:
        return lowest(origin_of_section(line.section) for line in chunk.lines)
    return _OF_TYPES.get(chunk.type, Speaker.TOOL)


def origin_of_event(event: Event | UnknownEvent) -> Speaker:
    """Return the origin of an event's own words, without that of its sources. Unknown types count as `TOOL`."""
    if isinstance(event, UnknownEvent):
        return Speaker.TOOL
    known = _OF_EVENTS.get(event.event_type) or _OF_ROLES.get(event.event_role, Speaker.TOOL)
    metadata = getattr(event, "metadata", None)
    given = getattr(event, "origin", "") or (metadata.get("origin") if isinstance(metadata, Mapping) else "")
    return lowest((known, _NAMED.get(given, known) if isinstance(given, str) else known))


def origin_since_spoken(newest: Iterable[Chunk]) -> Speaker:
    """Return the lowest origin among the chunks since a person last spoke, at most the agent's.

    What an agent writes now may repeat any of them. The chunks are given newest first.
    """
    read = takewhile(lambda chunk: chunk.type not in SPOKEN, newest)
    return lowest([Speaker.AGENT, *map(origin_of, read)])


def checked_trust(origin: object) -> Speaker | None:
    """Return the origin of a name; `None` for none. Raises `ValueError`."""
    if origin is None:
        return None
    if isinstance(origin, str) and origin in _SPEAKERS:
        return Speaker(origin)
    raise ValueError(f"it is an origin, or None for any: {', '.join(_SPEAKERS)}")


def role_of(event: Event) -> EventRole:
    """Return the role of an event; `tool` or `other` for a message of the user role that no person wrote."""
    if isinstance(event, UserMessage) and event.origin:
        return "tool" if event.origin == "tool" else "other"
    return event.event_role


def origin_of_section(section: str) -> Speaker:
    """Return the origin of a summary's line by its section: `said` contains people's words, `decided` the agent's."""
    return _OF_SECTIONS.get(section, Speaker.TOOL)


def is_spoken(section: str) -> bool:
    """Return whether a section holds words of people, or of the agent itself, and of no one else."""
    return section in SPOKEN_SECTIONS


def at_least(origin: Speaker, least: Speaker) -> bool:
    """Return whether an origin ranks as high as another, or higher."""
    return _RANKS[origin] >= _RANKS[least]


def lowest(origins: Iterable[Speaker]) -> Speaker:
    """Return the lowest origin, the first among those of equal rank; `TOOL` if there are none."""
    return min(origins, key=_RANKS.__getitem__, default=Speaker.TOOL)


def attributed(
    lines: Sequence[SummaryLine], chunks: Mapping[str, Chunk], earlier: Sequence[SummaryLine]
) -> tuple[SummaryLine, ...]:
    """Return the lines, those with words of a tool outside the sections of people's and the agent's words."""
    former = {(line.section, line.text) for line in earlier}

    def is_a_tools(line: SummaryLine) -> bool:
        if not is_spoken(line.section) or (line.section, line.text) in former:
            return False
        sources = [chunks[source] for source in line.sources if source in chunks] or list(chunks.values())
        return any(origin_of(chunk) is Speaker.TOOL for chunk in sources)

    return tuple(replace(line, section=UNATTRIBUTED) if is_a_tools(line) else line for line in lines)
