"""The view of session items: which events hold them."""

import msgspec

from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows, seq_key
from memory_engine.views.session_items.events import SessionItemAdded, SessionItemRemoved

_RECORDED = "+"
"""The end of the key of an item whose message is the event right before."""


class SessionItemRow(msgspec.Struct, frozen=True, gc=False):
    """An item, held by the event at `seq`; `is_recorded`: the event right before is its message."""

    seq: int
    is_recorded: bool


class SessionItemsFold:
    """The items by the seq of their events. Rows are put and dropped unread, however many there are."""

    name = "session_items"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = True
    row = SessionItemRow
    events: tuple[type[Event], ...] = (SessionItemAdded, SessionItemRemoved, MemoryForget)

    def apply(self, rows: Rows[SessionItemRow], event: RecordedEvent) -> None:
        """Change the rows by one event. An item goes with its message."""
        match event.event:
            case SessionItemAdded(back=back):
                rows.put(_item_row_key(event.seq, is_recorded=back < 0), SessionItemRow(event.seq, back < 0))
            case SessionItemRemoved(seq=seq):
                _drop(rows, seq)
            case MemoryForget() as forget:
                for origin in forget.origins():
                    _drop(rows, origin)
                    rows.drop(_item_row_key(origin + 1, is_recorded=True))


SESSION_ITEMS = SessionItemsFold()


def _item_row_key(seq: int, *, is_recorded: bool) -> str:
    return seq_key(seq) + (_RECORDED if is_recorded else "")


def _drop(rows: Rows[SessionItemRow], seq: int) -> None:
    for is_recorded in (False, True):
        rows.drop(_item_row_key(seq, is_recorded=is_recorded))
