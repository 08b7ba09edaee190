"""A thread's life after its creation: pausing, forking, archiving and forgetting."""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Literal

import msgspec

from memory_engine.core.arguments import checked_list
from memory_engine.core.aside import aside
from memory_engine.core.chain import live_chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.events.memory import ExecutionPause, ExecutionResume, MemoryForget, MetadataEntry, ThreadUpdated
from memory_engine.core.forgetting import line_digest
from memory_engine.core.records import Receipt
from memory_engine.core.threads import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    PAUSED,
    CompactionPolicy,
    DamagedRecord,
    ForkPoint,
    Head,
    check_metadata,
    check_record,
    encode_policy,
)
from memory_engine.errors import (
    ContentionError,
    EventNotFound,
    HeadMoved,
    InvalidPolicy,
    MemoryEngineError,
    SeqNotInLog,
    ThreadClosed,
)
from memory_engine.language.text import terms
from memory_engine.runtime import recalled
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.scoped import check_not_scope
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.store.protocol import CommitUnit, ThreadFilter


async def pause(thread: ThreadHandle, reason: str) -> Receipt:
    """See `Admin.pause`."""
    runtime = await thread.runtime()
    event = ExecutionPause(content=reason)
    if runtime.head.status != PAUSED:
        return await thread.dispatch(event)
    request = thread.kernel.request([event], system=True)  # it would wait for its own end
    return (await runtime.submit(request))[0]


async def fork(thread: ThreadHandle, seq: int, *, thread_id: str, metadata: Mapping[str, str]) -> str:
    """Make a thread that shares the past up to `seq`; its id. Raises the errors of `Thread.fork`."""
    kernel = thread.kernel
    check_not_scope(thread_id)
    kernel.check_writable("a fork")
    loaded = await kernel.store.load(thread.id, sources=False)
    state = await kernel.reader.state_at(thread.id, seq)
    hash_ = b""
    for stored in await kernel.store.read_at(thread.id, [seq] if seq else []):
        hash_ = stored.hash
    origin = loaded.record.mended() if isinstance(loaded.record, DamagedRecord) else loaded.record
    record = msgspec.structs.replace(
        origin,
        id=kernel.new_id() if thread_id == "" else thread_id,
        created_at_us=kernel.now_us(),
        metadata={**loaded.record.metadata, **metadata},
        forked_from=ForkPoint(thread.id, seq),
    )
    check_record(record)
    head = Head(
        seq=seq,
        hash=hash_,
        status=ACTIVE,
        chunks=state.tally.chunks,
        tokens=state.tally.tokens,
        marks={name: min(mark, seq) for name, mark in loaded.head.marks.items()},
    )
    live = await aside(
        lambda: [row for placed in state.placed() if (row := live_chunk(placed)) is not None], items=len(state)
    )
    await kernel.store.create(record, head, live, origin=loaded.record)
    await _forget_as_there(thread, ThreadHandle(kernel, record.id), seq)
    return record.id


async def _forget_as_there(thread: ThreadHandle, fork: ThreadHandle, seq: int) -> None:
    """Forget in a fork what its origin has forgotten since the moment where it begins."""
    since = [event for event in (await thread.kernel.reader.forgotten(thread.id)).events if event.seq > seq]
    for event in (one.event for one in since if isinstance(one.event, MemoryForget)):
        shared = msgspec.structs.replace(
            event,
            chunk_ids=tuple(one for one in event.chunk_ids if int(one.partition(".")[0]) <= seq),
            seqs=tuple(one for one in event.seqs if one <= seq),
            summaries=tuple(one for one in event.summaries if int(one.partition(".")[0]) <= seq),
            reach=(),
        )
        if shared.chunk_ids or shared.seqs:
            await fork.dispatch(shared)


async def archive(thread: ThreadHandle) -> None:
    """See `Admin.archive`. No compaction may be under way."""
    thread.kernel.check_writable("archiving")
    runtime = await thread.runtime()
    await _set_status(thread.kernel, runtime, ARCHIVED)


async def unarchive(thread: ThreadHandle) -> None:
    """See `Admin.unarchive`."""
    thread.kernel.check_writable("unarchiving")
    runtime = await thread.runtime()
    await runtime.idle()
    await runtime.look_again()  # another process may have archived it
    if runtime.head.status == ARCHIVED:
        status = PAUSED if await _was_paused(thread.kernel, runtime) else ACTIVE
        await _set_status(thread.kernel, runtime, status)


async def _was_paused(kernel: Kernel, runtime: ThreadRuntime) -> bool:
    """Whether the last of the thread's own pauses is still in effect."""
    types = (ExecutionPause.event_type, ExecutionResume.event_type)
    origin = runtime.record.forked_from
    after = origin.seq if origin is not None else 0
    last = await kernel.reader.walk(runtime.id, after=after, upto=runtime.head.seq, types=types).last()
    return last is not None and last.type == ExecutionPause.event_type


