"""The seam to storage: what a store keeps, and the protocol that every back end implements.

What a thread is and where it stands, as one value.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from memory_engine.core.clock import to_datetime
from memory_engine.core.ids import check_identifier
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.store.passages import PassageChange, PassageIndex

ACTIVE, PAUSED, ARCHIVED, DELETED = "active", "paused", "archived", "deleted"


class ForkPoint(msgspec.Struct, frozen=True):
    """The thread and the seq up to which a fork shares its past."""

    thread_id: str
    seq: int


class CompactionPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When and how a thread is compacted.

    A compaction starts when `threshold` compactable working-flow chunks are there, or when
    they take more than `soft_tokens`; over `hard_tokens` it is done before the next context.
    The newest `keep_recent` chunks stay as they are. A summary takes `ratio` of the tokens
    that it replaces; when the summaries together pass `summary_tokens_max` they are made one.
    """

    enabled: bool = True
    threshold: int = 20
    soft_tokens: int = 24_000
    hard_tokens: int = 96_000
    keep_recent: int = 6
    ratio: float = 0.2
    summary_tokens_max: int = 4_000
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        for name in ("threshold", "soft_tokens", "hard_tokens", "summary_tokens_max", "deadline_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"CompactionPolicy.{name} must be above 0, got {getattr(self, name)}")
        if self.keep_recent < 0:
            raise ValueError(f"CompactionPolicy.keep_recent must not be negative, got {self.keep_recent}")
        if not 0 < self.ratio < 1:
            raise ValueError(f"CompactionPolicy.ratio must be between 0 and 1, got {self.ratio}")


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread is, fixed at its creation."""

    id: str
    kind: str = "conversation"
    user_id: str = ""
    tenant_id: str = ""
    agent_id: str = ""
    parent_id: str = ""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    policy: CompactionPolicy | None = None
    created_at_us: int = 0
    forked_from: ForkPoint | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a thread stands. Every commit compares (seq, epoch) and sets the next.

    `marks` holds the seq of the latest event of each tracked type: whether a view is up to date
    is known without reading the log. A mark may be too high (in a fork), never too low.
    """

    seq: int = 0
    hash: bytes = b""
    epoch: int = 0
    status: str = ACTIVE
    open_compaction: int = 0
    chunks: int = 0
    tokens: int = 0
    marks: Mapping[str, int] = msgspec.field(default_factory=dict)


class LiveChunk(msgspec.Struct, frozen=True, gc=False):
    """A row of the state: the chunk's id, its order key and the id of its container (`""`: the top)."""

    chunk_id: str
    key: bytes
    container: str = ""


class ProjectionChange(msgspec.Struct, frozen=True):
    """Rows that a projection puts (`None`: drops), and the seq up to which it has now read the thread.

    Rows with a key in one of `ranges` (first <= key < last) go before any is put.
    """

    projection: str
    version: int
    rows: Mapping[str, bytes | None]
    checkpoint: int
    ranges: Sequence[tuple[str, str]] = ()


def check_record(record: ThreadRecord) -> None:
    """Raise `InvalidIdentifier` for an id, scope or metadata key that could not be stored or compared exactly."""
    check_identifier("thread id", record.id)
    check_identifier("kind", record.kind)
    for what in ("user_id", "tenant_id", "agent_id", "parent_id"):
        value = getattr(record, what)
        if value:
            check_identifier(what, value)
    for key, value in record.metadata.items():
        check_identifier("metadata key", key)
        check_identifier("metadata value", value or " ")


class CommitUnit(msgspec.Struct, frozen=True, kw_only=True):
    """All that one commit writes to one thread: computed before, applied whole or not at all."""

    thread_id: str
    expected: Head
    head: Head
    events: Sequence[StoredEvent] = ()
    live: Mapping[str, LiveChunk | None] = msgspec.field(default_factory=dict)
    projections: Sequence[ProjectionChange] = ()
    passages: PassageChange | None = None


class LoadedThread(msgspec.Struct, frozen=True):
    """A thread as stored: record, head, live rows, and the events that their chunks come from, by seq.

    `indexed`: it has an index of passages, which commits are to keep.
    """

    record: ThreadRecord
    head: Head
    live: Sequence[LiveChunk]
    sources: Mapping[int, StoredEvent]
    indexed: bool = False


class ThreadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Exact matches; `None` matches anything. No value acts as a pattern."""

    id: str | None = None
    kind: str | None = None
    user_id: str | None = None
    tenant_id: str | None = None
    agent_id: str | None = None
    parent_id: str | None = None
    status: str | None = None
    limit: int | None = None


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over a store. `payload_bytes` is what the events' JSON takes, `bytes` what the file takes."""

    threads: int
    events: int
    chunks: int
    tokens: int
    payload_bytes: int
    bytes: int


class Store(Protocol):
    """A back end. Reads see every commit acknowledged before they began."""

    @property
    def passages(self) -> PassageIndex:
        """What search looks up. A commit writes its passages in its own transaction."""
        ...

    async def create(self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk]) -> None:
        """Make a thread. Raises `ThreadExists`, and `ThreadNotFound` for a fork of nothing."""
        ...

    async def load(self, thread_id: str) -> LoadedThread:
        """A thread's live state, in order of keys. Raises `ThreadNotFound`."""
        ...

    async def head(self, thread_id: str) -> Head:
        """A thread's head. Raises `ThreadNotFound`."""
        ...

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Take a unit at once; the future is done when it is durable.

        It fails with `HeadMoved`, `EventIdTaken`, `ThreadNotFound`, `StorageBusy` or
        `StorageFailed`, and then nothing of the unit was written. Units of one thread must not overlap.
        """
        ...

    async def find(self, thread_id: str, event_ids: Sequence[str]) -> Sequence[StoredEvent]:
        """Those of the events that the thread's log (shared past included) holds, in any order.

        Raises `ThreadNotFound`.
        """
        ...

    async def read(
        self, thread_id: str, *, after: int, upto: int, limit: int, types: Collection[str] | None = None
    ) -> Sequence[StoredEvent]:
        """At most `limit` events with `after` < seq <= `upto`, in order, through shared pasts.

        With `types` only those. Raises `ThreadNotFound`, and, where all types are read, `IntegrityError` for a gap.
        """
        ...

    async def seq_at(self, thread_id: str, recorded_at_us: int) -> int:
        """The seq of the last event that was recorded at this time or before it, 0 if none was.

        Raises `ThreadNotFound`.
        """
        ...

    async def correlated(self, correlation_id: str, *, limit: int | None = None) -> Sequence[tuple[str, StoredEvent]]:
        """The events that bear a correlation id, each with its thread's id, in the order of their recording.

        With a limit the latest N. Deleted threads are left out; an event that forks share comes once.
        """
        ...

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """The events at these seqs, in order, through shared pasts; seqs beyond the log are passed over.

        Raises `ThreadNotFound`, and `IntegrityError` for a gap.
        """
        ...

    async def threads(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head]]:
        """The threads that match, oldest first; with a limit the latest N. Deleted ones are left out."""
        ...

    async def forks(self, thread_id: str) -> Sequence[str]:
        """The ids of the threads that were forked from this one. Raises `ThreadNotFound`."""
        ...

    async def delete(self, thread_id: str) -> None:
        """Destroy a thread's log and state; its id stays taken. Raises `ThreadNotFound`."""
        ...

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """A projection's checkpoint (0: none) and rows for a thread. Raises `ThreadNotFound`."""
        ...

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """The seq up to which a projection has read a thread (0: none). Raises `ThreadNotFound`."""
        ...

    async def last_rows(self, projection: str, version: int, thread_id: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """The `limit` rows with the greatest keys, in order of keys. Raises `ThreadNotFound`."""
        ...

    async def row_upto(
        self, projection: str, version: int, thread_id: str, between: tuple[str, str]
    ) -> tuple[str, bytes] | None:
        """The row with the greatest key between the two, both included. Raises `ThreadNotFound`."""
        ...

    async def measure_rows(self, projection: str, version: int, thread_id: str) -> tuple[int, int]:
        """How many rows there are and how many bytes their values take. Raises `ThreadNotFound`."""
        ...

    async def holders(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads for which a projection has rows."""
        ...

    async def write_projection(self, thread_id: str, change: ProjectionChange, *, replace: bool = False) -> None:
        """Write an asynchronous projection's rows and checkpoint; `replace` drops the old rows first.

        Raises `ThreadNotFound`.
        """
        ...

    async def behind(self, projection: str, version: int) -> Sequence[str]:
        """Ids of the threads whose head is past the projection's checkpoint."""
        ...

    async def stats(self) -> StoreStats:
        """Totals."""
        ...

    async def flush(self) -> None:
        """Make every acknowledged commit survive a power failure too."""
        ...

    async def close(self) -> None:
        """Finish what was taken, then let go of every resource."""
        ...


class ThreadInfo(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """What a thread is and where it stands. `events` counts a fork's shared past too."""

    json_names = (
        "id kind status events chunks tokens user_id tenant_id agent_id parent_id metadata created_at forked_from "
        "head_hash"
    )

    id: str
    kind: str
    user_id: str
    tenant_id: str
    agent_id: str
    parent_id: str
    metadata: Mapping[str, str]
    policy: CompactionPolicy | None
    created_at: datetime
    forked_from: ForkPoint | None
    status: str
    events: int
    head_hash: str
    chunks: int
    tokens: int

    @classmethod
    def of(cls, record: ThreadRecord, head: Head) -> "ThreadInfo":
        """From what the store keeps."""
        return cls(
            id=record.id,
            kind=record.kind,
            user_id=record.user_id,
            tenant_id=record.tenant_id,
            agent_id=record.agent_id,
            parent_id=record.parent_id,
            metadata=record.metadata,
            policy=record.policy,
            created_at=to_datetime(record.created_at_us),
            forked_from=record.forked_from,
            status=head.status,
            events=head.seq,
            head_hash=head.hash.hex(),
            chunks=head.chunks,
            tokens=head.tokens,
        )
