"""A conversation on its way into a thread: its records' events, dispatched, and what is said of them."""

from collections.abc import Callable, Iterable, Sequence

from attrs import define
from msgspec.structs import replace

from memory_engine.compaction.service import CompactionService
from memory_engine.compaction.thresholds import is_due
from memory_engine.core.codec import encode_json
from memory_engine.core.events.memory import ExecutionResume
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.errors import IdempotencyConflict, IngestError, InvalidInput, ReducerError
from memory_engine.ingest.events import RecordReading, Translator, UnusableRecord
from memory_engine.ingest.known import dispatched
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.threads import OpenThreads
from memory_engine.thread import Thread, handle_of

EVENTS_AT_ONCE, BYTES_AT_ONCE = 64, 64 * 1024
"""Small messages share a commit of no more events and bytes than these."""
CHUNKS_OF_EVENT_MAX, FRAME_TOKENS = 2, 16


@define
class ThreadIngested:
    """The outcome for one thread: records taken, and how many of their events are new or were known.

    `branch_of` is the thread that it was forked from, if it is an abandoned branch of a conversation.
    """

    id: str
    messages: int = 0
    added: int = 0
    known: int = 0
    branch_of: str = ""


def thread_id_of(name: str, label: str) -> str:
    """Return the id of the thread of a label in a recording of a name."""
    return f"{name}/{label}" if label else name


@define
class Target:
    """A thread being filled. `head` is the seq up to which it is known."""

    thread: Thread
    head: int
    result: ThreadIngested

    def note(self, receipts: Iterable[Receipt]) -> None:
        """Count the events that are new, and those that were known."""
        for receipt in receipts:
            is_new = receipt.seq > self.head
            self.head = max(self.head, receipt.seq)
            self.result.added += is_new
            self.result.known += not is_new


@define
class Filling:
    """A conversation on its way into a thread; `into` is there from its first usable record on.

    It `is_refused` if the thread cannot take it at all.
    """

    conversation: RecordedConversation
    recording: RecordedFile
    thread_id: str
    branch_of: str
    into: Target | None = None
    is_refused: bool = False
    stop_observing: Callable[[], None] | None = None
    left_at: int = 0

    @property
    def named(self) -> str:
        """The id that the conversation's label gives its thread."""
        return thread_id_of(self.recording.name, self.conversation.label)

    async def leave(self, thread_id: str, seq: int) -> None:
        """Go on in a fork of this thread at a seq."""
        await self.end()
        self.into, self.branch_of, self.left_at = None, thread_id, seq

    async def end(self) -> None:
        """Wait for what the thread has still to do."""
        if self.stop_observing is not None:
            self.stop_observing()
            self.stop_observing = None
        if self.into is not None:
            await self.into.thread.compaction.settle()


async def dispatch_records(readings: Sequence[RecordReading], into: Target, *, of_any_size: bool) -> bool:
    """Dispatch the events of records in one commit; returns False if they cannot be dispatched so."""
    events = [new for reading in readings for new in reading.events]
    try:
        if not of_any_size and not _is_little(events, into.thread):
            return False
        await _check_open(events, into.thread)
        into.note(await into.thread.dispatch_all(events))
    except (IdempotencyConflict, InvalidInput, ReducerError, UnusableRecord):
        return False
    return True


def _is_little(events: Sequence[NewEvent], thread: Thread) -> bool:
    """Return True if events are so few and small that no compaction would begin before the last of them.

    A token has at least one byte, but in pictures.
    """
    runtime = handle_of(thread).kernel[OpenThreads].get(thread.id)
    has_parts = any(not isinstance(getattr(new.event, "content", ""), str) for new in events)
    if runtime is None or has_parts or len(events) > EVENTS_AT_ONCE:
        return False
    size = sum(len(encode_json(new.event)) for new in events)
    more = CHUNKS_OF_EVENT_MAX * len(events)
    tally = runtime.state.tally
    full = replace(
        tally,
        compactable=tally.compactable + more,
        compactable_tokens=tally.compactable_tokens + size + more * FRAME_TOKENS,
    )
    return size <= BYTES_AT_ONCE and not is_due(full, handle_of(thread).kernel[CompactionService].policy_of(runtime))


async def take(translator: Translator, reading: RecordReading, into: Target) -> str:
    """Dispatch the events of one record; returns why they cannot be dispatched, if so."""
    try:
        await _check_place(reading, into)
        await _check_open(reading.events, into.thread)
        receipts = await dispatched(reading.events, into.thread)
    except IdempotencyConflict as error:
        translator.refused()
        return (
            f"it was ingested before, as seq {error.seq} of thread {error.thread_id!r}, with other content; "
            "a log is never changed: ingest the changed file as another thread (--thread)"
        )
    except (InvalidInput, ReducerError, UnusableRecord) as error:
        translator.refused()
        return str(error)
    into.note(receipts)
    return ""


async def _check_place(reading: RecordReading, into: Target) -> None:
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


def error_with_place(why: str, filling: Filling, record: Record | IngestError) -> IngestError:
    """Return the error with its place, as exact as the file allows."""
    path = str(filling.recording.path)
    if isinstance(record, IngestError) or record.is_line:
        return IngestError(path, record.line, why)
    thread = f"{filling.thread_id}, " if filling.conversation.label else ""
    return IngestError(path, record.line, f"{thread}message {record.number}: {why}")
