"""What a log holds already: of the events that a request brings, and beyond what its sender has seen."""

from functools import partial
from itertools import takewhile

from memory_engine.core.chain import read_back
from memory_engine.core.records import Receipt, RecordedEvent, StateHandle, StoredEvent
from memory_engine.core.reduction import Reduction
from memory_engine.core.state import State
from memory_engine.core.threads import Head, generation_of
from memory_engine.errors import Conflict, IdempotencyConflict, ThreadNotFound
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.queue import Request

PAGE = 64
"""Events that are looked at in one go."""


class RecordedLog:
    """The log of one thread, as its senders are told of it."""

    def __init__(self, kernel: Kernel, thread_id: str) -> None:
        self._kernel = kernel
        self._thread_id = thread_id

    def receipt(
        self, head: Head, stored: StoredEvent, made: Reduction | RecordedEvent, at_hand: State | None
    ) -> Receipt:
        """The receipt of an event, with its state if it is `at_hand`. `head` is one of the thread's."""
        return Receipt(
            thread_id=self._thread_id,
            seq=stored.seq,
            event_id=stored.id,
            hash=stored.hash.hex(),
            operations=made.operations,
            chunks=made.chunks,
            state=StateHandle(stored.seq, at_hand, partial(self._state, generation_of(head))),
            recorded_at_us=stored.recorded_at_us,
        )

    async def _state(self, generation: int, seq: int) -> State:
        """The state after an event of this thread. Raises `ThreadNotFound` where another bears its id now."""
        if generation_of(await self._kernel.store.head(self._thread_id)) != generation:
            raise ThreadNotFound(self._thread_id)
        return await self._kernel.reader.shown_at(self._thread_id, seq)

    async def find(self, head: Head, request: Request) -> None:
        """Find events that are recorded already; resolve the request if all are, fail it on a conflict."""
        ids = [event.id for event in request.pending]
        found = {stored.id: stored for stored in await self._kernel.store.find(self._thread_id, ids)}
        for prepared in request.pending:
            stored = found.get(prepared.id)
            if stored is None:
                continue
            if (stored.payload, stored.type) != (prepared.payload, prepared.event.event_type):
                request.fail(IdempotencyConflict(self._thread_id, prepared.id, stored.seq))
                return
            made = read_back(self._thread_id, stored, self._kernel.events)
            request.receipts[stored.id] = self.receipt(head, stored, made, None)
        if not request.pending:
            request.resolve()

    async def rebase(self, head: Head, request: Request) -> None:
        """Base a request on the head if only upkeep came since what its sender has seen; else fail it.

        One whose events are all recorded already gets their receipts.
        """
        based_on = request.based_on or 0
        while based_on < head.seq:
            page = await self._kernel.store.read(self._thread_id, after=based_on, upto=head.seq, limit=PAGE)
            upkeep = list(takewhile(lambda stored: self._kernel.events.is_upkeep(stored.type), page))
            based_on += len(upkeep)
            if not upkeep or len(upkeep) < len(page):
                break
        request.based_on = based_on
        if based_on != head.seq:
            if request.has_callers_ids:
                await self.find(head, request)
            request.fail(Conflict(self._thread_id, request.expected_seq or 0, head.seq))
