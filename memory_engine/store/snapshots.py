"""Snapshots: states and rows of views at some seqs of a log, so that any of its points opens without a full read.

They are caches, never the truth: rows of a projection that folds nothing, ignored where they do not fit the log.
The snapshot of a state names chunks and their places and holds no content; it is written with the commit that passes a
multiple of `EVERY` seqs. Those of a view's rows are written when its past is read, and destroyed with every
forgetting. Snapshots that may not be written (the engine only reads, or the rows may hold forgotten text) stay in
memory.

A log that was never compacted has a state as long as itself, whose snapshot would be as long, each time. Such states
are at hand (`Moments`) once the log was read, every page of it: those of one log share all that they have in common, so
many of them take little more than the latest. They are values in memory: whoever uses one compares its hash with the
log's first.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.aside import freed
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.state import State
from memory_engine.core.threads import ForkPoint, Head, LiveChunk
from memory_engine.store.protocol import CommitUnit, ProjectionChange, RowSpan, Store, ThreadFilter

if TYPE_CHECKING:
    from memory_engine.core.rewinding import Rewinds

PROJECTION = "snapshots"
VERSION = 1
EVERY = 1_000
"""Seqs from one snapshot of a state to the next."""
CHUNKS_MAX = 4_000
"""A state of more chunks is not written: its size would grow with the log, and reading it back helps little."""
WINDOW = 8_192
"""Seqs that are folded for a view before its rows are kept."""
ROWS_SHARE = 4
"""Seqs for each row of a view since its last snapshot before the next is kept, so that all take linear space."""
MEMORY_MAX = 512
"""Snapshots of a thread that are held in memory; one more drops them all."""
AT_HAND_TOKENS_MAX = 32_000_000
"""Tokens of the states at hand, the largest of each log counted: about 128 MB of text."""
AT_HAND_MAX = 4_096
"""States of one log that are at hand; one more drops them all."""
VIEW_VECTORS = ("view_vectors", 1)
"""Name and version of the rows that hold vectors of views' texts (see `recall.likeness`)."""
_STATE = "state:"
_VIEWS = (("view/", "view0"),)


class StateSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A state: the hash of the log there, its counters, and its chunks by id with their places."""

    hash: bytes
    chunks: int
    tokens: int
    live: list[LiveChunk]


_DECODER = msgspec.msgpack.Decoder(StateSnapshot)
_ROWS = msgspec.msgpack.Decoder(dict[str, bytes])


def forgotten_at(head: Head) -> int:
    """The seq of a thread's last forgetting, 0 if there was none."""
    return head.marks.get(MemoryForget.event_type, 0)


_REWINDING = "thread_rewound", "facts_rewound", "source_quarantined"
_DELIVERIES = frozenset({"outbox", "facts"})
"""Projections that no rewind touches: they hold what is on its way to other threads, and what has left."""


def rewound_at(head: Head) -> int:
    """The seq of the last event that changed which events of a thread are shown, 0 if there was none."""
    return max(head.marks.get(name, 0) for name in _REWINDING)


def is_rewindable(projection: str) -> bool:
    """Whether the rows of a projection are made again after a rewind."""
    return projection not in _DELIVERIES


def add_to_commit(commit: CommitUnit, before: Head, state: State) -> None:
    """Add a commit's changes to caches.

    A commit with a rewind writes no rows of views and no passages: who reads them next makes them of what is shown.
    """
    if rewound_at(commit.head) > rewound_at(before):
        commit.projections = [one for one in commit.projections if not is_rewindable(one.projection)]
        commit.passages = None
    commit.projections = [*commit.projections, *of_commit(before, state, commit.head)]


def vectors_dropped(seq: int) -> ProjectionChange:
    """The change that destroys all vectors of a thread's views: one of them may reveal forgotten text."""
    return ProjectionChange(*VIEW_VECTORS, {}, seq, (("", "\U0010ffff"),))


