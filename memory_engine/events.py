"""Every built-in event by its name, wherever it is declared, and the registry that decodes them.

The names are imported at their first use: an application needs a few of them.
"""

from functools import cache
from typing import TYPE_CHECKING, cast

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.core.events.base import (
        Content,
        Event,
        FilePart,
        ImagePart,
        PackedText,
        SummaryLine,
        TakenOut,
        TextPart,
        ToolCall,
        UnknownEvent,
        event,
    )
    from memory_engine.core.events.compaction import (
        CompactionAbandoned,
        CompactionCompleted,
        CompactionFailed,
        CompactionStarted,
        CompactionUndone,
        CompactorStoodIn,
        EventSkipped,
        MendedEvent,
        Replacement,
        RestoredChunk,
        RewindReach,
        SourceQuarantined,
        ThreadRereduced,
        ThreadRewound,
    )
    from memory_engine.core.events.context import ContextAsked, ContextRecalled, RecalledPassage
    from memory_engine.core.events.delivery import Delivery, Destination, FactsDelivered, FactsRewound
    from memory_engine.core.events.exchanges import CycleStarted, ExchangeFinished, SummaryRolled
    from memory_engine.core.events.memory import (
        EnvironmentChange,
        ErasedRow,
        EventsErased,
        ExecutionPause,
        ExecutionResume,
        ExecutionRetry,
        ExternalInject,
        ExternalTimer,
        InitialChunk,
        MemoryForget,
        MemoryMarkCritical,
        MetadataEntry,
        Reach,
        SessionEnded,
        SessionStarted,
        ThreadCleared,
        ThreadSeeded,
        ThreadUpdated,
    )
    from memory_engine.core.events.messages import (
        LlmClarification,
        LlmSkillCall,
        LlmSubagentMessage,
        LlmSubagentSpawn,
        LlmTextResponse,
        LlmThinking,
        LlmToolCall,
        ParentAgentMessage,
        SkillError,
        SkillResult,
        SubagentError,
        SubagentResult,
        SystemFailure,
        ToolError,
        ToolResult,
        UserMessage,
    )
    from memory_engine.core.events.registry import EventRegistry, Upcaster
    from memory_engine.core.events.roles import (
        ChunkId,
        Digest,
        FactId,
        Id,
        JsonText,
        Name,
        SeenSeq,
        Seq,
        SeqBack,
        SeqBound,
        SeqText,
        SourceCallId,
        SourceChunkId,
        SourceEventId,
        SourceSeq,
        SourceSeqBack,
        StatusWord,
    )
    from memory_engine.core.events.tasks import (
        TaskAbandoned,
        TaskCompleted,
        TaskStarted,
        TaskTerminated,
        TodoCompleted,
        TodoDeleted,
        TodoExpanded,
        TodoItem,
        TodoSet,
        TodoUpdated,
        upcast_todo_set_v1,
    )
    from memory_engine.errors.effects import Usage
    from memory_engine.views.brief.events import BriefPinned, BriefUnpinned
    from memory_engine.views.checkpoints.events import CheckpointSaved, CheckpointsDropped, CheckpointWritten
    from memory_engine.views.documents.events import DocumentAdded, DocumentPassage, DocumentRemoved, DocumentSplice
    from memory_engine.views.items.events import ItemPut, ItemsDeleted, ItemsUsed
    from memory_engine.views.layers.events import (
        Layer,
        LayerLine,
        MemoryAppended,
        MemoryCleared,
        MemoryCompacted,
        MemoryGranted,
        MemoryRecalled,
        MemoryRemoved,
        MemoryRevoked,
        MemoryShared,
        ResultsOffloaded,
    )
    from memory_engine.views.memory_files.events import MemoryFilesDeleted, MemoryFilesMoved, MemoryFileWritten
    from memory_engine.views.patterns.events import (
        PatternApproved,
        PatternProposed,
        PatternPublished,
        PatternRejected,
        PatternRevoked,
        PatternsJoined,
        PatternsLeft,
        PatternWithdrawn,
    )
    from memory_engine.views.playbooks.events import (
        FeedbackGiven,
        FlowCompleted,
        PlaybookCall,
        PlaybookPromoted,
        PlaybookRemoved,
        PlaybookSaved,
    )
    from memory_engine.views.preferences.events import PreferenceRemoved, PreferenceUpdated, RuleReference
    from memory_engine.views.promotion.events import (
        AgentMdPromoted,
        AgentMdRemoved,
        AgentMdUploaded,
        FindingNoted,
        PromotionDecided,
        PromotionScore,
        ReportSaved,
    )
    from memory_engine.views.scratchpad.events import ScratchpadRemoved, ScratchpadWritten
    from memory_engine.views.screen.events import ProactiveResult, ScreenInjected
    from memory_engine.views.session_items.events import SessionItemAdded, SessionItemRemoved
    from memory_engine.views.sessions.events import SessionBegun, SessionEntryKept, SharedStateSet
    from memory_engine.views.statements.events import StatementsCompared
    from memory_engine.views.tool_cache.events import ToolCacheDropped, ToolCacheHit, ToolResultCached
    from memory_engine.views.workspace.events import WorkspaceChange, WorkspaceRecorded

    BUILTIN_EVENTS: tuple[type[Event], ...]
    """Every built-in event; their order means nothing."""

