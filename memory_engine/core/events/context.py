"""Events that contexts leave: the budget that a loop asks for, and what was recalled for a request.

Reading a context writes nothing. These wait in memory, and go into the log just before the thread's next event, in the
same commit.
"""

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import ChunkId, Id, Seq, SeqBound, SourceChunkId, SourceEventId


@event("context_asked", tracked=True, role="memory", chunks="none", upkeep=True)
class ContextAsked(Event):
    """The thread's loop asks for contexts of `max_tokens` tokens.

    `window` is what the loop is taken to ask for from here on: its largest budget, or its latest one once `less`, the
    number of contexts in a row that asked for less than `window`, has reached twenty. `counted` is our own count of the
    tokens of that context with its tools, without any correction, and `upto` the seq of the context. `reports` counts
    the events of this type, up to this one, that were recorded together with a response that reports its usage.

    `lacks` counts the statements that stood in the brief and that the context had no room for; `unsaid` are the seqs of
    their messages in this thread, the highest ranks first, at most 32. Both hold until the next event of this type.
    """

    max_tokens: int
    window: int
    less: int = 0
    counted: int = 0
    upto: SeqBound = 0
    reports: int = 0
    lacks: int = 0
    unsaid: tuple[Seq, ...] = ()


class RecalledPassage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A passage that was recalled: the `n`-th of the event at `seq` of a thread (empty: of this one)."""

    event_id: SourceEventId
    thread_id: Id = ""
    seq: int = 0
    n: int = 0


@event("context_recalled", tracked=True, role="memory", chunks="recalled", upkeep=True)
class ContextRecalled(Event):
    """Passages that a query recalled for a request: shown to the request's end, at one place and with the same words.

    `content` is the text that the model was shown; it is not a message, so nothing is extracted or promoted from it,
    and no search finds it. It precedes the message that made the `request`; for a further query of the same
    request `at_end` of the state. `threads` are the other threads that were searched. `leaving` are the chunks recalled
    for earlier requests that go with it, since a context has no room for them.
    """

    content: str
    query: str = ""
    request: SourceChunkId = ""
    at_end: bool = False
    passages: tuple[RecalledPassage, ...] = ()
    threads: tuple[Id, ...] = ()
    leaving: tuple[ChunkId, ...] = ()
