"""A log as its file holds it when texts are taken out, such that whoever imports it can still verify it.

Every event that keeps its salt must come out of the reducers as it was recorded, though events before it say less
now. Where one does not (a shortened result is told by its length), it is redacted too.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from memory_engine.codec import encode_reduction
from memory_engine.errors import IntegrityError, InvalidOperation, MemoryEngineError
from memory_engine.events.base import Event
from memory_engine.events.memory import MemoryForget
from memory_engine.executor import apply_to_draft
from memory_engine.kernel import Kernel
from memory_engine.log import decode_row, is_redacted
from memory_engine.persistence import ThreadRecord
from memory_engine.records import StoredEvent
from memory_engine.reducing import ReduceContext, reduce_into
from memory_engine.replay.files.copies import Hidden
from memory_engine.replay.files.redacting import Redactor, redacted
from memory_engine.replay.redaction import Redaction
from memory_engine.state import State

PAUSE_ROWS = 16
"""So many rows are worked on before others have their turn."""


class RedactedLog:
    """A thread's log up to a seq, without what the rules take out."""

    def __init__(self, kernel: Kernel, thread: ThreadRecord, upto: int, redactor: Redactor) -> None:
        self._kernel = kernel
        self._thread_id = thread.id
        self._redactor = redactor
        self._state = State()
        self._whole: State | None = None
        self.thread = redactor.thread(thread)
        self.upto = upto

    @classmethod
    async def of(cls, kernel: Kernel, thread: ThreadRecord, upto: int, rules: Redaction) -> "RedactedLog":
        """The log, once it is known what was forgotten in it, after `upto` too."""
        hidden = Hidden(thread.id, seqs=set(rules.seqs))
        if rules.forgotten:
            head = await kernel.store.head(thread.id)
            pages = kernel.reader.pages(thread.id, after=0, upto=head.seq, types=frozenset({MemoryForget.event_type}))
            async for page in pages:
                for stored in page:
                    event, _ = decode_row(thread.id, stored, kernel.events)
                    if isinstance(event, MemoryForget):
                        hidden.forget(event)
        ids = kernel.ids
        return cls(kernel, thread, upto, Redactor(rules, kernel.events, hidden, ids.salt() + ids.salt()))

    async def pages(self) -> AsyncIterator[Sequence[StoredEvent]]:
        """Its rows, in order. Raises `InvalidRedaction`, `IntegrityError`."""
        async for page in self._kernel.reader.pages(self._thread_id, after=0, upto=self.upto):
            rows = []
            for stored in page:
                rows.append(await self._row(stored))
                if stored.seq % PAUSE_ROWS == 0:
                    await asyncio.sleep(0)
            yield rows

    def idle(self) -> tuple[str, ...]:
        """The rules that nothing in the log was for."""
        return self._redactor.idle()

    async def _row(self, stored: StoredEvent) -> StoredEvent:
        less = self._redactor.row(stored)
        if less is stored and not is_redacted(stored):
            after = self._reduced(stored, self._state)
            if after is None and await self._did_come_out(stored):
                less = redacted(stored, stored.payload, stored.record)
        else:
            after = None
        self._state = after or self._applied(less, self._state)
        if self._whole is not None:
            self._whole = self._applied(stored, self._whole)
        return less

    async def _did_come_out(self, stored: StoredEvent) -> bool:
        """Whether an event comes out of the reducers as it was recorded where nothing is hidden."""
        if self._whole is None:
            self._whole = await self._kernel.reader.state_at(self._thread_id, stored.seq - 1)
        return self._reduced(stored, self._whole) is not None

    def _reduced(self, stored: StoredEvent, state: State) -> State | None:
        """The state after an event, if the reducers do now what was recorded."""
        try:
            event = self._kernel.events.decode(stored.type, stored.version, stored.payload)
            if not isinstance(event, Event):
                return None
            draft = state.draft()
            context = ReduceContext(stored.seq, stored.id, stored.recorded_at_us)
            reduction = reduce_into(draft, self._kernel.reducers.of_type(stored.type), event, context, self._thread_id)
        except MemoryEngineError:
            return None
        return draft.freeze(stored.seq) if encode_reduction(reduction, event) == stored.record else None

    def _applied(self, stored: StoredEvent, state: State) -> State:
        """The state after what is recorded. Raises `IntegrityError`."""
        _, reduction = decode_row(self._thread_id, stored, self._kernel.events)
        draft = state.draft()
        try:
            apply_to_draft(draft, reduction.operations, reduction.chunks, seq=stored.seq)
        except InvalidOperation as error:
            raise IntegrityError(self._thread_id, stored.seq, str(error)) from error
        return draft.freeze(stored.seq)
