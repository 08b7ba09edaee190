"""The built-in reducers, with their events and extractors for search, as one plug-in."""

from typing import TYPE_CHECKING

from memory_engine import events as e
from memory_engine.core.lazy import FunctionsLater
from memory_engine.plugins import Plugin
from memory_engine.projections.outbox import FACTS, OUTBOX
from memory_engine.reducers import conversation
from memory_engine.reducers.passages import add_passages

if TYPE_CHECKING:
    from memory_engine.reducers import memory, tasks
else:
    memory, tasks = FunctionsLater("memory_engine.reducers.memory"), FunctionsLater("memory_engine.reducers.tasks")

_ROOMS = ("messages", "memory", "compaction", "context", "delivery", "tasks")
"""The modules of events that are not those of a view. A view plugs in its own, `exchanges` among them."""


def core_plugin() -> Plugin:
    """The plug-in that every engine begins with: events of conversations, their reducers and their extractors."""
    plugin = Plugin(
        "memory_engine",
        events=[cls for room in _ROOMS for cls in e.builtin_events(f"core.events.{room}")],
        upcasters=list(e.upcasters()),
    )
    # Importing a reducer registers nothing, so this list is the whole truth about which reducer an event runs.
    plugin.reducer(e.UserMessage)(conversation.reduce_user_message)
    plugin.reducer(e.ParentAgentMessage)(conversation.reduce_parent_agent_message)
    plugin.reducer(e.LlmTextResponse)(conversation.reduce_llm_text_response)
    plugin.reducer(e.LlmThinking)(conversation.reduce_llm_thinking)
    plugin.reducer(e.LlmToolCall)(conversation.reduce_llm_tool_call)
    plugin.reducer(e.LlmSkillCall)(conversation.reduce_llm_skill_call)
    plugin.reducer(e.LlmSubagentSpawn)(conversation.reduce_llm_subagent_spawn)
    plugin.reducer(e.LlmSubagentMessage)(conversation.reduce_llm_subagent_message)
    plugin.reducer(e.LlmClarification)(conversation.reduce_llm_clarification)
    plugin.reducer(e.ToolResult)(conversation.reduce_tool_result)
    plugin.reducer(e.SkillResult)(conversation.reduce_skill_result)
    plugin.reducer(e.SubagentResult)(conversation.reduce_subagent_result)
    plugin.reducer(e.ToolError)(conversation.reduce_tool_error)
    plugin.reducer(e.SkillError)(conversation.reduce_skill_error)
    plugin.reducer(e.SubagentError)(conversation.reduce_subagent_error)
    plugin.reducer(e.SystemFailure)(conversation.reduce_system_error)
    plugin.reducer(e.TaskStarted)(tasks.reduce_task_started)
    plugin.reducer(e.TaskCompleted)(tasks.reduce_task_completed)
    plugin.reducer(e.TaskAbandoned)(tasks.reduce_task_abandoned)
    plugin.reducer(e.TaskTerminated)(tasks.reduce_task_terminated)
    plugin.reducer(e.TodoSet)(tasks.reduce_todo_set)
    plugin.reducer(e.TodoCompleted)(tasks.reduce_todo_completed)
    plugin.reducer(e.TodoExpanded)(tasks.reduce_todo_expanded)
    plugin.reducer(e.TodoUpdated)(tasks.reduce_todo_updated)
    plugin.reducer(e.TodoDeleted)(tasks.reduce_todo_deleted)
    plugin.reducer(e.ThreadSeeded)(memory.reduce_thread_seeded)
    plugin.reducer(e.MemoryMarkCritical)(memory.reduce_memory_mark_critical)
    plugin.reducer(e.MemoryForget)(memory.reduce_memory_forget)
    plugin.reducer(e.ThreadCleared)(memory.reduce_thread_cleared)
    plugin.reducer(e.ThreadUpdated)(memory.reduce_thread_updated)
    plugin.reducer(e.EventsErased)(memory.reduce_events_erased)
    plugin.reducer(e.ContextRecalled)(memory.reduce_context_recalled)
    plugin.reducer(e.CompactionCompleted)(memory.reduce_compaction_completed)
    plugin.reducer(e.CompactionUndone)(memory.reduce_compaction_undone)
    plugin.reducer(e.ThreadRereduced)(memory.reduce_thread_rereduced)
    plugin.reducer(e.ThreadRewound, e.SourceQuarantined)(memory.reduce_thread_rewound)
    plugin.reducer(e.FactsRewound)(memory.reduce_facts_rewound)
    plugin.reducer(e.CompactionStarted, e.CompactionFailed, e.CompactionAbandoned)(memory.reduce_compaction_protocol)
    plugin.reducer(e.ExternalInject)(memory.reduce_external_inject)
    plugin.reducer(e.ExternalTimer)(memory.reduce_external_timer)
    plugin.reducer(e.EnvironmentChange)(memory.reduce_environment_change)
    plugin.reducer(e.ExecutionRetry)(memory.reduce_execution_retry)
    plugin.reducer(e.ExecutionPause, e.ExecutionResume)(memory.reduce_execution_flow)
    plugin.reducer(e.SessionStarted)(memory.reduce_session_started)
    plugin.reducer(e.SessionEnded)(memory.reduce_session_ended)
    add_passages(plugin)
    plugin.projection(OUTBOX)
    plugin.projection(FACTS)
    return plugin
