"""The stand-ins of a thread: rows that take the place of those that an act erases."""

import asyncio

from attrs import define

from memory_engine.administration.proof import ErasedPieces
from memory_engine.core.chain import is_redacted, stand_in_digest
from memory_engine.core.events.memory import ErasedRow, EventsErased
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ThreadRecord
from memory_engine.replay.export.redaction import Hidden, Redaction
from memory_engine.replay.export.redactor import PAUSE_ROWS, LogRedactor, RedactedLog
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.attested import Attested, attested_of


@define
class StandIns:
    """The rows of a thread with stand-ins, up to where its log was read: `named` of them no act names yet.

    It reads on from where it was. So what others write meanwhile costs their events, and not the whole log again. They
    `are_outdated` once it meets another act: that has exchanged rows which were read before, and to write these here
    would bring back what it erased. The `pieces` are those of rows that are replaced by the stand-ins: rows of
    stand-ins that never are may stay, and no proof may look for them.
    """

    log: RedactedLog
    named: list[ErasedRow]
    replaced: list[StoredEvent]
    pieces: ErasedPieces
    _kernel: Kernel
    _thread_id: str
    _first: int
    _attested: Attested
    _seq: int = 0
    are_outdated: bool = False

    @classmethod
    async def of(cls, kernel: Kernel, record: ThreadRecord, hidden: Hidden) -> "StandIns":
        """Those of a thread whose `hidden` texts go; nothing is read yet."""
        secret = kernel.ids.salt() + kernel.ids.salt()
        redactor = LogRedactor(Redaction(forgotten=False), kernel.events, hidden, secret)
        first = record.forked_from.seq + 1 if record.forked_from is not None else 1
        attested = await attested_of(kernel.store, kernel.events, record.id)
        log, pieces = RedactedLog(kernel, record, 0, redactor), ErasedPieces(kernel.events)
        return cls(log, [], [], pieces, kernel, record.id, first, attested)

    async def advance(self, upto: int) -> None:
        """Read on up to a seq. Rows before the thread's own are those of the log that it was forked from."""
        has_read = self._seq > 0
        async for stored in self._kernel.reader.walk(self._thread_id, after=self._seq, upto=upto):
            self.are_outdated |= has_read and stored.type == EventsErased.event_type
            less = await self.log.row(stored)
            self._seq = stored.seq
            if less.seq < self._first:
                continue
            digest = stand_in_digest(less) if is_redacted(less) else ""
            if digest and self._attested.digest(less.seq) != digest:
                self.named.append(ErasedRow(less.seq, digest))
            if less is not stored:
                self.replaced.append(less)
                self.pieces.note(stored, less)
            if stored.seq % PAUSE_ROWS == 0:
                await asyncio.sleep(0)