_HOMES = {
    ".core.events.base": (
        "Content Event FilePart ImagePart PackedText SummaryLine TakenOut TextPart ToolCall UnknownEvent event"
    ),
    ".core.events.compaction": (
        "CompactionAbandoned CompactionCompleted CompactionFailed CompactionStarted CompactionUndone "
        "CompactorStoodIn EventSkipped MendedEvent Replacement RestoredChunk RewindReach SourceQuarantined "
        "ThreadRereduced ThreadRewound"
    ),
    ".core.events.context": "ContextAsked ContextRecalled RecalledPassage",
    ".core.events.delivery": "Delivery Destination FactsDelivered FactsRewound",
    ".core.events.exchanges": "CycleStarted ExchangeFinished SummaryRolled",
    ".core.events.memory": (
        "EnvironmentChange ErasedRow EventsErased ExecutionPause ExecutionResume ExecutionRetry "
        "ExternalInject ExternalTimer InitialChunk MemoryForget MemoryMarkCritical MetadataEntry Reach "
        "SessionEnded SessionStarted ThreadCleared ThreadSeeded ThreadUpdated"
    ),
    ".core.events.messages": (
        "LlmClarification LlmSkillCall LlmSubagentMessage LlmSubagentSpawn LlmTextResponse LlmThinking "
        "LlmToolCall ParentAgentMessage SkillError SkillResult SubagentError SubagentResult SystemFailure "
        "ToolError ToolResult UserMessage"
    ),
    ".core.events.registry": "EventRegistry Upcaster",
    ".core.events.roles": (
        "ChunkId Digest FactId Id JsonText Name SeenSeq Seq SeqBack SeqBound SeqText SourceCallId "
        "SourceChunkId SourceEventId SourceSeq SourceSeqBack StatusWord"
    ),
    ".core.events.tasks": (
        "TaskAbandoned TaskCompleted TaskStarted TaskTerminated TodoCompleted TodoDeleted TodoExpanded "
        "TodoItem TodoSet TodoUpdated upcast_todo_set_v1"
    ),
    ".errors.effects": "Usage",
    ".views.brief.events": "BriefPinned BriefUnpinned",
    ".views.checkpoints.events": "CheckpointSaved CheckpointsDropped CheckpointWritten",
    ".views.documents.events": "DocumentAdded DocumentPassage DocumentRemoved DocumentSplice",
    ".views.items.events": "ItemPut ItemsDeleted ItemsUsed",
    ".views.layers.events": (
        "Layer LayerLine MemoryAppended MemoryCleared MemoryCompacted MemoryGranted MemoryRecalled "
        "MemoryRemoved MemoryRevoked MemoryShared ResultsOffloaded"
    ),
    ".views.memory_files.events": "MemoryFilesDeleted MemoryFilesMoved MemoryFileWritten",
    ".views.patterns.events": (
        "PatternApproved PatternProposed PatternPublished PatternRejected PatternRevoked PatternsJoined "
        "PatternsLeft PatternWithdrawn"
    ),
    ".views.playbooks.events": (
        "FeedbackGiven FlowCompleted PlaybookCall PlaybookPromoted PlaybookRemoved PlaybookSaved"
    ),
    ".views.preferences.events": "PreferenceRemoved PreferenceUpdated RuleReference",
    ".views.promotion.events": (
        "AgentMdPromoted AgentMdRemoved AgentMdUploaded FindingNoted PromotionDecided PromotionScore ReportSaved"
    ),
    ".views.scratchpad.events": "ScratchpadRemoved ScratchpadWritten",
    ".views.screen.events": "ProactiveResult ScreenInjected",
    ".views.session_items.events": "SessionItemAdded SessionItemRemoved",
    ".views.sessions.events": "SessionBegun SessionEntryKept SharedStateSet",
    ".views.statements.events": "StatementsCompared",
    ".views.tool_cache.events": "ToolCacheDropped ToolCacheHit ToolResultCached",
    ".views.workspace.events": "WorkspaceChange WorkspaceRecorded",
}