def of_commit(before: Head, state: State, head: Head) -> list[ProjectionChange]:
    """A commit's changes to caches: a snapshot if one is due, and caches that a forgetting destroys."""
    changes: list[ProjectionChange] = []
    dropped = head.marks is not before.marks and forgotten_at(head) > forgotten_at(before)
    if dropped:
        changes.append(vectors_dropped(head.seq))
    due = head.seq // EVERY > before.seq // EVERY and state.tally.chunks <= CHUNKS_MAX
    if due or dropped:
        rows = {_state_key(head.seq): _encoded(state, head.hash)} if due else {}
        changes.append(ProjectionChange(PROJECTION, VERSION, rows, head.seq, _VIEWS if dropped else ()))
    return changes


def _encoded(state: State, digest: bytes) -> bytes:
    live = [LiveChunk(placed.chunk.id, placed.key, placed.container) for placed in state.placed()]
    return msgspec.msgpack.encode(StateSnapshot(digest, state.tally.chunks, state.tally.tokens, live))


def _state_key(seq: int) -> str:
    return f"{_STATE}{seq:010d}"


def _seq_of(key: str) -> int:
    return int(key[-10:])


class Snapshots:
    """The snapshots of one store's threads."""

    def __init__(self, store: Store, *, read_only: bool = False) -> None:
        self._store = store
        self._read_only = read_only
        self._memory: dict[str, dict[str, bytes]] = {}
        self._origins: dict[str, ForkPoint | None] = {}
        self.rewinds: dict[str, tuple[int, Rewinds]] = {}
        """The rewinds of threads, up to the seq of the last one (see `store.rewinds`)."""

    def clear(self) -> None:
        """Drop what is in memory."""
        self._memory.clear()
        self._origins.clear()
        self.rewinds.clear()

    async def seqs_of(self, thread_id: str, event_ids: Sequence[str]) -> dict[str, int]:
        """The seqs of those of the events that a thread has, by id."""
        return {stored.id: stored.seq for stored in await self._store.find(thread_id, event_ids)}

    async def nearest_state(self, thread_id: str, seq: int) -> tuple[int, StateSnapshot] | None:
        """The newest snapshot of the state at this seq or before, and its seq; `None` without one."""
        found = await self._nearest(thread_id, _STATE, seq)
        if found is None:
            return None
        try:
            return found[0], _DECODER.decode(found[1])
        except msgspec.MsgspecError:
            return None

    async def nearest_rows(self, thread_id: str, view: str, seq: int) -> tuple[int, Mapping[str, bytes]]:
        """The rows of a view (named with its version) at the latest seq up to this one; none at 0."""
        found = await self._nearest(thread_id, f"view/{view}:", seq)
        if found is None:
            return 0, {}
        try:
            return found[0], _ROWS.decode(found[1])
        except msgspec.MsgspecError:
            return 0, {}

    async def keep_state(self, thread_id: str, state: State, digest: bytes) -> None:
        """Keep a state that took long to fold."""
        if state.tally.chunks <= CHUNKS_MAX:
            await self._keep(thread_id, _state_key(state.seq), _encoded(state, digest))

    async def keep_rows(self, thread_id: str, view: str, seq: int, rows: Mapping[str, bytes]) -> None:
        """Keep the rows of a view as of a seq. They are not written where the thread has forgotten since.

        Of a thread that forgets meanwhile, none are left.
        """
        head = await self._store.head(thread_id)
        key, value = f"view/{view}:{seq:010d}", msgspec.msgpack.encode(rows)
        await self._keep(thread_id, key, value, in_memory=forgotten_at(head) > seq)
        if forgotten_at(await self._store.head(thread_id)) > forgotten_at(head):
            self._memory.pop(thread_id, None)
            if not self._read_only:
                change = ProjectionChange(PROJECTION, VERSION, {}, 0, _VIEWS)
                await self._store.write_projection(thread_id, change)

    async def _keep(self, thread_id: str, key: str, value: bytes, *, in_memory: bool = False) -> None:
        if self._read_only or in_memory:
            kept = self._memory.setdefault(thread_id, {})
            if len(kept) >= MEMORY_MAX:
                kept.clear()
            kept[key] = value
            return
        await self._store.write_projection(thread_id, ProjectionChange(PROJECTION, VERSION, {key: value}, 0))

    async def _nearest(self, thread_id: str, prefix: str, seq: int) -> tuple[int, bytes] | None:
        """Look in the thread's own log, else in the pasts that it shares."""
        at: str | None = thread_id
        while at is not None:
            span = RowSpan(first=prefix, last=f"{prefix}{seq + 1:010d}", limit=1, latest=True)
            found = next(iter(await self._store.rows_between(PROJECTION, VERSION, at, span)), None)
            kept = self._memory.get(at)
            if kept is not None:
                near = max((key for key in kept if prefix <= key <= f"{prefix}{seq:010d}"), default="")
                if near and (found is None or near > found[0]):
                    found = near, kept[near]
            if found is not None:
                return _seq_of(found[0]), found[1]
            origin = await self._origin(at)
            at, seq = (origin.thread_id, min(seq, origin.seq)) if origin is not None else (None, seq)
        return None

    async def _origin(self, thread_id: str) -> ForkPoint | None:
        if thread_id not in self._origins:
            found = await self._store.threads(ThreadFilter(id=thread_id))
            self._origins[thread_id] = found[0][0].forked_from if found else None
        return self._origins[thread_id]


