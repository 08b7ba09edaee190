"""Threads of industries: what they take, and how little of its coming they keep.

An industry's thread is read on behalf of many tenants and belongs to none. Whatever could lead back to the tenant that
an event came from stays out of it: other types of events, causes and correlations, the moment (the day is kept).
"""

import msgspec

from memory_engine.errors import InvalidEvent
from memory_engine.events import (
    Event,
    ExecutionPause,
    ExecutionResume,
    MemoryForget,
    PatternPublished,
    PatternWithdrawn,
)
from memory_engine.kinds import ThreadKind
from memory_engine.queue import Prepared

INDUSTRY = "industry"
"""The kind of these threads."""
DAY_US = 24 * 60 * 60 * 1_000_000

_TAKEN = frozenset({PatternPublished, PatternWithdrawn, MemoryForget, ExecutionPause, ExecutionResume})


def check_pooled(event: Event, *links: object) -> None:
    """Raise `InvalidEvent` for what no industry's thread takes. `links` (causes, moments) may not be there at all."""
    if type(event) not in _TAKEN:
        raise InvalidEvent(event.event_type, "its thread", "an industry's thread takes patterns and nothing else")
    if any(links):
        raise InvalidEvent(event.event_type, "its envelope", "an industry's thread keeps no cause, no moment")


def pooled(prepared: Prepared) -> Prepared:
    """An event as an industry's thread keeps it: without the causes that the block around its sender set.

    Raises `InvalidEvent` as `check_pooled` does, for causes too that the sender itself gave.
    """
    check_pooled(prepared.event, prepared.links_are_callers, prepared.occurred_at_us is not None)
    return msgspec.structs.replace(prepared, causation_id="", correlation_id="")


INDUSTRIES = ThreadKind(name=INDUSTRY, check=check_pooled, admit=pooled, grain_us=DAY_US, pooled=True)
"""Their threads take patterns and nothing else, and of a moment they keep the day."""
