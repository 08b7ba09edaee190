"""Dispatching what files hold, record by record, so that threads compact as they would have live."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

from attrs import define, evolve, field, frozen

from memory_engine.core.aside import on_thread
from memory_engine.core.events.compaction import CompactionCompleted
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.recordings import PAUSE, Reader, Record, RecordedConversation, RecordedFile
from memory_engine.core.records import RecordedEvent
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import IngestError, InvalidInput, ThreadExists, ThreadNotFound
from memory_engine.ingest.branches import Branches, BranchLine
from memory_engine.ingest.chat import ChatReader
from memory_engine.ingest.events import EventReader, RecordReading, Translator, UnusableRecord, event_id
from memory_engine.ingest.filling import (
    Filling,
    Target,
    ThreadIngested,
    dispatch_records,
    error_with_place,
    take,
    thread_id_of,
)
from memory_engine.ingest.readers import reader_of
from memory_engine.ingest.records import open_recording
from memory_engine.ingest.responses import by_response
from memory_engine.plugins import RecordingReaders
from memory_engine.thread import Thread

T = TypeVar("T")
_Responses = Sequence[Sequence[Record | IngestError]]

ERRORS_LISTED_MAX = 1_000
RECORDS_AT_ONCE = 16
"""Small messages share a commit: at most this number of records, with no more events and bytes than `filling` says."""


@frozen(kw_only=True)
class IngestOptions:
    """How to read files. `thread_id` replaces the file's stem; new threads get user, tenant and `policy`.

    `format` is one of messages (`openai`, …) or the name of a reader; `auto` lets the file decide.

    Without `branches`, a branch of a conversation that was left is only counted, else it becomes a fork.
    With `skip_invalid` an error costs the record it is in, else everything after it. Of `limits`, `json_values` counts.
    """

    format: str = "auto"
    user_id: str = ""
    tenant_id: str = ""
    thread_id: str = ""
    skip_invalid: bool = False
    branches: bool = True
    limits: ReadingLimits = DEFAULT_LIMITS
    policy: CompactionPolicy | None = None


@define
class IngestReport:
    """The outcome for all files so far. `errors` lists the first 1,000 of `invalid`.

    `left_out` counts the other contents of files, by kind. `passed_over` are the files of a folder that are not
    recordings.
    """

    files: int = 0
    threads: list[ThreadIngested] = field(factory=list)
    compactions: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    invalid: int = 0
    errors: list[IngestError] = field(factory=list)
    left_out: Counter[str] = field(factory=Counter)
    passed_over: list[IngestError] = field(factory=list)

    @property
    def messages(self) -> int:
        """Records taken, in all threads."""
        return sum(thread.messages for thread in self.threads)


class Ingestion:
    """Reads files into the threads of one engine.

    A record's events have ids that follow from the thread and the record's key or number (or that the record bears): a
    record ingested before adds nothing, a longer file adds its new records, and a changed record is an error.

    The `report` given is filled, and `on_record` called after each record that was taken, `on_pause` when a file that
    is followed holds no more for now. Readers of plug-ins, and `readers`, are tried before the built-in ones.

    Give a function in place of the engine to have it opened once a file holds something to keep; then `readers` are
    those of its plug-ins, too.

    Events with a `seq` come from a log. They only find their places again in an engine that
    compacts nothing of its own accord (`CompactionPolicy(enabled=False)`).
    """

    def __init__(  # noqa: PLR0913 - the target, the options, and the observer
        self,
        engine: Engine | Callable[[], Awaitable[Engine]],
        options: IngestOptions,
        report: IngestReport | None = None,
        on_record: Callable[[IngestReport], None] | None = None,
        *,
        on_pause: Callable[[IngestReport], None] | None = None,
        readers: Sequence[Reader] = (),
    ) -> None:
        self.report = report if report is not None else IngestReport()
        self._engine = engine if isinstance(engine, Engine) else None
        self._open = engine
        self._options = options
        self._on_record = on_record
        self._on_pause = on_pause
        added = kernel_of(self._engine)[RecordingReaders].added if self._engine is not None else ()
        self._readers = (*readers, *added)
        self.also_read: set[Path] = set()
        self._root = ""
        self._branches: Branches | None = None

    async def file(self, path: Path, name: str = "") -> bool:
        """Ingest a file, under a name if one is given.

        False if it was given up at an error, which is then the last in the report.

        Raises only errors that the file did not cause: a `StorageError`, `ThreadClosed`.
        """
        options = self._options
        return await self.recording(
            await on_thread(lambda: open_recording(path, name or options.thread_id, options.format, options.limits))
        )

    async def recording(self, recording: RecordedFile) -> bool:
        """Ingest a recording; otherwise like `file`."""
        self.report.files += 1
        path = str(recording.path)
        reader = reader_of(recording, self._readers)
        if reader is None:
            why = f"the format {recording.format!r} is not known, or the file is not of it"
            return not self._ends(IngestError(path, 1, why))
        try:
            async for (found,) in _batches_on_thread(
                iter(reader.conversations(recording)), 1
            ):  # each one's records are read before the next is looked for
                if isinstance(found, IngestError):
                    if self._ends(found):
                        return False
                elif not await self._conversation(found, recording):
                    return False
        finally:
            self.report.left_out.update(recording.left_out)
            self.also_read.update(recording.also_read)
        return True

    async def _opened(self) -> Engine:
        if self._engine is None:
            if isinstance(self._open, Engine):
                return self._open
            self._engine = await self._open()
        return self._engine

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

    async def _conversation(self, conversation: RecordedConversation, recording: RecordedFile) -> bool:
        if conversation.branch_of is not None and not self._options.branches:
            count = await on_thread(lambda: sum(isinstance(one, Record) for one in conversation.records))
            recording.left_out["message of another branch"] += count
            return True
        branch_of = thread_id_of(recording.name, conversation.branch_of) if conversation.branch_of is not None else ""
        filling = Filling(conversation, recording, thread_id_of(recording.name, conversation.label), branch_of)
        translator = await self._translator(filling)
        try:
            if not await self._fill(filling, translator):
                return False
            if conversation.strict and filling.into is None and not self.report.invalid:
                await self._into(filling)  # a conversation that holds nothing is a thread all the same
        finally:
            await filling.end()
        return True

    async def _fill(self, filling: Filling, translator: Translator) -> bool:
        """Take the records of a conversation, a response in one commit; false if its file is given up."""
        line = await self._line(filling)
        at_once = 1 if filling.recording.is_followed or line is not None else RECORDS_AT_ONCE
        async for found in _batches_on_thread(by_response(filling.conversation.records), at_once):
            some: _Responses = found
            if line is not None:
                some, translator = await self._in_its_thread(found, line, translator, filling)
            together = [record for response in some for record in response]
            if (after := await self._all_at_once(together, translator, filling)) is not None:
                translator = after
                continue
            for response in some:
                if (after := await self._all_at_once(response, translator, filling, of_any_size=True)) is not None:
                    translator = after
                elif not await self._one_by_one(response, translator, filling):
                    return False
                if filling.is_refused:
                    return True
        return True

    async def _line(self, filling: Filling) -> BranchLine | None:
        """Return the line of a conversation with branches, if an earlier file was ingested into its thread."""
        if filling.conversation.branch_of is None:
            self._root, self._branches = filling.named, None
        if not filling.conversation.tree or filling.recording.is_followed:
            return None
        engine = await self._opened()
        if filling.conversation.branch_of is None:
            with suppress(ThreadNotFound):
                await engine.thread(filling.named).info()
                self._branches = Branches(engine)
        return BranchLine(engine, filling.named, filling.conversation.tree) if self._branches is not None else None

    async def _in_its_thread(
        self, some: "_Responses", line: BranchLine, translator: Translator, filling: Filling
    ) -> tuple["_Responses", Translator]:
        """Find the thread for the next response of a line, and return the response with the translator for it."""
        branches, [record, *others] = self._branches, some[0]
        if branches is None or isinstance(record, IngestError) or not record.key:
            return some, translator
        if filling.branch_of and filling.into is None and line.thread_id == filling.named:
            if (held := await branches.holder(filling.branch_of, record.key)) is not None:
                line.thread_id, filling.branch_of = held[0], ""
                branches.add(filling.named, held[0])
            elif (held := await branches.holder(filling.branch_of, filling.conversation.after)) is not None:
                filling.branch_of = held[0]
        if await line.leaves_at(record.key):
            fork = f"{self._root}/branch-{record.key}"
            branches.add(filling.named, fork)
            await filling.leave(line.thread_id, line.seq)
            await line.leave_for(fork, record.key)
            some = ([evolve(record, parent=""), *others],)  # what it follows is in the thread that it leaves
        if filling.thread_id == line.thread_id:
            return some, translator
        filling.thread_id = line.thread_id
        return some, translator.copy(line.thread_id)

    async def _one_by_one(
        self, records: Sequence[Record | IngestError], translator: Translator, filling: Filling
    ) -> bool:
        """Take records with a commit each, up to one that cannot be taken; false if the file is given up at it."""
        for record in records:
            if isinstance(record, Record) and record.value is PAUSE:
                self._paused()
                continue
            why = await self._record(record, translator, filling)
            if why and self._ends(error_with_place(why + self._kept(filling), filling, record)):
                return False
            if filling.is_refused:
                return True
            # else the place of a compaction in the log would depend on the machine, and its ids with it
            if filling.into is not None:
                await filling.into.thread.compaction.settle()
        return True

    async def _all_at_once(
        self,
        records: Sequence[Record | IngestError],
        translator: Translator,
        filling: Filling,
        *,
        of_any_size: bool = False,
    ) -> Translator | None:
        """Take small messages, or one response, in one commit, and return the translator of those that follow.

        None, and nothing is taken, where there is anything to say of one: then they are taken one by one.
        """
        if len(records) == 1 or filling.conversation.shape == "event" or not (filling.into or of_any_size):
            return None
        trial = translator.copy()
        readings: list[RecordReading] = []
        for record in records:
            if isinstance(record, IngestError) or record.value is PAUSE:
                return None
            try:
                readings.append(trial.take(record))
            except (UnusableRecord, RecursionError):
                return None
        try:
            into = filling.into or await self._into(filling)
        except (InvalidInput, UnusableRecord):
            return None
        if not await dispatch_records(readings, into, of_any_size=of_any_size):
            return None
        for _ in readings:
            into.result.messages += 1
            if self._on_record is not None:
                self._on_record(self.report)
        await into.thread.compaction.settle()
        return trial

    def _paused(self) -> None:
        if self._on_pause is not None:
            self._on_pause(self.report)

    async def _record(self, record: Record | IngestError, translator: Translator, filling: Filling) -> str:
        """Take one record; returns why it cannot be taken, if so."""
        if isinstance(record, IngestError):
            return record.why
        try:
            reading = translator.take(record)
        except UnusableRecord as error:
            return str(error)
        except RecursionError:
            translator.refused()
            return "its values are nested too deep"
        try:
            into = filling.into or await self._into(filling)
        except (InvalidInput, UnusableRecord) as error:
            filling.is_refused = True
            return str(error)
        why = await take(translator, reading, into)
        if not why:
            into.result.messages += 1
            if self._on_record is not None:
                self._on_record(self.report)
        return why

    async def _into(self, filling: Filling) -> "Target":
        """The thread that a conversation goes to: made once its first record is known to be usable."""
        thread = await self._thread(filling)
        engine = await self._opened()
        filling.stop_observing = engine.observe(self._observe)
        its = ThreadIngested(thread.id, branch_of=filling.branch_of)
        filling.into = Target(thread, (await thread.state()).seq, its)
        self.report.threads.append(filling.into.result)
        return filling.into

    def _kept(self, filling: Filling) -> str:
        """Describe the part of a thread that is kept when its file is given up."""
        if filling.into is None or self._options.skip_invalid:
            return ""
        count = filling.into.result.messages
        return f" (kept {count} message{'s' * (count != 1)} before it)"

    async def _translator(self, filling: Filling) -> Translator:
        if filling.conversation.shape == "event":
            return EventReader(filling.thread_id, (await self._opened()).events)
        given, strict = filling.recording.format, filling.conversation.strict
        return ChatReader(filling.thread_id, format=given, native=True, strict=strict)

    async def _thread(self, filling: Filling) -> Thread:
        engine = await self._opened()
        user, tenant = self._options.user_id, self._options.tenant_id
        thread_id, its = filling.thread_id, filling.conversation
        parent = thread_id_of(filling.recording.name, its.parent) if its.parent is not None else ""
        try:
            if filling.branch_of:
                return await _forked(engine, filling)
            return await engine.create_thread(
                thread_id,
                user_id=user,
                tenant_id=tenant,
                agent_id=its.agent_id,
                parent_id=parent,
                policy=self._options.policy,
            )
        except ThreadExists:
            thread = engine.thread(thread_id)
        info = await thread.info()
        for what, asked, held in (("user", user, info.user_id), ("tenant", tenant, info.tenant_id)):
            if asked and asked != held:
                raise UnusableRecord(f"thread {thread_id!r} is of {what} {held!r}, not {asked!r}; use --thread")
        return thread


async def _forked(engine: Engine, filling: Filling) -> Thread:
    """The fork for a branch, from the message after which it was left."""
    after, at = filling.conversation.after, filling.left_at
    if after and not at:
        [*found] = await kernel_of(engine).store.find(filling.branch_of, [event_id(filling.branch_of, after)])
        if not found:
            raise UnusableRecord(f"it branches off message {after!r}, which is not in thread {filling.branch_of!r}")
        at = found[0].seq
    return await engine.thread(filling.branch_of).fork(at, thread_id=filling.thread_id)


async def _batches_on_thread(values: Iterator[T], at_once: int) -> AsyncIterator[tuple[T, ...]]:
    """Yield the values, `at_once` at a time, read in a thread so that a long line does not block the event loop."""
    while some := await on_thread(lambda: tuple(islice(values, at_once))):
        yield some
