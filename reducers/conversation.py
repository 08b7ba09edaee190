"""Reducers for events of a conversation: input, responses, results, errors."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memory_engine.core.chunks import INTERRUPTED, Chunk, ChunkType, Retention
from memory_engine.core.events.base import Content, ToolCall
from memory_engine.core.lazy import lazy_module
from memory_engine.core.reduction import ReduceContext, Reduction, appended
from memory_engine.core.state import StateView
from memory_engine.events import (
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

if TYPE_CHECKING:
    from memory_engine.formats import native
else:
    native = lazy_module("memory_engine.formats.native")

_TYPES: Mapping[str, ChunkType] = {
    "": ChunkType.USER_MESSAGE,
    "tool": ChunkType.OBSERVATION,
    "client": ChunkType.NOTICE,
    "summary": ChunkType.FOREIGN_SUMMARY,
}
"""The type of the chunk by the origin of a message: whoever reads the type knows who speaks."""


def reduce_user_message(_view: StateView, event: UserMessage, ctx: ReduceContext) -> Reduction:
    """A message of the user role, at the end of the working flow, as a chunk whose type says who wrote it."""
    return appended(_message_chunk(ctx, _TYPES[event.origin], event, event.name))


def reduce_parent_agent_message(_view: StateView, event: ParentAgentMessage, ctx: ReduceContext) -> Reduction:
    """A parent agent's message: to this agent, it speaks as a person does."""
    return appended(_message_chunk(ctx, ChunkType.PARENT_MESSAGE, event, event.agent_id))


def reduce_llm_text_response(_view: StateView, event: LlmTextResponse, ctx: ReduceContext) -> Reduction:
    """The model's text."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.AGENT_RESPONSE,
            content=event.content,
            label=event.name,
            response_id=event.response_id,
            status=INTERRUPTED if event.interrupted else "",
            native=event.native,
            native_tokens=_native_tokens(event),
        )
    )


def reduce_llm_thinking(_view: StateView, event: LlmThinking, ctx: ReduceContext) -> Reduction:
    """Reasoning: the first to go once its loop is done."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.THINKING,
            content=event.content,
            retention=Retention.DISPOSABLE,
            response_id=event.response_id,
            status=event.signature,
            native=event.native,
        )
    )


def reduce_llm_tool_call(_view: StateView, event: LlmToolCall, ctx: ReduceContext) -> Reduction:
    """All calls of the event in one chunk, so that no cut can come between them."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.AGENT_ACTION,
            content=event.content,
            calls=event.calls,
            response_id=event.response_id,
            native=event.native,
            native_tokens=_native_tokens(event),
        )
    )


def reduce_llm_skill_call(_view: StateView, event: LlmSkillCall, ctx: ReduceContext) -> Reduction:
    """Record a skill's call like any other call."""
    call = ToolCall(id=event.call_id, name=event.name, arguments=event.arguments)
    return appended(_action(ctx, call, event.response_id))


def reduce_llm_subagent_spawn(_view: StateView, event: LlmSubagentSpawn, ctx: ReduceContext) -> Reduction:
    """Record a task handed over as a call, which the sub-agent's result answers, perhaps much later."""
    call = ToolCall.create(event.call_id, "spawn_subagent", {"agent_id": event.agent_id, "task": event.task})
    call = ToolCall(id=call.id, name=call.name, arguments=call.arguments, long_running=True)
    return appended(_action(ctx, call, event.response_id))


def _action(ctx: ReduceContext, call: ToolCall, response_id: str) -> Chunk:
    return Chunk(id=ctx.new_id(), type=ChunkType.AGENT_ACTION, calls=(call,), response_id=response_id)


def reduce_llm_subagent_message(_view: StateView, event: LlmSubagentMessage, ctx: ReduceContext) -> Reduction:
    """Record a message between agent and sub-agent."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.SUBAGENT_MESSAGE,
            content=event.content,
            label=event.agent_id,
            response_id=event.response_id,
        )
    )


def reduce_llm_clarification(_view: StateView, event: LlmClarification, ctx: ReduceContext) -> Reduction:
    """A question that waits for a person."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.CLARIFICATION,
            content=event.content,
            response_id=event.response_id,
            status="approval" if event.approval else "",
            native=event.native,
        )
    )


def reduce_tool_result(_view: StateView, event: ToolResult, ctx: ReduceContext) -> Reduction:
    """A tool's answer, whole or a piece of it."""
    return appended(_result_chunk(ctx, event, event.name, event.native))


def reduce_skill_result(_view: StateView, event: SkillResult, ctx: ReduceContext) -> Reduction:
    """A skill's answer."""
    return appended(_result_chunk(ctx, event, event.name))


def reduce_subagent_result(_view: StateView, event: SubagentResult, ctx: ReduceContext) -> Reduction:
    """A sub-agent's answer."""
    return appended(_result_chunk(ctx, event, event.agent_id))


def reduce_tool_error(_view: StateView, event: ToolError, ctx: ReduceContext) -> Reduction:
    """Record a failed call as answered."""
    return appended(_error(ctx, event.content, event.call_id, event.name, event.native))


def reduce_skill_error(_view: StateView, event: SkillError, ctx: ReduceContext) -> Reduction:
    """Record a skill's failure."""
    return appended(_error(ctx, event.content, event.call_id, event.name))


def reduce_subagent_error(_view: StateView, event: SubagentError, ctx: ReduceContext) -> Reduction:
    """Record a sub-agent's failure."""
    return appended(_error(ctx, event.content, event.call_id, event.agent_id))


def reduce_system_error(_view: StateView, event: SystemFailure, ctx: ReduceContext) -> Reduction:
    """Record a failure around the agent; it answers no call."""
    return appended(_error(ctx, event.content, "", event.code))


def _message_chunk(ctx: ReduceContext, type: ChunkType, event: UserMessage | ParentAgentMessage, label: str) -> Chunk:
    own = _native_tokens(event) if event.native and isinstance(event, UserMessage) else 0
    return Chunk(id=ctx.new_id(), type=type, content=event.content, label=label, native=event.native, native_tokens=own)


def _native_tokens(event: UserMessage | LlmTextResponse | LlmToolCall) -> int:
    """The tokens of the provider's own blocks, such as a hosted tool's call with its output."""
    return native.own_tokens(event.native) if '"$whole"' in event.native and not event.uncounted else 0


def _result_chunk(
    ctx: ReduceContext, event: ToolResult | SkillResult | SubagentResult, label: str, native: str = ""
) -> Chunk:
    return Chunk(
        id=ctx.new_id(),
        type=ChunkType.ACTION_RESULT,
        content=event.content,
        label=label,
        call_id=event.call_id,
        final=event.final,
        native=native,
    )


def _error(ctx: ReduceContext, content: Content, call_id: str, label: str, native: str = "") -> Chunk:
    return Chunk(
        id=ctx.new_id(),
        type=ChunkType.ERROR,
        content=content,
        label=label,
        call_id=call_id,
        status="failed",
        native=native,
    )
