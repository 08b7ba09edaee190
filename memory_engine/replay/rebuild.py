"""Rebuild a thread: derive its rows from the log again and swap them in, while it takes events."""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec

from memory_engine.compaction.service import CompactionService
from memory_engine.core.arguments import checked_call, checked_list
from memory_engine.core.aside import aside
from memory_engine.core.json_form import JsonForm
from memory_engine.core.threads import DamagedRecord
from memory_engine.errors import ContentionError, HeadMoved, StorageRefused, UnknownView
from memory_engine.projections.base import Projection
from memory_engine.projections.rebuild import RebuildScope, Remaking
from memory_engine.recall.service import Recall
from memory_engine.replay.differences import PassagesCheck, final_steps
from memory_engine.replay.verify import VerifyProgress
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.passages import LookUp
from memory_engine.store.protocol import ThreadFilter

_log = logging.getLogger("memory_engine.rebuild")


class RebuildReport(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """The rebuilt parts of a thread: rows by view, and passages of the search index (`None`: it was left alone)."""

    thread_id: str
    events: int
    chunks: int | None
    views: Mapping[str, int]
    passages: int | None


async def rebuild(
    kernel: Kernel,
    thread_id: str,
    views: Collection[str] | None = None,
    *,
    search: bool | None = None,
    progress: VerifyProgress | None = None,
) -> RebuildReport:
    """See `Replay.rebuild`."""
    kernel.check_writable("a rebuild")
    checked_call("progress", progress)
    projections, recall = chosen_projections(kernel.projections, views), kernel[Recall]
    await _mend_record(kernel, thread_id)
    runtime = await kernel[OpenThreads].taken(thread_id)
    await kernel[CompactionService].settle(runtime)
    with_index = (views is None if search is None else search) and await recall.indexing.is_indexed(thread_id)
    wanted = RebuildScope(
        projections=projections, state=views is None, extractors=kernel.extractors if with_index else None
    )
    remaking = Remaking(kernel.store, kernel.reader, thread_id, wanted)
    await remaking.advance((await kernel.store.head(thread_id)).seq, progress)
    is_right = with_index and await _index_is_right(kernel, remaking)
    if is_right:
        await remaking.leave_index()
    await _swap(kernel, runtime, remaking)
    report = _report(remaking, None)
    former = runtime.state.top.draft()
    del runtime  # its state goes, but for these blocks, which may be the last to hold the chunks
    await aside(former.let_go, items=len(former))
    await aside(remaking.let_go, items=remaking.draft.tally.chunks)
    if not with_index:
        return report
    if is_right:
        passages = kernel.store.passages
        await passages.drop_vectors(thread_id, list(await passages.models(thread_id)))
    kernel.caches.drop(thread_id)
    recall.embedding.touched(thread_id)
    await recall.indexing.catch_up(thread_id)
    indexed = await kernel.store.passages.look_up(thread_id, LookUp())
    return msgspec.structs.replace(report, passages=indexed.passages)


async def _index_is_right(kernel: Kernel, remaking: Remaking) -> bool:
    """Whether the index holds what would be made, as far as it has come.

    To rewrite it in one commit holds up every thread for seconds.
    """
    passages, thread_id = kernel.store.passages, remaking.thread_id
    try:
        looked = await passages.look_up(thread_id, LookUp())
        upto = min(remaking.seq, looked.seq)
        if not 0 <= looked.seq <= looked.head:  # it claims more than the log holds
            return False
        check = PassagesCheck(thread_id, upto, kernel.extractors, remaking.refolding.rewinds)
        await aside(partial(check.take, remaking.steps), items=len(remaking.steps))
        differs = await check.differences(passages, while_written=True)
        return not differs and "search" not in await kernel.store.faults(thread_id)
    except StorageRefused:  # rows of it cannot be read
        return False


async def _mend_record(kernel: Kernel, thread_id: str) -> None:
    """Replace a thread's record if some of it cannot be read, before anything is read through it."""
    for record, _ in await kernel.store.threads(ThreadFilter(id=thread_id)):
        if isinstance(record, DamagedRecord):
            await kernel.store.put_record(record.mended())
            await kernel[OpenThreads].note(thread_id, None)
            _log.warning("the record of thread %r is mended: %s", thread_id, "; ".join(record.unreadable))


def _report(remaking: Remaking, passages: int | None) -> RebuildReport:
    rows, wanted = remaking.refolding.rows, remaking.wanted
    return RebuildReport(
        thread_id=remaking.thread_id,
        events=remaking.seq,
        chunks=remaking.draft.tally.chunks if wanted.state else None,
        views={projection.name: len(rows[projection.name]) for projection in wanted.projections},
        passages=passages,
    )


def chosen_projections(
    projections: Sequence[Projection[object]], names: Collection[str] | None
) -> Sequence[Projection[object]]:
    """The projections of these names, or all. Raises `UnknownView`."""
    known = {projection.name: projection for projection in projections}
    if names is not None:
        names = checked_list("views", names, str, each="names of views")
    for name in names or ():
        if name not in known:
            raise UnknownView(name, tuple(known))
    return projections if names is None else [known[name] for name in dict.fromkeys(names)]


async def _swap(kernel: Kernel, runtime: ThreadRuntime, remaking: Remaking) -> None:
    """Read the latest events and commit, while no other commit of the thread runs."""

    async def swap() -> None:
        head = await kernel.store.head(runtime.id)
        await remaking.advance(head.seq)
        known = remaking.refolding.rewinds
        folded = partial(final_steps, remaking.steps, known, head.seq)
        steps = await aside(folded, items=len(remaking.steps)) if known.seqs(head.seq) else None
        await remaking.put(head, steps)
        if not runtime.queue.is_clear:
            await runtime.reload()  # waiting events go on with the new state

    for _ in range(kernel.config.commit_tries_max):
        try:
            await runtime.exclusively(swap)
        except HeadMoved:  # another process has written meanwhile
            await runtime.exclusively(runtime.reload)
            continue
        if not kernel[OpenThreads].let_go(runtime):
            await runtime.exclusively(runtime.reload)
        return
    raise ContentionError(runtime.id, kernel.config.commit_tries_max)
