"""The reducer for screen context: what the agent is told at the beginning of a session."""

from memory_engine.chunks import Chunk, ChunkType, Retention
from memory_engine.events import ScreenInjected
from memory_engine.events.base import ToolCall
from memory_engine.events.screen import told
from memory_engine.operations import Add
from memory_engine.reducing import ReduceContext, Reduction
from memory_engine.state import StateView


def reduce_screen_injected(_view: StateView, event: ScreenInjected, ctx: ReduceContext) -> Reduction:
    """The screen in the agent's own words, then a call and its result for each proactive tool.

    The words are true of this session only and go with it; the results are results like any others.
    """
    chunks = [
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.AGENT_RESPONSE,
            content=told(event.content),
            retention=Retention.EPHEMERAL,
        )
    ]
    for result in event.results:
        call = ToolCall(id=result.call_id, name=result.tool, arguments=result.parameters)
        chunks.append(Chunk(id=ctx.new_id(), type=ChunkType.AGENT_ACTION, calls=(call,)))
        chunks.append(
            Chunk(
                id=ctx.new_id(),
                type=ChunkType.ACTION_RESULT,
                content=result.result,
                label=result.tool,
                call_id=result.call_id,
            )
        )
    return Reduction(operations=tuple(Add(chunk.id) for chunk in chunks), chunks=tuple(chunks))
