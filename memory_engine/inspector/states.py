"""States at any seq of any log, folded in slices, between which the loop serves others.

A compacted log has a snapshot near every point. One that never was has none, and a state as long as
itself: it is folded without the contents, which are read for the chunks shown, and the state is kept, so that
the next point is near. All of it is a cache. Totals over a store read all of it, so they are kept for a while.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence, Sized
from functools import cached_property
from typing import Generic, TypeVar

from attrs import frozen

from memory_engine.core.chunks import Category, Chunk, ChunkType
from memory_engine.core.state import Placed, State
from memory_engine.engine import Engine, kernel_of
from memory_engine.inspector.offload import beside
from memory_engine.inspector.walks import STATES_MAX, Walks
from memory_engine.runtime.handle import PastHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.reader import FAR, LogReader, MomentLike

T = TypeVar("T", bound=Sized)
V = TypeVar("V")

CHUNKS_KEPT_MAX = 300_000
"""The most chunks of cached states; the latest state is always kept."""
AT_HAND = 4_000
"""The number of events that are folded while a request waits."""
SLICE = 512
"""How many chunks are read and placed at a time."""


@frozen(kw_only=True)
class TypeTotal:
    """The chunks of one type in a state, and their tokens."""

    type: str
    chunks: int
    tokens: int


@frozen(kw_only=True)
class Laid:
    """A state's chunks in order, with totals by type, most tokens first. The chunks may lack their contents."""

    state: State
    placed: Sequence[Placed]
    by_type: Sequence[TypeTotal]

    def __len__(self) -> int:
        return len(self.placed)

    @cached_property
    def turns(self) -> Sequence[Sequence[str]]:
        """The ids of its chunks as turns of a conversation."""
        return turns_of(placed.chunk for placed in self.placed)


_SAID = frozenset({Category.WORKING_FLOW, Category.SYSTEM, Category.TASK})
"""The parts of a context that are conversation, not notes, memory and environment."""
_ANSWERS = frozenset({ChunkType.ACTION_RESULT, ChunkType.ERROR})  # with a call's id, unlike an observation


def turns_of(chunks: Iterable[Chunk]) -> Sequence[Sequence[str]]:
    """The ids of a conversation's chunks, turn by turn: a message, a thought, a summary, or calls with their results.

    The chunks may lack their contents: results follow their calls in the state's order.
    """
    turns: list[list[str]] = []
    before = ""
    for chunk in chunks:
        if chunk.category not in _SAID and chunk.type != ChunkType.COMPACTED:
            continue
        is_answer = chunk.type in _ANSWERS and (before == ChunkType.AGENT_ACTION or before in _ANSWERS)
        is_next_call = chunk.type == before == ChunkType.AGENT_ACTION
        if is_answer or is_next_call:
            turns[-1].append(chunk.id)
        else:
            turns.append([chunk.id])
        before = chunk.type
    return turns


