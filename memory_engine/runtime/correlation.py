"""What belongs together, and what caused what: ids that all events dispatched within a block bear.

    with correlated("order-17"):
        await thread.dispatch(UserMessage(content="Where is it?"))  # correlation_id="order-17"
        with caused_by(receipt):
            await user.dispatch(...)  # also causation_id=receipt.event_id

It holds for tasks that are started within, and for whatever the calls within dispatch (tools, views, runs, facts for
other threads). An id that the sender gives by hand stays as it is. Industries' threads keep neither.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from msgspec.structs import replace

from memory_engine.core.ids import check_identifier
from memory_engine.core.records import Receipt, RecordedEvent


class Links(msgspec.Struct, frozen=True):
    """The ids that an event takes over where its sender gives none; `""` for none."""

    causation_id: str = ""
    correlation_id: str = ""


UNLINKED = Links()
_LINKS: ContextVar[Links] = ContextVar("memory_engine.links", default=UNLINKED)
current_links = _LINKS.get
"""The links that hold here."""


@contextmanager
def correlated(correlation_id: str) -> Iterator[None]:
    """Events dispatched within belong to what the id stands for: an order, a request, a run across threads.

    The innermost block counts. Raises `InvalidIdentifier`.
    """
    check_identifier("correlation id", correlation_id)
    with linked(replace(current_links(), correlation_id=correlation_id)):
        yield


@contextmanager
def caused_by(cause: Receipt | RecordedEvent | str) -> Iterator[None]:
    """Events dispatched within were caused by this one: given as its receipt, as it was read back, or by its id.

    One that was read back brings its correlation id too, where no block around sets one. Raises `InvalidIdentifier`,
    and `TypeError` for what is no event.
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
    """Events dispatched within take over exactly these, whatever holds around: for events of the engine's own."""
    token = _LINKS.set(links)
    try:
        yield
    finally:
        _LINKS.reset(token)
