"""Every built-in event by its name, wherever it is declared, and the registry that decodes them."""

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
    ThreadRereduced,
)
from memory_engine.core.events.context import ContextAsked, ContextRecalled, RecalledPassage
from memory_engine.core.events.delivery import Delivery, Destination, FactsDelivered
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
from memory_engine.core.events.registry import EventRegistry, Upcaster, as_before
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
    upcast_promotion_decided_v1,
)
from memory_engine.views.scratchpad.events import ScratchpadRemoved, ScratchpadWritten
from memory_engine.views.screen.events import ProactiveResult, ScreenInjected
from memory_engine.views.session_items.events import SessionItemAdded, SessionItemRemoved
from memory_engine.views.sessions.events import SessionBegun, SessionEntryKept, SharedStateSet
from memory_engine.views.tool_cache.events import ToolCacheDropped, ToolCacheHit, ToolResultCached

BUILTIN_EVENTS: tuple[type[Event], ...] = tuple(
    one for one in list(globals().values()) if isinstance(one, type) and issubclass(one, Event) and one is not Event
)
"""Every event that is imported above; their order means nothing."""


CORE_EVENTS = tuple(cls for cls in BUILTIN_EVENTS if cls.__module__.startswith("memory_engine.core."))
"""The events of conversations; the others are those of views, which plug them in."""


_AS_BEFORE: dict[str, tuple[type[Event], ...]] = {
    "single": (TaskStarted, TaskCompleted, TaskAbandoned, TaskTerminated, EnvironmentChange),
    "lenient": (TodoCompleted, TodoExpanded, TodoUpdated, TodoDeleted, MemoryMarkCritical),
    "beside": (SessionStarted,),
}
"""The fields that keep what version 1 of these events did."""
UPCASTERS: tuple[tuple[str, int, Upcaster], ...] = (
    ("todo_set", 1, upcast_todo_set_v1),
    (MemoryForget.event_type, 1, lambda payload: payload),  # without `lines`, it forgets as it did
    *((cls.event_type, 1, as_before(field)) for field, classes in _AS_BEFORE.items() for cls in classes),
)
"""The steps from older versions of the events of conversations: type, version, and the function to the next."""


def builtin_registry() -> EventRegistry:
    """A new registry that knows every built-in event and how to read its older versions."""
    registry = EventRegistry(BUILTIN_EVENTS)
    for name, version, upcaster in UPCASTERS:
        registry.register_upcaster(name, version, upcaster)
    registry.register_upcaster("promotion_decided", 1, upcast_promotion_decided_v1)  # a view's own, which plugs it in
    return registry


__all__ = [
    "BUILTIN_EVENTS", "CORE_EVENTS", "UPCASTERS", "AgentMdPromoted", "AgentMdRemoved", "AgentMdUploaded",
    "BriefPinned", "BriefUnpinned",
    "CheckpointSaved",
    "CheckpointWritten", "CheckpointsDropped", "ChunkId",
    "CompactionAbandoned",
    "CompactionCompleted", "CompactionFailed", "CompactionStarted", "CompactionUndone", "CompactorStoodIn",
    "Content", "ContextAsked", "ContextRecalled", "CycleStarted",
    "Delivery", "Destination", "Digest", "DocumentAdded", "DocumentPassage", "DocumentRemoved", "DocumentSplice",
    "EnvironmentChange", "ErasedRow", "Event", "EventRegistry", "EventSkipped",
    "EventsErased", "ExchangeFinished", "ExecutionPause",
    "ExecutionResume", "ExecutionRetry", "ExternalInject", "ExternalTimer", "FactId", "FactsDelivered",
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
    "ResultsOffloaded", "RuleReference", "ScratchpadRemoved", "ScratchpadWritten", "ScreenInjected", "SeenSeq",
    "Seq", "SeqBack", "SeqBound", "SeqText", "SessionBegun", "SessionEnded", "SessionEntryKept",
    "SessionItemAdded", "SessionItemRemoved", "SessionStarted", "SharedStateSet", "SkillError", "SkillResult",
    "SourceCallId", "SourceChunkId", "SourceEventId", "SourceSeq", "SourceSeqBack", "StatusWord", "SubagentError",
    "SubagentResult", "SummaryLine", "SummaryRolled", "SystemFailure", "TakenOut", "TaskAbandoned",
    "TaskCompleted",
    "TaskStarted", "TaskTerminated", "TextPart", "ThreadCleared", "ThreadRereduced", "ThreadSeeded", "ThreadUpdated",
    "TodoCompleted", "TodoDeleted", "TodoExpanded",
    "TodoItem", "TodoSet", "TodoUpdated", "ToolCacheDropped", "ToolCacheHit", "ToolCall", "ToolError", "ToolResult",
    "ToolResultCached", "UnknownEvent", "Upcaster", "Usage", "UserMessage", "builtin_registry", "event",
    "upcast_todo_set_v1",
]  # fmt: skip
