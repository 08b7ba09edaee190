"""The context of a thread: what its model is to see next."""

from collections.abc import Sequence

from memory_engine.context.builder import Context, build_context
from memory_engine.context.policy import DEFAULT_POLICY, ContextPolicy
from memory_engine.context.recalling import RecallRequest, recalled_context
from memory_engine.context.rendering import Rendering
from memory_engine.directory import OpenThreads
from memory_engine.handle import ThreadHandle
from memory_engine.moments import Moment


async def thread_context(  # noqa: PLR0913 - what a context is asked for with, by keyword
    thread: ThreadHandle,
    max_tokens: int | None = None,
    *,
    at: Moment | None = None,
    query: str | None = None,
    policy: ContextPolicy = DEFAULT_POLICY,
    recall_from: Sequence[ThreadHandle] = (),
) -> Context:
    """See `Thread.context`."""
    kernel = thread.kernel
    seq = await thread.upto(at)
    if seq is None:
        runtime = await thread.followed()
        for prepare in kernel[OpenThreads].before_context:
            await prepare(runtime)
        state = runtime.state
    else:
        state = await thread.state(at=seq)
    if query is not None:
        wanted = RecallRequest(query=query, max_tokens=max_tokens, at=seq, policy=policy, others=recall_from)
        return await recalled_context(thread, state, wanted)
    parts = kernel[Rendering]
    return build_context(
        state, thread_id=thread.id, max_tokens=max_tokens, renderers=parts.renderers, counter=parts.counter
    )
