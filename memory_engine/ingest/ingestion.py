"""Dispatching what files hold, record by record, so that threads compact as they would have live."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
from attrs import define, field, frozen

from memory_engine.core.aside import on_thread
from memory_engine.core.events.base import Event
from memory_engine.core.events.compaction import CompactionCompleted
from memory_engine.core.events.memory import ExecutionResume
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.records import NewEvent, Receipt, RecordedEvent
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine
from memory_engine.errors import IdempotencyConflict, IngestError, InvalidInput, ReducerError, ThreadExists
from memory_engine.formats.native import without_native
from memory_engine.formats.origin import without_origin
from memory_engine.ingest.chat import ChatReader, ConversationRecords, conversations
from memory_engine.ingest.events import EventReader, Reader, RecordReading, UnusableRecord
from memory_engine.ingest.records import Format, Record
from memory_engine.runtime.queue import BlockingReason
from memory_engine.thread import Thread

T = TypeVar("T")

ERRORS_LISTED_MAX = 1_000
RECORDS_AT_ONCE = 16


@frozen(kw_only=True)
class IngestOptions:
    """How to read files. `thread_id` stands in for the file's stem; new threads get user, tenant and `policy`.

    With `skip_invalid` an error costs the record it is in, else everything after it. Of `limits`, `json_values` counts.
    """

    format: Format = "auto"
    user_id: str = ""
    tenant_id: str = ""
    thread_id: str = ""
    skip_invalid: bool = False
    limits: ReadingLimits = DEFAULT_LIMITS
    policy: CompactionPolicy | None = None


@define
class ThreadIngested:
    """The outcome for one thread: records taken, and how many of their events are new or were known."""

    id: str
    messages: int = 0
    added: int = 0
    known: int = 0


@define
class IngestReport:
    """The outcome for all files so far. `errors` lists the first 1,000 of `invalid`."""

    files: int = 0
    threads: list[ThreadIngested] = field(factory=list)
    compactions: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    invalid: int = 0
    errors: list[IngestError] = field(factory=list)

    @property
    def messages(self) -> int:
        """Records taken, in all threads."""
        return sum(thread.messages for thread in self.threads)


class Ingestion:
    """Reads files into the threads of one engine.

    A record's events have ids that follow from the thread and the record's number (or that
    the record bears): a record ingested before adds nothing, a longer file adds its new
    records, and a changed record is an error. The `report` given is filled, and `on_record` called
    after each record that was taken.

    Events with a `seq` come from a log. They only find their places again in an engine that
    compacts nothing of its own accord (`CompactionPolicy(enabled=False)`).
    """

    def __init__(
        self,
        engine: Engine,
        options: IngestOptions,
        report: IngestReport | None = None,
        on_record: Callable[[IngestReport], None] | None = None,
    ) -> None:
        self.report = report if report is not None else IngestReport()
        self._engine = engine
        self._options = options
        self._on_record = on_record

    async def file(self, path: Path) -> bool:
        """Ingest a file; false if it was given up at an error, which is then the last in the report.

        Raises only errors that the file did not cause: a `StorageError`, `ThreadClosed`.
        """
        self.report.files += 1
        stop_observing = self._engine.observe(self._observe)
        try:
            name = self._options.thread_id or path.stem
            threads = conversations(path, self._options.format, name, self._options.limits)
            async for (found,) in _beside(threads, 1):  # each one's records are read before the next is looked for
                if isinstance(found, IngestError):
                    if self._ends(found):
                        return False
                elif not await self._conversation(found, str(path)):
                    return False
        finally:
            stop_observing()
        return True

    def _observe(self, recorded: RecordedEvent) -> None:
        if isinstance(recorded.event, CompactionCompleted):
            self.report.compactions += 1
            self.report.tokens_before += recorded.event.tokens_before
            self.report.tokens_after += recorded.event.tokens_after

    def _ends(self, error: IngestError) -> bool:
        """Note an error; true if it ends the file."""
        self.report.invalid += 1
        if len(self.report.errors) < ERRORS_LISTED_MAX:
            self.report.errors.append(error)
        return not self._options.skip_invalid

    async def _conversation(self, conversation: ConversationRecords, path: str) -> bool:
        try:
            thread = await self._thread(conversation.thread_id)
        except (InvalidInput, UnusableRecord) as error:
            return not self._ends(IngestError(path, conversation.line, str(error)))
        into = _Target(thread, (await thread.state()).seq, ThreadIngested(thread.id))
        self.report.threads.append(into.result)
        reader = self._reader(conversation)
        try:
            async for some in _beside(conversation.records, RECORDS_AT_ONCE):
                for record in some:
                    why = await self._record(record, reader, into)
                    if why and self._ends(_placed(why + self._kept(into), conversation, record, path)):
                        return False
                    # else where a compaction stands in the log would depend on the machine, and its ids with it
                    await thread.settle()
        finally:
            await thread.settle()
        return True

    async def _record(self, record: Record | IngestError, reader: Reader, into: "_Target") -> str:
        """Take one record; returns why it cannot be taken, if so."""
        if isinstance(record, IngestError):
            return record.why
        why = await _take(reader, record, into)
        if not why:
            into.result.messages += 1
            if self._on_record is not None:
                self._on_record(self.report)
        return why

    def _kept(self, into: "_Target") -> str:
        """Describe the part of a thread that is kept when its file is given up."""
        count = into.result.messages
        return "" if self._options.skip_invalid else f" (kept {count} message{'s' * (count != 1)} before it)"

    def _reader(self, conversation: ConversationRecords) -> Reader:
        if conversation.shape == "event":
            return EventReader(conversation.thread_id, self._engine.events)
        return ChatReader(conversation.thread_id, format=self._options.format, native=True)

    async def _thread(self, thread_id: str) -> Thread:
        user, tenant = self._options.user_id, self._options.tenant_id
        try:
            return await self._engine.create_thread(
                thread_id, user_id=user, tenant_id=tenant, policy=self._options.policy
            )
        except ThreadExists:
            thread = self._engine.thread(thread_id)
        info = await thread.info()
        for what, asked, held in (("user", user, info.user_id), ("tenant", tenant, info.tenant_id)):
            if asked and asked != held:
                raise UnusableRecord(f"thread {thread_id!r} is of {what} {held!r}, not {asked!r}; use --thread")
        return thread


async def _beside(values: Iterator[T], at_once: int) -> AsyncIterator[tuple[T, ...]]:
    """Yield the values, `at_once` at a time, read in a thread so that a long line does not block the event loop."""
    while some := await on_thread(lambda: tuple(islice(values, at_once))):
        yield some


@define
class _Target:
    """A thread being filled. `head` is the seq up to which it is known."""

    thread: Thread
    head: int
    result: ThreadIngested


async def _take(reader: Reader, record: Record, into: _Target) -> str:
    """Dispatch one record; returns why it cannot be dispatched, if so."""
    try:
        reading = reader.read(record.value, record.number)
    except UnusableRecord as error:
        return str(error)
    except RecursionError:
        reader.refused()
        return "its values are nested too deep"
    try:
        await _check_place(reading, into)
        await _check_open(reading.events, into.thread)
        receipts = await _dispatched(reading.events, into.thread)
    except IdempotencyConflict as error:
        reader.refused()
        return (
            f"it was ingested before, as seq {error.seq} of thread {error.thread_id!r}, with other content; "
            "a log is never changed: ingest the changed file as another thread (--thread)"
        )
    except (InvalidInput, ReducerError, UnusableRecord) as error:
        reader.refused()
        return str(error)
    for receipt in receipts:
        is_new = receipt.seq > into.head
        into.head = max(into.head, receipt.seq)
        into.result.added += is_new
        into.result.known += not is_new
    return ""


async def _dispatched(events: Sequence[NewEvent], thread: Thread) -> tuple[Receipt, ...]:
    """Dispatch a record's events; one ingested before origins, or before `native` was kept, is known without it."""
    try:
        return await thread.dispatch_all(events)
    except IdempotencyConflict:
        for without in (without_origin, _bare):
            known = [msgspec.structs.replace(new, event=without(new.event)) for new in events]
            if known != list(events):
                with suppress(IdempotencyConflict):
                    return await thread.dispatch_all(known)
        raise


