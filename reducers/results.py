"""Reducers for results and errors: what answers a call, or fails on its own."""

from memory_engine.chunks import Chunk, ChunkType
from memory_engine.events import (
    SkillError,
    SkillResult,
    SubagentError,
    SubagentResult,
    SystemFailure,
    ToolError,
    ToolResult,
)
from memory_engine.reducers.conversation import appended
from memory_engine.reducing import ReduceContext, Reduction
from memory_engine.state import StateView


def reduce_tool_result(_view: StateView, event: ToolResult, ctx: ReduceContext) -> Reduction:
    """A tool's answer, whole or a piece of it."""
    return appended(_result(ctx, event, event.name))


def reduce_skill_result(_view: StateView, event: SkillResult, ctx: ReduceContext) -> Reduction:
    """A skill's answer."""
    return appended(_result(ctx, event, event.name))


def reduce_subagent_result(_view: StateView, event: SubagentResult, ctx: ReduceContext) -> Reduction:
    """A sub-agent's answer."""
    return appended(_result(ctx, event, event.agent_id))


def reduce_tool_error(_view: StateView, event: ToolError, ctx: ReduceContext) -> Reduction:
    """A failed call is an answered one."""
    return appended(_error(ctx, event.content, event.call_id, event.name))


def reduce_skill_error(_view: StateView, event: SkillError, ctx: ReduceContext) -> Reduction:
    """A skill failed."""
    return appended(_error(ctx, event.content, event.call_id, event.name))


def reduce_subagent_error(_view: StateView, event: SubagentError, ctx: ReduceContext) -> Reduction:
    """A sub-agent failed."""
    return appended(_error(ctx, event.content, event.call_id, event.agent_id))


def reduce_system_error(_view: StateView, event: SystemFailure, ctx: ReduceContext) -> Reduction:
    """Something around the agent failed; it answers no call."""
    return appended(_error(ctx, event.content, "", event.code))


def _result(ctx: ReduceContext, event: ToolResult | SkillResult | SubagentResult, label: str) -> Chunk:
    return Chunk(
        id=ctx.new_id(),
        type=ChunkType.ACTION_RESULT,
        content=event.content,
        label=label,
        call_id=event.call_id,
        final=event.final,
    )


def _error(ctx: ReduceContext, content: str, call_id: str, label: str) -> Chunk:
    return Chunk(id=ctx.new_id(), type=ChunkType.ERROR, content=content, label=label, call_id=call_id, status="failed")