def dropped(seq: int, views: frozenset[str] | None) -> ProjectionChange:
    """The change that destroys all snapshots of a thread, or those of some views: they are made again when needed."""
    names = [("state:", "state;"), ("view/", "view0")]
    if views is not None:
        names = [(f"view/{name}/", f"view/{name}0") for name in sorted(views)]
    return ProjectionChange(PROJECTION, VERSION, {}, seq, tuple(names))


class Moment(msgspec.Struct, frozen=True):
    """A state with all its contents, and the hash of the log there."""

    state: State
    hash: bytes


class _OfThread(msgspec.Struct):
    by_seq: dict[int, Moment] = {}
    latest: Moment | None = None
    """The one that was asked for last."""
    tokens: int = 0

    def free(self) -> None:
        """Free the states in a worker thread."""
        latest = (self.latest,) if self.latest is not None else ()
        freed(moment.state for moment in (*self.by_seq.values(), *latest))


class AtHand:
    """The states at hand of one store, as long as nothing of it is deleted or erased."""

    def __init__(self) -> None:
        self._generation = -1
        self._moments = Moments()

    def of(self, generation: int) -> "Moments":
        """Those of a generation of the store; a new one has none of its own yet."""
        if generation != self._generation:
            self._generation = generation
            self.clear()
        return self._moments

    def clear(self) -> None:
        """Drop all."""
        self._moments.clear()
        self._moments = Moments()


class Moments:
    """The states at hand of one store's threads, those used last."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, _OfThread] = OrderedDict()
        self._tokens = 0

    def drop(self, thread_id: str) -> None:
        """Drop those of a thread."""
        gone = self._threads.pop(thread_id, None)
        if gone is not None:
            self._tokens -= gone.tokens
            gone.free()

    def clear(self) -> None:
        """Drop those of all threads."""
        for thread_id in list(self._threads):
            self.drop(thread_id)

    def nearest(self, thread_id: str, seq: int) -> Moment | None:
        """The one at the latest seq up to this one."""
        known = self._threads.get(thread_id)
        if known is None:
            return None
        self._threads.move_to_end(thread_id)
        near = max((at for at in known.by_seq if at <= seq), default=0)
        latest = known.latest
        if latest is not None and near < latest.state.seq <= seq:
            return latest
        return known.by_seq.get(near)

    def keep(self, thread_id: str, state: State, digest: bytes, *, on_the_way: bool) -> None:
        """Keep a state `on_the_way` to one that is asked for, or this, in the place of the one asked for before."""
        known = self._threads.setdefault(thread_id, _OfThread())
        if on_the_way:
            if len(known.by_seq) >= AT_HAND_MAX:
                known.by_seq.clear()
            known.by_seq[state.seq] = Moment(state, digest)
        else:
            known.latest = Moment(state, digest)
        more = max(0, state.tally.tokens - known.tokens)
        known.tokens += more
        self._tokens += more
        self._threads.move_to_end(thread_id)
        while self._tokens > AT_HAND_TOKENS_MAX and self._threads:
            self.drop(next(iter(self._threads)))
