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
    Replacement,
)
from memory_engine.events.errors import SkillError, SubagentError, SystemFailure, ToolError
from memory_engine.events.execution import ExecutionPause, ExecutionResume, ExecutionRetry
from memory_engine.events.external import EnvironmentChange, ExternalInject, ExternalTimer
from memory_engine.events.input import ParentAgentMessage, UserMessage
from memory_engine.events.memory import InitialChunk, MemoryForget, MemoryMarkCritical, ThreadSeeded
from memory_engine.events.registry import EventRegistry, Upcaster
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
from memory_engine.usage import Usage

BUILTIN_EVENTS: tuple[type[Event], ...] = (
    UserMessage, ParentAgentMessage,
    LlmTextResponse, LlmThinking, LlmToolCall, LlmSkillCall, LlmSubagentSpawn, LlmSubagentMessage, LlmClarification,
    ToolResult, SkillResult, SubagentResult,
    ToolError, SubagentError, SkillError, SystemFailure,
    TaskStarted, TaskCompleted, TaskAbandoned, TaskTerminated,
    TodoSet, TodoCompleted, TodoExpanded, TodoUpdated, TodoDeleted,
    MemoryMarkCritical, MemoryForget, ThreadSeeded,
    CompactionStarted, CompactionCompleted, CompactionFailed, CompactionAbandoned,
    ExternalInject, ExternalTimer, EnvironmentChange,
    ExecutionRetry, ExecutionResume, ExecutionPause,
    SessionStarted, SessionEnded,
)  # fmt: skip


def builtin_registry() -> EventRegistry:
    """A new registry that knows every built-in event and how to read its older versions."""
    registry = EventRegistry(BUILTIN_EVENTS)
    registry.register_upcaster("todo_set", 1, upcast_todo_set_v1)
    return registry


__all__ = [
    "BUILTIN_EVENTS", "CompactionAbandoned", "CompactionCompleted", "CompactionFailed", "CompactionStarted", "Content",
    "EnvironmentChange", "Event", "EventRegistry", "ExecutionPause", "ExecutionResume", "ExecutionRetry",
    "ExternalInject", "ExternalTimer", "ImagePart", "InitialChunk", "LlmClarification", "LlmSkillCall",
    "LlmSubagentMessage", "LlmSubagentSpawn", "LlmTextResponse", "LlmThinking", "LlmToolCall", "MemoryForget",
    "MemoryMarkCritical", "ParentAgentMessage", "Replacement", "SessionEnded", "SessionStarted", "SkillError",
    "SkillResult", "SubagentError", "SubagentResult", "SummaryLine", "SystemFailure", "TaskAbandoned",
    "TaskCompleted", "TaskStarted", "TaskTerminated", "TextPart", "ThreadSeeded", "TodoCompleted", "TodoDeleted",
    "TodoExpanded", "TodoItem", "TodoSet", "TodoUpdated", "ToolCall", "ToolError", "ToolResult", "UnknownEvent",
    "Upcaster", "Usage", "UserMessage", "builtin_registry", "event", "upcast_todo_set_v1",
]  # fmt: skip
