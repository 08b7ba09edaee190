"""Import: a thread made of an exported file, with the same events, operations and hashes. No reducer runs."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from attrs import frozen

from memory_engine.compaction.service import CompactionService
from memory_engine.core.aside import on_thread
from memory_engine.core.cancellation import Made
from memory_engine.core.chain import decode_row, is_redacted, next_head
from memory_engine.core.ids import check_identifier
from memory_engine.core.json_form import JsonForm
from memory_engine.core.threads import Head, ThreadRecord, generation_of, is_scope_id
from memory_engine.errors import (
    ContentionError,
    HeadMoved,
    ImportRefused,
    IntegrityError,
    ReadOnly,
    ThreadExists,
)
from memory_engine.projections.follower import ProjectionWorker
from memory_engine.replay.export.claims import CONVERSATION_OF_NOBODY, Allowed, check_same
from memory_engine.replay.export.log_file import FileBatch, LogFile
from memory_engine.replay.verify import VerifyProgress
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.scoped import check_not_scope
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.attested import imported
from memory_engine.store.new_file import file_errors
from memory_engine.store.protocol import CommitUnit, Store, ThreadFilter

EVENTS_MAX = 512
BYTES_MAX = 8 * 1024 * 1024
"""Events, and about how many bytes of them, that one commit writes."""


@frozen(kw_only=True)
class ImportReport(JsonForm):
    """The outcome of an import: of the file's `events`, `added` were written now, the thread held the others before.

    `exported_from` is the thread's id in the store that the file comes from, `redacted` counts events whose texts
    were taken out. `header_hashed`: whether a hash in the file covers its header, which says kind, owners, metadata and
    policy; the files of older releases have none.
    """

    path: str
    thread_id: str
    exported_from: str
    events: int
    added: int
    redacted: int
    head_hash: str
    header_hashed: bool = False


async def import_log(
    kernel: Kernel,
    path: Path,
    *,
    thread_id: str = "",
    allowed: Allowed = CONVERSATION_OF_NOBODY,
    progress: VerifyProgress | None = None,
) -> ImportReport:
    """Make a thread of an exported file (see `Transfer.import_log`), if it says of its thread what is allowed.

    `progress` hears of each event twice: once it is checked, and once it is written.
    """
    if kernel.config.read_only:
        raise ReadOnly("an import")
    if thread_id:
        check_identifier("thread id", thread_id)
    tries = kernel.config.commit_tries_max
    for _ in range(tries):
        try:
            with file_errors(path):
                return await _Import(kernel, path, thread_id, allowed, progress or _nobody).run()
        except HeadMoved:  # another writes to the thread: perhaps another import of the same file
            continue
    raise ContentionError(thread_id or str(path), tries)


class _Import:
    """One attempt."""

    def __init__(self, kernel: Kernel, path: Path, thread_id: str, allowed: Allowed, progress: VerifyProgress) -> None:
        self._kernel = kernel
        self._store: Store = kernel.store
        self._registry = kernel.events
        self._known = frozenset(cls.event_type for cls in kernel.events.classes())
        self._path = path
        self._asked_id = thread_id
        self._allowed = allowed
        self._progress = progress

    async def run(self) -> ImportReport:
        """Check the whole file, then write what the thread lacks. Raises `HeadMoved` where another writes to it."""
        with Made[LogFile]() as made:
            file = await made.beside(lambda: LogFile(self._path))
            thread = file.header.thread
            record = msgspec.structs.replace(thread, id=self._asked_id or thread.id, forked_from=None)
            self._allowed.check(str(self._path), record)
            check_not_scope(record.id, record)
            head = await self._head(record)
            await self._check_not_deleted(record.id, head)
            await self._check(file, record.id, head or Head())
            report = ImportReport(
                path=str(self._path),
                thread_id=record.id,
                exported_from=thread.id,
                events=file.seq,
                added=max(0, file.seq - (head.seq if head is not None else 0)),
                redacted=file.redacted,
                head_hash=file.hash.hex(),
                header_hashed=file.header_hashed,
            )
        begun = head if head is not None else await self._create(record)
        if report.added:
            changed = record if head is not None else None
            await at_rest(self._kernel, record.id, lambda: self._write(record.id, begun, changed))
            self._kernel[ProjectionWorker].touched(record.id)
        return report

    async def _head(self, record: ThreadRecord) -> Head | None:
        """The head of the thread, if there is one already. Raises `ThreadDiffers` if it belongs to another."""
        found = await self._store.threads(ThreadFilter(id=record.id))
        for here, head in found:
            check_same(here, record)
            return head
        return None

    async def _check_not_deleted(self, thread_id: str, head: Head | None) -> None:
        """Raise `ThreadExists` for a deleted thread, and a new one of its id: the file may hold what was deleted."""
        is_new = head is not None and not head.seq and bool(generation_of(head)) and not is_scope_id(thread_id)
        if is_new or (head is None and thread_id in await self._store.taken()):
            raise ThreadExists(thread_id, deleted=True)

    async def _check(self, file: LogFile, thread_id: str, head: Head) -> None:
        """Read the whole file. Raises `ThreadExists` unless the thread holds a beginning of its log, or all of it."""
        while (batch := await _next_batch(file, head.seq)) is not None:
            self._check_stand_ins(batch, thread_id)
            self._progress(file.seq)
            if file.seq == head.seq and file.hash != head.hash:
                raise ThreadExists(thread_id)
        if head.seq > file.seq:
            rows = await self._store.read_at(thread_id, [file.seq] if file.seq else [])
            if any(row.hash != file.hash for row in rows):
                raise ThreadExists(thread_id)

    def _check_stand_ins(self, batch: FileBatch, thread_id: str) -> None:
        """Check that redacted rows still decode to events: hashes do not cover the texts that replaced theirs."""
        for row in batch.rows:
            if is_redacted(row):
                try:
                    decode_row(thread_id, row, self._registry)
                except IntegrityError as error:
                    raise ImportRefused(str(self._path), row.seq + 1, error.why) from error

    async def _create(self, record: ThreadRecord) -> Head:
        try:
            await self._store.create(record, Head(), ())
            return await self._store.head(record.id)
        except ThreadExists:
            if await self._head(record) is not None:
                raise HeadMoved from None  # since a moment ago
            raise

    async def _write(self, thread_id: str, head: Head, record: ThreadRecord | None) -> None:
        """Commit the events after the head, batch by batch: after each the thread holds a beginning of the log."""
        after = head.seq
        try:
            with Made[LogFile]() as made:
                file = await made.beside(lambda: LogFile(self._path))
                while (batch := await _next_batch(file, after)) is not None:
                    if file.seq > after:
                        moved = self._moved(head, batch)
                        await self._store.commit(
                            CommitUnit(
                                thread_id=thread_id,
                                expected=head,
                                head=moved,
                                events=batch.rows,
                                live=batch.live,
                                projections=[imported(after, moved.seq)],
                                record=record,
                            )
                        )
                        head = moved
                    self._progress(file.seq)
        except ImportRefused as error:  # it was whole a moment ago
            raise ImportRefused(error.path, error.line, error.why, kept=head.seq) from error

    def _moved(self, head: Head, batch: FileBatch) -> Head:
        """The head after a batch.

        A type that this process does not know may be a tracked one. And a compaction that the log leaves open is at
        work elsewhere, if anywhere: this process must not end it, or record that it has no end.
        """
        for row in batch.rows:
            tracked = self._registry.tracks(row.type) or row.type not in self._known
            head = next_head(head, row, batch.tally, tracked=tracked)
        return msgspec.structs.replace(head, open_compaction=0)


async def at_rest(kernel: Kernel, thread_id: str, work: Callable[[], Awaitable[None]]) -> None:
    """Write to a thread, past its queue, while it is not loaded here, or else while no event of it is on the way."""
    runtime = kernel[OpenThreads].get(thread_id)
    if runtime is None or kernel[OpenThreads].let_go(runtime):
        await work()
        return
    open_here = runtime
    await kernel[CompactionService].settle(open_here)

    async def write() -> None:
        try:
            await work()
        finally:
            await open_here.reload()
            kernel.caches.drop(thread_id)

    await open_here.exclusively(write)


async def _next_batch(file: LogFile, stop: int) -> FileBatch | None:
    """The next batch; one ends at the seq `stop`."""
    limit = min(EVENTS_MAX, stop - file.seq) if file.seq < stop else EVENTS_MAX
    return await on_thread(lambda: file.take(limit, BYTES_MAX))


def _nobody(_done: int) -> None:
    """Hears of no progress."""