async def _set_status(kernel: Kernel, runtime: ThreadRuntime, status: str) -> None:
    """Write another status. Raises `ContentionError` where other processes write without pause."""
    tries = kernel.config.commit_tries_max
    for _ in range(tries):
        await runtime.idle()
        if runtime.head.status == DELETED:
            raise ThreadClosed(runtime.id, DELETED)
        head = msgspec.structs.replace(runtime.head, status=status, epoch=runtime.head.epoch + 1)
        try:
            await kernel.store.commit(CommitUnit(thread_id=runtime.id, expected=runtime.head, head=head))
        except HeadMoved:
            await runtime.catch_up()
            continue
        runtime.head = head
        runtime.end(status)
        return
    raise ContentionError(runtime.id, tries)


async def update(
    thread: ThreadHandle, metadata: Mapping[str, str | None], policy: CompactionPolicy | Literal["default"] | None
) -> Receipt:
    """See `Admin.update`."""
    if not isinstance(policy, CompactionPolicy | None) and policy != "default":
        raise InvalidPolicy("policy", ascii(policy), 'give a CompactionPolicy, or "default" for the engine\'s')
    check_metadata({key: value for key, value in metadata.items() if value is not None})
    entries = tuple(
        MetadataEntry(key, removed=True) if value is None else MetadataEntry(key, value)
        for key, value in metadata.items()
    )
    own = encode_policy(policy) if isinstance(policy, CompactionPolicy) else ""
    return await thread.dispatch(ThreadUpdated(metadata=entries, policy=own, default_policy=policy == "default"))


async def forgetting(
    thread: ThreadHandle,
    *,
    chunk_ids: Sequence[str] = (),
    event_ids: Sequence[str] = (),
    reason: str = "",
) -> MemoryForget:
    """The event that forgets chunks, and all that came of events, wherever the log repeats them.

    Raises `EventNotFound`, `UnknownChunk`.
    """
    event_ids = checked_list("event_ids", event_ids, str, each="ids of events")
    chunk_ids = checked_list("chunk_ids", chunk_ids, str, each="ids of chunks")
    store, reader, relay = thread.kernel.store, thread.kernel.reader, thread.kernel[Relay]
    found = {stored.id: stored.seq for stored in await store.find(thread.id, list(event_ids))}
    missing = [event_id for event_id in event_ids if event_id not in found]
    if missing:
        raise EventNotFound(thread.id, missing[0])
    await reader.chunks(thread.id, list(chunk_ids))
    heads = {int(chunk_id.partition(".")[0]) for chunk_id in chunk_ids}
    told = {*found, *await reader.ids_at(thread.id, heads)}
    versions, summaries = await reader.made_of(thread.id, chunk_ids, found.values(), told)
    chunk_ids = tuple(dict.fromkeys((*chunk_ids, *versions)))
    brought = await reader.ids_at(thread.id, {int(chunk_id.partition(".")[0]) for chunk_id in chunk_ids})
    reach, waiting = await relay.reach(thread.id, {*found, *brought})
    seqs = tuple(sorted({*found.values(), *waiting}))
    return MemoryForget(
        chunk_ids=chunk_ids,
        seqs=seqs,
        reason=reason,
        summaries=tuple(summaries),
        call_ids=await reader.call_ids(thread.id, chunk_ids, seqs),
        reach=reach,
        lines=await _miscited(thread, summaries, {*chunk_ids, *await reader.chunk_ids_at(thread.id, seqs)}),
    )


async def _miscited(thread: ThreadHandle, summaries: Sequence[str], forgotten: Set[str]) -> tuple[str, ...]:
    """The digests of lines in these summaries that repeat words of forgotten chunks, and cite others for them.

    A model's line may cite the wrong chunk. Where citations alone decided, it would go on saying what was forgotten.
    """
    if not summaries:
        return ()
    held = (await thread.kernel.reader.chunks(thread.id, list(summaries))).values()
    lines = {line_digest(line): line for summary in held for line in summary.lines}  # versions of one share most
    said = set().union(*(await _words_of(thread, forgotten)).values())
    suspects = {
        digest: line
        for digest, line in lines.items()
        if line.sources and forgotten.isdisjoint(line.sources) and _repeats(line, (), said)
    }
    words = await _words_of(thread, {source for line in suspects.values() for source in line.sources})
    cited = {digest: set().union(*(words.get(one, ()) for one in line.sources)) for digest, line in suspects.items()}
    return tuple(digest for digest, line in suspects.items() if _repeats(line, cited[digest], said))