class States:
    """The states of one engine's threads."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self.walks = Walks(reader)
        self._laid: OrderedDict[tuple[str, int, int], Laid] = OrderedDict()
        self._whole: OrderedDict[tuple[str, int, int], State] = OrderedDict()

    async def laid(self, thread_id: str, seq: int) -> Laid:
        """The state after the event at `seq`, in its order. The chunks may lack what they share with their events."""
        forgotten = await self._forgotten(thread_id, seq)
        key = thread_id, seq, forgotten
        if key not in self._laid:
            is_whole = forgotten or await self._is_near(thread_id, seq)  # only whole chunks show what to hide
            state = await (self.whole(thread_id, seq) if is_whole else self.walks.state(thread_id, seq))
            self._laid[key] = await beside(lambda: _lay_out(state))
            _bound(self._laid)
        self._laid.move_to_end(key)
        return self._laid[key]

    async def is_at_hand(self, thread_id: str, seq: int) -> bool:
        """Whether the state after the event at `seq` needs no long reading of the log."""
        return self.walks.is_at_hand(thread_id, seq, AT_HAND) or await self._is_near(thread_id, seq)

    async def chunks(self, thread_id: str, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Chunks with their contents, by id, read in slices; without those that were forgotten."""
        found: dict[str, Chunk] = {}
        for at in range(0, len(chunk_ids), SLICE):
            found |= await self._reader.shown(thread_id, chunk_ids[at : at + SLICE])
        return found

    async def whole(self, thread_id: str, seq: int) -> State:
        """The state after the event at `seq`, with all contents."""
        key = thread_id, seq, await self._forgotten(thread_id, seq)
        if key not in self._whole:
            if await self._is_near(thread_id, seq):
                state = await self._reader.state_at(thread_id, seq)
            else:
                state = await self._filled(thread_id, await self.walks.state(thread_id, seq))
            self._whole[key] = (await self._reader.forgotten(thread_id)).forgettings.hidden_in(state)
            _bound(self._whole)
        self._whole.move_to_end(key)
        return self._whole[key]

    async def _forgotten(self, thread_id: str, seq: int) -> int:
        """The seq of the last forgetting, if it was after a seq: it changes the past."""
        mark = (await self._reader.forgotten(thread_id)).mark
        return mark if mark > seq else 0

    async def _filled(self, thread_id: str, thin: State) -> State:
        draft = State().draft()
        placed = tuple(thin.placed())
        for at in range(0, len(placed), SLICE):
            some = placed[at : at + SLICE]
            chunks = await self._reader.chunks(thread_id, [place.chunk.id for place in some])
            for place in some:
                draft.insert(Placed(chunks[place.chunk.id], place.key, place.container))
        return draft.freeze(thin.seq)

    async def _is_near(self, thread_id: str, seq: int) -> bool:
        """Whether the reader has a snapshot from which it is not far to `seq`."""
        if seq <= FAR:
            return True
        found = await self._reader.snapshots.nearest_state(thread_id, seq)
        return found is not None and seq - found[0] <= FAR


class Seen(PastHandle):
    """A thread at a seq that uses the inspector's cached states."""

    def __init__(self, engine: Engine, states: States, thread_id: str, seq: int) -> None:
        super().__init__(kernel_of(engine), thread_id, seq)
        self._states = states

    async def state(self, *, at: MomentLike | None = None) -> State:
        """The state at that time."""
        return await self._states.whole(self.id, await self.upto(at) or 0)

    async def held(self) -> "Held":
        """The same, with its state loaded, to be read in any loop."""
        return Held(self.kernel, self.id, await self.state())

    async def laid(self) -> Laid:
        """The state at that time, with totals; the chunks may lack their contents."""
        return await self._states.laid(self.id, self.seq)

    async def chunks(self, chunk_ids: Sequence[str]) -> dict[str, Chunk]:
        """Chunks with their contents, by id."""
        return await self._states.chunks(self.id, chunk_ids)


class Held(PastHandle):
    """A thread at the seq of a loaded state."""

    def __init__(self, kernel: Kernel, thread_id: str, state: State) -> None:
        super().__init__(kernel, thread_id, state.seq)
        self._held = state

    async def state(self, *, at: MomentLike | None = None) -> State:
        """The loaded state, or that of an earlier moment."""
        return self._held if at is None else await super().state(at=at)


def _lay_out(state: State) -> Laid:
    placed = tuple(state.placed())
    totals: dict[str, list[int]] = {}
    for place in placed:
        total = totals.setdefault(place.chunk.type, [0, 0])
        total[0] += 1
        total[1] += place.chunk.tokens
    by_type = [TypeTotal(type=name, chunks=count, tokens=tokens) for name, (count, tokens) in totals.items()]
    return Laid(state=state, placed=placed, by_type=sorted(by_type, key=lambda total: (-total.tokens, total.type)))


def _bound(kept: "OrderedDict[tuple[str, int, int], T]") -> None:
    """Drop the least recently used states, if there are too many or they hold too many chunks together."""
    held = sum(map(len, kept.values()))
    while len(kept) > STATES_MAX or (held > CHUNKS_KEPT_MAX and len(kept) > 1):
        held -= len(kept.popitem(last=False)[1])


SHARE = 20
"""Totals are computed again after this many times their duration."""


class Kept(Generic[V]):
    """A value that takes long to compute: of a large store, a recent one."""

    def __init__(self) -> None:
        self._taken: V | None = None
        self._again_at = 0.0

    async def now(self, take: Callable[[], Awaitable[V]]) -> V:
        """The value, or a recent one."""
        began = time.monotonic()
        if self._taken is None or began >= self._again_at:
            self._taken = await take()
            now = time.monotonic()
            self._again_at = now + SHARE * (now - began)
        return self._taken
