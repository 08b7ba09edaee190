"""What rests on a source, and which sources of a log are in quarantine: pure folds over its events.

A source is named by a text: `tool:read_mail`, `document:handbook`, `agent:researcher`, `event:17`, `origin:tool`, or
`everything` for all that a thread holds. An event rests on a source if its words come from there, if it names an event
as its source that does, or if the agent wrote it to a memory after it had read such an event, before a person spoke.
A chunk rests on it if such an event made it, or if it is a version or a copy of one that does; a summary, if it covers
one. Nothing is read from what words say.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from memory_engine.core.chunks import Category, Chunk, ChunkType
from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.compaction import STEPS, CompactionCompleted, SourceQuarantined
from memory_engine.core.events.memory import ExternalInject
from memory_engine.core.events.messages import LlmTextResponse, LlmToolCall, ParentAgentMessage, UserMessage
from memory_engine.core.lineage import Descent
from memory_engine.core.origins import Speaker, origin_of_event
from memory_engine.core.records import StoredEvent
from memory_engine.core.rewinding import STICKY

EVERYTHING = "everything"
KINDS = ("tool", "document", "agent", "event", "origin")
"""The kinds of sources that have a name."""
FORMS = "tool:NAME, document:ID, agent:ID, event:SEQ_OR_ID, origin:NAME or everything"
_TOOLS = frozenset({"tool_result", "tool_error", "skill_result", "skill_error"})
_AGENTS = frozenset({"subagent_result", "subagent_error", "llm_subagent_message"})
_WRITTEN = frozenset({"scratchpad_written"})
"""Types of events that say nothing of what their words are drawn from."""
_SHARED = frozenset({"pattern_proposed", "pattern_approved", "pattern_rejected", "pattern_revoked"})
"""Types of a person's acts on what leaves a tenant: what has left is withdrawn, once its line is hidden."""
_NOT_BY_SOURCES = STEPS | STICKY | _SHARED


class QuarantineSource(msgspec.Struct, frozen=True):
    """A source by its kind and its name: a tool's, the id of a document, a sub-agent or an event, or an origin."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @classmethod
    def of(cls, text: object) -> "QuarantineSource":
        """The source that a text names. Raises `ValueError`."""
        kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
        if kind == EVERYTHING and not colon:
            return cls(kind)
        if kind not in KINDS or not name:
            raise ValueError(f"name a source as {FORMS}")
        if kind == "origin" and name not in tuple(Speaker):
            raise ValueError(f"the origins are {', '.join(one.value for one in Speaker)}")
        return cls(kind, name)

    def is_of(self, stored: StoredEvent, event: Event | UnknownEvent, calls: Mapping[str, str]) -> bool:
        """Whether the words of an event come from here; `calls` are the names of the tools called, by the call's id."""
        match self.kind:
            case "event":
                return stored.id == self.name
            case "origin":
                return origin_of_event(event) == self.name
            case "tool" if stored.type in _TOOLS:
                return (getattr(event, "name", "") or calls.get(getattr(event, "call_id", ""), "")) == self.name
            case "tool":
                return isinstance(event, ExternalInject) and event.source == self.name
            case "agent":
                return stored.type in _AGENTS and getattr(event, "agent_id", "") == self.name
            case "document":
                return stored.type == "document_added" and getattr(event, "document_id", "") == self.name
        return True


