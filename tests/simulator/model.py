"""What a simulation knows of the logs without asking the engine, and the comparison of both."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from attrs import define, field

from memory_engine import Engine, LlmTextResponse, NewEvent, RecordedEvent, Thread, UserMessage
from memory_engine.core.chunks import ChunkType
from memory_engine.errors import ThreadNotFound
from memory_engine.events import (
    CompactionCompleted,
    CompactionUndone,
    MemoryForget,
    MemoryMarkCritical,
    ThreadCleared,
)
from memory_engine.thread import handle_of

MESSAGES = ("user_message", "llm_text_response")
CHUNKS = (ChunkType.USER_MESSAGE, ChunkType.AGENT_RESPONSE)
REDACTED = "[redacted]"


class Broken(Exception):
    """A promise was broken."""


def mark_of(event_id: str) -> str:
    """The word that only this event says."""
    return "zq" + event_id.replace(".", "y").replace("e", "") + "qz"


def event_of(event_id: str) -> NewEvent:
    """The event of an id: a retry says the same."""
    kind = LlmTextResponse if len(event_id) % 2 else UserMessage
    text = f"{mark_of(event_id)} rides a blue bike to the river on day {len(event_id)}. " * 3
    return NewEvent(kind(content=text), id=event_id)


@define
class ModelThread:
    """One thread: what must be in its log, and at which seq."""

    acked: dict[str, int] = field(factory=dict)
    tried: set[str] = field(factory=set)
    floor: int = 0
    """The highest seq that was acknowledged."""
    is_made: bool = False
    deletions: int = 0
    """How many have begun."""
    unsure: set[int] = field(factory=set)
    """Those that may still happen."""
    over: set[int] = field(factory=set)
    """Those whose call has ended, whatever became of it: a thread that is made from then on is not meant."""


@define
class Model:
    """All threads, what was to be destroyed, and what was said to be."""

    threads: dict[str, ModelThread] = field(factory=dict)
    recorded: set[str] = field(factory=set)
    """Ids of events that were acknowledged, whatever became of them."""
    erasing: set[str] = field(factory=set)
    erased: set[str] = field(factory=set)
    destroying: set[str] = field(factory=set)

    def of(self, name: str) -> ModelThread:
        """One thread."""
        return self.threads.setdefault(name, ModelThread())

    def begin(self, name: str, ids: Iterable[str]) -> tuple[int, int, set[str]]:
        """Somebody begins to dispatch these; pass what this gives to `acknowledge`."""
        thread = self.of(name)
        fresh = set(ids) - thread.tried  # of the others an earlier try may have been recorded already
        thread.tried.update(ids)
        return thread.deletions, thread.floor, fresh

    def acknowledge(self, name: str, begun: tuple[int, int, set[str]], places: Sequence[tuple[str, int]]) -> None:
        """They are durable, at these seqs. Raises `Broken` where that contradicts what was acknowledged before."""
        thread = self.of(name)
        self.recorded.update(event_id for event_id, _ in places)
        deletions, floor, fresh = begun
        if thread.deletions != deletions or thread.unsure:
            return
        thread.is_made = True
        for event_id, seq in places:
            before = thread.acked.get(event_id)
            if before is None and seq <= floor and event_id in fresh:
                raise Broken(f"{event_id} of {name} is at {seq}, and {floor} was acknowledged before it began")
            if before not in (None, seq):
                raise Broken(f"{event_id} of {name} is at {seq}, and was acknowledged at {before}")
            thread.acked[event_id] = seq
            thread.floor = max(thread.floor, seq)
        seqs = [seq for _, seq in places]
        if len(set(seqs)) != len(seqs):
            raise Broken(f"one seq for several events of {name}: {places}")

    def begin_deletion(self, name: str, number: int) -> None:
        """From now on nothing of the thread is certain."""
        thread = self.of(name)
        thread.deletions += 1
        thread.unsure.add(number)
        self.destroying |= thread.tried
        thread.acked.clear()
        thread.floor = 0
        thread.is_made = False

    def end_deletion(self, name: str, number: int) -> None:
        """It is done."""
        self.of(name).unsure.discard(number)

    def make(self, name: str, before: set[int]) -> None:
        """A thread was made: deletions that had begun before it meant another."""
        thread = self.of(name)
        thread.unsure -= before
        if not thread.unsure:
            thread.is_made = True


def check_log(model: Model, name: str, events: Sequence[RecordedEvent]) -> None:
    """Every acknowledged event is there once, in its place; nothing is there that nobody dispatched."""
    seqs = [event.seq for event in events]
    if seqs != list(range(1, len(events) + 1)):
        raise Broken(f"the seqs of {name} are {seqs}")
    places = {event.id: event for event in events}
    if len(places) != len(events):
        raise Broken(f"an id is twice in {name}")
    thread = model.threads.get(name)
    if thread is None:
        return
    for event_id, seq in thread.acked.items():
        found = places.get(event_id)
        if found is None or found.seq != seq:
            raise Broken(f"{event_id} of {name} was acknowledged at {seq}, and is at {found and found.seq}")
    for event in events:
        if event.type in MESSAGES:
            _check_message(model, thread, name, event)


def _check_message(model: Model, thread: ModelThread, name: str, event: RecordedEvent) -> None:
    if event.id not in thread.tried:
        raise Broken(f"{event.id} is in {name}, and nobody dispatched it there")
    content = str(getattr(event.event, "content", ""))
    is_whole = content == getattr(event_of(event.id).event, "content", None)
    if event.id in model.erased and is_whole and not thread.deletions:
        raise Broken(f"{event.id} of {name} was erased, and its text is in the log")
    if not is_whole and not (event.id in model.erasing and content == REDACTED):
        raise Broken(f"{event.id} of {name} says {content!r:.60}")


def _origins(events: Sequence[RecordedEvent]) -> dict[str, int]:
    """For each chunk the seq of the event that first said it."""
    origins: dict[str, int] = {}
    for recorded in events:
        for chunk in recorded.chunks:
            parents = [origins[parent] for parent in chunk.parent_ids if parent in origins]
            origins[chunk.id] = min(parents, default=recorded.seq)
    return origins


def visible(events: Sequence[RecordedEvent], origins: Mapping[str, int]) -> list[int]:
    """The seqs of messages that the state must hold, in order: the log folded by what its events mean."""
    shown: dict[str, int] = {}
    for recorded in events:
        event = recorded.event
        match event:
            case UserMessage() | LlmTextResponse():
                shown |= {chunk.id: recorded.seq for chunk in recorded.chunks}
            case CompactionCompleted():
                _drop(shown, [chunk_id for replacement in event.replacements for chunk_id in replacement.covers])
            case CompactionUndone() | MemoryMarkCritical():
                _drop(shown, [parent for chunk in recorded.chunks for parent in chunk.parent_ids])
                shown |= {chunk.id: origins[chunk.id] for chunk in recorded.chunks if chunk.type in CHUNKS}
            case MemoryForget():
                _drop(shown, [chunk_id for chunk_id, seq in shown.items() if seq in event.seqs])
                _drop(shown, event.chunk_ids)
            case ThreadCleared():
                shown.clear()
            case _:
                pass
    return sorted(shown.values())


def _drop(shown: dict[str, int], chunk_ids: Iterable[str]) -> None:
    for chunk_id in chunk_ids:
        shown.pop(chunk_id, None)


async def check_state(thread: Thread, events: Sequence[RecordedEvent]) -> None:
    """The state holds the messages that the log says, in order.

    An act that is finished while this looks forgets events, and no state of an earlier seq shows them from then on: log
    and state are read until nothing came between.
    """
    state = await thread.state(at=len(events))
    while len(events) != (await handle_of(thread).kernel.store.head(thread.id)).seq:
        events = [event async for event in thread.events()]
        state = await thread.state(at=len(events))
    origins = _origins(events)
    held = [origins.get(one.chunk.id, -1) for one in state.placed() if one.chunk.type in CHUNKS]
    expected = visible(events, origins)
    if held != expected:
        raise Broken(f"the state of {thread.id} holds the messages {held}, and the log says {expected}")


async def logs_of(engine: Engine) -> Mapping[str, list[RecordedEvent]]:
    """Every thread's log, but of those that another process deletes meanwhile."""
    logs: dict[str, list[RecordedEvent]] = {}
    for info in await engine.threads():
        with suppress(ThreadNotFound):
            logs[info.id] = [event async for event in engine.thread(info.id).events()]
    return logs
