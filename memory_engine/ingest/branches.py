"""Where the branches of a recorded conversation are: a later file may lead to another of them than an earlier one did.

The thread of a conversation has the branch that was current when it was first ingested. One that is current in a later
file is a fork of it, as a branch that was left is, and gets the same name; nothing is appended after another branch.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from attrs import define, field

from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import ThreadNotFound
from memory_engine.ingest.events import event_id

IDS_AT_ONCE = 500


@define
class Branches:
    """The threads that hold the branches of a file's conversations, by the ids that their labels give, latest first."""

    engine: Engine
    _holding: dict[str, list[str]] = field(factory=dict)

    def add(self, named: str, thread_id: str) -> None:
        """Note that the records of a conversation are in this thread from here on."""
        self._holding.setdefault(named, [named]).insert(0, thread_id)

    async def holder(self, named: str, key: str) -> tuple[str, int] | None:
        """Return the thread of a conversation that holds the record of a key, and the seq; `None` if none does."""
        for thread_id in dict.fromkeys(self._holding.get(named, [named])):
            for seq in (await _seqs(self.engine, thread_id, [event_id(thread_id, key)])).values():
                return thread_id, seq
        return None


@define
class BranchLine:
    """The line of records of a conversation, as far as a thread holds it. `tree` are the keys of all its branches."""

    engine: Engine
    thread_id: str
    tree: Collection[str]
    seq: int = 0
    """The seq of the last record of the line that the thread holds."""
    held: dict[str, int] | None = None

    async def leaves_at(self, key: str) -> bool:
        """Return True if the next record, of this key, leaves the thread, which goes on with another branch."""
        if self.held is None:
            self.held = await self._held_seqs()
        at = self.held.get(event_id(self.thread_id, key))
        if at is not None:
            self.seq = max(self.seq, at)
            return False
        return any(seq > self.seq for seq in self.held.values())

    async def _held_seqs(self) -> dict[str, int]:
        ids = (event_id(self.thread_id, key) for key in self.tree)
        found: dict[str, int] = {}
        for some in _in_parts(ids):
            found.update(await _seqs(self.engine, self.thread_id, some))
        return found

    async def leave_for(self, thread_id: str, key: str) -> None:
        """Go on in another thread, which may hold the record of a key, and what follows it, already."""
        self.thread_id, self.seq, self.held = thread_id, 0, None
        await self.leaves_at(key)


async def _seqs(engine: Engine, thread_id: str, ids: Sequence[str]) -> dict[str, int]:
    """Return the seqs of those of these events that a thread holds; none of a thread that is not there yet."""
    try:
        return {row.id: row.seq for row in await kernel_of(engine).store.find(thread_id, ids)}
    except ThreadNotFound:
        return {}


def _in_parts(ids: Iterator[str]) -> Iterator[Sequence[str]]:
    while some := list(islice(ids, IDS_AT_ONCE)):
        yield some
