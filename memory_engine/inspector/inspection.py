"""What every route is given: the engine that is looked at, and what was worked out about its logs."""

from collections.abc import Awaitable, Callable

from attrs import Factory, field, frozen

from memory_engine.engine import Engine
from memory_engine.errors import SeqNotInLog
from memory_engine.inspector.outlines import Outlines
from memory_engine.inspector.query import Query
from memory_engine.inspector.states import Seen, States
from memory_engine.inspector.totals import Totals


@frozen(eq=False)
class Inspection:
    """One engine and what is kept of its logs, which only saves time. `path` is what the page calls the store."""

    engine: Engine
    path: str = ""
    states: States = field(init=False, default=Factory(lambda self: States(self.engine.reader), takes_self=True))
    outlines: Outlines = field(init=False, default=Factory(lambda self: Outlines(self.engine.reader), takes_self=True))
    totals: Totals = field(init=False, default=Factory(lambda self: Totals(self.engine.store), takes_self=True))

    def seen(self, thread_id: str, seq: int) -> Seen:
        """A thread at a seq that it has."""
        return Seen(self.engine, self.states, thread_id, seq)

    async def past(self, query: Query, parameter: str = "seq", *, thread: str = "", least: int = 0) -> Seen:
        """The thread that a query names (default: by `thread`), at the seq that it names, from `least` on.

        Raises `WrongQuery`, `ThreadNotFound`, `SeqNotInLog`.
        """
        thread_id, seq = thread or query.text("thread"), query.number(parameter)
        head = await self.engine.store.head(thread_id)
        if not least <= seq <= head.seq:
            raise SeqNotInLog(thread_id, seq, head.seq)
        return self.seen(thread_id, seq)


Look = Callable[[Inspection, Query], Awaitable[object]]
"""What a route does: from a query to plain data. It writes nothing."""


@frozen
class Route:
    """A route under /api, the parameters that it takes, and what it does."""

    name: str
    takes: frozenset[str]
    look: Look

    @classmethod
    def of(cls, name: str, takes: str, look: Look) -> "Route":
        """With the parameters' names in one text."""
        return cls(name, frozenset(takes.split()), look)
