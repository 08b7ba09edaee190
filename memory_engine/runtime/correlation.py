"""Correlation and causation: ids that all events dispatched within a block get.

    with correlated("order-17"):
        await thread.dispatch(UserMessage(content="Where is it?"))  # correlation_id="order-17"
        with caused_by(receipt):
            await user.dispatch(...)  # also causation_id=receipt.event_id

It holds for tasks started within the block, and for every event that the calls within dispatch (tools, views, runs,
facts for other threads). An id that you give by hand does not change. Industries' threads keep neither.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from msgspec.structs import replace

from memory_engine.core.ids import check_identifier
from memory_engine.core.records import Receipt, RecordedEvent


class Links(msgspec.Struct, frozen=True):
    """The ids that an event gets if its sender gives none; `""` for none."""

    causation_id: str = ""
    correlation_id: str = ""


UNLINKED = Links()
_LINKS: ContextVar[Links] = ContextVar("memory_engine.links", default=UNLINKED)
current_links = _LINKS.get
"""The current links."""


@contextmanager
def correlated(correlation_id: str) -> Iterator[None]:
    """Give events dispatched within a correlation id: that of an order, a request or a run across threads.

    The innermost block applies. Raises `InvalidIdentifier`.
    """
    check_identifier("correlation id", correlation_id)
    with linked(replace(current_links(), correlation_id=correlation_id)):
        yield


@contextmanager
def caused_by(cause: Receipt | RecordedEvent | str) -> Iterator[None]:
    """Mark events dispatched within as caused by this one: a receipt, a recorded event, or its id.

    A recorded event brings its correlation id too, unless a surrounding block sets one. Raises `InvalidIdentifier`, and
    `TypeError` for a value that is not an event.
    """
    around = current_links()
    if isinstance(cause, RecordedEvent):
        links = Links(cause.id, around.correlation_id or cause.correlation_id)
    elif isinstance(cause, Receipt):
        links = Links(cause.event_id, around.correlation_id)
    elif isinstance(cause, str):
        check_identifier("causation id", cause)
        links = Links(cause, around.correlation_id)
    else:
        raise TypeError(f"a cause is a receipt, a recorded event or an event's id, not {cause!r}")
    with linked(links):
        yield


@contextmanager
def linked(links: Links) -> Iterator[None]:
    """Give events dispatched within exactly these links: for the engine's own events."""
    token = _LINKS.set(links)
    try:
        yield
    finally:
        _LINKS.reset(token)
