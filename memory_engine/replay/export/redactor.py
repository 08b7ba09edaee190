"""Rows of a log with their texts taken out, and with the commitments that the chain holds in place of the salt.

The result is a log that still verifies where it is imported. Every event that keeps its salt must come out
of the reducers unchanged, though events before it say less
now. Where one does not (a shortened result depends on its length), it is redacted too.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from memory_engine.core.chain import commitments, decode_row, is_redacted
from memory_engine.core.chunks import Chunk
from memory_engine.core.codec import ReductionRecord, decode_reduction, encode_json, encode_reduction, resolve_chunks
from memory_engine.core.events.base import Event, SummaryLine, TakenOut
from memory_engine.core.events.compaction import (
    CompactionCompleted,
    CompactionUndone,
    RestoredChunk,
    SourceQuarantined,
    ThreadRereduced,
    ThreadRewound,
)
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.events.roles import FieldKind
from memory_engine.core.executor import apply_to_draft
from memory_engine.core.forgetting import line_digest
from memory_engine.core.records import StoredEvent
from memory_engine.core.reduction import ReduceContext, reduce_into
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import EventDecodeError, IntegrityError, InvalidOperation, InvalidRedaction, MemoryEngineError
from memory_engine.replay.export.payloads import Hide, PayloadWalk, chunk_without, line_without, shape_of
from memory_engine.replay.export.redaction import Hidden, Redaction, Scrubber, is_opaque
from memory_engine.runtime.kernel import Kernel

_RESTORED = shape_of(RestoredChunk)
QUOTED_EVENTS = 256
"""Events whose texts are remembered, to read the values that quote them."""
_REPEATING = ("copies", "summaries")
"""Origins of chunks that repeat other events: these go one by one, all others with their event."""


class LogRedactor:
    """Takes the texts out of a log's rows, which it must be given in order, from the first on.

    `hidden` names everything to hide from the start: forgotten chunks, and the events that rules name. With
    `takes_unread`, packed content that cannot be read goes wherever anything is hidden: it may hold that too.
    """

    def __init__(
        self,
        rules: Redaction,
        registry: EventRegistry,
        hidden: Hidden,
        secret: bytes,
        *,
        takes_unread: bool = False,
    ) -> None:
        self._rules = rules
        self._takes_unread = takes_unread
        self._contents: dict[int, str] = {}
        self._registry = registry
        self._classes = {cls.event_type: cls for cls in registry.classes()}
        self._hidden = hidden
        self._scrubber = Scrubber(rules.patterns, secret)
        self._fields = tuple(_path(name) for name in rules.fields)
        self._names: set[str] = set()
        self._used_fields: set[int] = set()
        self._seen_types: set[str] = set()
        self._head = 0

    def row(self, stored: StoredEvent) -> StoredEvent:
        """The row without the texts to hide; the very same object without any.

        Raises `InvalidRedaction` for texts that cannot be taken out, `IntegrityError` where the row cannot be read.
        """
        try:
            return self._redacted(stored)
        except RecursionError:
            why = (
                "its values are nested too deeply to be searched; take all its texts out (types, seqs), or leave it out"
            )
            raise InvalidRedaction(f"event {stored.seq}", why) from None

    def _redacted(self, stored: StoredEvent) -> StoredEvent:
        self._head = stored.seq
        self._check_envelope(stored)
        event, record = self._read(stored)
        self._remember(event)
        cls = self._classes.get(stored.type)
        walk = PayloadWalk(
            scrubber=self._scrubber, rules=self._fields, known=self._names, is_known_type=cls is not None
        )
        hide = Hide.TEXTS if self._is_hidden(stored, event, record) else Hide.MATCHES
        value = msgspec.json.decode(stored.payload)
        less = value if hide else self._without_copies(event, msgspec.json.decode(stored.payload), record, walk)
        clean = walk.value(less, shape_of(cls), FieldKind.TEXT, (), hide)
        is_hidden = bool(hide or walk.fields)
        if is_hidden:
            whole = resolve_chunks(record, event) if event is not None else record.chunks
            self._hidden.add(stored.seq, stored.id, whole)
        chunks = self._chunks(record, walk, is_hidden=is_hidden)
        self._note(event, walk, is_changed=clean != value)
        payload = stored.payload if clean == value else encode_json(clean)
        written = stored.record
        if chunks != record.chunks:
            written = encode_json(ReductionRecord(record.operations, chunks, record.shares))
        if payload == stored.payload and written == stored.record:
            return stored
        self._check_is_readable(stored, event, payload)
        return redacted(stored, payload, written)

    def thread(self, thread: ThreadRecord) -> ThreadRecord:
        """The thread's record, without the texts that patterns match."""
        named = self._scrubber.named
        origin = thread.forked_from
        return msgspec.structs.replace(
            thread,
            id=named(thread.id),
            user_id=named(thread.user_id),
            tenant_id=named(thread.tenant_id),
            agent_id=named(thread.agent_id),
            parent_id=named(thread.parent_id),
            metadata={named(key): self._scrubber.scrubbed(value) for key, value in thread.metadata.items()},
            forked_from=msgspec.structs.replace(origin, thread_id=named(origin.thread_id)) if origin else None,
        )

    def idle(self) -> tuple[str, ...]:
        """The rules that matched nothing in the log: misspelt, perhaps."""
        rules = self._rules
        hits = zip(rules.patterns, self._scrubber.hits, strict=True)
        return (
            *(f"field {name}" for n, name in enumerate(rules.fields) if n not in self._used_fields),
            *(f"pattern {pattern}" for pattern, count in hits if not count),
            *(f"type {name}" for name in rules.types if name not in self._seen_types),
            *(f"event {seq}" for seq in rules.seqs if not 1 <= seq <= self._head),
        )

    def _check_envelope(self, stored: StoredEvent) -> None:
        """Refuse a pattern that matches in an id: hashes cover ids, so they cannot change."""
        for what in (stored.id, stored.causation_id, stored.correlation_id):
            if not is_opaque(what) and self._scrubber.matches(what):
                why = f"matches in an id of event {stored.seq}, which its hash binds: it cannot be taken out"
                raise InvalidRedaction(self._scrubber.first_in(what), why)

    def _read(self, stored: StoredEvent) -> tuple[Event | None, ReductionRecord]:
        """The event, `None` where its class is not here or does not fit; and what it did."""
        try:
            record = decode_reduction(stored.record)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise IntegrityError(self._hidden.thread_id, stored.seq, str(error)) from error
        try:
            event = self._registry.decode(stored.type, stored.version, stored.payload)
        except EventDecodeError:
            return None, record
        return (event if isinstance(event, Event) else None), record

    def _is_hidden(self, stored: StoredEvent, event: Event | None, record: ReductionRecord) -> bool:
        self._seen_types.add(stored.type)
        hidden = self._hidden
        repeats = event is not None and hidden.is_repeated_by(event, stored.seq)
        does_repeat = event is not None and event.event_chunks in _REPEATING
        return (
            repeats
            or stored.type in self._rules.types
            or stored.seq in hidden.seqs
            or any(chunk.id in hidden.forgotten and not (chunk.parent_ids and does_repeat) for chunk in record.chunks)
        )

    def _without_copies(self, event: Event | None, value: object, record: ReductionRecord, walk: PayloadWalk) -> object:
        """The payload without its parts of hidden events, but with its own."""
        own = event.without(self._gone(), self._head) if event is not None else None
        if own is not event:
            value = msgspec.to_builtins(own)
        if isinstance(event, CompactionCompleted) and isinstance(value, dict):
            for share in record.shares:
                summary = record.chunks[share.chunk]
                if self._is_copy(summary):
                    lines = event.replacements[share.body].lines
                    less = [
                        line_without(line, walk, Hide.TEXTS) if self._tells(summary, line) else line for line in lines
                    ]
                    value["replacements"][share.body]["lines"] = msgspec.to_builtins(less)
                    self._hidden.chunks.add(summary.id)
        if isinstance(event, CompactionUndone | ThreadRereduced | ThreadRewound | SourceQuarantined) and isinstance(
            value, dict
        ):
            for chunk, restored in zip(record.chunks, value.get("restored", ()), strict=False):
                if self._is_copy(chunk):
                    restored.update(walk.value(dict(restored), _RESTORED, FieldKind.TEXT, (), Hide.TEXTS))
                    self._hidden.chunks.add(chunk.id)
        return value

    def _gone(self) -> TakenOut:
        """The changes of events that hold it packed, or in copies."""
        gone, has_patterns = self._hidden.gone, bool(self._rules.patterns)
        return msgspec.structs.replace(
            gone,
            matches=self._scrubber.matches if has_patterns else None,
            content=self._contents.get,
            is_unread_gone=self._takes_unread and bool(has_patterns or gone.texts or gone.call_ids or gone.seqs),
        )

    def _remember(self, event: Event | None) -> None:
        """Keep what the last events say: a packed value may quote it."""
        content = getattr(event, "content", None)
        if self._rules.patterns and isinstance(content, str):
            self._contents[self._head] = content
            while len(self._contents) > QUOTED_EVENTS:
                del self._contents[next(iter(self._contents))]

    def _chunks(self, record: ReductionRecord, walk: PayloadWalk, *, is_hidden: bool) -> tuple[Chunk, ...]:
        """The chunks that an event brings, as far as they do not share with its payload."""
        sharing = {share.chunk for share in record.shares}
        found = []
        for n, chunk in enumerate(record.chunks):
            holds_texts = bool(chunk.content or chunk.calls or chunk.lines)
            is_copy = holds_texts and self._is_copy(chunk)
            if is_copy or (is_hidden and (holds_texts or n in sharing)):
                self._hidden.chunks.add(chunk.id)
            is_whole = is_hidden or (is_copy and not chunk.lines)
            tells = partial(self._tells, chunk) if is_copy else _tells_nothing
            found.append(chunk_without(chunk, walk, Hide.TEXTS if is_whole else Hide.MATCHES, tells))
        return tuple(found)

    def _is_copy(self, chunk: Chunk) -> bool:
        """Whether a chunk derives from a hidden one, or from a hidden event; or is hidden itself."""
        # by its parents' events too: a mended one brought no chunk itself
        return chunk.id in self._hidden.forgotten or self._hidden.is_behind(chunk)

    def _tells(self, summary: Chunk, line: SummaryLine) -> bool:
        """Whether a line of such a summary may repeat hidden texts: it cites a hidden chunk, or cites nothing."""
        if summary.id in self._hidden.forgotten or not line.sources:
            return True
        return not self._hidden.chunks.isdisjoint(line.sources) or line_digest(line) in self._hidden.lines

    def _note(self, event: Event | None, walk: PayloadWalk, *, is_changed: bool) -> None:
        """Add the changed names, and ids derived from them, to those hidden in later events."""
        self._used_fields |= walk.fields
        self._names.update(walk.renamed)
        if event is not None and is_changed:
            self._names.update(event.digests())

    def _check_is_readable(self, stored: StoredEvent, event: Event | None, payload: bytes) -> None:
        if event is None:
            return
        try:
            self._registry.decode(stored.type, stored.version, payload)
        except EventDecodeError as error:
            why = f"without its texts it could not be read any more: {error.why}"
            raise InvalidRedaction(f"event {stored.seq}", why) from error