_named, _listed = imported_when_asked(__name__, _HOMES)


def __getattr__(name: str) -> object:
    return builtin_events() if name == "BUILTIN_EVENTS" else _named(name)


def __dir__() -> list[str]:
    return sorted({*_listed(), *__all__})


@cache
def builtin_events(room: str = "") -> "tuple[type[Event], ...]":
    """Every built-in event, or those of one room (`"core"`: of conversations); their order means nothing."""
    found = [_named(name) for home, names in _HOMES.items() if home.startswith(f".{room}") for name in names.split()]
    base = _named("Event")
    return tuple(
        cast("type[Event]", one) for one in found if isinstance(one, type) and base in one.__mro__ and one is not base
    )


_AS_BEFORE = {
    "single": ("task_started", "task_completed", "task_abandoned", "task_terminated", "environment_change"),
    "lenient": ("todo_completed", "todo_expanded", "todo_updated", "todo_deleted", "memory_mark_critical"),
    "beside": ("session_started",),
}
"""The fields that keep what version 1 of these events did."""


def _uncounted(payload: dict[str, object]) -> dict[str, object]:
    """Mark a message of version 1 with a provider's own blocks: their tokens were not counted. Others do not change."""
    return {**payload, "uncounted": True} if '"$whole"' in str(payload.get("native", "")) else payload


def upcasters() -> "tuple[tuple[str, int, Upcaster], ...]":
    """The steps from older versions of the events of conversations: type, version, and the function to the next."""
    from memory_engine.core.events.registry import as_before
    from memory_engine.core.events.tasks import upcast_todo_set_v1

    return (
        ("todo_set", 1, upcast_todo_set_v1),
        ("memory_forget", 1, lambda payload: payload),  # without `lines`, it forgets as it did
        *((name, 1, _uncounted) for name in ("user_message", "llm_text_response", "llm_tool_call")),
        *((name, 1, as_before(field)) for field, names in _AS_BEFORE.items() for name in names),
    )


def builtin_registry() -> "EventRegistry":
    """A new registry that knows every built-in event and how to read its older versions."""
    from memory_engine.core.events.registry import EventRegistry
    from memory_engine.views.promotion.events import upcast_promotion_decided_v1

    registry = EventRegistry(builtin_events())
    for name, version, upcaster in upcasters():
        registry.register_upcaster(name, version, upcaster)
    registry.register_upcaster("promotion_decided", 1, upcast_promotion_decided_v1)  # a view's own, which plugs it in
    return registry


