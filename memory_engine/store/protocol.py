"""The seam to storage: the values that a store keeps, and the protocol that every back end implements."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import Head, LiveChunk, LoadedThread, ThreadRecord
from memory_engine.store.passages import PassageChange, PassageIndex

if TYPE_CHECKING:
    from memory_engine.store.acts import Act
    from memory_engine.store.keys import Key

T = TypeVar("T")


class ProjectionChange(msgspec.Struct, frozen=True):
    """Rows that a projection puts (`None`: drops), and the seq up to which it has now read the thread.

    Rows with a key in one of `ranges` (first <= key < last) go before any is put.
    """

    projection: str
    version: int
    rows: Mapping[str, bytes | None]
    checkpoint: int
    ranges: Sequence[tuple[str, str]] = ()


class Place(Protocol):
    """Where a chunk is in a state: its order key, and the id of its container (`""`: top level)."""

    @property
    def key(self) -> bytes:
        """The order key."""
        ...

    @property
    def container(self) -> str:
        """The id of the container."""
        ...


class CommitUnit(msgspec.Struct, kw_only=True, gc=False):
    """Everything that one commit writes to one thread: computed before, applied whole or not at all.

    `live` has the chunks of the state that come or move, by id, with their places, and those that go (`None`).

    With `makes` the thread is made by it too, from this record and the `expected` head. With a `record` its metadata
    and its policy become those of it.
    """

    thread_id: str
    expected: Head
    head: Head
    events: Sequence[StoredEvent] = ()
    live: Mapping[str, Place | None] = msgspec.field(default_factory=dict)
    projections: Sequence[ProjectionChange] = ()
    passages: PassageChange | None = None
    makes: ThreadRecord | None = None
    record: ThreadRecord | None = None


class RowSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with `first` <= key < `last` (`None`: to the end): the first `limit` of them, or, with `latest`, the last.

    Keys are compared by code points.
    """

    first: str = ""
    last: str | None = None
    limit: int | None = None
    latest: bool = False


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """Places of pieces of bytes, by piece. `files` of `size` bytes were read.

    `how` says how the store knows, if not by the bytes of its files alone. `unread` names files that could
    not be read, and why. Of files that were read in part, `scanned` is how many bytes.
    """

    files: Sequence[str] = ()
    size: int = 0
    scanned: int | None = None
    places: Mapping[bytes, Sequence[str]] = {}
    how: str = ""
    unread: Sequence[str] = ()


class StoredText(msgspec.Struct, frozen=True, gc=False):
    """A value of a row that may hold people's words: its column (`table.column`), its thread ("": none), its bytes.

    Of an event also its seq, its type and its version, wherever its payload is kept.
    """

    column: str
    thread: str
    value: bytes
    seq: int = 0
    type: str = ""
    version: int = 0

    @property
    def is_payload(self) -> bool:
        """Whether it is the payload of an event."""
        return bool(self.type) and self.column in ("events.payload", "blobs.body")

    @property
    def place(self) -> str:
        """Where it is, for people."""
        of_thread = f"{self.column} of thread {self.thread}" if self.thread else self.column
        return of_thread + (f", event {self.seq}" if self.seq else "")


class TextTable(msgspec.Struct, frozen=True):
    """A table whose `columns` may hold people's words, read by at most `rows` in order of `key`; the others are SQL."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    event: str
    rows: int = 512
    tid: str = "r.tid"


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a store at one moment, of `bytes` bytes.

    `broken` are the threads whose chain of hashes does not hold in it: it did not in the store either.
    """

    path: str
    threads: int
    events: int
    bytes: int = 0
    broken: tuple[str, ...] = ()


Copied = Callable[[int, int], None]
"""Called with how much of a store is copied so far, and how much there is. An error that it raises ends the copying."""


BROKEN_ROWS = "broken"
KEPT_ROWS = frozenset({"imported", BROKEN_ROWS})
"""Names of rows that say of a log where it came from and whether it is broken: erasing drops all rows but these."""


class ThreadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Exact matches; `None` matches anything. No value acts as a pattern.

    Threads come in the order in which they were made, with a `limit` the latest N. With `after` only those that were
    made after the thread of this id come (`""`: after none), with a limit the first N of them: a page. A thread that
    was deleted keeps its place, so that a page may begin after it.

    In the order `updated` those come first whose last events are newest, with a limit the first N of them; with `after`
    those behind that thread's position at `after_us` (microseconds since 1970; `None`: its position now).

    `metadata` are pairs that a thread's metadata must hold, each of them exactly.
    """

    id: str | None = None
    kind: str | None = None
    user_id: str | None = None
    tenant_id: str | None = None
    agent_id: str | None = None
    parent_id: str | None = None
    status: str | None = None
    metadata: Mapping[str, str] = {}
    order: Literal["created", "updated"] = "created"
    limit: int | None = None
    after: str | None = None
    after_us: int | None = None

    @property
    def is_newest_first(self) -> bool:
        """Whether a store reads the newest first: the latest N are then turned round by `ordered`."""
        return self.order == "updated" or self.after is None

    def ordered(self, found: list[T]) -> list[T]:
        """Rows of a store, in the order of its reading."""
        return found[::-1] if self.order == "created" and self.after is None else found

    def has_metadata(self, record: ThreadRecord) -> bool:
        """Whether a thread's metadata hold every pair that is asked for."""
        return all(record.metadata.get(key) == value for key, value in self.metadata.items())

    def exact(self) -> Iterator[tuple[str, str]]:
        """Conditions by name; `status` is the head's, the others are the record's."""
        for name, value in msgspec.structs.asdict(self).items():
            if value is not None and name not in ("metadata", "order", "limit", "after", "after_us"):
                yield name, value


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over a store. `payload_bytes` is the size of the events' JSON, `bytes` that of the file.

    `damaged` are the ids of threads whose heads are not what was written: their chunks and tokens are left out.
    """

    threads: int
    events: int
    chunks: int
    tokens: int
    payload_bytes: int
    bytes: int
    damaged: tuple[str, ...] = ()


class SchemaVersions(msgspec.Struct, frozen=True, kw_only=True):
    """The schema version that a store has, and the one that this package brings it to.

    `waiting` says what each migration between the two brings, by its number and in order. A store of a newer package
    has a greater version, and nothing waits.
    """

    stored: int
    newest: int
    waiting: Mapping[int, str] = {}


Migrated = Callable[[int, str], None]
"""Called on the event loop with the number of a migration and what it brought."""


@runtime_checkable
class Rekeyable(Protocol):
    """A store that can be encrypted: a file."""

    async def rekey(self, key: "Key | None", copied: Copied) -> Backup:
        """Rewrite the store with another key, or none. Whole or not at all; raises `StoreInUse`."""
        ...


class StoreSchema(Protocol):
    """The schema of a store that is not open. Each back end has one, made of the place that it would open."""

    async def versions(self) -> SchemaVersions:
        """The versions. Changes nothing.

        Raises `SchemaError` for what is not a store of this package, `StorageFailed` where it cannot be reached.
        """
        ...

    async def migrate(self, migrated: Migrated) -> SchemaVersions:
        """Bring the store up to date, and return the versions then; safe when several processes race to it.

        Raises what `versions` raises, `SchemaError` for a store of a newer package, and `StorageBusy`.
        """
        ...


class Store(Protocol):
    """A back end. Reads see every commit acknowledged before they began."""

    @property
    def passages(self) -> PassageIndex:
        """The index for search. A commit writes its passages in its own transaction."""
        ...

    async def create(
        self, record: ThreadRecord, head: Head, live: Sequence[LiveChunk], *, origin: ThreadRecord | None = None
    ) -> None:
        """Make a thread, in one transaction.

        Raises `ThreadExists`, and `ThreadNotFound` for a fork of an unknown thread: with an `origin`, also where that
        was deleted since it was read, and another thread has its id.
        """
        ...

    async def put_record(self, record: ThreadRecord) -> None:
        """Replace a thread's record: to mend a `DamagedRecord`. Raises `ThreadNotFound`."""
        ...

    async def load(self, thread_id: str, *, sources: bool = True) -> LoadedThread:
        """A thread's live state, in order of keys, with the events behind it (`sources`). Raises `ThreadNotFound`.

        What it gives is the caller's own, who may empty it (see `LoadedThread.let_go`).
        """
        ...

    async def head(self, thread_id: str) -> Head:
        """A thread's head. Raises `ThreadNotFound`."""
        ...

    def commit(self, unit: CommitUnit) -> "asyncio.Future[None]":
        """Take a unit at once; the future is done when it is durable.

        It fails with `HeadMoved`, `EventIdTaken`, `ThreadNotFound`, `ThreadExists`, `StorageBusy`, `StorageRefused` or
        `StorageFailed`, and then nothing of the unit was written (but see `StorageUnreachable`). Units of one thread
        must not overlap.
        """
        ...

    def check_writable(self) -> None:
        """Raise the error that every commit ends with until the store is opened again, if there is one."""
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

    async def correlated(
        self, correlation_id: str, *, limit: int | None = None, tenant_id: str | None = None
    ) -> Sequence[tuple[str, StoredEvent]]:
        """The events that bear a correlation id, each with its thread's id, in the order of their recording.

        With a limit the latest N; with a `tenant_id` those of threads of exactly this tenant (`""`: of none). Deleted
        threads are left out; an event that forks share comes once.
        """
        ...

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """The events at these seqs, in order, through shared pasts; seqs beyond the log are passed over.

        Raises `ThreadNotFound`, and `IntegrityError` for a gap.
        """
        ...

    async def threads(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head]]:
        """The threads that match, in the order of `ThreadFilter`. Deleted ones are left out.

        Raises `ThreadNotFound` for an `after` that never was.
        """
        ...

    async def listed(self, where: ThreadFilter) -> Sequence[tuple[ThreadRecord, Head, int]]:
        """The same as `threads`, each with when its last event was recorded (microseconds since 1970).

        A thread without an event of its own was made then.
        """
        ...

    async def taken(self) -> Sequence[str]:
        """Return the ids of deleted threads that no thread uses now, in any order, without ids of scopes."""
        ...

    async def forks(self, thread_id: str) -> Sequence[str]:
        """The ids of the threads that were forked from this one. Raises `ThreadNotFound`."""
        ...

    async def delete(self, thread_id: str) -> None:
        """Delete a thread's log and state. Another can be made of its id: its epochs begin far from those of the first.

        `wipe` destroys the bytes. Raises `ThreadNotFound`, and `ThreadHasForks` where others share its past.
        """
        ...

    async def erase(self, unit: CommitUnit, rows: Sequence[StoredEvent]) -> None:
        """Commit a unit, with these rows in the place of the thread's own of the same seqs and hashes.

        Everything that was derived from its log goes with them (but `KEPT_ROWS`). `wipe` destroys the bytes. Raises
        `HeadMoved`, `EventIdTaken`, `ThreadNotFound`, and `IntegrityError` for a row of another hash.
        """
        ...

    async def wipe(self) -> bool:
        """Destroy the bytes that deleted and erased rows have left behind.

        Returns whether it could: it cannot while a reader still sees an older moment of the store.
        """
        ...

    @property
    def is_of_one_loop(self) -> bool:
        """Whether it can be awaited only in the event loop that it was opened in, as connections to a server can."""
        ...

    def moved(self) -> None:
        """Go on on the running event loop: the one before has ended, and whoever waited there with it."""
        ...

    @property
    def generation(self) -> int:
        """Another number whenever any process has deleted or erased something: what is in memory may be gone.

        A file says so at once. A server is asked again and again, so it is another number a moment later.
        """
        ...

    async def lease(self, thread_id: str) -> bool | None:
        """Take a thread for work that one engine at a time should do. Returns whether no other has it.

        It ends with `release`, `close`, or some time after its process. Nothing is refused without it. `None`: the
        store does not know.
        """
        ...

    async def release(self, thread_id: str) -> None:
        """Give a thread back (see `lease`)."""
        ...

    async def traces(self, pieces: Sequence[bytes]) -> Traces:
        """Look for pieces of bytes in every file of the store, free space included."""
        ...

    def texts(self) -> AsyncIterator[Sequence[StoredText]]:
        """Yield every row's values that may contain people's words, in batches; a large value comes alone.

        A search for bytes (`traces`) misses a text that is packed, or that continues on another page of the file. This
        finds it, but reads rows only, not free space.
        """
        ...

    async def mentions(self, words: Sequence[str]) -> Sequence[str]:
        """Where the index for search has analysed words in a row: it keeps them cut into pieces."""
        ...

    async def backup(self, path: str, copied: Copied, *, key: "Key | None" = None, plain: bool = False) -> Backup:
        """Copy the store at one moment to a new place, and check the copy; writes continue meanwhile.

        The copy has the same key, or none as the store has none, unless there is another `key` or it is to be `plain`.

        Raises `FileExistsError` where something is there, `BackupFailed` where the copy is damaged, or where there is
        nothing to copy.
        """
        ...

    async def put_act(self, act: "Act") -> None:
        """Keep an administrative act, in the place of the one with its id."""
        ...

    async def acts(self, *, pending: bool = False) -> "Sequence[Act]":
        """The administrative acts, oldest first; with `pending` those that may not be finished."""
        ...

    async def rows(self, projection: str, version: int, thread_id: str) -> tuple[int, Mapping[str, bytes]]:
        """A projection's checkpoint (0: none) and rows for a thread. Raises `ThreadNotFound`."""
        ...

    async def checkpoint(self, projection: str, version: int, thread_id: str) -> int:
        """The seq up to which a projection has read a thread (0: none). Raises `ThreadNotFound`."""
        ...

    async def rows_between(
        self, projection: str, version: int, thread_id: str, span: RowSpan
    ) -> Sequence[tuple[str, bytes]]:
        """The rows of a span, in order of keys. Raises `ThreadNotFound`."""
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

    async def faults(self, thread_id: str) -> Mapping[str, Sequence[str]]:
        """Differences between the store's own indexes and the rows that they index, in lines.

        By kind of `Divergence`: `ids` or `search`. Raises `ThreadNotFound`.
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
        """Finish the units that were taken, then release every resource."""
        ...