def redacted(stored: StoredEvent, payload: bytes, record: bytes) -> StoredEvent:
    """Return a row with stand-ins, whose salt is replaced by commitments to the recorded bytes."""
    return msgspec.structs.replace(stored, payload=payload, record=record, salt=b"".join(commitments(stored)))


def _tells_nothing(_line: SummaryLine) -> bool:
    return False


def _path(name: str) -> tuple[str, ...]:
    """A field's name or path, with or without `payload.` before it."""
    parts = tuple(name.split("."))
    return parts[1:] if len(parts) > 1 and parts[0] == "payload" else parts


PAUSE_ROWS = 16
"""Rows that are redacted before other tasks have their turn."""


async def learn(hidden: Hidden, kernel: Kernel) -> None:
    """Learn what the events said that are hidden from the start: events before them may hold it too."""
    heads = (chunk_id.partition(".")[0] for chunk_id in hidden.forgotten)
    seqs = hidden.seqs | {int(head) for head in heads if head.isdecimal()}
    for stored in (await kernel.reader.rows_at(hidden.thread_id, seqs)).values():
        if is_redacted(stored):
            continue
        with suppress(EventDecodeError):
            hidden.note(kernel.events.decode(stored.type, stored.version, stored.payload).bodies())


class RedactedLog:
    """A thread's log up to a seq, redacted by the rules."""

    def __init__(self, kernel: Kernel, thread: ThreadRecord, upto: int, redactor: LogRedactor) -> None:
        self._kernel = kernel
        self._thread_id = thread.id
        self._redactor = redactor
        self.state = State()
        self._whole: State | None = None
        self.thread = redactor.thread(thread)
        self.upto = upto

    @classmethod
    async def of(cls, kernel: Kernel, thread: ThreadRecord, upto: int, rules: Redaction) -> "RedactedLog":
        """The log; first reads which chunks were forgotten, after `upto` too."""
        hidden = Hidden(thread_id=thread.id, seqs=set(rules.seqs))
        if rules.forgotten:
            head = await kernel.store.head(thread.id)
            async for _, event in kernel.reader.events_of(MemoryForget, thread.id, upto=head.seq):
                hidden.forget(event)
        await learn(hidden, kernel)
        secret = kernel.ids.salt() + kernel.ids.salt()
        return cls(kernel, thread, upto, LogRedactor(rules, kernel.events, hidden, secret, takes_unread=True))

    async def pages(self) -> AsyncIterator[Sequence[StoredEvent]]:
        """Its rows, in order. Raises `InvalidRedaction`, `IntegrityError`."""
        async for page in self._kernel.reader.pages(self._thread_id, after=0, upto=self.upto):
            rows = []
            for stored in page:
                rows.append(await self.row(stored))
                if stored.seq % PAUSE_ROWS == 0:
                    await asyncio.sleep(0)
            yield rows

    def idle(self) -> tuple[str, ...]:
        """The rules that matched nothing in the log."""
        return self._redactor.idle()

    async def row(self, stored: StoredEvent) -> StoredEvent:
        """One row without the texts to hide, the very same without any; given in order, from the first on."""
        less = self._redactor.row(stored)
        if less is stored and not is_redacted(stored):
            after = self._reduced(stored, self.state)
            if after is None and await self._did_come_out(stored):
                less = redacted(stored, stored.payload, stored.record)
        else:
            after = None
        self.state = after or self._applied(less, self.state)
        if self._whole is not None:
            self._whole = self._applied(stored, self._whole)
        return less

    async def _did_come_out(self, stored: StoredEvent) -> bool:
        """Whether an event comes out of the reducers unchanged if nothing is hidden."""
        if self._whole is None:
            self._whole = await self._kernel.reader.state_at(self._thread_id, stored.seq - 1)
        return self._reduced(stored, self._whole) is not None

    def _reduced(self, stored: StoredEvent, state: State) -> State | None:
        """The state after an event, if the reducers reproduce the record."""
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
        """The state after the recorded operations. Raises `IntegrityError`."""
        _, reduction = decode_row(self._thread_id, stored, self._kernel.events)
        draft = state.draft()
        try:
            apply_to_draft(draft, reduction.operations, reduction.chunks, seq=stored.seq)
        except InvalidOperation as error:
            raise IntegrityError(self._thread_id, stored.seq, str(error)) from error
        return draft.freeze(stored.seq)
