"""One walk over each log, up to the furthest request, continued as the log grows.

It folds the state without the contents, keeps it at marks, and notes the tokens after every event and what
time and money in the events. All of it is a cache.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from memory_engine.core.chain import apply_rows
from memory_engine.core.records import StoredEvent
from memory_engine.core.state import State
from memory_engine.inspector.annals import Annals
from memory_engine.store.reader import LogReader

MARKS_EVERY = 8_192
"""Seqs between two kept states of a long fold; they share what they have in common."""
STATES_MAX = 64
"""How many states are kept, over all threads: the last used ones."""
EVENTS_MAX = 2_000_000
"""The most events of all walks together; the last walk is always kept."""


class Walk:
    """One log from its beginning up to `seq`. Of a broken log it ends before the event that cannot be applied."""

    def __init__(self, reader: LogReader, thread_id: str) -> None:
        self._thread_id = thread_id
        self._draft = State().draft()
        self.seq = 0
        self.tokens = array("q")
        self.annals = Annals(reader.registry)

    def step(self, page: Sequence[StoredEvent]) -> None:
        """Advance by the next rows. Raises `IntegrityError`; then the walk is unusable."""
        for stored in page:
            apply_rows(self._draft, (stored,), self._thread_id, None)
            self._draft.touched.clear()
            self.tokens.append(self._draft.tally.tokens)
            self.annals.note(stored)
            self.seq = stored.seq

    @property
    def chunks(self) -> int:
        """The chunks of the state after the last event."""
        return self._draft.tally.chunks

    def state(self) -> State:
        """The state after the last event, without the contents that chunks share with their events."""
        state = self._draft.freeze(self.seq)
        self._draft = state.draft()
        return state

    def curve(self, bins: int) -> list[list[int]]:
        """The tokens of the state over the log, in at most `bins` pieces: each its last seq, its highest and its last.

        A rise and fall within a piece is drawn to its height.
        """
        count = len(self.tokens)
        ends = sorted({max(1, count * n // bins) for n in range(1, bins + 1)}) if count else []
        return [[end, max(self.tokens[first:end]), self.tokens[end - 1]] for first, end in pairwise((0, *ends))]


class Walks:
    """The walks over one engine's logs, and the states at the marks that they passed."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._walks: OrderedDict[str, Walk] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int], State] = OrderedDict()
        self._grown = 0
        """The events noted since all were counted: to count for each of many logs takes longer than to walk."""
        self._alone = threading.Lock()  # work is done in several loops (see `offload.apart`)

    async def upto(self, thread_id: str, seq: int, *, head: int, events: int | None = None) -> Walk:
        """The walk of a log with this head, at least up to a seq, or advanced by a number of events.

        Raises `IntegrityError`.
        """
        walk = self._walk(thread_id, head)
        last = seq if events is None else min(seq, walk.seq + events)
        while walk.seq < last:
            before, mark = walk.seq, min(last, (walk.seq // MARKS_EVERY + 1) * MARKS_EVERY)
            async for page in self._reader.pages(thread_id, after=walk.seq, upto=mark):
                with self._alone:
                    if page[0].seq != walk.seq + 1:  # another request continued it meanwhile
                        break
                    try:
                        walk.step(page)
                        self._grown += len(page)
                    except BaseException:  # half a step is of no use; the error goes on to the caller
                        self._walks.pop(thread_id, None)
                        raise
                    if walk.seq % MARKS_EVERY == 0:
                        self._keep(thread_id, walk.state())
            if walk.seq == before:  # it was deleted meanwhile
                break
        return walk

    async def state(self, thread_id: str, seq: int) -> State:
        """The state at a seq without the contents: from the walk, or from the nearest state that is kept."""
        head = (await self._reader.head(thread_id)).seq
        walk = await self.upto(thread_id, seq, head=head)
        with self._alone:
            if walk.seq == seq and seq:
                self._keep(thread_id, walk.state())
        kept = self._nearest(thread_id, seq)
        if kept.seq < seq:
            draft = kept.draft()
            walk_on = self._reader.walk(thread_id, after=kept.seq, upto=seq)
            await walk_on.feed(lambda stored: apply_rows(draft, (stored,), thread_id, None))
            kept = draft.freeze(seq)
            self._keep(thread_id, kept)
        return kept

    def is_at_hand(self, thread_id: str, seq: int, near: int) -> bool:
        """Whether the state at a seq, or a bounded number of events before it, is kept."""
        return seq - self._nearest(thread_id, seq).seq <= near

    def reached(self, thread_id: str) -> int:
        """The seq that the walk of a log has reached."""
        return self._walks[thread_id].seq if thread_id in self._walks else 0

    def at_hand(self, thread_id: str, seq: int) -> Walk | None:
        """The walk of a log, if it has come exactly so far."""
        walk = self._walks.get(thread_id)
        return walk if walk is not None and walk.seq == seq else None

    def _walk(self, thread_id: str, head: int) -> Walk:
        walk = self._walks.get(thread_id)
        if walk is None or walk.seq > head:  # another thread of the same id
            walk = self._walks[thread_id] = Walk(self._reader, thread_id)
        self._walks.move_to_end(thread_id)
        if self._grown <= EVENTS_MAX // 100:
            return walk
        self._grown = 0
        held = sum(one.seq for one in self._walks.values())
        while held > EVENTS_MAX and len(self._walks) > 1:
            held -= self._walks.popitem(last=False)[1].seq
        return walk

    def _keep(self, thread_id: str, state: State) -> None:
        self._kept[thread_id, state.seq] = state
        self._kept.move_to_end((thread_id, state.seq))
        if len(self._kept) > STATES_MAX:
            self._kept.popitem(last=False)

    def _nearest(self, thread_id: str, seq: int) -> State:
        """The latest kept state up to this seq, else the empty one."""
        at = max((at for of, at in self._kept if of == thread_id and at <= seq), default=0)
        if not at:
            return State()
        self._kept.move_to_end((thread_id, at))
        return self._kept[thread_id, at]
