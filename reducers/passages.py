"""Extractors for the events of conversations: the passages that they bring, end and destroy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.chunks import content_text
from memory_engine.core.lazy import lazy_module
from memory_engine.events import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactionUndone,
    CompactorStoodIn,
    ContextRecalled,
    Event,
    EventsErased,
    EventSkipped,
    ExecutionPause,
    ExecutionResume,
    ExecutionRetry,
    FactsDelivered,
    FactsRewound,
    LlmClarification,
    LlmSkillCall,
    LlmSubagentMessage,
    LlmSubagentSpawn,
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
    MemoryForget,
    ParentAgentMessage,
    SessionEnded,
    SessionStarted,
    SkillError,
    SkillResult,
    SourceQuarantined,
    SubagentError,
    SubagentResult,
    TaskAbandoned,
    TaskCompleted,
    TaskStarted,
    TaskTerminated,
    ThreadCleared,
    ThreadRereduced,
    ThreadRewound,
    ThreadSeeded,
    ThreadUpdated,
    TodoExpanded,
    TodoSet,
    TodoUpdated,
    ToolError,
    ToolResult,
    UserMessage,
)
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import SUMMARY, found, pieces
from memory_engine.store.passages import PASSAGES_MAX, Extracted, Extractor, Text

if TYPE_CHECKING:
    from memory_engine.formats import native
else:
    native = lazy_module("memory_engine.formats.native")

SPOKEN: Mapping[type[Event], tuple[str, str, str]] = {
    ParentAgentMessage: ("message", "user", "agent_id"),
    LlmTextResponse: ("message", "assistant", "name"),
    LlmClarification: ("message", "assistant", ""),
    LlmSubagentMessage: ("message", "assistant", "agent_id"),
    ToolResult: ("tool", "tool", "name"),
    SkillResult: ("tool", "tool", "name"),
    SubagentResult: ("tool", "tool", "agent_id"),
    ToolError: ("tool", "tool", "name"),
    SkillError: ("tool", "tool", "name"),
    SubagentError: ("tool", "tool", "agent_id"),
    TaskCompleted: ("task", "", ""),
    TaskAbandoned: ("task", "", ""),
    TaskTerminated: ("task", "", ""),
}
"""Events that are found by their `content`: the kind, the role, and the field that names the speaker."""
SILENT: tuple[type[Event], ...] = (
    CompactionAbandoned, CompactionFailed, CompactionStarted, CompactorStoodIn, ContextRecalled, EventSkipped,
    EventsErased, ExecutionPause, ExecutionResume, ExecutionRetry, FactsDelivered, FactsRewound,
    SessionEnded, SessionStarted, SourceQuarantined, ThreadRereduced, ThreadRewound, ThreadUpdated, TodoUpdated,
)  # fmt: skip
"""Events with text that search does not find: changes of to-do items, and words that other events hold."""


def content_extractor(kind: str, role: str, speaker: str) -> Extractor:
    """The extractor of events that are found by their `content`: see `SPOKEN`."""

    def extract(event: Event, _seq: int) -> Extracted:
        said = content_text(getattr(event, "content", ""))
        key = f"call:{call_id}" if kind == "tool" and (call_id := getattr(event, "call_id", "")) else ""
        texts = found(said, kind, role=role, speaker=getattr(event, speaker) if speaker else "", key=key)
        return _with_own(event, texts)

    return extract


def _own_passages(event: Event, _seq: int) -> Extracted:
    """The text in a provider's own blocks: the calls of its tools and their results."""
    return _with_own(event, Extracted())


def _with_own(event: Event, texts: Extracted) -> Extracted:
    kept = getattr(event, "native", "")
    if '"$whole"' not in kept:
        return texts
    own = tuple(
        Text(piece, "tool", "tool", str(value.get("name") or value.get("type") or ""))
        for value in native.own_values(kept)
        for piece in pieces(native.readable_text(value))
    )
    return msgspec.structs.replace(texts, texts=(*texts.texts, *own)[:PASSAGES_MAX]) if own else texts


