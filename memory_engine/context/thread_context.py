"""The context of a thread, now or at a past moment, with or without a question."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from memory_engine.context.asked import AskedWindows
from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy, Splitter
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.context import Context
from memory_engine.context.live import LoopWindow, covered_originals, over_newest
from memory_engine.context.standing import BlockSources, OfferedBlock, Situation
from memory_engine.core.arguments import checked_number
from memory_engine.core.aside import aside
from memory_engine.core.clock import to_datetime
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.origins import SPOKEN
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import ContextBudgetError, InvalidArgument, InvalidMessage, InvalidSearch, InvalidTool
from memory_engine.runtime.handle import PastHandle, ThreadHandle
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import ThreadFilter
from memory_engine.store.reader import MomentLike

if TYPE_CHECKING:
    from memory_engine.context import correction as corrections
    from memory_engine.context import recall as recalling
    from memory_engine.context import request_recall, trusted, unsaid
    from memory_engine.formats import values
else:
    values = lazy_module("memory_engine.formats.values")
    corrections, recalling, request_recall, trusted, unsaid = lazy_modules(
        "memory_engine.context", "correction recall request_recall trusted unsaid"
    )

SCOPES = frozenset({"user", "tenant", "agent", "industry"})
"""Kinds of threads from which blocks are read, and which have no blocks themselves."""
TOOL_FRAME = 8
"""Tokens that each tool takes in addition to its JSON."""


async def thread_context(  # noqa: PLR0913 - the parameters of a context, by keyword
    thread: ThreadHandle,
    max_tokens: int | None = None,
    *,
    at: MomentLike | None = None,
    query: str | None = None,
    policy: ContextPolicy | Splitter = DEFAULT_POLICY,
    recall_from: Sequence[ThreadHandle] = (),
    tools: Sequence[Mapping[str, object]] = (),
    reserve: int = 0,
    is_loop: bool = True,
) -> Context:
    """Build the context of a thread; see `Thread.context`.

    A context that is not for the thread's own loop leaves nothing to be recorded.
    """
    with thread.kernel.span("context", {"thread": thread.id, "max_tokens": max_tokens, "query": query}) as span:
        context = await _thread_context(thread, max_tokens, at, query, policy, recall_from, tools, reserve, is_loop)
        span.say({"tokens": context.tokens, "messages": len(context.messages), "unsaid": len(context.unsaid)})
        return context


async def _thread_context(  # noqa: PLR0913, PLR0917 - those of `thread_context`, in their order
    thread: ThreadHandle,
    max_tokens: int | None,
    at: MomentLike | None,
    query: str | None,
    policy: ContextPolicy | Splitter,
    recall_from: Sequence[ThreadHandle],
    tools: Sequence[Mapping[str, object]],
    reserve: int,
    is_loop: bool,
) -> Context:
    if query is None and (recall_from or not isinstance(recall_from, Collection)):
        raise InvalidSearch("query", query, "`recall_from` says where to look for what a query asks: give a query")
    if type(reserve) is not int or reserve < 0:
        raise InvalidArgument("reserve", reserve, f"reserve is a number of tokens, not {reserve!r}")
    if max_tokens is not None:
        checked_number("max_tokens", max_tokens)
    kernel = thread.kernel
    if policy is None:
        raise InvalidArgument("policy", policy, "give a ContextPolicy, or a function that divides a room")
    policy = policy if isinstance(policy, ContextPolicy) else ContextPolicy(split=policy)
    seq = await thread.upto(at)
    runtime = None
    if seq is None:
        runtime = await thread.followed()
        if max_tokens is not None and is_loop and not kernel.config.read_only:
            await kernel[AskedWindows].begin(runtime, max_tokens)
        for prepare in kernel[OpenThreads].before_context:
            await prepare(runtime)
        state = runtime.state
    else:
        state = await thread.state(at=seq)
    builder = kernel[ContextBuilder]
    tools_tokens = sum(TOOL_FRAME + builder.counter.count(tool) for tool in _as_json(tools))
    correction = await _correction(thread, runtime, seq)
    room = None if max_tokens is None else correction.counted(max_tokens - reserve) - tools_tokens
    standing, untrusted = await _trusted_blocks(thread, state, policy, query, seq)
    loop = runtime if is_loop and not kernel.config.read_only else None
    try:
        covered = await covered_originals(thread, state, room, at=seq)
        window = LoopWindow.of(kernel, thread.id, (room, policy)) if runtime is not None and room and is_loop else None
        build = partial(
            builder.build, thread_id=thread.id, max_tokens=room, policy=policy, standing=standing, covered=covered
        )

        async def built(state: State) -> Context:
            work = partial(build, kept=window.kept if window is not None else None)
            if runtime is not None and room is not None:
                made = await over_newest(kernel, thread.id, state, work)
            else:
                made = await aside(lambda: work(state), items=state.tally.chunks)
            return window.keeping(made) if window is not None else made

        if query is None:
            context = await built(state)
        else:
            kept = window.kept if window is not None else None
            recall = recalling.RecallRequest(
                query=query, max_tokens=room, at=seq, policy=policy, others=recall_from, covered=covered, kept=kept
            )
            context = await _with_recall(thread, state, recall, standing, (loop, built))
            context = window.keeping(context) if window is not None else context
    except ContextBudgetError as error:
        needed = correction.real(error.needed + tools_tokens) + reserve
        raise ContextBudgetError(thread.id, needed, max_tokens or 0) from None
    context = _with_untrusted(unsaid.with_unsaid(context, standing), untrusted)
    if loop is not None and max_tokens is not None:
        tokens = context.tokens + context.thinking_tokens + tools_tokens
        await kernel[AskedWindows].ask(loop, max_tokens, 0 if context.tokens_exact else tokens, context.unsaid)
    return correction.applied(context)


async def _trusted_blocks(
    thread: ThreadHandle, state: State, policy: ContextPolicy, query: str | None, at: int | None
) -> tuple[list[OfferedBlock], int]:
    """Return the standing blocks, and how many of their lines the policy's `min_trust` leaves out."""
    blocks = await standing_blocks(thread, state, policy, query=query, at=at)
    if policy.min_trust is None:
        return blocks, 0
    return await trusted.trusted_blocks(thread.kernel, blocks, policy.min_trust)


