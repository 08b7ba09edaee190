"""Ownership of the entries of a shared memory: whose words they are based on, and which conversations may see them.

One agent serves many users. A person's words in a conversation belong to that person, wherever they were filed; the
agent's own findings belong to the agent. Both are decided by the origin of an entry (`source_thread` and
`sources` of its event), never by its wording. An entry of unknown origin counts as a person's.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.messages import ParentAgentMessage, UserMessage
from memory_engine.core.events.tasks import TaskStarted
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ThreadRecord
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.protocol import ThreadFilter

DEPTH_MAX = 4
"""Maximum number of memories through which entries that agents passed on to each other are followed; beyond that, the
origin is unknown."""
OWNERLESS = frozenset({"agent", "tenant", "industry"})
"""Kinds of threads in which no person speaks."""


class Viewer(msgspec.Struct, frozen=True):
    """The conversation in which a memory is shown: its user (empty: unknown) and its thread's id."""

    user_id: str
    thread_id: str


class Ownership(msgspec.Struct, frozen=True):
    """The origin of an entry.

    `is_said`: it contains a person's words, said by `user_id` (empty: unknown) in the thread `thread_id`. `is_run`: it
    describes a run, which is shared by conversations without a user.
    """

    is_said: bool = False
    user_id: str = ""
    thread_id: str = ""
    is_run: bool = False

    def is_for(self, viewer: Viewer) -> bool:
        """Return whether the viewer may see the entry: one of its user, of its thread, or without a person's words."""
        if not self.is_said or self.thread_id == viewer.thread_id:
            return True
        if self.user_id:
            return self.user_id == viewer.user_id
        return self.is_run and not viewer.user_id


FOUND_OUT = Ownership()
"""Origin of an entry without a person's words."""


async def visible(kernel: Kernel, thread_id: str, seqs: Collection[int], viewer: Viewer) -> frozenset[int]:
    """Return the events of a shared memory, among these seqs of its thread, that a viewer may see.

    Each event and its sources are read once per process, as long as the thread stays in memory.
    """
    found = await _origins(kernel, thread_id, seqs, DEPTH_MAX)
    return frozenset(seq for seq in seqs if found.get(seq, FOUND_OUT).is_for(viewer))


async def _origins(kernel: Kernel, thread_id: str, seqs: Collection[int], depth: int) -> Mapping[int, Ownership]:
    kept: dict[int, Ownership] = kernel.caches.made(thread_id, "origins", dict[int, Ownership])
    stored = await kernel.reader.rows_at(thread_id, [seq for seq in seqs if seq not in kept])
    events = {seq: kernel.reader.decode(thread_id, row).event for seq, row in stored.items()}
    sources = {seq: _entry_sources(event) for seq, event in events.items()}
    wanted: dict[str, set[str]] = {}
    for source_thread, ids in sources.values():
        wanted.setdefault(source_thread, set()).update(ids)
    threads = {source: await _DrawnFrom.of(kernel, source, ids, depth) for source, ids in wanted.items() if source}
    gone: dict[int, Ownership] = {}
    for seq, (source_thread, ids) in sources.items():
        source = threads.get(source_thread)
        origin = FOUND_OUT if source is None else source.origin(ids)
        if origin.is_said and getattr(events[seq], "layer", "") == "episodic":
            origin = msgspec.structs.replace(origin, is_run=True)
        (gone if source is not None and source.record is None else kept)[seq] = origin
    return {**kept, **gone}


def _entry_sources(event: Event | UnknownEvent) -> tuple[str, tuple[str, ...]]:
    """Return the source thread of an entry and the ids of its source events; empty for an entry of the agent itself."""
    if getattr(event, "own", False):
        return "", ()
    return getattr(event, "source_thread", ""), getattr(event, "sources", ())


class _DrawnFrom(msgspec.Struct, frozen=True):
    """The origins, by id, of one thread's events that entries were drawn from; no `record`: the thread is gone."""

    thread_id: str
    record: ThreadRecord | None
    by_id: Mapping[str, Ownership]

    @classmethod
    async def of(cls, kernel: Kernel, thread_id: str, ids: Collection[str], depth: int) -> "_DrawnFrom":
        found = await kernel.store.threads(ThreadFilter(id=thread_id))
        if not found or not depth:
            return cls(thread_id, None, {})
        record = found[0][0]
        stored = await kernel.store.find(thread_id, sorted(ids)) if ids else ()
        if record.kind in OWNERLESS:
            passed_on = await _origins(kernel, thread_id, [row.seq for row in stored], depth - 1)
            return cls(thread_id, record, {row.id: passed_on.get(row.seq, FOUND_OUT) for row in stored})
        said = Ownership(is_said=True, user_id=record.user_id, thread_id=thread_id)
        origins = {row.id: said if _is_said(kernel, thread_id, row) else FOUND_OUT for row in stored}
        return cls(thread_id, record, origins)

    def origin(self, ids: Sequence[str]) -> Ownership:
        """Return the origin of an entry drawn from these events: a person's if any of them is a person's."""
        unknown = Ownership(is_said=True, thread_id=self.thread_id)
        if self.record is None:
            return unknown
        if self.record.kind not in OWNERLESS:
            unknown = Ownership(is_said=True, user_id=self.record.user_id, thread_id=self.thread_id)
        elif not ids:
            return FOUND_OUT
        found = [self.by_id.get(id_, unknown) for id_ in ids] or [unknown]
        return next((origin for origin in found if origin.is_said), FOUND_OUT)


def _is_said(kernel: Kernel, thread_id: str, row: StoredEvent) -> bool:
    """Return whether a person said what an event holds: in a message, or in the request that began a run."""
    if row.type == TaskStarted.event_type:
        return True
    if kernel.events.role(row.type) != "user" or row.type == ParentAgentMessage.event_type:
        return False
    event = kernel.reader.decode(thread_id, row).event
    return not isinstance(event, UserMessage) or not event.origin
