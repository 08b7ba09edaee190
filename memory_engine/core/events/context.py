"""Events that contexts leave: the budget that a loop asks for, and what was recalled for a request.

Reading a context writes nothing. These wait in memory, and go into the log just before the thread's next event, in the
same commit.
"""

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import SeqBound


@event("context_asked", tracked=True, role="memory", chunks="none", upkeep=True)
class ContextAsked(Event):
    """The thread's loop asks for contexts of `max_tokens` tokens.

    `window` is what the loop is taken to ask for from here on: its largest budget, or its latest one once `less`, the
    number of contexts in a row that asked for less than `window`, has reached twenty. `counted` is our own count of the
    tokens of that context with its tools, without any correction, and `upto` the seq of the context. `reports` counts
    the events of this type, up to this one, that were recorded together with a response that reports its usage.
    """

    max_tokens: int
    window: int
    less: int = 0
    counted: int = 0
    upto: SeqBound = 0
    reports: int = 0