def _with_untrusted(context: Context, lines: int) -> Context:
    return evolve(context, untrusted=context.untrusted + lines) if lines else context


async def _correction(thread: ThreadHandle, runtime: ThreadRuntime | None, at: int | None) -> "corrections.Correction":
    """Return the correction of estimated counts; an exact count is not corrected."""
    kernel = thread.kernel
    if kernel[ContextBuilder].counter.exact:
        return corrections.Correction()
    head = runtime.head if runtime is not None else await kernel.reader.head(thread.id)
    return await corrections.correction_at(kernel, thread.id, head, at=at)


async def _with_recall(
    thread: ThreadHandle,
    state: State,
    wanted: "recalling.RecallRequest",
    standing: Sequence[OfferedBlock],
    of_loop: "tuple[ThreadRuntime | None, request_recall.Build]",
) -> Context:
    """Return a context with recall, chosen once per request for the thread's own loop, and now for any other caller."""
    loop, build = of_loop
    if loop is None:
        return await recalling.recalled_context(thread, state, wanted, standing)
    service = request_recall.RequestRecall.of(thread.kernel)
    return await service.context(request_recall.Wanted(thread, loop, state, wanted, standing, build))


def _as_json(tools: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the JSON of tools as a provider receives them, also from an SDK's objects. Raises `InvalidTool`."""
    if isinstance(tools, Mapping | str) or not isinstance(tools, Iterable):
        raise InvalidTool("tools", "", "`tools` is a list of tools; () is none")
    found = [_tool(tool, f"tools[{n}]") for n, tool in enumerate(tools)]
    if not found:
        return []
    from json import dumps  # a first context without tools needs no other JSON than msgspec's

    return list(map(dumps, found))


def _tool(tool: object, where: str) -> dict[str, object]:
    try:
        return values.as_object(values.plain(tool, f"${where}"), "a tool", f"${where}")
    except InvalidMessage as error:
        raise InvalidTool(error.where.removeprefix("$"), _tool_name(tool), error.why) from None


def _tool_name(tool: object) -> str:
    """Return the name of a tool in any provider's form, or an empty string if it has none."""
    for there in (tool, tool.get("function")) if isinstance(tool, Mapping) else ():
        if isinstance(there, Mapping) and isinstance(name := there.get("name"), str):
            return name
    return ""


async def standing_blocks(
    thread: ThreadHandle, state: State, policy: ContextPolicy, *, query: str | None = None, at: int | None = None
) -> list[OfferedBlock]:
    """Return the standing blocks of a conversation, as of a seq. Raises `ValueError` for an unknown block."""
    chosen = thread.kernel[BlockSources].chosen(policy.blocks)
    if not chosen:
        return []
    record = await _stored_record(thread)
    if record is None or record.kind in SCOPES:
        return []
    situation = Situation(
        thread=thread if at is None else PastHandle(thread.kernel, thread.id, at),
        state=state,
        user_id=record.user_id,
        tenant_id=record.tenant_id,
        agent_id=record.agent_id,
        question=query or _asked(state),
        is_asked=query is not None,
        moment=await _time_at(thread, at),
    )
    read = [(source, share, await source.read(situation)) for source, share in chosen]
    return [OfferedBlock(block, source, share) for source, share, block in read if block is not None and block.lines]


async def _stored_record(thread: ThreadHandle) -> ThreadRecord | None:
    runtime = thread.kernel[OpenThreads].get(thread.id)
    if runtime is not None:
        return runtime.record
    found = await thread.kernel.store.threads(ThreadFilter(id=thread.id))
    return found[0][0] if found else None


async def _time_at(thread: ThreadHandle, at: int | None) -> datetime | None:
    """Return the time at which the thread was at a seq, as of which other threads are read."""
    if at is None:
        return None
    rows = await thread.kernel.reader.rows_at(thread.id, {at})
    return to_datetime(rows[at].recorded_at_us if at in rows else 0)


def _asked(state: State) -> str:
    """Return the text of the message that is being worked on."""
    return next((chunk.text for chunk in state.newest() if chunk.type in SPOKEN), "")
