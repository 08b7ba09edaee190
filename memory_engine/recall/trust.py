"""Hits by the origin of their words: those of a lower origin than asked for are left out, and counted.

An entry that names its sources has the lowest of their origins, wherever they are. What is not known is nobody's:
it counts as a tool's.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.events.messages import UserMessage
from memory_engine.core.origins import Speaker, at_least, lowest, origin_of_event
from memory_engine.recall.hits import Hit
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.protocol import ThreadFilter

DEPTH_MAX = 4
"""Maximum number of threads through which sources are followed; beyond that, the origin is unknown."""
READ_MAX = 400
"""Maximum number of events before a snippet that are looked at for what its agent had read."""
WRITTEN = frozenset({"scratchpad_written"})
"""Types of events that say nothing of what their words are drawn from."""
TRUSTED_KINDS = (
    "message", "memory", "preference", "agent_md", "playbook", "snippet", "task", "note", "item",
)  # fmt: skip
"""Kinds of passages that may have an origin above a tool's, a document's or a pattern's."""


async def trusted_hits(kernel: Kernel, hits: Sequence[Hit], least: Speaker) -> list[Hit]:
    """Return the hits whose words have at least this origin, in their order."""
    seqs: dict[str, set[int]] = {}
    for hit in hits:
        seqs.setdefault(hit.thread_id, set()).add(hit.seq)
    found = {thread_id: await origins_of(kernel, thread_id, wanted) for thread_id, wanted in seqs.items()}
    return [hit for hit in hits if at_least(_origin_of_hit(hit, found[hit.thread_id]), least)]


def _origin_of_hit(hit: Hit, origins: Mapping[int, Speaker]) -> Speaker:
    """A passage of a tool may be part of an event that is somebody else's."""
    known = origins.get(hit.seq, Speaker.TOOL)
    return lowest((known, Speaker.TOOL)) if hit.kind == "tool" else known


async def origins_of(
    kernel: Kernel, thread_id: str, seqs: Collection[int], depth: int = DEPTH_MAX
) -> Mapping[int, Speaker]:
    """Return the origins of a thread's events, by seq; events that are not there are left out."""
    rows = await kernel.reader.rows_at(thread_id, sorted(set(seqs)))
    events = {seq: kernel.reader.decode(thread_id, row).event for seq, row in rows.items()}
    wanted: dict[str, set[str]] = {}
    for event in events.values():
        source_thread, ids = _sources_of(event)
        if source_thread and ids:
            wanted.setdefault(source_thread, set()).update(ids)
    by_id = {source: await _origins_by_id(kernel, source, ids, depth) for source, ids in wanted.items()}
    read = {seq: await _origin_read(kernel, thread_id, seq) for seq, row in rows.items() if row.type in WRITTEN}
    nearer = {one for event in events.values() for one in getattr(event, "drawn_from", ())} - events.keys()
    here = await origins_of(kernel, thread_id, nearer, depth - 1) if nearer and depth else {}
    found = {seq: _lowest_of(event, by_id, here) for seq, event in events.items()}
    return {seq: lowest((origin, read[seq])) if seq in read else origin for seq, origin in found.items()}


async def _origin_read(kernel: Kernel, thread_id: str, seq: int) -> Speaker:
    """Return the lowest origin among the events since a person last spoke, which a snippet may repeat."""
    origins = [Speaker.AGENT]
    async for stored in kernel.reader.walk(thread_id, after=max(0, seq - 1 - READ_MAX), upto=seq - 1):
        event = kernel.reader.decode(thread_id, stored).event
        if isinstance(event, UserMessage) and not event.origin:
            origins = [Speaker.AGENT]
        elif isinstance(event, Event) and event.event_role in ("tool", "user", "system"):
            origins.append(origin_of_event(event))
    return lowest(origins)


def _lowest_of(
    event: Event | UnknownEvent, by_id: Mapping[str, Mapping[str, Speaker]], here: Mapping[int, Speaker]
) -> Speaker:
    own = origin_of_event(event)
    source_thread, ids = _sources_of(event)
    found: list[Speaker] = [by_id[source_thread].get(one, Speaker.TOOL) for one in ids] if source_thread else []
    found += [here[seq] for seq in getattr(event, "drawn_from", ()) if seq in here]
    if not found:
        return own
    is_own = getattr(event, "own", False) or not at_least(own, Speaker.AGENT)
    return lowest((own, *found)) if is_own else lowest(found)


def _sources_of(event: Event | UnknownEvent) -> tuple[str, tuple[str, ...]]:
    return getattr(event, "source_thread", ""), tuple(getattr(event, "sources", ()))


async def _origins_by_id(kernel: Kernel, thread_id: str, ids: Iterable[str], depth: int) -> Mapping[str, Speaker]:
    if not depth or not await kernel.store.threads(ThreadFilter(id=thread_id)):
        return {}
    rows = await kernel.store.find(thread_id, sorted(ids))
    origins = await origins_of(kernel, thread_id, [row.seq for row in rows], depth - 1)
    return {row.id: origins[row.seq] for row in rows if row.seq in origins}