async def _words_of(thread: ThreadHandle, chunk_ids: Collection[str]) -> dict[str, set[str]]:
    """The analysed words of each of these chunks; of a source that is not a chunk, none."""
    known = [one for one in chunk_ids if one.partition(".")[0].isdecimal() and one.partition(".")[2].isdecimal()]
    found = await thread.kernel.reader.found_chunks(thread.id, known)
    return {chunk_id: set(terms(chunk.text)) for chunk_id, chunk in found.items()}


async def _ids_at(thread: ThreadHandle, seqs: Sequence[int]) -> list[str]:
    """The ids of the events at these seqs. Raises `SeqNotInLog`."""
    seqs = checked_list("seqs", seqs, int, each="seqs of events")
    if not seqs:
        return []
    rows = await thread.kernel.reader.rows_at(thread.id, frozenset(seqs))
    for seq in seqs:
        if isinstance(seq, bool) or seq not in rows:
            raise SeqNotInLog(thread.id, seq, await thread.last_seq())
    return [rows[seq].id for seq in seqs]


async def forget(
    thread: ThreadHandle,
    *,
    chunk_ids: Sequence[str] = (),
    event_ids: Sequence[str] = (),
    seqs: Sequence[int] = (),
    reason: str = "",
) -> Receipt:
    """See `Thread.forget`."""
    event_ids = [*checked_list("event_ids", event_ids, str, each="ids of events"), *await _ids_at(thread, seqs)]
    before = await thread.last_seq()
    async with thread.kernel[Relay].attended(thread.id):
        event = await forgetting(thread, chunk_ids=chunk_ids, event_ids=event_ids, reason=reason)
        receipt = await thread.dispatch(event)
        if await recalled.since(thread, before):  # a context may have shown it, and left that, meanwhile
            later = await forgetting(thread, chunk_ids=chunk_ids, event_ids=event_ids, reason=reason)
            if later.chunk_ids != event.chunk_ids:
                await thread.dispatch(later)
        await _forget_in_forks(thread, chunk_ids, event_ids, reason)
        await thread.kernel[Relay].deliver(thread.id)
    await _forget_recalled(thread, event, reason)
    return receipt


async def _forget_recalled(thread: ThreadHandle, event: MemoryForget, reason: str) -> None:
    """The same in other threads that have recalled it, from here or from where its facts went.

    The first error is raised at the end.
    """
    errors: list[MemoryEngineError] = []
    own = await thread.kernel.reader.ids_at(thread.id, event.origins())
    forgotten = {thread.id: own, **await thread.kernel[Relay].arrivals(thread.id, own)}
    for source_id, ids in forgotten.items():
        for other_id, copies in (await recalled.elsewhere(thread.kernel, source_id, ids)).items():
            try:
                await forget(ThreadHandle(thread.kernel, other_id), event_ids=copies, reason=reason)
            except MemoryEngineError as error:
                errors.append(error)
    if errors:
        raise errors[0]


async def _forget_in_forks(
    thread: ThreadHandle, chunk_ids: Sequence[str], event_ids: Sequence[str], reason: str
) -> None:
    """The same in the forks that share some of it, in theirs, and so on. The first error is raised at the end."""
    errors: list[MemoryEngineError] = []
    seqs = {stored.id: stored.seq for stored in await thread.kernel.store.find(thread.id, list(event_ids))}
    for fork_id, shared in await forks_of(thread.kernel, thread.id):
        chunks = [chunk_id for chunk_id in chunk_ids if int(chunk_id.partition(".")[0]) <= shared]
        events = [event_id for event_id, seq in seqs.items() if seq <= shared]
        if chunks or events:
            try:
                await forget(ThreadHandle(thread.kernel, fork_id), chunk_ids=chunks, event_ids=events, reason=reason)
            except MemoryEngineError as error:
                errors.append(error)
    if errors:
        raise errors[0]


async def forks_of(kernel: Kernel, thread_id: str) -> list[tuple[str, int]]:
    """The threads that were forked from this one, each with the seq up to which it shares the past."""
    found = []
    for fork_id in await kernel.store.forks(thread_id):
        for record, _ in await kernel.store.threads(ThreadFilter(id=fork_id)):
            if record.forked_from is not None:
                found.append((fork_id, record.forked_from.seq))
    return found


_STRANGE_MAX = 1
"""Words that a line may share with forgotten text, and not with what it cites, by chance."""


def _repeats(line: SummaryLine, cited: Collection[str], forgotten: Collection[str]) -> bool:
    """Whether a line has words of forgotten text that what it cites does not explain, a number or several."""
    strange = {word for word in terms(line.text) if word in forgotten and word not in cited}
    return len(strange) > _STRANGE_MAX or any(map(_has_digit, strange))


def _has_digit(word: str) -> bool:
    return any(sign.isdigit() for sign in word)