class Reliance:
    """The events and chunks of a log that rest on sources, or on events with these ids; note its events in order."""

    def __init__(self, sources: Iterable[QuarantineSource] = (), ids: Collection[str] = ()) -> None:
        self._sources = tuple(sources)
        self._ids = frozenset(ids)
        self._made_of = Descent()
        self._calls: dict[str, str] = {}
        self._has_read = False
        self.hidden: dict[str, int] = {}
        """The seqs of the events that rest on them, by id."""
        self.answers: list[int] = []
        """The seqs of the agent's responses after it had read such an event, before a person spoke."""

    def note(
        self,
        stored: StoredEvent,
        event: Event | UnknownEvent,
        chunks: Iterable[Chunk],
        *,
        is_upkeep: bool,
        is_copying: bool,
    ) -> bool:
        """Note an event, and return whether it rests on them, or brings a chunk that does.

        `is_copying` says that its chunks are versions, copies or summaries of those that they name as parents.
        """
        if isinstance(event, LlmToolCall):
            self._calls.update((call.id, call.name) for call in event.calls)
        rests = self._rests(stored, event, is_upkeep)
        followed = bool(self._made_of.follow(chunks)) if is_copying and not rests else False
        if rests or (followed and isinstance(event, CompactionCompleted)):
            self.hidden[stored.id] = stored.seq
        if rests:
            self._made_of.seqs.add(stored.seq)
            self._made_of.events.add(stored.id)
            self._made_of.calls.update(filter(None, (getattr(event, "call_id", ""),)))
        self._listen(event, stored.seq, rests)
        return rests or followed

    def _rests(self, stored: StoredEvent, event: Event | UnknownEvent, is_upkeep: bool) -> bool:
        if stored.type in _NOT_BY_SOURCES:
            return False
        if stored.id in self._ids:
            return True
        if not is_upkeep and any(source.is_of(stored, event, self._calls) for source in self._sources):
            return True
        if not isinstance(event, Event):
            return False
        return self._made_of.is_source_of(event, stored.seq) or (self._has_read and _may_repeat(event))

    def _listen(self, event: Event | UnknownEvent, seq: int, rests: bool) -> None:
        if rests:
            self._has_read = True
        elif isinstance(event, ParentAgentMessage) or (isinstance(event, UserMessage) and not event.origin):
            self._has_read = False
        elif self._has_read and isinstance(event, LlmTextResponse):
            self.answers.append(seq)

    def holds(self, chunk: Chunk) -> bool:
        """Whether a chunk rests on them; a summary does if it covers one.

        A container of snippets does not: it came with the first one, and holds those of others.
        """
        is_shared = chunk.is_container and chunk.category is Category.SCRATCHPAD
        return not is_shared and self._made_of.has(chunk.id)

    def opens(self, chunk: Chunk) -> bool:
        """Whether a chunk is a summary that covers something that rests on them."""
        return chunk.type == ChunkType.COMPACTED and self._made_of.has(chunk.id)


def _may_repeat(event: Event) -> bool:
    """Whether an agent wrote this to a memory, and may have drawn it from what it had read."""
    if event.event_type in _WRITTEN:
        return True
    metadata = getattr(event, "metadata", None)
    given = getattr(event, "origin", "") or (metadata.get("origin") if isinstance(metadata, Mapping) else "")
    return event.event_role == "memory" and given == Speaker.TOOL


class Quarantined(msgspec.Struct, frozen=True):
    """A quarantine in force: its source, the thread that it is `of` (empty: this one), and the events that recorded it.

    `hidden` are the ids of the events of this thread that it hides.
    """

    source: str
    of: str
    seqs: tuple[int, ...]
    hidden: frozenset[str]
    by: str
    reason: str


def in_force(events: Iterable[tuple[int, SourceQuarantined]]) -> dict[tuple[str, str], Quarantined]:
    """The quarantines in force after these events, by source and thread, in the order in which they began."""
    found: dict[tuple[str, str], Quarantined] = {}
    for seq, event in events:
        key = event.source, "" if event.own else event.of
        known = found.get(key)
        if event.ends:
            found.pop(key, None)
        elif known is None:
            found[key] = Quarantined(*key, (seq,), frozenset(event.hidden), event.by, event.reason)
        else:
            hidden = known.hidden.union(event.hidden)
            found[key] = msgspec.structs.replace(known, seqs=(*known.seqs, seq), hidden=hidden)
    return found


def sources_of(standing: Iterable[Quarantined]) -> Iterator[QuarantineSource]:
    """The sources of a thread's own quarantines: whatever comes from them later is hidden, too.

    A redacted log may name a source by another text: what it has hidden stays hidden.
    """
    for one in standing:
        with suppress(ValueError):
            if not one.of:
                yield QuarantineSource.of(one.source)