def _bare(event: Event) -> Event:
    return without_origin(without_native(event))


async def _check_place(reading: RecordReading, into: _Target) -> None:
    """Check that an event with a seq gets that seq: later events name chunks by it."""
    if reading.seq is None or reading.seq == into.head + 1:
        return
    if reading.seq > into.head:
        ends = f"the thread ends at {into.head}"
        raise UnusableRecord(f"it is seq {reading.seq} of its log and {ends}; ingest the log from its start")
    async for there in into.thread.events(after=reading.seq - 1, upto=reading.seq):
        if there.id != reading.events[0].id:
            raise UnusableRecord(
                f"seq {reading.seq} of thread {into.thread.id!r} is another event; "
                "ingest the log as a thread of its own (--thread)"
            )


async def _check_open(events: Sequence[NewEvent], thread: Thread) -> None:
    """Check that the thread is not paused, which would make the file wait forever."""
    resumes = all(isinstance(new.event, ExecutionResume) for new in events)
    if await thread.blocking_reason() is BlockingReason.PAUSED and not resumes:
        raise UnusableRecord(f"thread {thread.id!r} is paused and takes nothing until it is resumed")


def _placed(why: str, conversation: ConversationRecords, record: Record | IngestError, path: str) -> IngestError:
    """Return the error with its place, as exact as the file allows."""
    if isinstance(record, IngestError) or record.is_line:
        return IngestError(path, record.line, why)
    thread = f"{conversation.thread_id}, " if conversation.part else ""
    return IngestError(path, record.line, f"{thread}message {record.number}: {why}")
