"""Events about the memory itself, about sessions and the agent loop, and from outside."""

from typing import Literal

import msgspec

from memory_engine.core.events.base import Body, Content, Event, event
from memory_engine.core.events.delivery import Delivery, Destination
from memory_engine.core.events.roles import ChunkId, Id, JsonText, Name, Seq


@event("memory_mark_critical", version=2, role="memory", chunks="copies")
class MemoryMarkCritical(Event):
    """These chunks may never be compacted from now on.

    Refused with `UnknownChunk` if one is not in the state. `lenient`, as in version 1: it is skipped.
    """

    chunk_ids: tuple[ChunkId, ...]
    lenient: bool = False


class Reach(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another thread that received facts from the forgotten events, and the seqs where they arrived there."""

    destination: Destination
    seqs: tuple[int, ...]


@event("memory_forget", version=2, role="memory", chunks="summaries", delivers="tenant")
class MemoryForget(Event):
    """Hide chunks, or everything derived from the events at `seqs`, from every view.

    Summary lines that cite a forgotten chunk are removed too. `summaries` names the summaries of forgotten
    chunks, also through other summaries, `call_ids` the calls that these made or answered, `reach` the threads that
    their facts went to, `lines` the digests of summary lines that repeat forgotten words and cite something else:
    `Thread.forget` fills them in. The log keeps its bytes (destroying them is another, administrative act).
    """

    chunk_ids: tuple[ChunkId, ...] = ()
    seqs: tuple[Seq, ...] = ()
    reason: str = ""
    summaries: tuple[ChunkId, ...] = ()
    reach: tuple[Reach, ...] = ()
    call_ids: tuple[Id, ...] = ()
    lines: tuple[Id, ...] = ()

    def origins(self) -> frozenset[int]:
        """The seqs of all events that are forgotten, as such or in a chunk of theirs."""
        heads = (chunk_id.partition(".")[0] for chunk_id in self.chunk_ids)
        return frozenset((*self.seqs, *(int(head) for head in heads if head.isdecimal() and len(head) <= 18)))

    def withdrawn(self) -> tuple[int, ...]:
        """Facts of the forgotten events that have not left yet stay here."""
        return self.seqs

    def deliveries(self) -> tuple[Delivery, ...]:
        """The same, for the threads that facts of the forgotten events had reached."""
        return tuple(
            Delivery(reach.destination, MemoryForget(seqs=reach.seqs, reason=self.reason)) for reach in self.reach
        )


@event("thread_cleared", tracked=True, role="memory", delivers="ending")
class ThreadCleared(Event):
    """The thread starts over: its state, every view and its search are those of a new one.

    The log keeps the earlier events, and so does every read of an earlier moment. Facts of a user or a tenant that this
    thread shared remain. Views drop their rows without listing this event, unless they declare
    `survives_clear`.
    """

    reason: str = ""


class MetadataEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key of a thread's metadata with its new value; `removed`: it no longer has one."""

    key: Name
    value: str = ""
    removed: bool = False


@event("thread_updated", tracked=True, role="system", chunks="none")
class ThreadUpdated(Event):
    """The thread's metadata or compaction policy changes; keys that are not named do not change.

    `policy` is the new policy as JSON, as in a thread's record; empty: it stays. `default_policy`: the thread no longer
    has its own.
    """

    metadata: tuple[MetadataEntry, ...] = ()
    policy: JsonText = ""
    default_policy: bool = False


class ErasedRow(msgspec.Struct, frozen=True, array_like=True):
    """An event whose texts were destroyed, and the digest of their stand-ins (see `chain.stand_in_digest`)."""

    seq: Seq
    digest: Id


@event("events_erased", tracked=True, role="memory", chunks="none")
class EventsErased(Event):
    """The texts of these earlier events, and of all that repeated them, were destroyed.

    Hashes of the log still hold: they are over commitments to the recorded bytes. An event without its texts that no
    such act names with this digest was tampered with. `act` is the administrative act, `by` whoever asked for it.
    """

    rows: tuple[ErasedRow, ...]
    act: Id
    by: str = ""
    reason: str = ""


class InitialChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chunk that a thread starts with. `type` and `retention` are their wire names."""

    content: Content
    type: Id = "system"
    retention: Id = "critical"
    name: Name = ""


@event("thread_seeded", role="system")
class ThreadSeeded(Event):
    """The chunks that a thread was created with."""

    chunks: tuple[InitialChunk, ...]

    def bodies(self) -> tuple[Body, ...]:
        """One body for each chunk."""
        return tuple(Body(content=chunk.content) for chunk in self.chunks)


@event("session_started", version=2, tracked=True, role="system")
class SessionStarted(Event):
    """A session begins. `content` is its instructions: the system prompt, kept whole.

    They replace the instructions that the session before it began with. A session without any continues under the
    current ones. `beside`, for version 1: they are added to those of the sessions before.
    """

    content: Content = ""
    session_id: Id = ""
    native: JsonText = ""
    beside: bool = False


@event("session_ended", tracked=True, role="system")
class SessionEnded(Event):
    """A session ends: EPHEMERAL chunks are removed."""

    content: str = ""
    session_id: Id = ""


@event("execution_retry", role="system")
class ExecutionRetry(Event):
    """A step is retried."""

    content: str = ""
    attempt: int = 1


@event("execution_pause", role="system", upkeep=True)
class ExecutionPause(Event):
    """The thread is paused: events wait until it is resumed."""

    content: str = ""


@event("execution_resume", role="system", upkeep=True)
class ExecutionResume(Event):
    """The thread resumes."""

    content: str = ""


@event("external_inject", role="system")
class ExternalInject(Event):
    """Content that the application adds to the thread. `source` says where it came from."""

    content: Content
    source: str = ""
    retention: Literal["critical", "compressible", "batch_compressible", "disposable", "ephemeral"] = (
        "batch_compressible"
    )
    native: JsonText = ""


@event("external_timer", role="system")
class ExternalTimer(Event):
    """A timer went off."""

    content: str = ""
    timer_id: Id = ""


@event("environment_change", version=2, role="system")
class EnvironmentChange(Event):
    """The world around the agent changed. A later change under the same `key` replaces it.

    Without a key it is kept with the fifteen before it that have none. `single`, for version 1: it
    replaces the latest of these.
    """

    content: Content
    key: Name = ""
    single: bool = False
