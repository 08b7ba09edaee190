"""Rows of a log with their texts taken out, and with the commitments that the chain holds in place of the salt."""

from functools import partial

import msgspec

from memory_engine.chunks import Chunk
from memory_engine.codec import ReductionRecord, decode_reduction, encode_json, resolve_chunks
from memory_engine.errors import EventDecodeError, IntegrityError, InvalidRedaction
from memory_engine.events import (
    CompactionCompleted,
    CompactionUndone,
    Event,
    EventRegistry,
    MemoryForget,
    MemoryMarkCritical,
    PlaybookSaved,
    ResultsOffloaded,
    ToolResultCached,
)
from memory_engine.events.base import SummaryLine
from memory_engine.events.compaction import RestoredChunk
from memory_engine.log import commitments
from memory_engine.persistence import ThreadRecord
from memory_engine.projections.parameters import cache_key
from memory_engine.projections.playbooks import playbook_id
from memory_engine.records import StoredEvent
from memory_engine.replay.files.chunk_texts import chunk_without, line_without
from memory_engine.replay.files.copies import Hidden
from memory_engine.replay.files.payloads import Hide, Walk, shape_of
from memory_engine.replay.files.texts import Kind, Scrubber, is_opaque
from memory_engine.replay.redaction import Redaction

_RESTORED = shape_of(RestoredChunk)
_REPEATING = (CompactionCompleted, CompactionUndone, MemoryForget, MemoryMarkCritical, ResultsOffloaded)
"""Events whose chunks say what others said: those go one by one. The chunk of any other says what its event does."""


class Redactor:
    """Takes the texts out of a log's rows, which it must be given in order, from the first on.

    `hidden` holds what is to be hidden before any of it comes: what was forgotten, and the events that rules name.
    """

    def __init__(self, rules: Redaction, registry: EventRegistry, hidden: Hidden, secret: bytes) -> None:
        self._rules = rules
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
        """The row without what is to be hidden; the very same where there is nothing.

        Raises `InvalidRedaction` for what cannot be taken out, `IntegrityError` where the row cannot be read.
        """
        self._head = stored.seq
        self._check_envelope(stored)
        event, record = self._read(stored)
        cls = self._classes.get(stored.type)
        walk = Walk(scrubber=self._scrubber, rules=self._fields, known=self._names, is_known_type=cls is not None)
        hide = Hide.TEXTS if self._is_hidden(stored, event, record) else Hide.MATCHES
        value = msgspec.json.decode(stored.payload)
        less = value if hide else self._without_copies(event, msgspec.json.decode(stored.payload), record, walk)
        clean = walk.value(less, shape_of(cls), Kind.TEXT, (), hide)
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
        """What a thread is, without what patterns match."""
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
        """The rules that nothing in the log was for: misspelt, perhaps."""
        rules = self._rules
        hits = zip(rules.patterns, self._scrubber.hits, strict=True)
        return (
            *(f"field {name}" for n, name in enumerate(rules.fields) if n not in self._used_fields),
            *(f"pattern {pattern}" for pattern, count in hits if not count),
            *(f"type {name}" for name in rules.types if name not in self._seen_types),
            *(f"event {seq}" for seq in rules.seqs if not 1 <= seq <= self._head),
        )

    def _check_envelope(self, stored: StoredEvent) -> None:
        """Ids are bound by the hashes: what is in them cannot be taken out."""
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
        return (
            repeats
            or stored.type in self._rules.types
            or stored.seq in hidden.seqs
            or any(
                chunk.id in hidden.forgotten and not (chunk.parent_ids and isinstance(event, _REPEATING))
                for chunk in record.chunks
            )
        )

    def _without_copies(self, event: Event | None, value: object, record: ReductionRecord, walk: Walk) -> object:
        """The payload without the lines of summaries, and the chunks put back, that repeat what is hidden."""
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
        if isinstance(event, CompactionUndone) and isinstance(value, dict):
            for chunk, restored in zip(record.chunks, value["restored"], strict=False):
                if self._is_copy(chunk):
                    restored.update(walk.value(dict(restored), _RESTORED, Kind.TEXT, (), Hide.TEXTS))
                    self._hidden.chunks.add(chunk.id)
        return value

    def _chunks(self, record: ReductionRecord, walk: Walk, *, is_hidden: bool) -> tuple[Chunk, ...]:
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
        """Whether a chunk came of one that is hidden, or is to be hidden by itself."""
        return chunk.id in self._hidden.forgotten or not self._hidden.chunks.isdisjoint(chunk.parent_ids)

    def _tells(self, summary: Chunk, line: SummaryLine) -> bool:
        """Whether a line of such a summary may tell of what is hidden: it cites it, or cites nothing."""
        if summary.id in self._hidden.forgotten or not line.sources:
            return True
        return not self._hidden.chunks.isdisjoint(line.sources)

    def _note(self, event: Event | None, walk: Walk, *, is_changed: bool) -> None:
        """What later events must not tell either: names that were changed, and what is made of them."""
        self._used_fields |= walk.fields
        self._names.update(walk.renamed)
        if isinstance(event, ToolResultCached) and is_changed:
            self._names.add(cache_key(event.tool, event.parameters))
        if isinstance(event, PlaybookSaved) and is_changed:
            self._names.add(playbook_id(event.flow_dact, event.slots, event.tool_calls))

    def _check_is_readable(self, stored: StoredEvent, event: Event | None, payload: bytes) -> None:
        if event is None:
            return
        try:
            self._registry.decode(stored.type, stored.version, payload)
        except EventDecodeError as error:
            why = f"without its texts it could not be read any more: {error.why}"
            raise InvalidRedaction(f"event {stored.seq}", why) from error


def redacted(stored: StoredEvent, payload: bytes, record: bytes) -> StoredEvent:
    """A row with stand-ins, and with commitments to what was recorded in place of the salt."""
    return msgspec.structs.replace(stored, payload=payload, record=record, salt=b"".join(commitments(stored)))


def _tells_nothing(_line: SummaryLine) -> bool:
    return False


def _path(name: str) -> tuple[str, ...]:
    """A field's name or path: `payload.` may stand before it."""
    parts = tuple(name.split("."))
    return parts[1:] if len(parts) > 1 and parts[0] == "payload" else parts
