"""The events: one small file for each family, and the registry that decodes them."""

from memory_engine.events.base import (
    Content,
    Event,
    ImagePart,
    SummaryLine,
    TextPart,
    ToolCall,
    UnknownEvent,
    event,
)
from memory_engine.events.compaction import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactionUndone,
    Replacement,
    RestoredChunk,
)
from memory_engine.events.conversation import CycleStarted, ExchangeFinished, SummaryRolled
from memory_engine.events.delivery import Delivery, Destination
from memory_engine.events.documents import DocumentAdded, DocumentPassage, DocumentRemoved, DocumentSplice
from memory_engine.events.errors import SkillError, SubagentError, SystemFailure, ToolError
from memory_engine.events.execution import ExecutionPause, ExecutionResume, ExecutionRetry
from memory_engine.events.external import EnvironmentChange, ExternalInject, ExternalTimer
from memory_engine.events.input import ParentAgentMessage, UserMessage
from memory_engine.events.layers import (
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
from memory_engine.events.memory import InitialChunk, MemoryForget, MemoryMarkCritical, Reach, ThreadSeeded
from memory_engine.events.outbox import FactsDelivered
from memory_engine.events.patterns import (
    PatternApproved,
    PatternProposed,
    PatternPublished,
    PatternRejected,
    PatternRevoked,
    PatternsJoined,
    PatternsLeft,
    PatternWithdrawn,
)
from memory_engine.events.playbooks import (
    FeedbackGiven,
    FlowCompleted,
    PlaybookCall,
    PlaybookPromoted,
    PlaybookRemoved,
    PlaybookSaved,
)
from memory_engine.events.preferences import PreferenceRemoved, PreferenceUpdated, RuleReference
from memory_engine.events.promotion import (
    AgentMdPromoted,
    AgentMdRemoved,
    AgentMdUploaded,
    PromotionDecided,
    PromotionScore,
    ReportSaved,
)
from memory_engine.events.registry import EventRegistry, Upcaster
from memory_engine.events.replaying import EventSkipped
from memory_engine.events.response import (
    LlmClarification,
    LlmSkillCall,
    LlmSubagentMessage,
    LlmSubagentSpawn,
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
)
from memory_engine.events.results import SkillResult, SubagentResult, ToolResult
from memory_engine.events.scratchpad import ScratchpadRemoved, ScratchpadWritten
from memory_engine.events.screen import ProactiveResult, ScreenInjected
from memory_engine.events.session import SessionEnded, SessionStarted
from memory_engine.events.task import TaskAbandoned, TaskCompleted, TaskStarted, TaskTerminated
from memory_engine.events.todo import (
    TodoCompleted,
    TodoDeleted,
    TodoExpanded,
    TodoItem,
    TodoSet,
    TodoUpdated,
    upcast_todo_set_v1,
)
from memory_engine.events.tool_cache import ToolCacheDropped, ToolCacheHit, ToolResultCached
from memory_engine.usage import Usage

BUILTIN_EVENTS: tuple[type[Event], ...] = (
    UserMessage, ParentAgentMessage,
    LlmTextResponse, LlmThinking, LlmToolCall, LlmSkillCall, LlmSubagentSpawn, LlmSubagentMessage, LlmClarification,
    ToolResult, SkillResult, SubagentResult,
    ToolError, SubagentError, SkillError, SystemFailure,
    TaskStarted, TaskCompleted, TaskAbandoned, TaskTerminated,
    TodoSet, TodoCompleted, TodoExpanded, TodoUpdated, TodoDeleted,
    MemoryMarkCritical, MemoryForget, ThreadSeeded,
    CompactionStarted, CompactionCompleted, CompactionFailed, CompactionAbandoned, CompactionUndone,
    ExternalInject, ExternalTimer, EnvironmentChange,
    ExecutionRetry, ExecutionResume, ExecutionPause,
    SessionStarted, SessionEnded,
    ScratchpadWritten, ScratchpadRemoved,
    PreferenceUpdated, PreferenceRemoved,
    ReportSaved, PromotionDecided, AgentMdUploaded, AgentMdPromoted, AgentMdRemoved,
    FlowCompleted, FeedbackGiven, PlaybookPromoted, PlaybookSaved, PlaybookRemoved,
    CycleStarted, ExchangeFinished, SummaryRolled,
    ToolResultCached, ToolCacheHit, ToolCacheDropped, ScreenInjected,
    MemoryAppended, MemoryRemoved, MemoryCompacted, MemoryCleared, MemoryGranted, MemoryRevoked, MemoryShared,
    MemoryRecalled, ResultsOffloaded, FactsDelivered, DocumentAdded, DocumentRemoved,
    PatternsJoined, PatternsLeft, PatternProposed, PatternApproved, PatternRejected, PatternRevoked,
    PatternPublished, PatternWithdrawn, EventSkipped,
)  # fmt: skip


def builtin_registry() -> EventRegistry:
    """A new registry that knows every built-in event and how to read its older versions."""
    registry = EventRegistry(BUILTIN_EVENTS)
    registry.register_upcaster("todo_set", 1, upcast_todo_set_v1)
    return registry


__all__ = [
    "BUILTIN_EVENTS", "AgentMdPromoted", "AgentMdRemoved", "AgentMdUploaded", "CompactionAbandoned",
    "CompactionCompleted", "CompactionFailed", "CompactionStarted", "CompactionUndone", "Content", "CycleStarted",
    "Delivery", "Destination", "DocumentAdded", "DocumentPassage", "DocumentRemoved", "DocumentSplice",
    "EnvironmentChange", "Event", "EventRegistry", "EventSkipped", "ExchangeFinished", "ExecutionPause",
    "ExecutionResume", "ExecutionRetry", "ExternalInject", "ExternalTimer", "FactsDelivered", "FeedbackGiven",
    "FlowCompleted", "ImagePart", "InitialChunk", "Layer", "LayerLine", "LlmClarification", "LlmSkillCall",
    "LlmSubagentMessage", "LlmSubagentSpawn", "LlmTextResponse", "LlmThinking", "LlmToolCall", "MemoryAppended",
    "MemoryCleared", "MemoryCompacted", "MemoryForget", "MemoryGranted", "MemoryMarkCritical", "MemoryRecalled",
    "MemoryRemoved", "MemoryRevoked", "MemoryShared", "ParentAgentMessage", "PatternApproved", "PatternProposed",
    "PatternPublished", "PatternRejected", "PatternRevoked", "PatternWithdrawn", "PatternsJoined", "PatternsLeft",
    "PlaybookCall", "PlaybookPromoted", "PlaybookRemoved", "PlaybookSaved", "PreferenceRemoved", "PreferenceUpdated",
    "ProactiveResult", "PromotionDecided", "PromotionScore", "Reach", "Replacement", "ReportSaved", "RestoredChunk",
    "ResultsOffloaded", "RuleReference", "ScratchpadRemoved", "ScratchpadWritten", "ScreenInjected", "SessionEnded",
    "SessionStarted", "SkillError", "SkillResult", "SubagentError", "SubagentResult", "SummaryLine", "SummaryRolled",
    "SystemFailure", "TaskAbandoned", "TaskCompleted", "TaskStarted", "TaskTerminated", "TextPart", "ThreadSeeded",
    "TodoCompleted", "TodoDeleted", "TodoExpanded", "TodoItem", "TodoSet", "TodoUpdated", "ToolCacheDropped",
    "ToolCacheHit", "ToolCall", "ToolError", "ToolResult", "ToolResultCached", "UnknownEvent", "Upcaster", "Usage",
    "UserMessage", "builtin_registry", "event", "upcast_todo_set_v1",
]  # fmt: skip
