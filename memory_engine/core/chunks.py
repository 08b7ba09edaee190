"""Chunks: the immutable units of retained context."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from memory_engine.core.events.base import Content, ImagePart, Part, SummaryLine, TextPart, ToolCall


class Retention(StrEnum):
    """How far a compaction may change a chunk."""

    CRITICAL = "critical"
    COMPRESSIBLE = "compressible"
    BATCH_COMPRESSIBLE = "batch_compressible"
    DISPOSABLE = "disposable"
    EPHEMERAL = "ephemeral"


COMPACTABLE = frozenset({Retention.COMPRESSIBLE, Retention.BATCH_COMPRESSIBLE, Retention.DISPOSABLE})


class Category(StrEnum):
    """Part of the context that a chunk belongs to. Only WORKING_FLOW counts towards compaction."""

    WORKING_FLOW = "working_flow"
    SYSTEM = "system"
    TASK = "task"
    MEMORY = "memory"
    ENVIRONMENT = "environment"
    SCRATCHPAD = "scratchpad"


FLOW, OF_FLOW = Category.WORKING_FLOW, tuple(COMPACTABLE)
"""Used for every change of a state. A tuple finds its own members without hashing them, which enums do in Python."""


class ChunkType(StrEnum):
    """Built-in chunk types. A chunk's `type` is an open string: you can add your own."""

    SYSTEM = "system"
    USER_MESSAGE = "user_message"
    PARENT_MESSAGE = "parent_message"
    AGENT_RESPONSE = "agent_response"
    THINKING = "thinking"
    AGENT_ACTION = "agent_action"
    ACTION_RESULT = "action_result"
    OBSERVATION = "observation"
    NOTICE = "notice"
    FOREIGN_SUMMARY = "foreign_summary"
    SUBAGENT_MESSAGE = "subagent_message"
    CLARIFICATION = "clarification"
    ERROR = "error"
    TASK = "task"
    TODO_LIST = "todo_list"
    TODO_ITEM = "todo_item"
    EXTERNAL = "external"
    ENVIRONMENT = "environment"
    EXECUTION = "execution"
    COMPACTED = "compacted"
    SCRATCHPAD = "scratchpad"
    SNIPPET = "snippet"
    RECALLED = "recalled"


INSTRUCTIONS = "session:instructions"
"""Name of the chunk that contains the session's instructions."""
RECALLED = "recalled"
"""Status of a chunk recalled from memory: nothing is learned or promoted from it a second time."""
OF_REQUEST, FURTHER = "recalled:", "recalled further:"
"""Name prefixes of chunks that a context recalled: for the message after them, or by a further query of a request."""
INTERRUPTED = "interrupted"
"""Status of a response that was cut off before its end."""
REDACTED = "redacted"
"""Status of a summary with forgotten sources: it is never rebuilt from its originals."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A unit of retained context.

    `id` is derived from the event (`ctx.new_id()`): `"<seq>.<n>"`, so every chunk identifies its event. `name` is a
    logical identity that survives updates of the chunk (`"task"`, `"todo:3"`). `calls` opens calls; `call_id` answers
    one (`final=False`: not the last answer). `parent_ids` are the chunks it came from; if a reducer leaves them empty,
    the engine fills in the chunks that it replaces. The engine sets `tokens`. `native` belongs to the event: JSON of
    what the provider's message contains beyond these fields. Of `tokens`, `native_tokens` are those of the provider's
    own blocks in it.
    """

    id: str
    type: str
    content: Content = ""
    retention: Retention = Retention.BATCH_COMPRESSIBLE
    category: Category = Category.WORKING_FLOW
    name: str = ""
    label: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    final: bool = True
    response_id: str = ""
    status: str = ""
    native: str = ""
    native_tokens: int = 0
    lines: tuple[SummaryLine, ...] = ()
    parent_ids: tuple[str, ...] = ()
    is_container: bool = False
    tokens: int = 0

    @property
    def seq(self) -> int:
        """Seq of the event that created this chunk."""
        return int(self.id.partition(".")[0])

    @property
    def said_at(self) -> int:
        """Seq of the event that first said this: an earlier one for a marked, shortened or restored chunk.

        Summaries and the outcomes of tasks count as new statements.
        """
        if not self.parent_ids or self.type in (ChunkType.COMPACTED, ChunkType.EXECUTION):
            return self.seq
        heads = (parent_id.partition(".")[0] for parent_id in self.parent_ids)
        return min((self.seq, *(int(head) for head in heads if head.isdecimal())))

    @property
    def text(self) -> str:
        """Text of the content (of the lines, for a summary); images as their `alt`, files as their name."""
        if self.lines:
            return "\n".join(line.text for line in self.lines)
        return content_text(self.content)

    @property
    def is_compactable(self) -> bool:
        """Whether it counts towards a compaction of the working flow, and may be compacted by one."""
        return self.category is FLOW and self.retention in OF_FLOW


def is_of_request(chunk: Chunk) -> bool:
    """Return True if the chunk contains what was recalled for the message after it."""
    return chunk.type == ChunkType.RECALLED and chunk.name.startswith(OF_REQUEST)


def is_of_context(chunk: Chunk) -> bool:
    """Return True if a context recalled the chunk; chunks that an application recalled have no name."""
    return chunk.type == ChunkType.RECALLED and chunk.name.startswith((OF_REQUEST, FURTHER))


def is_of_session(chunk: Chunk) -> bool:
    """Return True if the chunk contains the instructions that a session began with.

    Such a chunk is recognized by its name. In the state of an older log, it is recognized by its differences from other
    instructions: injected ones have the label `system`, and a thread starts with its own at seq 1. An unlabelled chunk
    at seq 1 may be either and does not count.
    """
    if chunk.type != ChunkType.SYSTEM or chunk.category is not Category.SYSTEM:
        return False
    if chunk.name:
        return chunk.name == INSTRUCTIONS
    return chunk.label != "system" and chunk.id.endswith(".0") and bool(chunk.label or chunk.seq > 1)


def outdated_instructions(chunks: Iterable[Chunk]) -> frozenset[str]:
    """Return the ids of the chunks with the instructions of all sessions before the newest that has any."""
    sessions = sorted(filter(is_of_session, chunks), key=lambda chunk: chunk.seq)
    return frozenset(chunk.id for chunk in sessions[:-1])


def content_text(content: Content) -> str:
    """Return the text of content; an image becomes `[image: alt]`, a file `[file: name]` before its own text."""
    if isinstance(content, str):
        return content
    return "\n".join(map(_part_text, content))


def _part_text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case ImagePart():
            return f"[image: {part.alt or part.media_type or 'image'}]"
    said = f"[file: {part.name or part.media_type or 'file'}]"
    return f"{said}\n{part.text}" if part.text else said
