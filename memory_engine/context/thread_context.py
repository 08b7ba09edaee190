"""The context of a thread, now or at a past moment, with or without a question."""

from collections.abc import Sequence

from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy
from memory_engine.context.builder import Context, ContextBuilder
from memory_engine.context.recall import RecallRequest, recalled_context
from memory_engine.errors import InvalidSearch
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.reader import MomentLike


async def thread_context(  # noqa: PLR0913 - what a context is asked for with, by keyword
    thread: ThreadHandle,
    max_tokens: int | None = None,
    *,
    at: MomentLike | None = None,
    query: str | None = None,
    policy: ContextPolicy = DEFAULT_POLICY,
    recall_from: Sequence[ThreadHandle] = (),
) -> Context:
    """See `Thread.context`."""
    if query is None and recall_from:
        raise InvalidSearch("query", query, "`recall_from` says where to look for what a query asks: give a query")
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
    return kernel[ContextBuilder].build(state, thread.id, max_tokens)