__all__ = [
    "BUILTIN_EVENTS", "AgentMdPromoted", "AgentMdRemoved", "AgentMdUploaded",
    "BriefPinned", "BriefUnpinned",
    "CheckpointSaved",
    "CheckpointWritten", "CheckpointsDropped", "ChunkId",
    "CompactionAbandoned",
    "CompactionCompleted", "CompactionFailed", "CompactionStarted", "CompactionUndone", "CompactorStoodIn",
    "Content", "ContextAsked", "ContextRecalled", "CycleStarted",
    "Delivery", "Destination", "Digest", "DocumentAdded", "DocumentPassage", "DocumentRemoved", "DocumentSplice",
    "EnvironmentChange", "ErasedRow", "Event", "EventRegistry", "EventSkipped",
    "EventsErased", "ExchangeFinished", "ExecutionPause",
    "ExecutionResume", "ExecutionRetry", "ExternalInject", "ExternalTimer", "FactId", "FactsDelivered", "FactsRewound",
    "FeedbackGiven", "FilePart", "FindingNoted", "FlowCompleted", "Id", "ImagePart", "InitialChunk",
    "ItemPut", "ItemsDeleted",
    "ItemsUsed", "JsonText",
    "Layer", "LayerLine",
    "LlmClarification", "LlmSkillCall", "LlmSubagentMessage", "LlmSubagentSpawn", "LlmTextResponse", "LlmThinking",
    "LlmToolCall", "MemoryAppended", "MemoryCleared", "MemoryCompacted",
    "MemoryFileWritten", "MemoryFilesDeleted", "MemoryFilesMoved", "MemoryForget", "MemoryGranted",
    "MemoryMarkCritical", "MemoryRecalled", "MemoryRemoved", "MemoryRevoked", "MemoryShared", "MendedEvent",
    "MetadataEntry", "Name",
    "PackedText", "ParentAgentMessage", "PatternApproved", "PatternProposed", "PatternPublished", "PatternRejected",
    "PatternRevoked", "PatternWithdrawn", "PatternsJoined", "PatternsLeft", "PlaybookCall", "PlaybookPromoted",
    "PlaybookRemoved", "PlaybookSaved", "PreferenceRemoved", "PreferenceUpdated", "ProactiveResult",
    "PromotionDecided", "PromotionScore", "Reach", "RecalledPassage", "Replacement", "ReportSaved", "RestoredChunk",
    "ResultsOffloaded", "RewindReach", "RuleReference", "ScratchpadRemoved", "ScratchpadWritten", "ScreenInjected",
    "SeenSeq", "Seq", "SeqBack", "SeqBound", "SeqText", "SessionBegun", "SessionEnded", "SessionEntryKept",
    "SessionItemAdded", "SessionItemRemoved", "SessionStarted", "SharedStateSet", "SkillError", "SkillResult",
    "SourceCallId", "SourceChunkId", "SourceEventId", "SourceQuarantined", "SourceSeq", "SourceSeqBack",
    "StatementsCompared", "StatusWord",
    "SubagentError", "SubagentResult", "SummaryLine", "SummaryRolled", "SystemFailure", "TakenOut", "TaskAbandoned",
    "TaskCompleted",
    "TaskStarted", "TaskTerminated", "TextPart", "ThreadCleared", "ThreadRereduced", "ThreadRewound", "ThreadSeeded",
    "ThreadUpdated",
    "TodoCompleted", "TodoDeleted", "TodoExpanded",
    "TodoItem", "TodoSet", "TodoUpdated", "ToolCacheDropped", "ToolCacheHit", "ToolCall", "ToolError", "ToolResult",
    "ToolResultCached", "UnknownEvent", "Upcaster", "Usage", "UserMessage", "WorkspaceChange", "WorkspaceRecorded",
    "builtin_events", "builtin_registry", "event", "upcast_todo_set_v1", "upcasters",
]  # fmt: skip