_OF_ORIGINS: Mapping[str, tuple[str, str]] = {
    "": ("message", "user"),
    "tool": ("tool", "tool"),
    "client": ("note", "tool"),
    "summary": ("note", "assistant"),
}
"""Kind and role of a message's passages by its origin: only those of people are found as people's."""


def _user_message(event: UserMessage, _seq: int) -> Extracted:
    kind, role = _OF_ORIGINS[event.origin]
    return found(content_text(event.content), kind, role=role, speaker=event.name)


def _seeded(event: ThreadSeeded, _seq: int) -> Extracted:
    said = (content_text(chunk.content) for chunk in event.chunks)
    return Extracted(tuple(Text(piece, "note", "system") for text in said for piece in pieces(text)))


def _call_passages(event: LlmToolCall, _seq: int) -> Extracted:
    said = [Text(piece, "message", "assistant") for piece in pieces(event.content)]
    for call in event.calls:
        text = f"{call.name} {call.arguments}"
        said += (Text(piece, "tool", "assistant", call.name, f"call:{call.id}") for piece in pieces(text))
    return _with_own(event, Extracted(tuple(said)))


def _skill(event: LlmSkillCall, _seq: int) -> Extracted:
    text = f"{event.name} {event.arguments}"
    return found(text, "tool", role="assistant", speaker=event.name, key=f"call:{event.call_id}")


def _spawned(event: LlmSubagentSpawn, _seq: int) -> Extracted:
    return found(event.task, "task", role="assistant", speaker=event.agent_id, key=f"call:{event.call_id}")


def _task(event: TaskStarted, _seq: int) -> Extracted:
    return found(event.goal, "task")


def _todo(event: TodoSet | TodoExpanded, _seq: int) -> Extracted:
    texts = tuple(Text(item.text, "task", key=f"todo:{item.id}") for item in event.items if item.text.strip())
    return Extracted(texts, prefixes=("todo:",)) if isinstance(event, TodoSet) else Extracted(texts)


def _compacted(event: CompactionCompleted, _seq: int) -> Extracted:
    texts = []
    for replacement in event.replacements:
        for line in replacement.lines:
            seqs = {int(head) for source in line.sources if (head := source.partition(".")[0]).isdecimal()}
            texts += [Text(piece, SUMMARY, origins=tuple(sorted(seqs))) for piece in pieces(line.text)]
    return Extracted(tuple(texts))


def _uncompacted(event: CompactionUndone, _seq: int) -> Extracted:
    """The summary ends. The restored chunks need nothing: the passages of their own events are still there."""
    return Extracted(seqs=(event.completed,))


def _forgotten(event: MemoryForget, _seq: int) -> Extracted:
    made_of = (chunk_id.partition(".")[0] for chunk_id in event.summaries)
    drops = event.origins() | {int(head) for head in made_of if head.isdecimal() and len(head) <= 18}
    return Extracted(drops=tuple(sorted(drops)), drop_keys=tuple(f"call:{call_id}" for call_id in event.call_ids))


def _cleared(_event: ThreadCleared, _seq: int) -> Extracted:
    return Extracted(ends_all=True)


def add_passages(plugin: Plugin) -> None:
    """Add the extractors of these events to a plug-in."""
    for cls, how in SPOKEN.items():
        plugin.passages(cls)(content_extractor(*how))
    plugin.silent(*SILENT)
    plugin.passages(UserMessage)(_user_message)
    plugin.passages(ThreadSeeded)(_seeded)
    plugin.passages(LlmToolCall)(_call_passages)
    plugin.passages(LlmThinking)(_own_passages)
    plugin.passages(LlmSkillCall)(_skill)
    plugin.passages(LlmSubagentSpawn)(_spawned)
    plugin.passages(TaskStarted)(_task)
    plugin.passages(TodoSet)(_todo)
    plugin.passages(TodoExpanded)(_todo)
    plugin.passages(CompactionCompleted)(_compacted)
    plugin.passages(CompactionUndone)(_uncompacted)
    plugin.passages(MemoryForget)(_forgotten)
    plugin.passages(ThreadCleared)(_cleared)
